//! SIGHUP makes a server reload mode, table and rules: all of it or nothing, while it responds, and
//! without a dropped request.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use super::server::{Server, ask_at};

const PAGE: &str =
    "<html><body><script>house_challenge()</script><p>nothing else</p></body></html>";

struct Files {
    dir: std::path::PathBuf,
}

impl Files {
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.join(name), text).unwrap();
    }

    fn config(&self, text: &str) {
        self.write("c.toml", &format!("router = 'routes.csv'\nrules = 'rules.toml'\n{text}\n"));
    }

    fn rules(&self, vendor: &str) {
        let rule = format!(
            "[[rule]]\nid = 'house'\nvendor = '{vendor}'\ngrade = 'strong'\nfind = ['house_challenge(']\nnote = 'made up'\n"
        );
        self.write("rules.toml", &rule);
    }
}

fn begin() -> (Server, Files) {
    let dir = tempfile::tempdir().unwrap();
    let files = Files { dir: dir.path().to_owned() };
    files.config("mode = 'legacy'");
    files.rules("first");
    files.write("routes.csv", "domain,fetcher\ne.org,playwright\n");
    (Server::start_in(dir, &["--config", "c.toml", "--pace", "off"], &[]), files)
}

/// The fetcher for e.org, the mode, and the vendor of the block page.
fn in_force(server: &Server) -> [Value; 4] {
    let chosen = &server.post("/v1/select", &json!({ "urls": ["https://e.org/a"] })).of(200)[0];
    let judged = server.post("/v1/classify", &json!({ "status": 200, "body": PAGE })).of(200);
    let mode = server.get("/v1/mode").of(200);
    [
        chosen["fetcher"].clone(),
        chosen["mode"].clone(),
        judged["vendor"].clone(),
        mode["routes"].clone(),
    ]
}

#[test]
fn valid_settings_take_effect_and_invalid_ones_change_nothing() {
    let (server, files) = begin();
    assert_eq!(in_force(&server), [json!("playwright"), json!("legacy"), json!("first"), json!(1)]);
    files.config("mode = 'shadow'");
    files.rules("second");
    files.write("routes.csv", "domain,fetcher\ne.org,playwright_stealth\nf.org,playwright\n");
    let said = server.hang_up("mode shadow; 2 routes");
    assert!(said.contains("reloaded c.toml, routes.csv, rules.toml"), "{said}");
    assert!(!said.contains("after a restart"), "{said}");
    let good = [json!("playwright_stealth"), json!("shadow"), json!("second"), json!(2)];
    assert_eq!(in_force(&server), good);
    // Reports of visits are classified by the same rules.
    let begun = server.post("/v1/visits", &json!({ "url": "https://e.org/b" })).of(201);
    let path = format!("/v1/visits/{}/report", begun["visit"].as_str().unwrap());
    server
        .post(
            &path,
            &json!({ "status": 200, "headers": { "Content-Type": "text/html" }, "body": PAGE }),
        )
        .of(200);
    let blocked = server.beside(&["export"]).remove(0);
    assert!(blocked["heuristics"].to_string().contains("second"), "{blocked}");

    // Each of these has a valid part, and none of it takes effect.
    files.rules("third");
    files.config("mode = 'splat'");
    server.hang_up("are unchanged: c.toml");
    assert_eq!(in_force(&server), good);
    files.config("mode = 'learning'\nsplit_shar = 1");
    server.hang_up("did you mean `split_share`?");
    assert_eq!(in_force(&server), good);
    files.config("mode = 'learning'");
    files.write("routes.csv", "domain,fetcher\ne.org,nobody\n");
    server.hang_up("unknown fetcher \"nobody\"");
    assert_eq!(in_force(&server), good);
    files.write("routes.csv", "domain,fetcher\ne.org,playwright\n");
    files.write("rules.toml", "[[rule]]\nid = 7\n");
    server.hang_up("are unchanged: rules.toml");
    assert_eq!(in_force(&server), good);
    std::fs::remove_file(files.dir.join("rules.toml")).unwrap();
    server.hang_up("are unchanged");
    assert_eq!(in_force(&server), good);

    files.rules("third");
    server.hang_up("mode learning; 1 routes");
    let [_, mode, vendor, routes] = in_force(&server);
    assert_eq!([mode, vendor, routes], [json!("learning"), json!("third"), json!(1)]);
}

