//! Verdicts, outcomes and heuristics of whole responses: precedence of evidence, and the outcome of
//! each status.

use fetchwise_detect::{Detector, Explanation, Grade, Scratch, Verdict, heuristics};
use fetchwise_types::attempt::ErrorType;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::verdict_reason::VerdictReason;
use fetchwise_types::fetch_result::{BlockKind, Outcome};
use fetchwise_types::heuristic::is_of_response;
use fetchwise_types::registry::FetcherSpec;
use fetchwise_types::response::{Header, Page};

const ARTICLE: &str = "<p>A page with enough to read, sentence after sentence, about gardens and the weather in them.</p>";
const CHALLENGE: &str =
    "<title>Just a moment...</title><script>window._cf_chl_opt={cType:'managed'}</script>";

struct Case {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
    url: &'static str,
    final_url: &'static str,
}

impl Case {
    fn html(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            headers: vec![("Content-Type", "text/html; charset=utf-8")],
            body: body.into(),
            url: "https://example.com/a",
            final_url: "https://example.com/a",
        }
    }

    fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.retain(|(n, _)| *n != name);
        self.headers.push((name, value));
        self
    }

    /// Returns the verdict, its outcome for a plain fetcher, and the heuristics.
    fn read(&self) -> (Verdict, Result<(), ErrorKind>, Vec<String>) {
        let headers: Vec<Header> = self.headers.iter().map(|(n, v)| Header::new(*n, *v)).collect();
        let page = Page {
            url: Some(self.url),
            final_url: Some(self.final_url),
            status: self.status,
            headers: &headers,
            body: self.body.as_bytes(),
        };
        let verdict = Detector::new().inspect(&page, &mut Scratch::default());
        let mut out = Vec::new();
        heuristics(&page, &verdict, &mut out);
        assert!(
            out.iter().all(|h| is_of_response(&h.kind)),
            "rankings tell them from those of the URL: {out:?}"
        );
        let end = verdict.outcome(&page).counts_as(&FetcherSpec::by_name("direct_access"));
        (
            verdict,
            end.map_err(known),
            out.iter().map(|h| format!("{}={}", h.kind, h.value)).collect(),
        )
    }

    /// Returns what an attempt keeps of the verdict.
    fn kept(&self) -> Option<VerdictReason> {
        let result =
            Detector::new().judge(self.status, self.headers.iter().copied(), self.body.as_bytes());
        assert_eq!(
            VerdictReason::of(&result.recorded_headers()),
            result.verdict.as_deref().cloned()
        );
        result.verdict.map(|reason| *reason)
    }

    fn ends(&self) -> Result<(), ErrorKind> {
        self.read().1
    }
}

fn known(error: ErrorType) -> ErrorKind {
    error.kind().unwrap_or_else(|| panic!("{error:?}"))
}

fn article() -> String {
    ARTICLE.repeat(5)
}

#[test]
fn a_status_decides_when_there_is_no_evidence() {
    let want = [
        (200, Ok(())),
        (203, Ok(())),
        // No fetcher gets more.
        (204, Err(ErrorKind::NotFound)),
        (205, Err(ErrorKind::NotFound)),
        (206, Ok(())),
        (304, Err(ErrorKind::WrongTool)),
        // Without an address, a browser shows the page.
        (300, Ok(())),
        (302, Ok(())),
        (399, Ok(())),
        (400, Err(ErrorKind::ClientError)),
        (401, Err(ErrorKind::AuthRequired)),
        (403, Err(ErrorKind::Blocked403)),
        (404, Err(ErrorKind::NotFound)),
        (407, Err(ErrorKind::AuthRequired)),
        (408, Err(ErrorKind::ServerError)),
        (421, Err(ErrorKind::ServerError)),
        (425, Err(ErrorKind::ServerError)),
        (410, Err(ErrorKind::NotFound)),
        (429, Err(ErrorKind::Blocked403)),
        (451, Err(ErrorKind::Blocked403)),
        (500, Err(ErrorKind::ServerError)),
        (503, Err(ErrorKind::ServerError)),
        (600, Err(ErrorKind::ServerError)),
        (999, Err(ErrorKind::ServerError)),
        (0, Err(ErrorKind::NetworkError)),
    ];
    for (status, end) in want {
        assert_eq!(Case::html(status, article()).ends(), end, "{status}");
    }
}

