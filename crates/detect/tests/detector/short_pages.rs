//! Short pages: their redirect targets, their text hashes, and hints that one may be a block that
//! no rule knows.

use std::path::PathBuf;

use fetchwise_detect::{Detector, Scratch, Verdict};
use fetchwise_types::response::{Header, Page};

use crate::html_files::html_files;

const URL: &str = "https://example.com/docs/a.html";

fn read_as(status: u16, body: &[u8]) -> Verdict {
    let headers = [Header::new("Content-Type", "text/html; charset=utf-8")];
    let page = Page { url: Some(URL), final_url: Some(URL), status, headers: &headers, body };
    Detector::new().inspect(&page, &mut Scratch::default())
}

fn read(body: &str) -> Verdict {
    read_as(200, body.as_bytes())
}

fn target(body: &str) -> Option<String> {
    read(body).redirect.map(String::from)
}

#[test]
fn a_refresh_in_a_page_with_next_to_no_text_is_a_redirect() {
    for meta in [
        "<meta http-equiv=\"refresh\" content=\"0;URL=B.html\">",
        "<meta http-equiv='refresh' content='0; url=B.html'>",
        "<meta content=\"0; url='B.html'\" http-equiv=REFRESH />",
        "<META HTTP-EQUIV=Refresh CONTENT=0;URL=B.html>",
        "<meta id=x http-equiv=\"refresh\" class=y content=\"10; Url = &quot;B.html&quot;\">",
    ] {
        let page = format!(
            "<html><head><title>Redirection</title>{meta}</head><body><p>Go to <a href=B.html>B</a></body></html>"
        );
        let verdict = read(&page);
        assert_eq!(verdict.redirect.as_deref(), Some("B.html"), "{meta}");
        assert!(
            verdict.is_empty && !verdict.has_spa && !verdict.is_blocked && !verdict.block_cues,
            "{meta}: {verdict:?}"
        );
        assert!(verdict.reason().contains("B.html"));
    }
    let escaped = target("<meta http-equiv=refresh content=\"0;url=/B?x=1&amp;y=%C3%A9\">");
    assert_eq!(escaped.as_deref(), Some("/B?x=1&y=%C3%A9"));
}

#[test]
fn a_script_that_only_sets_the_location_is_a_redirect() {
    for script in [
        "location = \"/Next\"",
        "window.location.href = '/Next';",
        "document.location.replace('/Next')",
        "self.location.assign(\"/Next\");",
        "top.location='\\/Next';",
    ] {
        let page = format!("<html><head><script>{script}</script></head><body></body></html>");
        let verdict = read(&page);
        assert_eq!(verdict.redirect.as_deref(), Some("/Next"), "{script}");
        assert!(
            verdict.is_empty && !verdict.has_spa && verdict.rule.is_none(),
            "{script}: {verdict:?}"
        );
    }
    let beside = "<div id=root></div><script src=/track.js></script><script>location.href='https://b.example/'</script>";
    assert_eq!(target(beside).as_deref(), Some("https://b.example/"));
}