/// A decision, and a whole visit. Every request gets a response, and none is rejected.
fn one_of_each(address: SocketAddr, client: u32, n: u64) {
    let ask = |path: &str, body: Value, status| {
        ask_at(address, None, "POST", path, body.to_string().as_bytes()).unwrap().of(status)
    };
    let asked = json!({ "urls": [format!("https://e.org/{client}/{n}"), "https://f.org/"] });
    let chosen = ask("/v1/select", asked, 200);
    // In mode `legacy` f.org has no route.
    assert!(chosen[0]["fetcher"].is_string(), "{chosen}");
    let begun = ask("/v1/visits", json!({ "url": format!("https://e.org/{client}/{n}") }), 201);
    let (mut step, path) =
        (begun["step"].clone(), format!("/v1/visits/{}/report", begun["visit"].as_str().unwrap()));
    while step["kind"] == "fetch" {
        step = ask(&path, json!({ "outcome": "content", "status": 200 }), 200)["step"].clone();
    }
    assert!(step["end"] == "delivered" || step["kind"] == "wait", "{step}");
}

/// Tells the clients to stop when it goes out of scope.
struct StopOnDrop<'s>(&'s AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn reloads_under_load_drop_no_request() {
    let (server, files) = begin();
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    let address = server.address;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..3)
            .map(|client| {
                let (stop, answered) = (&stop, &answered);
                scope.spawn(move || {
                    for n in 0.. {
                        if stop.load(Ordering::Relaxed) {
                            return;
                        }
                        one_of_each(address, client, n);
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        // A failure below ends the clients as well.
        let _stop = StopOnDrop(&stop);
        for turn in 0..8 {
            let before = answered.load(Ordering::Relaxed);
            let (text, words) = match turn % 4 {
                0 => ("mode = 'shadow'", ": mode shadow"),
                1 => ("mode = 'split'\nsplit_share = 0.5", ": mode split"),
                2 => ("mode = 'nonsense'", "are unchanged"),
                _ => ("mode = 'legacy'", ": mode legacy"),
            };
            files.config(text);
            files.rules(if turn % 2 == 0 { "even" } else { "odd" });
            server.hang_up(words);
            while answered.load(Ordering::Relaxed) < before + 3
                && !clients.iter().any(|client| client.is_finished())
            {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    });
    let visits = answered.load(Ordering::Relaxed);
    assert!(server.beside(&["export"]).len() as u64 >= visits / 2, "visits have left attempts");
}

/// The cost of a fetcher by the metrics.
fn cost_of(server: &Server, fetcher: &str) -> Option<String> {
    let page = server.get("/metrics").body;
    let row = format!("fetchwise_fetcher_cost{{fetcher=\"{fetcher}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&row)).map(str::to_owned)
}

#[test]
fn pace_and_costs_take_effect_by_a_signal_and_by_a_command() {
    let dir = tempfile::tempdir().unwrap();
    let files = Files { dir: dir.path().to_owned() };
    let settings = |rate: &str, cost: &str, more: &str| {
        format!(
            "{more}\n[pace.host.\"e.org\"]\nrate = {rate}\n[fetcher.playwright]\ncost = {cost}\n"
        )
    };
    files.write("c.toml", &settings("0.0001", "3", ""));
    let server = Server::start_in(dir, &["--config", "c.toml"], &[]);
    // A visit ends at once, so that only the pace lets the next one wait.
    let step = |n: u32| {
        let begun =
            server.post("/v1/visits", &json!({ "url": format!("https://e.org/{n}") })).of(201);
        let path = format!("/v1/visits/{}", begun["visit"].as_str().unwrap());
        match begun["step"]["kind"].as_str().unwrap() {
            "fetch" => {
                server
                    .post(
                        &format!("{path}/report"),
                        &json!({ "outcome": "content", "status": 200 }),
                    )
                    .of(200);
                "fetch".to_owned()
            }
            _ => {
                assert!(server.ask("DELETE", &path, b"").status < 300);
                begun["step"]["reason"].as_str().unwrap().to_owned()
            }
        }
    };
    assert_eq!(
        (step(0), step(1), cost_of(&server, "playwright").unwrap()),
        ("fetch".into(), "pace".into(), "3".into())
    );

    files.write("c.toml", &settings("1000", "0", ""));
    server.hang_up("all settings are unchanged: c.toml, line 5");
    assert_eq!((step(2), cost_of(&server, "playwright").unwrap()), ("pace".into(), "3".into()));

    files.write("c.toml", &settings("1000", "4.5", "[tuning]\nexplore_rate = 0.5"));
    let said = server.hang_up("e.org rate 0.0001 -> rate 1000");
    let words = ["cost: playwright 3 -> 4.5", "tuning.explore_rate"];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
    assert_eq!((step(3), cost_of(&server, "playwright").unwrap()), ("fetch".into(), "4.5".into()));

    // Without a word of the fetcher, its cost is the built-in one again.
    files.write("c.toml", "");
    let reloaded = &server.beside(&["reload"])[0];
    let text = reloaded["reloaded"].as_str().unwrap();
    assert!(
        text.contains("e.org rate 1000 -> learned") && text.contains("cost: playwright 4.5 -> 20"),
        "{text}"
    );
    assert_eq!(
        (&reloaded["pid"], cost_of(&server, "playwright").unwrap()),
        (&json!(server.child.id()), "20".into())
    );
}