#[test]
fn a_redirect_with_an_address_or_without_a_page_leads_nowhere() {
    for status in [301, 302, 303, 307, 308] {
        let with = |location| Case::html(status, article()).header("Location", location).ends();
        assert_eq!(with("/there"), Err(ErrorKind::RedirectLoop), "{status}");
        assert_eq!((with(""), with(" ")), (Ok(()), Ok(())), "{status}");
        assert_eq!(Case::html(status, "").ends(), Err(ErrorKind::RedirectLoop), "{status}");
    }
    // These redirect nobody.
    for status in [300, 305, 306] {
        let page = Case::html(status, article()).header("Location", "/there");
        assert_eq!(page.ends(), Ok(()), "{status}");
    }
}

#[test]
fn a_part_that_nobody_asked_for_is_no_page() {
    let ends = |status, range| Case::html(status, article()).header("Content-Range", range).ends();
    for part in ["bytes 0-699/1400", "bytes 700-1399/1400", "bytes 0-699/*", "bytes */1400"] {
        assert_eq!(ends(206, part), Err(ErrorKind::Truncated), "{part}");
        assert_eq!(ends(200, part), Ok(()), "{part}: it has no meaning with another status");
    }
    for whole in ["bytes 0-1399/1400", "items 0-24/80"] {
        assert_eq!(ends(206, whole), Ok(()), "{whole}");
    }
}

#[test]
fn a_crawler_error_is_an_outcome_with_its_own_status_only() {
    let ends = |status, code| Case::html(status, article()).header("crawler-error", code).ends();
    for code in ["InvalidSignature", "StrongAuthRequired", " InvalidSignature "] {
        assert_eq!(ends(400, code), Err(ErrorKind::IdentityRejected), "{code}");
        assert_eq!(ends(403, code), Err(ErrorKind::Blocked403), "{code}");
        assert_eq!(ends(200, code), Ok(()), "{code}");
    }
    assert_eq!(ends(403, "CrawlerForbidden"), Err(ErrorKind::Declined));
    assert_eq!(ends(400, "CrawlerForbidden"), Err(ErrorKind::ClientError));
    assert_eq!(ends(403, "InvalidCrawlerExactPrice"), Err(ErrorKind::Blocked403));
    assert_eq!(
        ends(400, "invalidsignature"),
        Err(ErrorKind::ClientError),
        "a code has one spelling"
    );
    for code in ["CrawlerForbidden", "InvalidSignature", ""] {
        assert_eq!(ends(402, code), Err(ErrorKind::PaymentRequired), "{code}");
    }
    // A challenge does not hide the reason that the site names.
    let named = Case::html(403, CHALLENGE).header("crawler-error", "CrawlerForbidden");
    assert_eq!(named.ends(), Err(ErrorKind::Declined));
}

#[test]
fn a_challenge_is_a_block_whatever_its_status() {
    for status in [200, 202, 401, 403, 405, 429, 503] {
        let (verdict, end, _) = Case::html(status, CHALLENGE).read();
        assert_eq!(end, Err(ErrorKind::BlockedCaptcha), "{status}");
        assert_eq!(
            (verdict.vendor.as_deref(), verdict.block_type),
            (Some("cloudflare"), Some(BlockKind::Challenge))
        );
    }
}

#[test]
fn words_of_a_refusal_count_in_titles_and_text() {
    let words = [
        "Forbidden",
        "Access denied",
        "Too many requests",
        "403 Forbidden",
        "Request blocked",
        "You have been blocked",
        "Your IP address has been blocked",
        "Zugriff verweigert",
        "Accès refusé",
        "Acceso denegado",
        "Доступ запрещен",
        "访问被拒绝",
        "アクセスが拒否されました",
        "Erişim engellendi",
    ];
    for words in words {
        let pages = [
            format!("<title>{words}</title><body></body>"),
            format!("<body><h1>{words}</h1></body>"),
            format!("<title>{words}</title><h1>{words}</h1><p>{words}.</p>"),
            format!("<body><h1>{words}</h1><hr><center>nginx</center></body>"),
        ];
        for (page, status) in pages.iter().flat_map(|page| [403, 429].map(|status| (page, status)))
        {
            let (verdict, end, names) = Case::html(status, page.as_str()).read();
            assert_eq!(end, Err(ErrorKind::Blocked403), "{status} {page}: {}", verdict.reason());
            assert!(!names.contains(&"has_captcha=true".to_owned()), "{page}");
        }
        let (verdict, end, _) = Case::html(200, pages[2].as_str()).read();
        assert_eq!(
            (verdict.is_blocked, end),
            (true, Err(ErrorKind::Blocked403)),
            "{words}: {}",
            verdict.reason()
        );
    }
}

