//! The dashboard in a real Chromium, on a real server over a real log.
//!
//! Owns: the checks that figures on the page are those of the log, that the page follows new
//! records, that it works with keyboard, screen reader and narrow screen, and that it sends
//! requests to its server only.

mod axe;
mod chrome;
#[cfg(feature = "fleet")]
mod fleet;
mod pictures;
mod running_crawl;
mod server;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fetchwise_simulate::{
    NamedPolicy, PACE_WORLDS, PaceOptions, PaceWorld, SHIPPED, SimulateOptions, World, html,
    pace_html, simulate, simulate_pace,
};
use fetchwise_testsite::poll::until_blocking;
use serde_json::{Value, json};

use self::chrome::Chrome;
use self::server::{Server, lines};

/// A name with invisible characters, marks that reverse text, and markup.
const HOSTILE: &str = "\u{202e}gpj.exe\u{200b}<img src=x onerror=alert(1)>";
/// The same name as the page must show it.
const SHOWN: &str = "\\u{202e}gpj.exe\\u{200b}<img src=x onerror=alert(1)>";

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// An attempt at page `n` of `host`, some milliseconds ago.
fn attempt(host: &str, n: usize, fetcher: &str, ago_ms: i64, error_type: Option<&str>) -> Value {
    let source = ["probe", "inferred", "explore", "learned", "learned"][n % 5];
    json!({
        "url": format!("https://{host}/news/{n}"),
        "fetcher": fetcher,
        "success": error_type.is_none(),
        "is_banned": error_type.is_some_and(|kind| kind.starts_with("blocked")),
        "error_type": error_type,
        "duration_ms": 40 + n % 60,
        "attempted_at": now_ms() - ago_ms,
        "source": source,
    })
}

/// A few hundred attempts on some hosts over the last hours, some of them blocked.
fn crawl() -> Vec<Value> {
    let hosts = ["library.example", "gallery.example", "bank.example", "ferry.example"];
    let of = |n: usize| {
        let host = hosts[n % hosts.len()];
        let fetcher = ["direct_access", "playwright", "playwright_stealth"][n % 3];
        let error = match n % 11 {
            0 => Some("blocked_captcha"),
            5 => Some("timeout"),
            _ => None,
        };
        attempt(host, n, fetcher, 3_000 + (n as i64 * 104_729) % 40_000_000, error)
    };
    (0..400).map(of).collect()
}

