//! Block pages that no rule knows: one for each concept in each language, and pages of content that
//! use the same words.
//!
//! The pages are built here, in a site's frame, from the sentences in `languages.toml`. Rules for
//! titles and sentences are disabled, so only concepts can find the blocks.

use std::collections::BTreeMap;
use std::fmt::Write;

use fetchwise_detect::{Detector, Explanation, Scratch, Verdict};
use fetchwise_types::fetch_result::BlockKind;
use fetchwise_types::response::{Header, Page};
use serde::Deserialize;

/// The concepts for which each language has a block page.
const CONCEPTS: [&str; 5] =
    ["robot-suspected", "prove-human", "refused", "network-blamed", "browser-examined"];
/// Content with words of block pages.
const NEAR: [&str; 4] = ["article", "help", "error", "shop"];

#[derive(Deserialize)]
struct Languages {
    language: Vec<Language>,
}

#[derive(Deserialize)]
struct Language {
    name: String,
    #[serde(flatten)]
    says: BTreeMap<String, String>,
}

fn languages() -> Vec<Language> {
    toml::from_str::<Languages>(include_str!("languages.toml")).unwrap().language
}

/// Returns a detector with the shipped rules except those for titles and sentences without a
/// vendor.
fn concepts_only() -> Detector {
    let shipped: toml::Table = toml::from_str(Detector::shipped_rules()).unwrap();
    let mut disabled = String::new();
    for rule in shipped["rule"].as_array().unwrap() {
        if matches!(rule["grade"].as_str().unwrap(), "title" | "sentence")
            && rule.get("vendor").is_none()
        {
            write!(disabled, "'{}', ", rule["id"].as_str().unwrap()).unwrap();
        }
    }
    Detector::with_rules(&format!("disable = [{disabled}]")).unwrap()
}

/// Returns a page in a site's frame: a navigation with links, a footer with more of them.
fn framed(title: &str, main: &str) -> String {
    let links: String =
        (1..20).map(|n| format!("<li><a href='/{n}'>Alpha beta {n}</a></li>")).collect();
    format!(
        "<!doctype html><html><head><title>{title}</title></head><body><header><a href='/'>Example</a><nav><ul>{links}</ul></nav></header>\
        <main>{main}</main><footer><ul>{links}</ul><p>&copy; Example. All rights reserved.</p></footer></body></html>"
    )
}

fn explain(detector: &Detector, body: &str) -> Explanation {
    let headers = [Header::new("Content-Type", "text/html; charset=utf-8")];
    let page = Page { status: 200, headers: &headers, body: body.as_bytes(), ..Page::default() };
    detector.explain(&page, &mut Scratch::default())
}