#[test]
fn a_refusal_that_also_asks_for_something_is_a_challenge() {
    for task in [
        "<div class=\"g-recaptcha\"></div>",
        "<div class=\"h-captcha\"></div>",
        "<p>Please verify you are a human to continue.</p>",
        "<p>Please solve the captcha below.</p>",
        "<div id=\"px-captcha\"></div>",
        "<script src=\"https://geo.captcha-delivery.com/captcha/\"></script>",
        "<script>window._cf_chl_opt={}</script>",
    ] {
        for status in [200, 403, 429] {
            let page = format!("<title>Access denied</title><h1>Access denied</h1>{task}");
            let (verdict, end, _) = Case::html(status, page.as_str()).read();
            assert_eq!(
                end,
                Err(ErrorKind::BlockedCaptcha),
                "{status} {page}: {}",
                verdict.reason()
            );
        }
    }
}

#[test]
fn a_vendor_that_only_refuses_is_named_without_a_task() {
    for (vendor, page) in [
        (
            "akamai",
            "<title>Access Denied</title><h1>Access Denied</h1><p>You don't have permission to access this server.<p>Reference #18.deb00f17.1777.8c1f",
        ),
        (
            "cloudflare",
            "<title>Attention Required! | Cloudflare</title><h1 data-translate=\"block_headline\">Sorry, you have been blocked</h1>",
        ),
        (
            "f5",
            "<title>Request Rejected</title><p>The requested URL was rejected. Please consult with your administrator.",
        ),
        (
            "wordfence",
            "<h1>Your access to this site has been limited by the site owner</h1><p>Generated by Wordfence at noon",
        ),
    ] {
        let (verdict, end, names) = Case::html(403, page).read();
        assert_eq!(
            (verdict.vendor.as_deref(), end),
            (Some(vendor), Err(ErrorKind::Blocked403)),
            "{}",
            verdict.reason()
        );
        assert!(names.contains(&format!("block_{vendor}=true")), "{names:?}");
    }
}

#[test]
fn the_status_precedes_emptiness_and_a_truncated_body_precedes_both() {
    assert_eq!(
        Case::html(404, "<a href=/>Home</a> <a href=/b>B</a>").ends(),
        Err(ErrorKind::NotFound)
    );
    assert_eq!(
        Case::html(200, "<a href=/>Home</a> <a href=/b>B</a>").ends(),
        Err(ErrorKind::WrongTool)
    );
    let verdict = Case::html(200, "<a href=/>Home</a> <a href=/b>B</a>").read().0;
    let page = Page { status: 200, ..Page::default() };
    let counts =
        |outcome: Outcome, by: &str| outcome.counts_as(&FetcherSpec::by_name(by)).map_err(known);
    assert_eq!(counts(verdict.outcome(&page), "playwright"), Err(ErrorKind::EmptyContent));
    assert_eq!(
        counts(verdict.outcome(&page).truncated(), "direct_access"),
        Err(ErrorKind::Truncated)
    );
}

#[test]
fn a_mitigation_header_counts_for_any_type_unless_the_challenge_was_passed() {
    let json = Case::html(403, "{\"url\":\"x\"}")
        .header("Content-Type", "application/json")
        .header("cf-mitigated", "challenge");
    let (verdict, end, _) = json.read();
    assert_eq!((end, verdict.grade), (Err(ErrorKind::BlockedCaptcha), Some(Grade::Mitigated)));
    let passed = Case::html(200, ARTICLE.repeat(80)).header("cf-mitigated", "challenge");
    assert_eq!(passed.ends(), Ok(()));
}