fn import(data: &Path, attempts: &[Value]) {
    let file = data.with_extension("jsonl");
    let text: String = attempts.iter().map(|attempt| format!("{attempt}\n")).collect();
    std::fs::write(&file, text).unwrap();
    let output = server::program(data).arg("import").arg(&file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Returns the rows of `stats` by key, with the fields that the dashboard's rows have too.
fn stats(data: &Path, by: Option<&str>) -> BTreeMap<String, Value> {
    let args: Vec<&str> = ["stats"].into_iter().chain(by.map(|_| "--by")).chain(by).collect();
    lines(data, &args)
        .into_iter()
        .map(|row| (row["key"].as_str().unwrap().to_owned(), row))
        .collect()
}

/// Compares the dashboard's API with `stats` over the same log.
fn agrees(server: &Server, data: &Path) {
    let board = server.get("/v1/dashboard?range=week&limit=1000");
    let only_stats = |row: &Value, like: &Value| -> Value {
        like.as_object().unwrap().keys().map(|key| (key.clone(), row[key].clone())).collect()
    };
    let all = stats(data, None);
    assert_eq!(only_stats(&board["all"], &all["all"]), all["all"]);
    for (by, rows) in [("fetcher", &board["fetchers"]), ("domain", &board["domains"]["rows"])] {
        let want = stats(data, Some(by));
        let rows = rows.as_array().unwrap();
        assert_eq!(rows.len(), want.len(), "{by}");
        for row in rows {
            let want = &want[row["key"].as_str().unwrap()];
            assert_eq!(&only_stats(row, want), want, "{by}");
        }
    }
    // The hours of the week, added up by day, are the days of `stats`.
    let series = &board["series"];
    let mut days: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for (place, attempts) in series["attempts"].as_array().unwrap().iter().enumerate() {
        let second =
            series["start"].as_i64().unwrap() + series["step_s"].as_i64().unwrap() * place as i64;
        let day =
            chrono::DateTime::from_timestamp(second, 0).unwrap().format("%Y-%m-%d").to_string();
        let sums = days.entry(day).or_default();
        sums[0] += attempts.as_u64().unwrap();
        sums[1] += series["delivered"][place].as_u64().unwrap();
        sums[2] += series["banned"][place].as_u64().unwrap();
    }
    days.retain(|_, sums| sums[0] > 0);
    let want = stats(data, Some("day")).into_iter().map(|(day, row)| {
        (day, ["attempts", "delivered", "banned"].map(|field| row[field].as_u64().unwrap()))
    });
    assert_eq!(days, want.collect());
    // The work of all fetchers adds up to the total.
    let work: u64 = series["fetchers"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|of| of["attempts"].as_array().unwrap())
        .map(|n| n.as_u64().unwrap())
        .sum();
    assert_eq!(json!(work), board["all"]["attempts"]);
}

#[test]
fn figures_agree_with_stats_over_the_log_also_after_a_kill() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    import(&data, &crawl());
    let server = Server::start(&data, None);
    agrees(&server, &data);
    server.record(
        &(0..50)
            .map(|n| attempt("harbour.example", n, "direct_access", 0, None))
            .collect::<Vec<_>>(),
    );
    server.kill();
    let server = Server::start(&data, None);
    assert_eq!(
        server.get("/v1/dashboard")["all"]["attempts"],
        json!(450),
        "what was acknowledged is there"
    );
    agrees(&server, &data);
    let (status, answer) = server.ask("POST", "/v1/forget", Some(r#"{"domain": "bank.example"}"#));
    assert_eq!(status, 200, "{answer}");
    until_blocking("the figures are complete", || {
        server.get("/v1/dashboard")["complete"] == json!(true)
    });
    agrees(&server, &data);
}

#[test]
fn the_domains_are_sorted_and_searched_by_the_server() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    import(&data, &crawl());
    let server = Server::start(&data, None);
    let keys = |query: &str| -> Vec<String> {
        let board = server.get(&format!("/v1/dashboard?{query}"));
        board["domains"]["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["key"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = ["bank.example", "ferry.example", "gallery.example", "library.example"];
    assert_eq!(keys("sort=key&order=asc"), all);
    assert_eq!(keys("sort=key&order=desc&limit=2"), ["library.example", "gallery.example"]);
    assert_eq!(keys("search=ERR"), ["ferry.example"]);
    assert_eq!(server.get("/v1/dashboard?search=ery")["domains"]["matching"], json!(1));
    let rates: Vec<f64> = server.get("/v1/dashboard?sort=ban_rate&order=asc")["domains"]["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["ban_rate"].as_f64().unwrap())
        .collect();
    assert!(rates.is_sorted() && rates.len() == 4, "{rates:?}");
    for (query, word) in [
        ("range=weak", "week"),
        ("sort=atempts", "attempts"),
        ("order=up", "asc"),
        ("limit=x", "limit"),
    ] {
        let (status, answer) = server.ask("GET", &format!("/v1/dashboard?{query}"), None);
        let problem: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(
            (status, &problem["error_type"]),
            (422, &json!("invalid_value")),
            "{query}: {answer}"
        );
        assert!(problem["detail"].as_str().unwrap().contains(word), "{query}: {answer}");
    }
}

/// The page of a server over some attempts, once it shows them.
fn open(data: &Path, attempts: &[Value], width: u32) -> (Server, Chrome) {
    import(data, attempts);
    let server = Server::start(data, None);
    let mut chrome = Chrome::start(width, 900);
    chrome.open(&format!("{}/", server.url));
    chrome.until("document.querySelector('#status')?.textContent === 'Live'");
    (server, chrome)
}

/// Returns the text of the cells in the table row that begins with `head`.
fn row(chrome: &mut Chrome, table: &str, head: &str) -> Vec<String> {
    let expression = format!(
        "[...document.querySelectorAll('#{table} tbody tr')].map(tr => [...tr.children].map(cell => cell.textContent.trim()))
            .find(cells => cells[0] === {})",
        json!(head)
    );
    let cells = chrome.eval(&expression);
    cells
        .as_array()
        .map(|cells| cells.iter().map(|cell| cell.as_str().unwrap().to_owned()).collect())
        .unwrap_or_default()
}

/// Checks that nothing failed in the page, and that it sent requests to its server only.
fn kept_to_itself(chrome: &mut Chrome, server: &Server) {
    let requests = chrome.seen("Network.requestWillBeSent");
    assert!(requests.len() > 10, "{}", requests.len());
    for request in requests {
        let url = request["request"]["url"].as_str().unwrap();
        assert!(url.starts_with(&format!("{}/", server.url)), "{url}");
    }
    assert!(chrome.seen("Network.webSocketCreated").is_empty());
    assert!(chrome.seen("Page.javascriptDialogOpening").is_empty());
    let thrown = chrome.seen("Runtime.exceptionThrown");
    assert!(thrown.is_empty(), "{thrown:?}");
    assert_eq!(chrome.seen("Log.entryAdded"), Vec::<Value>::new());
    let violations = chrome.seen("Audits.issueAdded");
    assert!(
        violations.iter().all(|issue| issue["issue"]["code"] != "ContentSecurityPolicyIssue"),
        "{violations:?}"
    );
}

#[test]
fn it_shows_the_log_and_follows_new_records() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let (server, mut chrome) = open(&data, &crawl(), 1400);
    chrome.eval("document.querySelector('#range input[value=week]').click()");
    chrome.until("document.querySelector('#tiles').textContent.includes('400 requests')");
    let want = &stats(&data, Some("domain"))["bank.example"];
    let cells = row(&mut chrome, "domains", "bank.example");
    // Fetcher, requests, cost, cost of a page, delivered.
    assert_eq!(json!(cells[1]), want["fetcher"]);
    assert_eq!(cells[2], want["attempts"].to_string());
    assert_eq!(cells[3].replace(',', ""), format!("{:.0}", want["cost"].as_f64().unwrap()));
    assert_eq!(cells[5], format!("{:.1} %", want["success_rate"].as_f64().unwrap() * 100.0));
    assert_eq!(chrome.eval("document.querySelectorAll('#charts canvas').length"), json!(6));
    assert_eq!(chrome.eval("document.querySelector('#log-facts .big').textContent"), json!("Good"));
    // A table has the figures of each chart, and they are not all zero.
    chrome.eval("document.querySelector('#charts details summary').click()");
    chrome.until("[...document.querySelectorAll('#charts details[open] td')].some(td => /[1-9]/.test(td.textContent))");
    // Ink on the canvas besides the axes.
    let coloured = "(() => { const c = document.querySelector('#charts canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        let n = 0; for (let i = 0; i < d.length; i += 4) if (d[i + 3] > 0 && Math.max(d[i], d[i+1], d[i+2]) - Math.min(d[i], d[i+1], d[i+2]) > 60) n += 1; return n; })()";
    assert!(chrome.eval(coloured).as_u64().unwrap() > 100);
    server.record(
        &(0..7)
            .map(|n| attempt("harbour.example", n, "direct_access", 0, None))
            .collect::<Vec<_>>(),
    );
    chrome.until("document.querySelector('#tiles').textContent.includes('407 requests')");
    assert_eq!(row(&mut chrome, "domains", "harbour.example")[2], "7");
    chrome.until("document.querySelector('#busy').textContent.includes('harbour.example')");
    kept_to_itself(&mut chrome, &server);
    // The server ends: the page reports it, and recovers when the server is back.
    server.kill();
    chrome.until("document.querySelector('#status').textContent.startsWith('Connection lost')");
    chrome.until("document.querySelector('#dot').classList.contains('off')");
}

/// Returns the text of an element.
fn text(chrome: &mut Chrome, selector: &str) -> String {
    let text = chrome.eval(&format!("document.querySelector({}).textContent", json!(selector)));
    text.as_str().unwrap().to_owned()
}

#[test]
fn what_needs_attention_comes_first_with_its_reason() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    // Before: a host that delivers. Now: it refuses, another one does not respond, and a third is
    // fine.
    let of = |host: &str, many: usize, ago: i64, error| -> Vec<Value> {
        (0..many).map(|n| attempt(host, n, "direct_access", ago, error)).collect()
    };
    let before =
        [of("ferry.example", 40, 7_200_000, None), of("library.example", 40, 7_200_000, None)]
            .concat();
    let (server, mut chrome) = open(&data, &before, 1400);
    chrome.until(
        "document.querySelector('#attention-title').textContent === 'Nothing needs attention'",
    );
    assert_eq!(server.get("/v1/dashboard")["attention"], json!({"total": 0, "items": []}));
    let now = [
        of("ferry.example", 15, 1_000, Some("wrong_tool")),
        of("library.example", 15, 1_000, None),
        of("barracks.example", 6, 0, Some("blocked_403")),
    ];
    server.record(&now.concat());
    chrome.until("document.querySelectorAll('#alerts li').length === 2");
    assert_eq!(text(&mut chrome, "#attention-title"), "Needs attention (2)");
    let [failing, paused] =
        [1, 2].map(|n| text(&mut chrome, &format!("#alerts li:nth-child({n})")));
    assert!(
        failing.starts_with(
            "Failingferry.example delivers 0 of its last 15 requests (0 %, usually 100 %)"
        ),
        "{failing}"
    );
    assert!(
        paused.starts_with("Pausedbarracks.example is paused for ") && paused.contains(", until "),
        "{paused}"
    );
    assert!(paused.contains(": blocked_403 by direct_access at "), "{paused}");
    // It is above the figures, and on the first screen with what a browser would have cost.
    let places = chrome.eval("['#attention', '#tiles', '#otherwise-card'].map(id => document.querySelector(id).getBoundingClientRect().bottom)");
    let places: Vec<f64> =
        places.as_array().unwrap().iter().map(|place| place.as_f64().unwrap()).collect();
    assert!(places.is_sorted() && places[2] < 900.0, "{places:?}");
    let board = server.get("/v1/dashboard");
    let sum = |field: &str| -> f64 {
        board["series"][field].as_array().unwrap().iter().map(|n| n.as_f64().unwrap()).sum()
    };
    let browser = sum("delivered") * board["browser_request_cost"].as_f64().unwrap();
    let cost = text(&mut chrome, "#otherwise");
    assert!(
        cost.contains(&format!("{:.1} %saved", 100.0 * (1.0 - sum("cost") / browser))),
        "{cost}"
    );
    assert!(cost.contains(&format!("fetchwise{:.0} plain requests", sum("cost"))), "{cost}");
    // A slow host, with the reason in words.
    let slow = json!({"kind": "slow", "host": "slow.example", "pace": {
        "rate": 0.036, "crawl_delay_s": null, "fixed": false, "lowered_reason": "503", "limit": 0.2, "lowered_at": "2026-03-01T12:00:00Z"
    }});
    let said = chrome.eval(&format!(
        "import('/assets/attention.js').then(part => {{ part.show({{total: 1, items: [{slow}]}}, Date.now(), (host) => host); return document.querySelector('#alerts').textContent; }})"
    ));
    let said = said.as_str().unwrap();
    assert!(
        said.starts_with("Slowslow.example gets 2.2/min: lowered at ")
            && said.ends_with(" after 503, limit met at 12/min."),
        "{said}"
    );
    kept_to_itself(&mut chrome, &server);
}

#[test]
fn a_domain_opens_with_its_attempts_and_the_address_keeps_the_state() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let (server, mut chrome) = open(&data, &crawl(), 1400);
    chrome.eval("document.querySelector('#range input[value=week]').click()");
    chrome.until("location.search === '?range=week'");
    chrome.until("document.querySelector('#tiles').textContent.includes('400 requests')");
    chrome.eval("document.querySelector('#domains [data-key=\"open bank.example\"]').click()");
    chrome.until("document.querySelectorAll('#domain-attempts tbody tr').length === 20");
    assert_eq!(chrome.eval("location.search"), json!("?range=week&domain=bank.example"));
    assert_eq!(
        chrome.eval("[document.title, document.activeElement.id, document.querySelector('#now').offsetParent]"),
        json!(["bank.example \u{b7} fetchwise", "domain-title", null])
    );
    let page = server.get("/v1/attempts?domain=bank.example&limit=20");
    let newest = &page["attempts"][0];
    let cells =
        chrome.eval("[...document.querySelector('#domain-attempts tbody tr').children].map(cell => cell.textContent)");
    assert_eq!(
        (&cells[1], &cells[3], &cells[5]),
        (
            &json!(newest["error_type"].as_str().unwrap_or("content")),
            &newest["fetcher"],
            &newest["url"]
        )
    );
    let facts = text(&mut chrome, "#domain-facts");
    let row = &stats(&data, Some("domain"))["bank.example"];
    assert!(facts.contains(&format!("{} requests, ", row["attempts"])), "{facts}");
    assert!(facts.contains(row["fetcher"].as_str().unwrap()), "{facts}");
    // The outcomes over time, with all of its attempts.
    let outcomes = chrome
        .eval("document.querySelector('#domain-charts [role=img]').getAttribute('aria-label')");
    assert!(
        outcomes
            .as_str()
            .unwrap()
            .contains(&format!("Delivered {}, Blocked {}", row["delivered"], row["banned"])),
        "{outcomes}"
    );
    chrome.until("document.querySelectorAll('#domain-charts canvas').length === 4");
    // The explanation of its newest URL, and the links at risk.
    chrome.until("document.querySelectorAll('#domain-explained .gates li').length === 6");
    assert_eq!(json!(text(&mut chrome, "#domain-explained .address")), newest["url"]);
    let at_risk = server.get("/v1/links?domain=bank.example").as_array().unwrap().len();
    assert_eq!(
        chrome.eval("document.querySelectorAll('#domain-links tbody tr').length"),
        json!(at_risk.min(15))
    );
    // The outcome filter, and more attempts.
    chrome.eval("(() => { const s = document.querySelector('#domain-attempts select'); s.value = 'blocked'; s.dispatchEvent(new Event('change')); })()");
    chrome.until("[...document.querySelectorAll('#domain-attempts tbody tr')].every(tr => tr.children[1].textContent === 'blocked_captcha')");
    chrome.eval("(() => { const s = document.querySelector('#domain-attempts select'); s.value = ''; s.dispatchEvent(new Event('change')); })()");
    chrome.until("document.querySelectorAll('#domain-attempts tbody tr').length === 20");
    chrome.eval("document.querySelector('#domain-attempts .more:not([hidden])').click()");
    chrome.until("document.querySelectorAll('#domain-attempts tbody tr').length === 100");
    // Back goes through what was shown.
    chrome.eval("history.back()");
    chrome.until("location.search === '?range=week' && document.querySelector('#domain').offsetParent === null");
    assert_eq!(
        chrome.eval("document.querySelector('#now').contains(document.querySelector('#range'))"),
        json!(true)
    );
    chrome.eval("history.back()");
    chrome.until(
        "location.search === '' && document.querySelector('#range input:checked').value === 'hour'",
    );
    // An explained URL is in the address, and Back empties the form.
    chrome.eval(
        "document.querySelector('#explain-url').value = 'https://library.example/news/1?a=b&c=d'",
    );
    chrome.eval("document.querySelector('#explain-form').requestSubmit()");
    chrome.until("document.querySelector('#verdict')");
    let sent = chrome.eval("location.href");
    chrome.eval("history.back()");
    chrome.until("document.querySelector('#explain-url').value === '' && !document.querySelector('#verdict')");
    // Another person opens the links.
    chrome.open(sent.as_str().unwrap());
    chrome.until("document.querySelector('#verdict')");
    assert_eq!(
        chrome.eval("document.querySelector('#explain-url').value"),
        json!("https://library.example/news/1?a=b&c=d")
    );
    chrome.open(&format!("{}/?domain=ferry.example&range=day", server.url));
    chrome.until("document.querySelectorAll('#domain-attempts tbody tr').length === 20");
    assert_eq!(chrome.eval("document.querySelector('#range input:checked').value"), json!("day"));
    kept_to_itself(&mut chrome, &server);
    // A domain that no attempt has.
    chrome.open(&format!("{}/?domain=%20&range=year", server.url));
    chrome.until("document.querySelector('#domain-error')?.textContent.includes('invalid domain')");
    chrome.key("Escape");
    chrome.until("location.search === '' && document.querySelector('#now').offsetParent !== null");
}

#[test]
fn charts_join_periods_with_few_requests_and_say_when_and_what() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    // Five minutes ago, so that an hour begins there.
    let attempts: Vec<Value> = (0..30)
        .map(|n| attempt("library.example", n, "direct_access", 300_000 - n as i64 * 10_000, None))
        .collect();
    let (server, mut chrome) = open(&data, &attempts, 1400);
    chrome.until("document.querySelector('#tiles').textContent.includes('30 requests')");
    let series = server.get("/v1/dashboard")["series"].clone();
    let steps = series["attempts"].as_array().unwrap().len();
    assert_eq!(
        (series["step_s"].as_u64(), (30..=33).contains(&steps)),
        (Some(10), true),
        "{steps}"
    );
    let widened = "import('/assets/chart.js').then(chart => [
        [3, 1, 1, 9, 2, 0, 1], [2, 0, 0, 0, 0, 2], [0, 7], [1, 1], []
    ].map(counts => chart.widen(counts).map(of => [of.from, of.to, of.thin])))";
    let want = json!([
        [[0, 3, false], [3, 7, false]],
        [[0, 1, true], [5, 6, true]],
        [[1, 2, false]],
        [[0, 2, true]],
        []
    ]);
    assert_eq!(chrome.eval(widened), want);
    let rates = "import('/assets/text.js').then(text => [10000, 25, 2.5, 0.036, 0.005, null].map(text.rate))";
    assert_eq!(
        chrome.eval(rates),
        json!(["no limit", "25/s", "2.5/s", "2.2/min", "18/h", "\u{2013}"])
    );
    // Each axis has a unit, and the legend says of which time its figures are.
    let units = chrome
        .eval("[...document.querySelectorAll('#charts .axes')].map(axes => axes.textContent)");
    let units: Vec<&str> =
        units.as_array().unwrap().iter().map(|unit| unit.as_str().unwrap()).collect();
    assert!(units.len() == 6 && units.iter().all(|unit| unit.contains("local time")), "{units:?}");
    assert!(
        units[0].contains("plain requests per page") && units[4].contains("requests per 10 s"),
        "{units:?}"
    );
    let whole = text(&mut chrome, "#charts .when");
    let at = chrome.eval("(() => { const plot = document.querySelector('#charts .u-over'); plot.scrollIntoView({block: 'center', behavior: 'instant'}); const r = plot.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; })()");
    chrome.point(at[0].as_f64().unwrap(), at[1].as_f64().unwrap());
    chrome.until("[...document.querySelectorAll('#charts .when')].every(when => when.classList.contains('at'))");
    let point = text(&mut chrome, "#charts .when");
    let is_time =
        |text: &str| text.len() == 8 && text.bytes().filter(|byte| *byte == b':').count() == 2;
    for said in [&whole, &point] {
        let (from, to) = said.split_once(" to ").unwrap();
        assert!(is_time(from) && is_time(to) || said.contains(','), "{said}");
    }
    assert_ne!(whole, point);
}