#[test]
fn a_target_outside_ascii_or_in_utf_16_is_returned_as_written() {
    let page = "<html><head><meta http-equiv=refresh content=\"0;url=/Straße\"></head><body></body></html>";
    assert_eq!(target(page).as_deref(), Some("/Straße"));
    let utf16: Vec<u8> =
        std::iter::once(0xFEFF).chain(page.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    assert_eq!(read_as(200, &utf16).redirect.as_deref(), Some("/Straße"));
    let latin: Vec<u8> =
        page.replace("utf-8", "").chars().map(|c| if c == 'ß' { 0xDF } else { c as u8 }).collect();
    let headers = [Header::new("Content-Type", "text/html; charset=iso-8859-1")];
    let response = Page { status: 200, headers: &headers, body: &latin, ..Page::default() };
    assert_eq!(
        Detector::new().inspect(&response, &mut Scratch::default()).redirect.as_deref(),
        Some("/Straße")
    );
}

#[test]
fn lookalikes_of_redirects_are_none() {
    let article =
        "<p>A page with enough to read, about gardens and the weather in them.</p>".repeat(5);
    let refresh = "<meta http-equiv=refresh content=\"0;url=/next\">";
    for (why, page) in [
        (
            "there is much to read",
            format!("<html><head>{refresh}</head><body>{article}</body></html>"),
        ),
        (
            "it waits too long",
            "<meta http-equiv=refresh content=\"30;url=/next\"><p>Live".to_owned(),
        ),
        ("it only comes again", "<meta http-equiv=refresh content=5><p>Live".to_owned()),
        (
            "only for those without scripts",
            format!(
                "<div id=root></div><noscript>{refresh}</noscript><script src=/app.js></script>"
            ),
        ),
        ("a comment", format!("<body><!-- {refresh} --><p>x")),
        (
            "the script computes",
            "<body><script>location.replace('/next' + location.hash)</script>".to_owned(),
        ),
        (
            "the script decides",
            "<body><script>if (top != self) location = '/next'</script>".to_owned(),
        ),
        ("data", "<body><script type=application/json>location = '/next'</script>".to_owned()),
        (
            "another scheme",
            "<body><meta http-equiv=refresh content=\"0;url=app://open\">".to_owned(),
        ),
        ("a place in the page", "<body><script>location.href = '#top'</script>".to_owned()),
    ] {
        assert_eq!(target(&page), None, "{why}: {page}");
    }
}

fn with_headers(headers: &[(&str, &str)], body: &str) -> Verdict {
    let headers: Vec<Header> =
        headers.iter().map(|(name, value)| Header::new(*name, *value)).collect();
    let url = Some("https://a.example/old/x");
    let page =
        Page { url, status: 200, headers: &headers, body: body.as_bytes(), ..Page::default() };
    Detector::new().inspect(&page, &mut Scratch::default())
}

#[test]
fn a_target_is_relative_to_the_first_base_before_it() {
    let refresh = "<meta http-equiv=refresh content=\"0;url=Start.html\">";
    let new = Some("https://a.example/docs/New/Start.html");
    for (head, expected) in [
        (format!("<base href=\"/docs/New/\">{refresh}"), new),
        (format!("<base target=_top><BASE HREF='../docs/New/'>{refresh}"), new),
        (format!("<base href=https://a.example/docs/New/x><base href=/other/>{refresh}"), new),
        (format!("<base href=\"/docs/New/&#x3f;a=1\">{refresh}"), new),
        ("<base href=/docs/New/><script>location.replace('Start.html')</script>".to_owned(), new),
        // Not a base of this target.
        (format!("{refresh}<base href=/docs/New/>"), Some("Start.html")),
        (format!("<noscript><base href=/docs/New/></noscript>{refresh}"), Some("Start.html")),
        (format!("<!-- <base href=/docs/New/> -->{refresh}"), Some("Start.html")),
        (format!("<template><base href=/docs/New/></template>{refresh}"), Some("Start.html")),
        (format!("<base href=\"https://[\"><base href=/docs/New/>{refresh}"), Some("Start.html")),
        (format!("<base href=ftp://a.example/>{refresh}"), None),
    ] {
        let page = format!("<html><head>{head}</head><body></body></html>");
        let verdict = with_headers(&[("Content-Type", "text/html")], &page);
        assert_eq!(verdict.redirect.as_deref(), expected, "{head}");
    }
}

#[test]
fn the_first_refresh_that_browsers_do_not_ignore_counts() {
    let meta = |content: &str| format!("<meta http-equiv=refresh content=\"{content}\">");
    for (head, expected) in [
        (meta("soon") + &meta("0;url=/b"), Some("/b")),
        (meta("") + &meta("0;url=/b"), Some("/b")),
        (format!("<noscript>{}</noscript>{}", meta("0;url=/a"), meta("0;url=/b")), Some("/b")),
        (meta("0 url=/b"), Some("/b")),
        (meta("5") + &meta("0;url=/b"), None),
        (meta("60;url=/a") + &meta("0;url=/b"), None),
    ] {
        let page = format!("<html><head>{head}</head><body></body></html>");
        assert_eq!(target(&page).as_deref(), expected, "{head}");
    }
}

#[test]
fn the_header_refresh_is_read_as_its_element_is() {
    let html = ("Content-Type", "text/html");
    let short = "<html><body><p>Moved</p></body></html>";
    for (headers, body, expected) in [
        (&[("Refresh", "0; url=/y")][..], "", Some("/y")),
        (&[html, ("refresh", "0;URL='/y'")], "", Some("/y")),
        (&[html, ("REFRESH", "3, /y")], short, Some("/y")),
        (&[("Content-Type", "text/plain"), ("Refresh", "0;url=/y")], "Moved", Some("/y")),
        (&[("Content-Type", "image/gif"), ("Refresh", "0;url=/y")], "", Some("/y")),
        // It comes before the element, and it is about the page's own address.
        (
            &[html, ("Refresh", "0;url=y")],
            "<base href=/d/><meta http-equiv=refresh content=0;url=/z>",
            Some("y"),
        ),
        (&[html, ("Refresh", "5")], "<meta http-equiv=refresh content=0;url=/z>", None),
        (&[html, ("Refresh", "soon")], "<meta http-equiv=refresh content=0;url=/z>", Some("/z")),
        (&[html, ("Refresh", "5")], short, None),
        (&[html, ("Refresh", "300;url=/y")], short, None),
        (&[html, ("Refresh", "0;url=/y&amp;z")], short, Some("/y&amp;z")),
        (&[("Content-Type", "image/gif"), ("Refresh", "0;url=/y")], "GIF89a", None),
    ] {
        let verdict = with_headers(headers, body);
        assert_eq!(verdict.redirect.as_deref(), expected, "{headers:?} {body}");
        assert_eq!(
            verdict.is_empty && verdict.redirect.is_some(),
            expected.is_some(),
            "{headers:?} {body}"
        );
    }
    let long =
        format!("<html><body><p>{}</p></body></html>", "There is much to read here. ".repeat(40));
    assert_eq!(with_headers(&[html, ("Refresh", "0;url=/y")], &long).redirect, None);
    let challenge = with_headers(&[html, ("Refresh", "0;url=/.well-known/sgcaptcha/?r=x")], "");
    assert!(challenge.redirect.is_none(), "{challenge:?}");
}

#[test]
fn only_a_page_with_a_success_status_redirects() {
    let page = b"<meta http-equiv=refresh content=\"0;url=/next\"><p>moved";
    for (status, redirects) in
        [(200, true), (203, true), (404, false), (500, false), (503, false), (403, false)]
    {
        assert_eq!(read_as(status, page).redirect.is_some(), redirects, "{status}");
    }
}

#[test]
fn a_refresh_of_a_challenge_is_no_redirect() {
    for page in [
        "<meta http-equiv=refresh content=\"0;url=/.well-known/sgcaptcha/?r=x\">",
        "<meta http-equiv=refresh content=\"0;url=/captcha?next=/a\">",
        "<script>location.href = '/captcha?next=/a'</script>",
        "<title>Just a moment...</title><meta http-equiv=refresh content=\"5;url=/a\"><script>window._cf_chl_opt={}</script>",
    ] {
        let verdict = read(&format!("<html><head>{page}</head><body></body></html>"));
        assert!(verdict.is_blocked && verdict.redirect.is_none(), "{page}: {verdict:?}");
    }
    let queue = read(
        "<html><meta http-equiv=refresh content=\"0;url=https://shop.queue-it.net/?c=shop\"></html>",
    );
    assert!(queue.is_queued && queue.redirect.is_none(), "{queue:?}");
}

#[test]
fn a_target_is_a_challenge_by_path_segments_and_query_keys() {
    let stub = |to: &str| {
        let refresh = format!(
            "<html><head><meta http-equiv=refresh content=\"0;url={to}\"></head><body></body></html>"
        );
        let script = format!(
            "<html><head><script>location.replace(\"{to}\")</script></head><body></body></html>"
        );
        [refresh, script]
    };
    for to in [
        "/captcha",
        "/captcha/",
        "/x/captcha.php?next=/a",
        "https://b.example/hcaptcha?x=1",
        "/showcaptcha?cc=1",
        "/a?captcha=1",
        "/challenge",
        "/Challenge/?r=%2F",
        "/cdn-cgi/challenge-platform/h/b",
        "/a?x=1&amp;challenge=f00",
        "/js-challenge#a",
        "/.within.website/x/cmd/anubis/api/pass-challenge?challenge=84225d7b",
        "/verify",
        "/verify-human/",
        "/checkpoint?a=b",
        "/antibot/",
        "/firewall",
        "/blocked.html",
        "/access-denied",
        "/?bm-verify=AAQAAAAJ",
        "/security-check?back=%2Fnews",
    ] {
        for page in stub(&to.replace("&amp;", "&")) {
            let verdict = read(&page);
            assert!(verdict.is_blocked && verdict.redirect.is_none(), "{page}: {verdict:?}");
        }
    }
    for to in [
        "/fitness-challenge/",
        "/challenges/2024",
        "/challenge-yourself",
        "/the-challenge-of-gardens",
        "/challenger/",
        "/blog/how-captcha-works",
        "/captcha-guide",
        "/recaptcha-versus-others",
        "/search?q=captcha",
        "/verify-your-work",
        "/human-rights/",
        "/human-resources",
        "/checkpoint-charlie/",
        "/robots-and-bots/",
        "/bot-gardens/",
        "/best-firewalls/",
        "/firewall-guide",
        "/blocked-drains",
        "/denied-no-more",
        "/how-to-fix-access-denied-errors",
        "/news/security-check-list",
        "/anti-bot-laws",
        "/tools/validated",
        "https://challenge.example/a",
    ] {
        for page in stub(to) {
            let verdict = read(&page);
            assert_eq!(verdict.redirect.as_deref(), Some(to), "{page}: {verdict:?}");
            assert!(!verdict.is_blocked && !verdict.block_cues, "{page}: {verdict:?}");
        }
    }
}

#[test]
fn a_refresh_to_the_same_page_with_a_script_cookie_hints_at_a_block() {
    let cookie = "<script>var t=1;document.cookie='seen='+t</script><p>One more step towards the garden and its weather, its beds and its paths";
    for to in ["a.html", "?again=1", URL] {
        let refresh = format!("<meta http-equiv=refresh content=\"1;url={to}\">");
        let verdict = read(&format!("<html><head>{refresh}</head><body>{cookie}</body></html>"));
        assert!(verdict.redirect.is_none(), "{to}: {verdict:?}");
        assert!(verdict.is_blocked || verdict.block_cues, "{to}: {verdict:?}");
        // Without the script, or with another target, the redirect is followed; whether it repeats
        // is the caller's concern.
        assert!(
            target(&format!("<html><head>{refresh}</head><body></body></html>")).is_some(),
            "{to}"
        );
    }
    let elsewhere = format!(
        "<html><head><meta http-equiv=refresh content=\"1;url=b.html\"></head><body>{cookie}</body></html>"
    );
    assert_eq!(target(&elsewhere).as_deref(), Some("b.html"));
}

#[test]
fn every_stub_of_the_rust_documentation_is_a_redirect_and_nothing_else_is() {
    let sysroot = std::process::Command::new("rustc").args(["--print", "sysroot"]).output();
    let root = sysroot
        .map(|o| PathBuf::from(String::from_utf8_lossy(&o.stdout).trim()))
        .unwrap_or_default();
    let mut files = Vec::new();
    html_files(&root.join("share/doc/rust/html"), &mut files);
    if files.is_empty() {
        println!("skipped: the Rust documentation is not installed");
        return;
    }
    files.sort();
    let detector = Detector::new();
    let mut scratch = Scratch::default();
    let headers = [Header::new("Content-Type", "text/html")];
    let (mut stubs, mut doubted) = (0, Vec::new());
    for path in files.iter().step_by(if cfg!(debug_assertions) { 25 } else { 1 }) {
        let body = std::fs::read(path).unwrap();
        let is_stub =
            body.len() < 8_000 && memchr::memmem::find(&body, b"http-equiv=\"refresh\"").is_some();
        let page = Page { status: 200, headers: &headers, body: &body, ..Page::default() };
        let verdict = detector.inspect(&page, &mut scratch);
        assert_eq!(verdict.redirect.is_some(), is_stub, "{}: {}", path.display(), verdict.reason());
        stubs += usize::from(is_stub);
        if verdict.block_cues {
            doubted.push(path);
        }
    }
    println!("{stubs} stubs among the pages");
    assert!(stubs > 100, "{stubs}");
    assert!(doubted.is_empty(), "{doubted:?}");
}

#[test]
fn pages_with_the_same_text_have_the_same_hash() {
    let hash = |body: &str| read(body).text_hash;
    let one = hash("<html><title>a</title><body><p>Nothing  here\n yet.</p></body></html>");
    assert_ne!(one, 0);
    assert_eq!(
        one,
        hash(
            "<body class=x><script>var id=7</script><div>Nothing</div> here <b>yet.</b><!-- 9 --></body>"
        )
    );
    assert_ne!(one, hash("<body>Nothing here now."));
    assert_ne!(one, hash("<body>Nothing here"));
    let long = "<p>A page with enough to read, about gardens.</p>".repeat(12);
    assert_ne!(hash(&format!("<body>{long}")), 0);
    assert_ne!(hash(&format!("<body>{long}")), hash(&format!("<body>{long} And more.")));
}

#[test]
fn a_page_without_text_or_with_much_has_no_hash() {
    assert_eq!(read("<body><noscript>Turn it on</noscript></body>").text_hash, 0);
    assert_eq!(
        read(&format!("<body>{}", "<p>words and more of them</p>".repeat(200))).text_hash,
        0
    );
    let headers = [Header::new("Content-Type", "text/plain")];
    let page = Page { status: 200, headers: &headers, body: b"text", ..Page::default() };
    assert_eq!(Detector::new().inspect(&page, &mut Scratch::default()).text_hash, 0);
    // The state of the previous page is cleared.
    let mut scratch = Scratch::default();
    let detector = Detector::new();
    let html = [Header::new("Content-Type", "text/html")];
    detector.inspect(
        &Page { status: 200, headers: &html, body: b"<body>short", ..Page::default() },
        &mut scratch,
    );
    assert_eq!(detector.inspect(&page, &mut scratch).text_hash, 0);
}

#[test]
fn sentences_make_a_short_page_content_in_any_script() {
    for page in [
        "<h1>Not found</h1><p>The page that you were looking for has moved. Go back to the start page.",
        "<h1>Mira Holt</h1><p>Bookbinder in York. I repair old atlases and make new boxes for them.",
        "<p>我们是一家小书店,每天上午九点开门。欢迎带孩子来看书。",
        "<p>駅前の小さな写真館です。予約なしでも撮影いたします。",
        "<p>Наша пекарня открыта с шести утра. Хлеб печём на дровах.",
    ] {
        let verdict = read(&format!("<html><body>{page}</body></html>"));
        assert!(verdict.is_content(), "{page}: {verdict:?}");
    }
}

#[test]
fn a_page_to_which_a_browser_adds_nothing_is_content() {
    for page in [
        "<pre>pageok</pre>",
        "<h1>First page</h1>Hello!",
        "<h1>leaf.example</h1><p>Coming soon.</p>",
        "<h1>Anna Berg</h1><p>Glazier, Bergen.</p><p>55 12 34 56</p><script src=/js/bootstrap.bundle.min.js></script>",
        "<p>The shop has closed for good.</p><script src=/js/site.bundle.js></script>",
        "<main id=root><h1>404</h1><p>There is nothing here. Go back to the start page.</p></main><script src=/static/js/main.1a2b3c4d.js></script>",
    ] {
        let verdict = read(&format!("<html><body>{page}</body></html>"));
        assert!(verdict.is_content(), "{page}: {verdict:?}");
    }
}

#[test]
fn a_short_page_without_a_sentence_is_empty() {
    for page in [
        "<a href=/>Home</a> <a href=/a>About us</a> <a href=/c>Contact</a> <a href=/i>Imprint</a>",
        "<p>Loading, please wait while the application starts...",
        "<p>We use cookies to give you the best experience on our site.</p><p>Accept",
        "<p>© 2026 Example Company. All rights reserved. Powered by a content system.",
        "<p>请稍候,正在加载中",
        "<p>Your access was denied because of what you did.",
    ] {
        let verdict = read(&format!("<html><body>{page}</body></html>"));
        assert!(verdict.is_empty || verdict.is_blocked, "{page}: {verdict:?}");
    }
}

#[test]
fn a_short_page_with_words_of_a_block_has_cues() {
    for page in [
        "<p>Your visit was denied.",
        "<p>Sorry, no robots.",
        "<p>Hello</p><div class=\"some-captcha\"></div>",
        "<p>Hello</p><script src=\"https://challenges.cloudflare.com/turnstile/v0/api.js\"></script>",
        "<p>Something is wrong. Ray ID: 8c1f00ab",
        "<p>Please enable JavaScript.",
        "<p>Cookies are needed: allow cookies and come back.",
        "<p>Zugang verboten",
        "<p>Доступ запрещён администратором сети на неделю",
        "<p>このページへのアクセスは拒否",
        "<title>Security verification pending</title><p>Hold on",
        "<form><input type=email><input type=password><div class=\"g-recaptcha\"></div></form><p>Hello",
    ] {
        let verdict = read(&format!("<html><body>{page}</body></html>"));
        assert!(verdict.is_blocked || verdict.block_cues, "{page}: {verdict:?}");
    }
}

#[test]
fn a_short_page_without_words_of_a_block_has_no_cues() {
    for page in [
        "<p>42",
        "<title>sunset.jpg</title><img src=sunset.jpg>",
        "<h1>Opening hours</h1><p>Monday to Friday, nine to five.",
        "<h1>Struct Garden</h1><p>A garden. <a href=x>source</a>",
        "<p>All systems work.</p><script>var a=document.createElement('script');a.src='/cdn-cgi/challenge-platform/scripts/jsd/main.js';</script>",
        "<noscript>You need to enable JavaScript to run this app.</noscript><div><h1>Today</h1><p>Rain until noon.</p></div>",
        "<iframe src=\"https://maps.example/embed\"></iframe><p>Where we are",
        "<title>Human Resources</title><p>The office is on the second floor.",
        "<h1>Food security</h1><p>A lecture on Monday, and a challenge for the young.",
        "<h1>Fichier</h1><p>Trois photos du jardin, prises en avril.",
        // Words that begin like "robot" or "bot" in some language.
        "<h1>The observatory</h1><p>What the records say about it, and what a botanist from the coast found.",
        "<h1>Ботаника</h1><p>Ботаник заметил в саду редкий цветок.",
        "<h1>Botticelli</h1><p>Näyttely avataan maanantaina, ja siltä se näyttää.",
    ] {
        let verdict = read(&format!("<html><body>{page}</body></html>"));
        assert!(!verdict.is_blocked && !verdict.block_cues, "{page}: {verdict:?}");
    }
}

#[test]
fn a_page_with_enough_text_has_no_cues() {
    let page = "<p>Access to the garden is denied to robots, and a captcha stands at its door.</p>"
        .repeat(8);
    let verdict = read(&format!("<html><body><nav></nav>{page}</body></html>"));
    assert!(!verdict.block_cues && verdict.is_content(), "{verdict:?}");
}

/// The charset of a page by the encoding standard and the prescan of HTML, for pages of parts at
/// random from a fixed seed: a byte order mark, then the header, then the first element that names
/// one. A target shows which one was read.
#[test]
fn a_page_is_read_in_the_charset_that_browsers_read_it_in() {
    const WORDS: [(&str, &str, &str); 9] = [
        ("windows-1252", "ISO-8859-1", "Stra\u{df}e"),
        ("windows-1251", "cp1251", "\u{443}\u{43b}\u{438}\u{446}\u{430}"),
        ("koi8-r", "KOI8-R", "\u{443}\u{43b}\u{438}\u{446}\u{430}"),
        ("shift_jis", "x-sjis", "\u{8868}\u{30bd}\u{ff76}"),
        ("euc-jp", "EUC-JP", "\u{9053}\u{30bd}"),
        ("euc-kr", "ks_c_5601-1987", "\u{ae38}\u{ac70}\u{b9ac}"),
        ("gbk", "gb2312", "\u{8857}\u{9053}"),
        ("big5", "Big5", "\u{8857}\u{9053}\u{529f}"),
        ("utf-8", "utf8", "\u{8857}\u{df}\u{443}"),
    ];
    let detector = Detector::new();
    let mut state = 0x6665_7463_6877_6973_u64;
    let mut below = |sides: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % sides
    };
    for _ in 0..2000 {
        let (by_header, by_element, other) = (WORDS[below(9)], WORDS[below(9)], WORDS[below(9)]);
        let (has_mark, has_header) = (below(4) == 0, below(2) == 0);
        let label = if below(2) == 0 { by_element.0 } else { by_element.1 };
        let element = match below(4) {
            0 => format!("<meta charset={label}>"),
            1 => format!("<META CharSet = '{label}' />"),
            2 => format!("<meta http-equiv=Content-Type content=\"text/html; charset={label}\">"),
            _ => format!("<meta content='text/html;charset = {label}' http-equiv=content-type>"),
        };
        let before = match below(4) {
            0 => format!("<!-- <meta charset={}> -->", other.0),
            1 => format!("<title data-x='<meta charset={}>'></title>", other.0),
            2 => "<meta charset=no-such-charset><meta name=viewport content=width>".to_owned(),
            _ => String::new(),
        };
        let (charset, word) = match (has_mark, has_header) {
            (true, _) => ("utf-8", by_header.2),
            (false, true) => (by_header.0, by_header.2),
            (false, false) => (by_element.0, by_element.2),
        };
        let page = format!(
            "<html><head>{before}{element}<meta charset={}><meta http-equiv=refresh content='0;url=/{word}'></head></html>",
            other.0
        );
        let encoding = encoding_rs::Encoding::for_label(charset.as_bytes()).unwrap();
        let (bytes, _, is_lossy) = encoding.encode(&page);
        assert!(!is_lossy, "{charset} has no {word}");
        let body =
            if has_mark { [b"\xef\xbb\xbf", &bytes[..]].concat() } else { bytes.into_owned() };
        let kind = match (has_header, below(2)) {
            (false, _) => "text/html".to_owned(),
            (true, 0) => format!("text/html; charset={}", by_header.1),
            (true, _) => format!("Text/HTML;Charset=\"{}\"", by_header.0),
        };
        let headers = [Header::new("Content-Type", &*kind)];
        let response = Page { status: 200, headers: &headers, body: &body, ..Page::default() };
        let verdict = detector.inspect(&response, &mut Scratch::default());
        assert_eq!(verdict.redirect.as_deref(), Some(&*format!("/{word}")), "{kind} {page}");
    }
}