#[test]
fn other_bodies_than_html_are_content_by_their_status_alone() {
    for (kind, body) in [
        ("application/json", "{}"),
        ("application/pdf", "%PDF-1.7"),
        ("text/plain", "x"),
        ("image/png", ""),
    ] {
        let (verdict, end, names) = Case::html(200, body).header("Content-Type", kind).read();
        assert!(end.is_ok() && verdict.is_content() && !verdict.is_html, "{kind}");
        assert!(!names.contains(&"empty_body=true".to_owned()));
        assert!(names.contains(&format!("content_type={kind}")));
    }
    assert_eq!(
        Case::html(200, "{}").header("Content-Type", "application/json").header("X", "y").ends(),
        Ok(())
    );
}

#[test]
fn presence_is_no_evidence() {
    let page = Case::html(200, format!("{}<div class=\"g-recaptcha\"></div>", article()))
        .header("Server", "cloudflare")
        .header("Set-Cookie", "__cf_bm=1");
    let (verdict, end, names) = page.read();
    assert!(end.is_ok() && !verdict.is_blocked);
    for name in
        ["waf_cloudflare=true", "waf_recaptcha=true", "server_cloudflare=true", "status_200=true"]
    {
        assert!(names.contains(&name.to_owned()), "{name} in {names:?}");
    }
    assert!(!names.iter().any(|n| n.starts_with("block_") || n.starts_with("has_captcha")));
    let names = Case::html(403, CHALLENGE).read().2;
    assert!(
        names.contains(&"block_cloudflare=true".to_owned())
            && names.contains(&"has_captcha=true".to_owned())
    );
}

#[test]
fn a_waiting_room_is_neither_a_block_nor_content() {
    let mut case = Case::html(200, "<p>You are in line</p>");
    case.final_url = "https://shop.queue-it.net/?c=shop";
    let (verdict, end, names) = case.read();
    assert_eq!(end, Err(ErrorKind::Queued));
    assert!(verdict.is_queued && !verdict.is_blocked && !verdict.is_content());
    assert!(names.contains(&"is_queued=true".to_owned()));
}

#[test]
fn shells_are_reported_with_their_framework_and_filled_ones_are_content() {
    let shell = "<body><noscript>You need to enable JavaScript to run this app.</noscript><div id=root></div>\
                 <script src=/static/js/main.1a2b3c4d.js></script>";
    let (verdict, end, names) = Case::html(200, shell).read();
    assert_eq!((end, verdict.framework.as_deref()), (Err(ErrorKind::WrongTool), Some("react")));
    assert!(verdict.has_spa && !verdict.is_empty);
    assert!(
        names.contains(&"has_spa=true".to_owned())
            && names.contains(&"spa_framework=react".to_owned())
    );
    let filled = shell.replace("<div id=root></div>", &format!("<div id=root>{}</div>", article()));
    assert!(Case::html(200, filled).ends().is_ok());
    let forum = format!(
        "<body><div id=app></div><script src=/app.js></script><noscript>{}</noscript>",
        ARTICLE.repeat(8)
    );
    assert!(Case::html(200, forum).ends().is_ok(), "content in noscript is content");
}

#[test]
fn a_failure_of_the_server_is_no_block_with_any_status() {
    let failed = "<title>Wartung</title><h1>Wartungsarbeiten</h1><p>Der Zugriff ist bis 14 Uhr gesperrt.</p>";
    for status in [200, 403, 500, 503] {
        let (verdict, end, _) = Case::html(status, failed).read();
        assert!(verdict.is_server_error && !verdict.is_blocked, "{status}: {}", verdict.reason());
        assert_eq!(end, Err(ErrorKind::ServerError), "{status}");
    }
    assert_eq!(Case::html(404, failed).ends(), Err(ErrorKind::NotFound));
    assert_eq!(Case::html(429, failed).ends(), Err(ErrorKind::Blocked403));
    let challenge = format!("<title>502 Bad Gateway</title>{CHALLENGE}");
    assert_eq!(Case::html(502, challenge).read().0.vendor.as_deref(), Some("cloudflare"));
    let story = format!("<h1>Wartungsarbeiten</h1>{}", ARTICLE.repeat(20));
    assert!(Case::html(200, story).ends().is_ok());
}