/// The last label of an axis stands at its end. There it was cut: "23:06:0(".
#[test]
fn the_last_label_of_an_axis_is_whole() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let (_server, mut chrome) = open(&data, &crawl(), 1400);
    // Two axes that end with a label: a time with seconds, and a day. The canvas has no ink at its
    // right edge.
    let ink = "import('/assets/chart.js').then(async ({ Chart }) => {
        const midnight = new Date(2026, 2, 25).getTime() / 1000;
        const boxes = [[10, 120], [3600, 5 * 86400]].map(([step, length]) => {
            const chart = new Chart({ title: 'x', about: '', unit: () => '', kind: 'bars', series: [{ name: 'x', colour: '--good' }],
                write: String, range: () => [0, 1], summary: () => '' });
            const box = document.createElement('div');
            box.style.width = '560px';
            box.append(chart.node);
            document.body.append(box);
            const times = Array.from({ length: length / step }, (_, at) => midnight - length + at * step);
            chart.show(times, step, [times.map(() => 1)]);
            return box;
        });
        // A frame later they are drawn.
        await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)));
        return boxes.map((box) => {
            const canvas = box.querySelector('canvas');
            const at = (x, width) => canvas.getContext('2d').getImageData(x, 0, width, canvas.height).data.some((value, place) => place % 4 === 3 && value > 0);
            return [at(canvas.width - 2, 2), at(canvas.width - 50, 48)];
        });
    })";
    // The second figure says that there is a label near the edge.
    assert_eq!(chrome.eval(ink), json!([[false, true], [false, true]]));
}