#[test]
fn every_concept_makes_a_block_in_every_language_together_with_other_cues() {
    let detector = concepts_only();
    let mut wrong = Vec::new();
    let languages = languages();
    assert!(languages.len() >= 15);
    for language in &languages {
        for concept in CONCEPTS {
            let says = &language.says[concept];
            let main = format!("<h1>Example</h1><p>{says}</p><p>{}</p>", language.says["support"]);
            let explained = explain(&detector, &framed("Example", &main));
            let cues = explained.cues.unwrap_or_default();
            let understood = cues.cues.iter().any(|cue| &*cue.id == concept);
            if !understood || !explained.verdict.is_blocked {
                let seen: Vec<_> =
                    cues.cues.iter().map(|cue| format!("{} {}", cue.weight, cue.id)).collect();
                wrong.push(format!(
                    "{} {concept}: {says} ({} of {}: {seen:?})",
                    language.name, cues.sum, cues.threshold
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} block pages were missed:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_demand_for_a_user_agent_and_a_captive_portal_are_understood_in_other_languages_than_english() {
    let detector = concepts_only();
    let mut wrong = Vec::new();
    for (concept, says) in [
        ("agent-demanded", "Der User-Agent Ihrer Anfrage fehlt oder wird nicht akzeptiert."),
        ("agent-demanded", "El agente de usuario no es válido."),
        ("agent-demanded", "Brak nagłówka User-Agent."),
        ("agent-demanded", "Заголовок User-Agent не підтримується."),
        ("agent-demanded", "ユーザーエージェントが無効です。"),
        ("agent-demanded", "缺少 User-Agent。"),
        ("agent-demanded", "User-Agent tidak valid."),
        ("network-login", "Щоб отримати доступ до інтернету, прийміть умови користування."),
        ("network-login", "יש לאשר את תנאי השימוש כדי לקבל גישה לאינטרנט."),
        ("network-login", "กรุณายอมรับเงื่อนไขเพื่อใช้งานอินเทอร์เน็ต"),
        ("network-login", "इंटरनेट का उपयोग करने के लिए शर्तें स्वीकार करें।"),
        (
            "network-refuses",
            "Цей сайт заблоковано вашим адміністратором мережі, категорія: азартні ігри.",
        ),
        ("network-refuses", "Tämä sivusto on estetty, luokka: uhkapelit."),
    ] {
        let cues =
            explain(&detector, &framed("Example", &format!("<h1>Example</h1><p>{says}</p>"))).cues;
        let seen: Vec<_> =
            cues.unwrap_or_default().cues.iter().map(|cue| cue.id.to_string()).collect();
        if !seen.iter().any(|id| id == concept) {
            wrong.push(format!("{concept}: {says} {seen:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn content_with_the_same_words_is_no_block_in_any_language() {
    for (what, detector) in [("concepts alone", concepts_only()), ("all rules", Detector::new())] {
        let mut wrong = Vec::new();
        for language in languages() {
            for near in NEAR {
                let says = &language.says[near];
                let (title, rest) =
                    says.split_once([':', '.', '?', '。', '？']).unwrap_or((says, says));
                let main = format!("<h1>{title}</h1><p>{rest}</p><p>{says}</p>");
                for (shape, body) in [
                    ("framed", framed(title, &main)),
                    ("bare", format!("<title>{title}</title>{main}")),
                ] {
                    let explained = explain(&detector, &body);
                    if explained.verdict.is_blocked {
                        let cues = explained.cues.unwrap_or_default();
                        let seen: Vec<_> = cues
                            .cues
                            .iter()
                            .map(|cue| format!("{} {}: {}", cue.weight, cue.id, cue.text))
                            .collect();
                        wrong.push(format!(
                            "{} {near} {shape}: {} {seen:#?}",
                            language.name,
                            explained.verdict.reason()
                        ));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{what}: {} false alarms:\n{}", wrong.len(), wrong.join("\n"));
    }
}

#[test]
fn a_block_sentence_within_content_is_no_block_in_any_language() {
    let detector = concepts_only();
    let mut wrong = Vec::new();
    for language in languages() {
        for concept in CONCEPTS {
            let own = format!("{} {}", language.says["shop"], language.says["article"]);
            let main = format!(
                "<h1>Example</h1><p>{own}</p><p>{own}</p><p>{}</p>",
                language.says[concept]
            );
            if explain(&detector, &framed("Example", &main)).verdict.is_blocked {
                wrong.push(format!("{} {concept}", language.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_demand_for_scripts_is_a_cue_and_no_block_by_itself() {
    let detector = concepts_only();
    let mut wrong = Vec::new();
    for language in languages() {
        // A core concept ensures that the page is weighed at all.
        let main = format!(
            "<p>{}</p><p>{}</p>",
            language.says["scripts-demanded"], language.says["refused"]
        );
        let cues = explain(&detector, &framed("Example", &main)).cues.unwrap_or_default();
        if !cues.cues.iter().any(|cue| &*cue.id == "scripts-demanded") {
            wrong.push(language.name.clone());
        }
        let alone = framed(
            "Example",
            &format!(
                "<p>{}</p><p>{}</p>",
                language.says["scripts-demanded"], language.says["shop"]
            ),
        );
        assert!(!explain(&detector, &alone).verdict.is_blocked, "{}", language.name);
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_block_with_a_task_is_a_challenge_and_one_without_is_a_refusal() {
    let detector = concepts_only();
    for language in
        languages().iter().filter(|language| ["en", "es", "ru", "ja"].contains(&&*language.name))
    {
        for (concept, kind) in
            [("prove-human", BlockKind::Challenge), ("refused", BlockKind::Refusal)]
        {
            let main = format!(
                "<h1>Example</h1><p>{}</p><p>{}</p>",
                language.says[concept], language.says["support"]
            );
            let verdict = explain(&detector, &framed("Example", &main)).verdict;
            assert_eq!(verdict.block_type, Some(kind), "{} {concept}", language.name);
            assert_eq!(verdict.rule.as_deref(), Some("cues"));
        }
    }
}

#[test]
fn a_demand_for_scripts_is_no_content_however_long_it_is() {
    let demand = "You need to enable JavaScript to run this app, and this is how you do it in your browser. ";
    for times in [1, 4, 5, 40] {
        let body = format!(
            "<body><noscript>{}</noscript><div id=root></div><script src=/static/js/main.1a2b3c4d.js></script>",
            demand.repeat(times)
        );
        let verdict = explain(&Detector::new(), &body).verdict;
        assert!(verdict.has_spa && verdict.text_chars == 0, "{times}: {verdict:?}");
    }
}

#[test]
fn a_page_without_visible_text_is_never_content_beyond_the_limit_either() {
    let long = "var list = [0];".repeat(90_000);
    let filler = "<b></b>".repeat(170_000);
    for (body, is_found) in [
        (
            format!(
                "<head><script>{long}</script></head><body><div id=root></div><script src=/a.js></script>"
            ),
            true,
        ),
        (
            format!(
                "<head><style>{long}</style><script>{long}</script><body><p>{}</p>",
                "Far down, a text. ".repeat(30)
            ),
            true,
        ),
        (format!("<head><!--{long}--><body><p>{}</p>", "Far down, a text. ".repeat(30)), true),
        (format!("<body>{filler}<p>{}</p>", "Too far down, a text. ".repeat(30)), false),
    ] {
        let verdict = explain(&Detector::new(), &body).verdict;
        assert_eq!(verdict.is_content(), verdict.text_chars > 0, "{verdict:?}");
        assert_eq!(verdict.has_spa || verdict.text_chars > 0, is_found, "{verdict:?}");
    }
    // A challenge is known by its script, however long that is.
    let script = format!("window._cf_chl_opt={{}};{long}");
    let challenge =
        format!("<head><script>{script}</script></head><body><div id=root></div></body>");
    assert_eq!(explain(&Detector::new(), &challenge).verdict.vendor.as_deref(), Some("cloudflare"));
}

#[test]
fn an_unclosed_element_or_comment_in_a_noscript_hides_nothing_after_it() {
    let text =
        "<p>Enough to read about the garden and the weather in it, sentence after sentence.</p>"
            .repeat(5);
    for broken in [
        "<style>.a{",
        "<!-- a comment",
        "<iframe src='x'>",
        "<textarea>",
        "<img alt=\"",
        "<template>",
        "<title>",
    ] {
        let body = format!(
            "<html><body><noscript>{broken}</noscript>{text}<script>var a=1</script></body></html>"
        );
        let verdict = explain(&Detector::new(), &body).verdict;
        assert!(verdict.is_content() && verdict.text_chars >= 300, "{broken}: {verdict:?}");
    }
    // Without an end tag, the rest of the page is inside.
    let body = format!("<html><body><noscript>{text}");
    assert_eq!(explain(&Detector::new(), &body).verdict.text_chars, 0);
}

#[test]
fn much_hidden_text_is_content_and_a_little_is_not() {
    let text =
        "<p>Enough to read about the garden and the weather in it, sentence after sentence.</p>";
    let root = "<script>$RC(\"B:0\",\"S:0\")</script><div id=\"root\"></div>";
    let streamed = |n| {
        explain(
            &Detector::new(),
            &format!("<body><div hidden id=\"S:0\">{}</div>{root}", text.repeat(n)),
        )
        .verdict
    };
    assert!(streamed(20).is_content() && streamed(20).text_chars > 1_000, "{:?}", streamed(20));
    assert!(streamed(1).has_spa);
    // Dialogs and menus are hidden, too: next to a line of text they may be content, alone they are
    // none.
    let hidden = |n, line: &str| {
        let body =
            format!("<body>{line}<div style=\"display:none\">{}</div>{root}", text.repeat(n));
        explain(&Detector::new(), &body).verdict
    };
    assert!(hidden(20, "<p>The garden</p>").is_content() && hidden(1, "<p>The garden</p>").has_spa);
    assert!(hidden(20, "").has_spa);
}

#[test]
fn short_pages_with_something_to_see_or_to_fill_in_are_not_empty() {
    for page in [
        "<form><input name=q><button>Go</button></form>",
        "<form><label>Name <input type=text name=user></label><input type=password></form>",
        "<p>Sunset</p><img src=sunset.jpg>",
        "<p>Film</p><video src=film.mp4></video>",
        "<p>Map</p><iframe src='https://maps.example/embed'></iframe>",
        "<p>Paper</p><object data=paper.pdf></object>",
    ] {
        let verdict =
            explain(&Detector::new(), &format!("<html><body>{page}</body></html>")).verdict;
        assert!(
            !verdict.is_empty && !verdict.is_blocked && !verdict.has_spa,
            "{page}: {verdict:?}"
        );
    }
    for page in [
        "<a href=/s>Sunset</a> <a href=/b>Beach</a>",
        "<img src=dot.gif width=1 height=1>",
        "<noscript><img src=count.gif></noscript>",
        "<div hidden><img src=sunset.jpg></div>",
        // Without a word, nothing can be read.
        "<img src=sunset.jpg>",
        "<iframe src='https://maps.example/embed'></iframe>",
        "<form><input name=user><input type=password></form>",
        "<frameset cols='20%,80%'><frame src=menu.html><frame src=main.html></frameset>",
        "<noframes><p>Your browser does not show frames, so go to the plain pages.</p></noframes>",
        "<input type=hidden name=token>",
    ] {
        let verdict =
            explain(&Detector::new(), &format!("<html><body>{page}</body></html>")).verdict;
        assert!(verdict.is_empty, "{page}: {verdict:?}");
    }
}

#[test]
fn a_page_truncated_in_its_head_is_no_shell() {
    let body = format!(
        "<html><head><title>Shop</title><script>{}</script></head><body><div id=\"root\"></div>",
        "a".repeat(4_000)
    );
    let headers = [Header::new("Content-Type", "text/html")];
    let page = Page { status: 200, headers: &headers, body: body.as_bytes(), ..Page::default() };
    let read = |bytes| {
        let options = fetchwise_detect::DetectorOptions::default().with_max_bytes(bytes);
        Detector::new().with_options(options).inspect(&page, &mut Scratch::default())
    };
    assert!(read(1 << 20).has_spa);
    let cut = read(2_000);
    assert!(!cut.has_spa && cut.is_empty, "{cut:?}");
}

#[test]
fn the_crawler_sets_the_block_threshold() {
    let english = languages().into_iter().find(|language| language.name == "en").unwrap();
    let main = format!(
        "<h1>Example</h1><p>{}</p><p>{}</p>",
        english.says["refused"], english.says["support"]
    );
    let body = framed("Example", &main);
    let blocks = |sure| {
        let options = fetchwise_detect::DetectorOptions::default().with_block_threshold(sure);
        explain(&Detector::new().with_options(options), &body).verdict.is_blocked
    };
    let confidence = explain(&Detector::new(), &body).verdict.confidence;
    assert!((0.5..0.97).contains(&confidence), "{confidence}");
    assert!(blocks(0.5) && blocks(confidence - 0.01) && !blocks(0.99));
}

#[test]
fn custom_words_are_added_to_the_shipped_ones() {
    let rules = "[[words]]\nlanguage = 'eo'\nrefused = ['malpermesit']\naccess = ['aliro']\nretry = ['reprovu']\nsorry = ['pardonu']\n";
    let body = framed(
        "Ekzemplo",
        "<h1>Aliro malpermesita</h1><p>Via aliro estas malpermesita. Bonvolu reprovu. Pardonu.</p>",
    );
    assert!(!explain(&Detector::new(), &body).verdict.is_blocked);
    let explained = explain(&Detector::with_rules(rules).unwrap(), &body);
    assert!(explained.verdict.is_blocked, "{:?}", explained.cues);
    for (wrong, says) in [
        ("[[words]]\nlanguage = 'eo'\nrefusde = ['abcd']\n", "unknown meaning `refusde`"),
        (
            "[[concept]]\nid = 'x'\nweight = 500\nwhen = ['robot']\nnote = 'n'\n",
            "must be from -100 to 100",
        ),
        ("[[concept]]\nid = 'x'\nweight = 5\nwhen = ['-robot']\nnote = 'n'\n", "names no meaning"),
    ] {
        let error = Detector::with_rules(wrong).unwrap_err().to_string();
        assert!(error.starts_with("line 1: ") && error.contains(says), "{error}");
    }
    // A concept can be disabled like a rule.
    let without = Detector::with_rules("disable = ['refused']").unwrap();
    let cues =
        explain(&without, &framed("Example", "<h1>Access denied</h1><p>Your VPN was blocked.</p>"))
            .cues
            .unwrap();
    assert!(
        cues.cues.iter().any(|cue| &*cue.id == "network-blamed")
            && cues.cues.iter().all(|cue| &*cue.id != "refused")
    );
}

#[test]
fn list_items_are_names_unless_they_address_the_visitor() {
    let detector = concepts_only();
    let cues = |items: &str| {
        explain(&detector, &format!("<title>2.4.1</title><pre>2.4.1 {items}</pre>")).cues.unwrap()
    };
    assert!(!cues("* access denied: show the number * captcha: try again * new: tides").core);
    let block = cues(
        "* your access was blocked by our firewall * we suspect that you are a robot * please try again later",
    );
    assert!(block.core && block.sum >= block.threshold, "{block:?}");
    // Two bullets are no list.
    assert!(cues("* access denied * captcha").core);
}

#[test]
fn http_authentication_is_no_block_and_the_same_words_without_it_are() {
    let detector = concepts_only();
    let body =
        "<title>Access is denied</title><h1>Access is denied</h1><p>Your request was blocked.</p>";
    let is_blocked = |headers: &[Header]| {
        let page = Page { status: 401, headers, body: body.as_bytes(), ..Page::default() };
        detector.inspect(&page, &mut Scratch::default()).is_blocked
    };
    let html = || Header::new("Content-Type", "text/html");
    assert!(is_blocked(&[html()]));
    assert!(!is_blocked(&[html(), Header::new("WWW-Authenticate", "Basic realm=\"x\"")]));
}

/// Returns the verdict of a page that was asked for as `url` and came from `final_url`.
fn led(url: &str, final_url: &str, body: &str) -> Verdict {
    let headers = [Header::new("Content-Type", "text/html; charset=utf-8")];
    let page = Page {
        url: Some(url),
        final_url: Some(final_url),
        status: 200,
        headers: &headers,
        body: body.as_bytes(),
    };
    Detector::new().inspect(&page, &mut Scratch::default())
}

const WREN: &str = "http://wren.example/a?b=1";

#[test]
fn a_page_that_belongs_inside_a_network_needs_no_words() {
    for body in [
        "<h1>Mirë se erdhët</h1><form action='http://10.5.50.1/login' method=post><input name=kodi></form>",
        "<title>M5</title><iframe src='http://10.10.34.34?type=x' style='width:100%'></iframe>",
        "<meta http-equiv=refresh content='0; url=http://192.168.8.1:8880/guest?u=wren.example'><p>Prit",
        "<script>top.self.location.href='http://172.20.0.5/portal?url=wren.example'</script>",
        "<h2>Salla</h2><form method=post><input type=hidden name=m value='8c:85:90:1a:2b:3c'><button>Vazhdo</button></form>",
        "<p>Salla<!-- <?xml version='1.0'?><WISPAccessGatewayParam><Redirect></Redirect></WISPAccessGatewayParam> -->",
        "<form action='https://salla.example.net/?uamip=1.2.3.4&uamport=3990'><input name=kodi></form><p>Mirë se erdhët",
        "<h3>Ndalur</h3><p>http://wren.example/a?b=1<p>10.20.4.17<p>m.gjoka",
    ] {
        let verdict = led(WREN, WREN, body);
        assert!(verdict.is_blocked && verdict.network_block, "{body}: {}", verdict.reason());
    }
    let inside = led(WREN, "http://10.0.0.2:8090/ndalur", "<p>Kjo nuk hapet.");
    assert!(
        inside.network_block && inside.block_type == Some(BlockKind::Refusal),
        "{}",
        inside.reason()
    );
    let portal = led(
        WREN,
        "http://salla.example.net/?wlanuserip=1.2.3.4",
        "<p>Salla<form><input name=kodi></form>",
    );
    assert!(
        portal.network_block && portal.block_type == Some(BlockKind::Challenge),
        "{}",
        portal.reason()
    );
}

#[test]
fn addresses_inside_a_network_are_content_where_they_belong() {
    let form = "<h1>Router</h1><form action='http://192.168.1.1/apply' method=post><input name=ssid></form>";
    for (url, final_url, body) in [
        ("http://192.168.1.1/", "http://192.168.1.1/wan.htm", form),
        ("http://router.lan/", "http://192.168.1.1/", form),
        (
            WREN,
            WREN,
            "<h1>First steps</h1><p>Open <a href='http://192.168.1.1'>192.168.1.1</a> and set a password.",
        ),
        (
            WREN,
            WREN,
            "<h1>Not Found</h1><p>No such page.<hr><address>Apache Server at 10.0.0.5 Port 80</address>",
        ),
        (
            WREN,
            WREN,
            "<h1>Your addresses</h1><p>wren.example sees 203.0.113.9, your device has 192.168.1.7.",
        ),
        (
            WREN,
            WREN,
            "<h1>Reserved blocks</h1><p>10.0.0.0/8, 172.16.0.0/12 and 192.168.0.0/16 on http://wren.example/.",
        ),
        (
            WREN,
            WREN,
            "<h1>wren.example</h1><p>This domain is for sale. Make an offer to its owner.",
        ),
        (
            WREN,
            WREN,
            "<h1>Write to us</h1><form><input type=hidden name=ip value=10.0.0.3><textarea></textarea></form>",
        ),
        (
            WREN,
            WREN,
            "<h1>Blocked sites</h1><p>Open the settings of the filter on wren.example and edit the list of sites.",
        ),
        (
            WREN,
            "https://wren.example/login?next=wren.example",
            "<h1>Welcome</h1><form><input name=q></form><p>Search.",
        ),
    ] {
        let verdict = led(url, final_url, body);
        assert!(!verdict.is_blocked && !verdict.network_block, "{body}: {}", verdict.reason());
    }
}

#[test]
fn what_stands_between_speaks_of_the_site_as_of_another() {
    for body in [
        "<h1>Angehalten</h1><p>wren.example wird hier nicht angezeigt. Dafür sorgt der Webfilter der Schule.</p>",
        "<h1>Access denied</h1><dl><dt>Address<dd>http://wren.example/a?b=1<dt>Category<dd>Dating<dt>Rule<dd>R7</dl>",
        "<h1>Acceso denegado</h1><p>http://wren.example/a?b=1</p><p>Pregunte al administrador de la red.</p>",
        "<h1>Site indisponible</h1><p>Sur décision du tribunal, votre opérateur bloque l'accès à wren.example.</p>",
    ] {
        let verdict = led(WREN, WREN, body);
        assert!(verdict.is_blocked && verdict.network_block, "{body}: {}", verdict.reason());
    }
    let elsewhere = "http://stop.provider.example.net/?u=http%3A%2F%2Fwren.example%2Fa";
    let verdict = led(WREN, elsewhere, "<h1>Accès refusé</h1><p>Cette adresse est refusée.</p>");
    assert!(verdict.network_block, "{}", verdict.reason());
    let heading =
        led(WREN, elsewhere, "<h1>Zablokowano</h1><p>Zdjęto na wniosek uprawnionego.</p>");
    assert!(heading.network_block && !heading.is_server_error, "{}", heading.reason());
    for body in [
        "<h1>Access denied</h1><p>You have been blocked from wren.example. Contact the site owner.</p>",
        "<h1>Access denied</h1><p>wren.example refuses automated requests from your address 203.0.113.9.</p>",
    ] {
        let verdict = led(WREN, WREN, body);
        assert!(verdict.is_blocked && !verdict.network_block, "{body}: {}", verdict.reason());
    }
}