#[test]
fn a_proxy_s_own_refusal_is_of_the_network_and_a_refusal_through_it_is_not() {
    let page = "<title>403 Forbidden</title><h1>Forbidden</h1>";
    let own = Case::html(403, page).header("X-Squid-Error", "ERR_ACCESS_DENIED 0");
    assert_eq!(own.ends(), Err(ErrorKind::NetworkBlock));
    let own = Case::html(403, page).header("Server", "squid/6.6");
    assert_eq!(own.ends(), Err(ErrorKind::NetworkBlock));
    let through = Case::html(403, page)
        .header("Via", "1.1 cache (squid/6.6)")
        .header("X-Cache", "MISS from cache");
    assert_eq!(through.ends(), Err(ErrorKind::Blocked403));
    let content = Case::html(200, article()).header("Server", "squid/6.6");
    assert!(content.ends().is_ok());
    let failed =
        Case::html(503, "<title>x</title>").header("X-Squid-Error", "ERR_CONNECT_FAIL 111");
    assert_eq!(failed.ends(), Err(ErrorKind::ServerError));
}

#[test]
fn a_body_that_is_still_compressed_says_nothing_about_the_page() {
    let gzip = b"\x1F\x8B\x08\0\0\0\0\0\0\x03\xB3\xC9\x30\xB2\xF3\x48\xCD\xC9\xC9\xB7\xD1\x07\0";
    let brotli = b"\x8B\x07\x80\x3C\x68\x31\x3E\x48\x65\x6C\x6C\x6F\x02\x11\x03";
    for (encoding, body) in
        [(Some("gzip"), &gzip[..]), (None, gzip), (Some("br"), brotli), (None, brotli)]
    {
        let mut headers = vec![Header::new("Content-Type", "text/html; charset=utf-8")];
        headers.extend(encoding.map(|encoding| Header::new("Content-Encoding", encoding)));
        let page = Page { status: 200, headers: &headers, body, ..Page::default() };
        let result = Detector::new().judge_page(&page);
        assert_eq!(result.outcome, Outcome::Undecoded, "{encoding:?}");
        let plain = FetcherSpec::by_name("direct_access");
        let error = result.outcome.counts_as(&plain).unwrap_err();
        assert!(error.kind().is_some_and(ErrorKind::is_neutral), "{error:?}");
        let refused = Detector::new().judge_page(&Page { status: 403, ..page });
        assert!(matches!(refused.outcome, Outcome::Blocked(_)));
    }
}

#[test]
fn log_ins_paywalls_and_missing_pages_are_marked() {
    let mut login =
        Case::html(200, format!("{}<form><input type=password></form>", ARTICLE.repeat(3)));
    login.final_url = "https://example.com/login";
    let (verdict, end, names) = login.read();
    assert!(verdict.has_login_wall && names.contains(&"has_login_wall=true".to_owned()));
    assert_eq!(end, Err(ErrorKind::AuthRequired));
    login.final_url = "https://example.com/b";
    let (verdict, end, _) = login.read();
    assert!(verdict.has_login_wall && end.is_ok());
    // A page that was asked for as a log-in is one.
    (login.url, login.final_url) = ("https://example.com/login", "https://example.com/login/");
    assert!(login.ends().is_ok());
    let missing = Case::html(200, format!("<title>Page not found</title>{}", ARTICLE.repeat(3)));
    assert!(missing.read().0.soft_404 && missing.ends().is_ok());
    let paid = Case::html(
        200,
        format!(
            "{}<script type='application/ld+json'>{{\"isAccessibleForFree\": false}}</script>",
            article()
        ),
    );
    assert!(paid.read().0.has_paywall && paid.ends().is_ok());
}