#[test]
fn an_explanation_leaves_out_fetchers_that_are_not_available() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    import(&data, &crawl());
    let server = Server::start_bare(&data, &[]);
    let url = "https://library.example/news/9";
    let explained = server.get("/v1/explain?url=https%3A%2F%2Flibrary.example%2Fnews%2F9");
    let of = |available: bool| -> Vec<String> {
        let all = explained["candidates"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|one| one["available"] == available);
        all.map(|one| one["fetcher"].as_str().unwrap().to_owned()).collect()
    };
    let (here, absent) = (of(true), of(false));
    assert!(!here.is_empty() && absent.contains(&"archive_proxy".to_owned()), "{explained}");
    let mut chrome = Chrome::start(1400, 900);
    chrome.open(&format!("{}/?explain={url}", server.url));
    chrome.until("document.querySelector('#verdict')");
    let heads = "[...document.querySelectorAll('#explained [aria-label=\"The candidates\"] tbody th')].map(cell => cell.textContent)";
    assert_eq!(chrome.eval(heads), json!(here));
    let shown = chrome.eval("document.querySelector('#explained').textContent");
    for name in absent {
        assert!(!shown.as_str().unwrap().contains(&name), "{name}: {shown}");
    }
    kept_to_itself(&mut chrome, &server);
}

#[test]
fn heuristics_that_only_the_response_shows_are_behind_a_switch() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let mut attempts = crawl();
    for of in &mut attempts {
        let status = if of["success"] == json!(true) { "status_200" } else { "status_403" };
        let host = of["url"].as_str().unwrap().split('/').nth(2).unwrap().to_owned();
        of["heuristics"] =
            json!([{"type": "domain", "value": host}, {"type": status, "value": "true"}]);
    }
    let (server, mut chrome) = open(&data, &attempts, 1400);
    let kinds = "[...new Set([...document.querySelectorAll('#heuristic-table tbody .kind')].map(kind => kind.textContent))].sort()";
    chrome.until("document.querySelector('#heuristic-table tbody .kind')");
    // Whether a host shows something now depends on the age of its attempts, and what proves its
    // site on their order.
    let shown = |chrome: &mut Chrome| -> Vec<String> {
        let all: Vec<String> = serde_json::from_value(chrome.eval(kinds)).unwrap();
        all.into_iter()
            .filter(|kind| !["host_shows", "site_proven", "site_unproven"].contains(&&**kind))
            .collect()
    };
    assert_eq!(shown(&mut chrome), ["domain", "host_showed"]);
    chrome.eval("document.querySelector('#heuristic-table input[type=checkbox]').click()");
    assert_eq!(
        shown(&mut chrome),
        ["domain", "host_showed", "site_saturated", "status_200", "status_403"]
    );
    kept_to_itself(&mut chrome, &server);
}

#[test]
fn keys_search_domains_and_list_themselves() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let (server, mut chrome) = open(&data, &crawl(), 1400);
    chrome.until("document.querySelector('#domains tbody tr')");
    chrome.key("/");
    chrome.until("document.activeElement.id === 'search-domains'");
    chrome.key("?");
    assert_eq!(
        chrome.eval("document.querySelector('#keys-dialog').open"),
        json!(false),
        "in a field it is a character"
    );
    chrome.eval("document.activeElement.blur()");
    chrome.key("?");
    chrome.until("document.querySelector('#keys-dialog').open");
    chrome.key("Escape");
    chrome.until("!document.querySelector('#keys-dialog').open");
    chrome.key("e");
    chrome.until(
        "document.activeElement.id === 'explain-url' && document.activeElement.value === ''",
    );
    kept_to_itself(&mut chrome, &server);
}