#[test]
fn a_challenge_is_read_in_any_charset() {
    let headers = [Header::new("Content-Type", "text/html")];
    let utf16: Vec<u8> =
        [0xFEFF].into_iter().chain(CHALLENGE.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let russian = "<meta charset=windows-1251><title>\u{414}</title><p>".to_owned();
    let mut legacy = russian.replace('\u{414}', "x").into_bytes();
    // "подтвердите, что вы не робот" in windows-1251.
    legacy.extend([0xEF, 0xEE, 0xE4, 0xF2, 0xE2, 0xE5, 0xF0, 0xE4, 0xE8, 0xF2, 0xE5, b',', b' ']);
    legacy.extend([
        0xF7, 0xF2, 0xEE, b' ', 0xE2, 0xFB, b' ', 0xED, 0xE5, b' ', 0xF0, 0xEE, 0xE1, 0xEE, 0xF2,
    ]);
    for body in [utf16, legacy] {
        let page = Page { status: 200, headers: &headers, body: &body, ..Page::default() };
        let verdict = Detector::new().inspect(&page, &mut Scratch::default());
        assert!(verdict.is_blocked, "{}", String::from_utf8_lossy(&body));
    }
}

#[test]
fn explaining_a_page_changes_nothing_in_its_verdict() {
    // The application explains the sentence of a rule, and the words of the page are weighed
    // anyway.
    let body = "<!doctype html><title>Sign in</title><body><div role=main><h1>One look before you go in</h1>\
        <p>This site is checking that a person is asking. It takes a few seconds.</p>\
        <noscript><p>Enable JavaScript and cookies to continue</p></noscript></div>\
        <div id=root></div><noscript>You need to enable JavaScript to run this app.</noscript></body>";
    let detector = Detector::new();
    let page =
        Page { url: None, final_url: None, status: 200, headers: &[], body: body.as_bytes() };
    let explained = detector.explain(&page, &mut Scratch::default());
    assert!(
        explained.matches.iter().any(|found| &*found.rule == "text-enable-scripts"),
        "{explained:?}"
    );
    let verdict = detector.inspect(&page, &mut Scratch::default());
    assert_eq!(verdict, explained.verdict);
    assert_eq!((verdict.is_blocked, verdict.rule.as_deref()), (true, Some("cues")), "{verdict:?}");
}

#[test]
fn custom_rules_are_added_and_explain_shows_where_they_matched() {
    let rules = "[[rule]]\nid = 'acme'\nvendor = 'acme'\ngrade = 'strong'\nfind = ['acme-shield']\nnote = 'our own'\n";
    let detector = Detector::with_rules(rules).unwrap();
    let headers = [Header::new("Content-Type", "text/html")];
    let page = Page {
        status: 200,
        headers: &headers,
        body: b"<i id='ACME-Shield'></i>",
        ..Page::default()
    };
    let Explanation { verdict, matches, .. } = detector.explain(&page, &mut Scratch::default());
    assert_eq!((verdict.vendor.as_deref(), verdict.rule.as_deref()), (Some("acme"), Some("acme")));
    let found = matches.iter().find(|m| &*m.rule == "acme").unwrap();
    assert_eq!((found.offset, found.text.as_str(), found.counted), (Some(7), "acme-shield", true));
}

#[test]
fn the_keyword_baseline_finds_keywords_anywhere() {
    let detector = Detector::keywords();
    let headers = [Header::new("Content-Type", "text/html")];
    let read = |status: u16, body: &str| {
        let page = Page { status, headers: &headers, body: body.as_bytes(), ..Page::default() };
        detector.inspect(&page, &mut Scratch::default())
    };
    assert_eq!(read(200, "an article about Cloudflare").block_type, Some(BlockKind::Challenge));
    assert!(!read(200, "an article about cloudflare").is_blocked, "case-sensitive");
    assert_eq!(read(403, "x").block_type, Some(BlockKind::Refusal));
    assert_eq!(
        read(200, "<div id=\"root\"><script>x</script>").framework.as_deref(),
        Some("react")
    );
    assert!(read(200, "<script>var long = 1;</script>").is_empty);
}

#[test]
fn only_the_bytes_within_the_limit_count() {
    let detector = Detector::new()
        .with_options(fetchwise_detect::DetectorOptions::default().with_max_bytes(2_048));
    let headers = [Header::new("Content-Type", "text/html")];
    let body = format!("{}{CHALLENGE}", "<i></i>".repeat(1_000));
    let page = Page { status: 200, headers: &headers, body: body.as_bytes(), ..Page::default() };
    let verdict = detector.inspect(&page, &mut Scratch::default());
    assert!(!verdict.is_blocked && verdict.bytes == 2_048);
}

#[test]
fn a_page_of_the_network_is_an_outcome_of_its_kind() {
    let body = b"<title>Notice</title><h1>This website is blocked</h1><p>By order of the court, your internet service provider \
        has blocked access to this website.</p>";
    let detector = Detector::new();
    let result = detector.judge(200, [("Content-Type", "text/html")], body);
    assert_eq!(
        result.outcome,
        fetchwise_types::fetch_result::Outcome::NetworkBlock,
        "{:?}",
        result.message
    );
    assert!(
        result
            .heuristics
            .iter()
            .any(|heuristic| format!("{heuristic:?}").contains("network_block"))
    );
    assert!(result.message.is_some_and(|message| message.contains("network")));
}

#[test]
fn a_vendors_connector_in_an_application_is_no_block() {
    let scripts = "<script src=/static/js/a.js></script>".repeat(6);
    for connector in [
        "<script>window[\"loaderConfig\"] = \"/TSPD/?type=20\";</script><script src=\"/TSPD/?type=18\"></script>",
        "<script>__uzdbm_1='x'; var hosts = 'validate.perfdrive.com, ssc';</script>",
        "<h1 data-translate=\"block_headline\">Orders</h1><p data-translate=\"challenge_headline\">Loading</p>",
    ] {
        let body = format!(
            "<html><head>{connector}{scripts}</head><body><div id=root></div></body></html>"
        );
        let headers = [Header::new("Content-Type", "text/html")];
        let page =
            Page { status: 200, headers: &headers, body: body.as_bytes(), ..Page::default() };
        let verdict = Detector::new().inspect(&page, &mut Scratch::default());
        assert!(!verdict.is_blocked && verdict.has_spa, "{connector}: {verdict:?}");
    }
}

#[test]
fn a_script_that_only_leads_to_a_log_in_is_neither_content_nor_a_shell() {
    let script = "<html><head><script>location.href = 'https://shop.example/authwall?to=' + location.pathname</script>\
        </head></html>";
    let (verdict, ends, _) = Case::html(200, script).read();
    assert!(!verdict.is_content() && !verdict.has_spa && ends.is_err(), "{verdict:?}");
    assert_eq!(verdict.rule.as_deref(), Some("login-wall-script"));
    // An application that may go to its log-in page.
    let app = "<html><body><div id=root></div><script>function go() { location.href = '/authwall' }</script>\
        <script src=/a.js></script></body></html>";
    let (verdict, ..) = Case::html(200, app).read();
    assert!(!verdict.is_blocked && verdict.has_spa, "{verdict:?}");
    // A page with text and the same script.
    let page = format!(
        "<html><body>{}<script>function go() {{ location.href = '/authwall' }}</script></body></html>",
        article()
    );
    assert_eq!(Case::html(200, page).ends(), Ok(()));
}

#[test]
fn a_451_at_an_edge_names_the_vendor() {
    let (verdict, ends, _) = Case::html(451, "Unavailable").header("Server", "AkamaiGHost").read();
    assert_eq!((verdict.vendor.as_deref(), ends), (Some("akamai"), Err(ErrorKind::Blocked403)));
}

/// Days later, the body is gone: what decided is kept with the attempt, and plain content keeps
/// nothing.
#[test]
fn a_failure_keeps_the_rule_and_the_visible_characters_of_its_verdict() {
    let challenge = Case::html(403, CHALLENGE).kept().unwrap();
    assert!(challenge.rule.is_some() && challenge.cues.is_empty(), "{challenge:?}");
    assert_eq!(challenge.visible_chars, Some(0));
    let shell = Case::html(200, "<div id=root></div><script src=/static/js/main.4f2a.js></script>")
        .kept()
        .unwrap();
    assert!(shell.rule.is_some(), "{shell:?}");
    let short = Case::html(200, "<p>").kept().unwrap();
    assert_eq!(short, VerdictReason::new::<&str>(None, &[], Some(0)));
    let refusal = Case::html(403, "{}").header("Content-Type", "application/json").kept();
    assert_eq!(refusal, None, "the status says it all");
    for plain in [
        Case::html(200, ARTICLE.repeat(9)),
        Case::html(404, ARTICLE.repeat(9)),
        Case::html(500, "oops"),
    ] {
        assert_eq!(plain.kept(), None, "{}", plain.status);
    }
    let forged =
        Case::html(200, ARTICLE.repeat(9)).header(":verdict", "mine").header(":chars", "7");
    assert_eq!(forged.kept(), None, "a site cannot say what the detector said");
}