#[test]
fn malicious_names_are_shown_as_text() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let mut attempts = crawl();
    for n in 0..30 {
        let mut of =
            attempt("trap.example", n, HOSTILE, 1_000, (n % 2 == 0).then_some("blocked_403"));
        of["heuristics"] =
            json!([{"type": "domain", "value": HOSTILE}, {"type": "title", "value": HOSTILE}]);
        attempts.push(of);
    }
    let (server, mut chrome) = open(&data, &attempts, 1400);
    chrome.until("document.querySelector('#fetcher-table tbody tr')");
    for table in ["domains", "fetcher-table", "busy"] {
        assert!(!row(&mut chrome, table, SHOWN).is_empty(), "{table}");
    }
    let body = chrome.eval("document.body.innerText");
    let body = body.as_str().unwrap();
    assert!(body.contains(&format!("title {SHOWN}")), "{body}");
    assert!(!body.contains('\u{202e}') && !body.contains('\u{200b}'));
    assert_eq!(
        chrome.eval("document.querySelectorAll('img, iframe, object, embed, [onerror]').length"),
        json!(0)
    );
    // As a domain, too.
    let link = "[...document.querySelectorAll('#domains a.host')].find(link => link.textContent === NAME).click()";
    chrome.eval(&link.replace("NAME", &json!(SHOWN).to_string()));
    chrome.until("document.querySelector('#domain-attempts tbody tr')");
    assert_eq!(text(&mut chrome, "#domain-title"), SHOWN);
    let shown = chrome.eval("document.querySelector('#domain').innerText + document.title");
    assert!(!shown.as_str().unwrap().contains('\u{202e}'), "{shown}");
    assert_eq!(
        chrome.eval("document.querySelectorAll('img, iframe, object, embed, [onerror]').length"),
        json!(0)
    );
    chrome.eval("history.back()");
    chrome.until("document.querySelector('#now').offsetParent !== null");
    let url = format!("https://trap.example/{HOSTILE}?q=<script>alert(2)</script>");
    chrome.eval(&format!("document.querySelector('#explain-url').value = {}", json!(url)));
    chrome.eval("document.querySelector('#explain-form').requestSubmit()");
    chrome.until("document.querySelector('#verdict')");
    assert_eq!(
        chrome.eval("document.querySelectorAll('#explained script, #explained img').length"),
        json!(0)
    );
    // An invalid URL is reported, and its text does not become part of the page.
    chrome.eval(&format!(
        "document.querySelector('#explain-url').value = {}",
        json!(format!("{HOSTILE}:"))
    ));
    chrome.eval("document.querySelector('#explain-form').requestSubmit()");
    chrome.until("document.querySelector('#explain-error').textContent !== ''");
    let refused = chrome.seen("Log.entryAdded");
    chrome.events.retain(|event| event["method"] != "Log.entryAdded");
    assert!(refused.iter().all(|entry| entry["entry"]["source"] == "network"), "{refused:?}");
    assert_eq!(
        chrome.eval("document.querySelector('#explain-url').getAttribute('aria-invalid')"),
        json!("true")
    );
    kept_to_itself(&mut chrome, &server);
}

#[test]
fn a_keyboard_is_enough_to_explain_a_url_and_to_unpause_a_host() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let (server, mut chrome) = open(&data, &crawl(), 1400);
    // Three links of one host that were blocked within ten minutes pause it.
    let blocks: Vec<Value> = (0..6)
        .map(|n| attempt("barracks.example", n, "direct_access", 0, Some("blocked_403")))
        .collect();
    server.record(&blocks);
    chrome.until("document.querySelector('#paused').textContent.includes('barracks.example')");
    let left = chrome.eval("document.querySelector('#paused .countdown').textContent");
    chrome.until(&format!("document.querySelector('#paused .countdown').textContent !== {left}"));

    // From the top: the first stop is the link that skips to the figures.
    chrome.key("Tab");
    assert_eq!(chrome.eval("document.activeElement.className"), json!("skip"));
    focus(&mut chrome, "explain-url");
    chrome.type_text("https://library.example/news/9999");
    chrome.key("Enter");
    chrome.until("document.activeElement.id === 'verdict'");
    let verdict = chrome.eval("document.querySelector('#verdict').textContent");
    let want = server.get("/v1/explain?url=https%3A%2F%2Flibrary.example%2Fnews%2F9999");
    let fetcher = want["fetcher"].as_str().unwrap();
    assert!(verdict.as_str().unwrap().starts_with(fetcher), "{verdict} {fetcher}");
    assert_eq!(chrome.eval("document.querySelectorAll('.gates li').length"), json!(6));
    assert!(
        chrome.eval("document.querySelectorAll('.ladder polyline').length").as_u64().unwrap() > 1
    );
    let steps = want["steps"].as_array().unwrap().len();
    let rows = chrome
        .eval("document.querySelector('#explained details').querySelectorAll('tbody tr').length");
    assert_eq!(rows, json!(steps));

    let unpause =
        "document.activeElement.getAttribute('aria-label') === 'Unpause barracks.example'";
    for _ in 0..60 {
        if chrome.eval(unpause) == json!(true) {
            break;
        }
        chrome.key("Tab");
    }
    assert_eq!(chrome.eval(unpause), json!(true));
    // The next response redraws the table, and the focus stays.
    let before = chrome.seen("Network.loadingFinished").len();
    until_blocking("the next response", || {
        chrome.seen("Network.loadingFinished").len() >= before + 3
    });
    assert_eq!(chrome.eval(unpause), json!(true));
    chrome.key("Enter");
    chrome.until("document.querySelector('#unpause-dialog').open");
    assert_eq!(chrome.eval("document.activeElement.id"), json!("unpause-no"));
    chrome.key("Escape");
    chrome.until("!document.querySelector('#unpause-dialog').open");
    assert_eq!(server.get("/v1/hosts?state=paused").as_array().unwrap().len(), 1);
    chrome.key("Enter");
    chrome.until("document.querySelector('#unpause-dialog').open");
    chrome.key("Tab");
    chrome.key("Enter");
    chrome.until("document.querySelector('#said').textContent === 'barracks.example is unpaused.'");
    chrome.until("!document.querySelector('#paused').textContent.includes('barracks.example')");
    assert_eq!(server.get("/v1/hosts?state=paused"), json!([]));
    kept_to_itself(&mut chrome, &server);
}

fn focus(chrome: &mut Chrome, id: &str) {
    for _ in 0..40 {
        chrome.key("Tab");
        if chrome.eval("document.activeElement.id") == json!(id) {
            return;
        }
    }
    panic!("the keyboard does not get to #{id}");
}

/// Every control, picture and landmark of the accessibility tree, with its name.
fn named(chrome: &mut Chrome) -> Vec<(String, String)> {
    let tree = chrome.call("Accessibility.getFullAXTree", json!({}));
    let nodes =
        tree["nodes"].as_array().unwrap().iter().filter(|node| node["ignored"] != json!(true));
    let text =
        |node: &Value, field: &str| node[field]["value"].as_str().unwrap_or_default().to_owned();
    nodes.map(|node| (text(node, "role"), text(node, "name"))).collect()
}

#[test]
fn a_screen_reader_finds_landmarks_headings_and_names() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let (_server, mut chrome) = open(&data, &crawl(), 1400);
    chrome.eval("document.querySelector('#explain-url').value = 'https://library.example/news/1'");
    chrome.eval("document.querySelector('#explain-form').requestSubmit()");
    chrome.until("document.querySelector('#verdict')");
    chrome.until("document.querySelector('#domains tbody tr')");
    let nodes = named(&mut chrome);
    let must_be_named = [
        "button",
        "link",
        "textbox",
        "searchbox",
        "combobox",
        "radio",
        "checkbox",
        "image",
        "dialog",
        "region",
        "navigation",
        "table",
        "columnheader",
        "heading",
        "DisclosureTriangle",
    ];
    for (role, name) in &nodes {
        assert!(
            !must_be_named.contains(&role.as_str()) || !name.is_empty(),
            "a {role} without a name"
        );
    }
    let count = |role: &str| nodes.iter().filter(|(is, _)| is == role).count();
    for (role, least) in [
        ("banner", 1),
        ("main", 1),
        ("navigation", 1),
        ("contentinfo", 1),
        ("image", 7),
        ("table", 4),
        ("radio", 4),
    ] {
        assert!(count(role) >= least, "{} {role}", count(role));
    }
    for part in ["Overview", "Explain a URL", "Hosts", "Domains", "Fetchers", "Heuristics", "Log"] {
        assert!(nodes.contains(&("region".to_owned(), part.to_owned())), "{part}");
    }
    let levels = chrome.eval("[...document.querySelectorAll('main h2, main h3, main h4')].filter(h => h.offsetParent).map(h => +h.tagName[1])");
    let levels: Vec<u64> =
        levels.as_array().unwrap().iter().map(|level| level.as_u64().unwrap()).collect();
    assert!(
        levels.windows(2).all(|pair| pair[1] <= pair[0] + 1),
        "a level of headings is left out: {levels:?}"
    );
    // Scrollable parts are focusable and have a name.
    let scrolls = "[...document.querySelectorAll('.scroll')].every(s => s.tabIndex === 0 && s.getAttribute('role') === 'group' && s.ariaLabel)";
    assert_eq!(chrome.eval(scrolls), json!(true));
    // Each chart has a table.
    assert_eq!(chrome.eval("[...document.querySelectorAll('#charts .chart')].every(c => c.querySelector('[role=img]').getAttribute('aria-label').length > 20 && c.querySelector('table'))"), json!(true));
}

/// Returns the lowest contrast of any text on the page with its background, and where that is.
const CONTRAST: &str = r"(() => {
    const light = ([r, g, b]) => { const f = v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const parse = (text) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1); const d = canvas.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
    let worst = [99, ''];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.textContent.trim() || !node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
        if (node.closest('.sr, .skip, script, noscript')) continue;
        const style = getComputedStyle(node);
        const isDrawn = node.closest('svg') !== null;
        let behind = [255, 255, 255];
        const layers = [];
        for (let at = node; at; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor); layers.push(c); if (c[3] === 1) break; }
        for (const c of layers.reverse()) behind = behind.map((v, i) => v * (1 - c[3]) + c[i] * c[3]);
        const text = parse(isDrawn ? style.fill : style.color);
        const front = behind.map((v, i) => v * (1 - text[3]) + text[i] * text[3]);
        const [a, b] = [light(front), light(behind)].sort((x, y) => y - x);
        const contrast = (a + 0.05) / (b + 0.05);
        if (contrast < worst[0]) worst = [contrast, walker.currentNode.textContent.trim() + ' in ' + node.tagName + '.' + node.getAttribute('class')];
    }
    return worst;
})()";

#[test]
fn it_is_readable_light_and_dark_and_fits_a_narrow_screen() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let mut attempts = crawl();
    let long = format!("{}.example", "a-host-with-a-long-name".repeat(2));
    attempts.extend((0..9).map(|n| attempt(&long, n, "direct_access", 0, Some("blocked_403"))));
    let (_server, mut chrome) = open(&data, &attempts, 1400);
    chrome.eval(&format!(
        "document.querySelector('#explain-url').value = 'https://{long}/{}'",
        "x".repeat(300)
    ));
    chrome.eval("document.querySelector('#explain-form').requestSubmit()");
    chrome.until("document.querySelector('#verdict')");
    let ground = "getComputedStyle(document.body).backgroundColor";
    let mut grounds = Vec::new();
    for scheme in ["light", "dark"] {
        chrome.prefers(scheme, true);
        chrome.until(&format!("matchMedia('(prefers-color-scheme: {scheme})').matches"));
        grounds.push(chrome.eval(ground));
        let worst = chrome.eval(CONTRAST);
        assert!(worst[0].as_f64().unwrap() >= 4.5, "{scheme}: {worst}");
    }
    assert_ne!(grounds[0], grounds[1]);
    assert_eq!(
        chrome.eval("getComputedStyle(document.querySelector('#said')).transitionDuration"),
        json!("0s")
    );
    // A person may choose the other scheme, and gets it again the next time.
    chrome.eval("(() => { const t = document.querySelector('#theme'); t.value = 'light'; t.dispatchEvent(new Event('change')); })()");
    assert_eq!(chrome.eval(ground), grounds[0]);
    chrome.call("Page.reload", json!({}));
    chrome.until("document.querySelector('#status')?.textContent === 'Live'");
    assert_eq!(chrome.eval(ground), grounds[0]);
    for width in [1400, 1024, 720, 360, 320] {
        chrome.size(width, 740);
        chrome.until(&format!("innerWidth === {width}"));
        chrome.until("[...document.querySelectorAll('#charts canvas')].length === 6");
        // The charts are drawn again at their new width a moment later.
        chrome.until(&format!("document.documentElement.scrollWidth <= {width}"));
        let widths = chrome.eval("[...document.querySelectorAll('.card, .tiles, .head')].map(e => Math.ceil(e.getBoundingClientRect().right))");
        assert_ne!(widths, json!([]));
        for right in widths.as_array().unwrap() {
            assert!(right.as_u64().unwrap() <= u64::from(width), "{right} on a screen of {width}");
        }
    }
    // On a narrow screen a domain is two lines.
    chrome.size(400, 740);
    chrome.until("innerWidth === 400");
    let rows = chrome.eval("[...document.querySelectorAll('#domains tbody tr')].map(tr => [Math.round(tr.getBoundingClientRect().height), new Set([...tr.children].filter(cell => cell.offsetParent).map(cell => Math.round(cell.getBoundingClientRect().bottom / 8))).size])");
    let rows = rows.as_array().unwrap();
    assert!(
        !rows.is_empty()
            && rows.iter().all(|row| row[0].as_u64().unwrap() < 64 && row[1] == json!(2)),
        "{rows:?}"
    );
    assert!(chrome.picture().starts_with(b"\x89PNG"));
}

#[test]
fn during_a_split_both_arms_are_shown() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    let arm = |(n, mut attempt): (usize, Value)| {
        let is_learning = n % 2 == 0;
        attempt["arm"] = json!(if is_learning { "learning" } else { "legacy" });
        attempt["source"] = json!(if is_learning { "learned" } else { "hard_coded" });
        // A stage begins when the server starts, and excludes what was before it.
        attempt["attempted_at"] = json!(now_ms());
        attempt
    };
    std::fs::create_dir(&data).unwrap();
    let table = place.path().join("routes.csv");
    std::fs::write(
        &table,
        "domain,fetcher\nlibrary.example,playwright\ngallery.example,playwright\n",
    )
    .unwrap();
    let server =
        Server::start_with(&data, None, &["--mode", "split", "--router", table.to_str().unwrap()]);
    server.record(&crawl().into_iter().enumerate().map(arm).collect::<Vec<_>>());
    let want = server.get("/v1/rollout");
    assert_eq!(want["arms"].as_array().unwrap().len(), 2);
    let mut chrome = Chrome::start(1400, 900);
    chrome.open(&format!("{}/", server.url));
    chrome.until("document.querySelector('#rollout')?.hidden === false");
    let text = chrome.eval("document.querySelector('#rollout').innerText");
    let text = text.as_str().unwrap();
    for arm in want["arms"].as_array().unwrap() {
        let visits = format!("{} visits", arm["visits"]);
        assert!(text.contains(&visits), "{visits} in {text}");
        let success = format!("{:.1} %", arm["success"]["value"].as_f64().unwrap() * 100.0);
        assert!(text.contains(&success), "{success} in {text}");
    }
    assert_eq!(chrome.eval("document.querySelectorAll('#arms .whiskers').length"), json!(6));
    kept_to_itself(&mut chrome, &server);
}

#[test]
fn a_token_is_requested_and_kept_in_the_tab_only() {
    let place = tempfile::tempdir().unwrap();
    let data = place.path().join("data");
    import(&data, &crawl());
    let token = "a-token-of-some-length";
    let server = Server::start(&data, Some(token));
    let mut chrome = Chrome::start(1000, 800);
    chrome.open(&format!("{}/", server.url));
    chrome.until("document.querySelector('#token-dialog')?.open");
    assert_eq!(chrome.eval("document.activeElement.id"), json!("token"));
    chrome.type_text("another-token-altogether");
    chrome.key("Enter");
    chrome.until(
        "document.querySelector('#token-dialog').open && document.querySelector('#token-error').textContent !== ''",
    );
    chrome.type_text(token);
    chrome.key("Enter");
    chrome.until("document.querySelector('#status').textContent === 'Live'");
    chrome.until("document.querySelector('#domains tbody tr')");
    assert_eq!(chrome.eval("Object.values(sessionStorage)"), json!([token]));
    assert_eq!(chrome.eval("localStorage.length"), json!(0));
    assert_eq!(chrome.eval("document.cookie + location.href.includes('token')"), json!("false"));
    for request in chrome.seen("Network.requestWillBeSent") {
        assert!(!request["request"]["url"].as_str().unwrap().contains(token));
    }
    chrome.call("Page.reload", json!({}));
    chrome.until("document.querySelector('#status')?.textContent === 'Live'");
    assert_eq!(chrome.eval("document.querySelector('#token-dialog').open"), json!(false));
}

/// Names of worlds and of their classes come from files that anybody may have written.
#[test]
fn malicious_names_in_the_simulators_reports_are_text() {
    let place = tempfile::tempdir().unwrap();
    let mut chrome = Chrome::start(1200, 900);
    for (name, text) in [SHIPPED[0], PACE_WORLDS[0]] {
        let renamed = |line: &str| match line.split_once(" = ") {
            // The fetchers of a world have the names of real ones.
            Some(("name", fetcher)) if !fetcher.contains('_') && fetcher != "\"playwright\"" => {
                format!("name = {}", json!(HOSTILE))
            }
            Some(("urls" | "sites" | "hosts", _)) if name == "W1" => line.replace("000", "0"),
            _ => line.to_owned(),
        };
        let text: Vec<String> = text.lines().map(renamed).collect();
        let page = page_of_a_world(&text.join("\n"));
        let file = place.path().join("evil.html");
        std::fs::write(&file, page).unwrap();
        chrome.open(&format!("file://{}", file.display()));
        chrome.until("document.readyState === 'complete' && document.querySelector('table')");
        let shown = chrome.eval("document.body.textContent");
        assert!(shown.as_str().unwrap().contains("onerror=alert(1)"), "{name}: {shown}");
        let active = chrome
            .eval("document.querySelectorAll('img, iframe, object, embed, [onerror]').length");
        assert_eq!(active, json!(0), "{name}");
    }
}

/// Returns the page of a world of policies or of paces.
fn page_of_a_world(text: &str) -> String {
    if PaceWorld::is_one(text) {
        let world = PaceWorld::parse(text, "evil").unwrap();
        let options = PaceOptions { threads: 0, progress: None };
        return pace_html(&simulate_pace(&world, &["pace"], &[1], &options).unwrap()).unwrap();
    }
    let world = World::parse(text, "evil").unwrap();
    let policies = [NamedPolicy::by_name("default").unwrap()];
    let options = SimulateOptions { threads: 0, timing: false, progress: None };
    html(&simulate(&world, &policies, &[1], &options).unwrap()).unwrap()
}
