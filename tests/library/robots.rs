//! robots.txt against servers on loopback: which rules are obeyed, the meaning of a missing file,
//! and the number of requests for it.

use std::sync::Arc;
use std::time::Duration;

use crate::pipeline::RecordingSink;
use fetchwise::Selector;
use fetchwise::attempt::{ALLOWED_FOR_HEADER, CONSENT_HEADER};
use fetchwise::consent::{ConsentSettings, LicenseUse, OnReserved, Purpose, Vocabulary};
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::pipeline::{Link, Pipeline, Report};
use fetchwise::registry::FetcherSpec;
use fetchwise::robots::{RobotsTxt, RobotsUse};
use fetchwise::selector::VisitSettings;
use fetchwise::time::{Clock, Timestamp};
use fetchwise_testsite::origin::{Origin, Site};

const HOST: &str = "127.0.0.1";
const ROBOTS: &str = "/robots.txt";
const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// Returns a site of articles with this robots.txt.
fn site(robots: Site) -> Site {
    Site::Mixed(vec![("/".to_owned(), Site::Static), (ROBOTS.to_owned(), robots)])
}

fn text(text: &str) -> Site {
    site(Site::Html(text.to_owned()))
}

struct World {
    origin: Origin,
    pipeline: Pipeline,
    clock: Arc<Clock>,
    sink: RecordingSink,
}

impl World {
    fn new(site: Site) -> Self {
        Self::for_purposes(site, ConsentSettings::default())
    }

    fn for_purposes(site: Site, consent: ConsentSettings) -> Self {
        let clock = Arc::new(Clock::fixed(BEGIN));
        let sink = RecordingSink::default();
        let builder = Selector::builder()
            .without_pace()
            .around(BEGIN)
            .clock(Arc::clone(&clock))
            // A lost connection ends the link at once.
            .visits(VisitSettings { max_retries: 0, ..VisitSettings::default() })
            .sink(sink.clone());
        let selector =
            Arc::new(builder.fetcher(FetcherSpec::by_name("direct_access")).build().unwrap());
        let guard = AddressGuard::new(["127.0.0.0/8".parse().unwrap()], false);
        let http = Arc::new(HttpFetcher::new(guard).unwrap());
        let robots = RobotsTxt::new(Arc::clone(&http) as Arc<_>, "fetchwise");
        let pipeline = Pipeline::builder(selector)
            .fetcher(http)
            .robots(robots)
            .consent(consent)
            .build()
            .unwrap();
        Self { origin: Origin::start([(HOST, site)]).unwrap(), pipeline, clock, sink }
    }

    async fn fetch(&self, path: &str) -> Report {
        self.fetch_with(path, RobotsUse::Obey).await
    }

    async fn fetch_with(&self, path: &str, robots: RobotsUse) -> Report {
        self.pipeline.fetch(&Link { robots, ..Link::new(self.origin.url(HOST, path)) }).await
    }

    fn asked(&self, path: &str) -> u64 {
        self.origin.hits_at(HOST, path)
    }
}

#[tokio::test]
async fn a_forbidden_page_is_not_requested_and_the_rule_is_named() {
    let world = World::new(text(
        "User-agent: *\nDisallow: /private/\nAllow: /private/open\nSitemap: http://x.org/map",
    ));
    let report = world.fetch("/private/7?q=1").await;
    assert_eq!(
        (report.error_type, report.success, report.requests),
        (Some("disallowed"), false, 0)
    );
    let message = report.message.unwrap();
    assert!(
        message.contains("Disallow: /private/ (User-agent: *)") && message.contains(ROBOTS),
        "{message}"
    );
    assert!(world.fetch("/private/open").await.success && world.fetch("/public").await.success);
    assert_eq!(
        (world.asked("/private/7?q=1"), world.origin.hits(HOST)),
        (0, 3),
        "its two pages and robots.txt"
    );
    assert!(world.fetch_with("/private/7", RobotsUse::Ignore).await.success);
    assert!(world.fetch_with("/private/8", RobotsUse::Delay).await.success);
}

#[tokio::test]
async fn the_crawlers_own_group_takes_precedence() {
    let world = World::new(text(
        "User-agent: *\nDisallow: /\n\nUser-agent: Fetchwise\nDisallow: /a$\nDisallow: /*.zip",
    ));
    for (path, allowed) in [("/a", false), ("/a/b", true), ("/x/y.zip", false), ("/b", true)] {
        assert_eq!(world.fetch(path).await.success, allowed, "{path}");
    }
    // The group of its product token is its own for paths and for terms.
    let rules = "User-agent: fetchwise/1.0\nDisallow: /a\nContent-Usage: train-ai=n\n\nUser-agent: *\nDisallow: /b";
    let world = World::new(text(rules));
    let (own, other) = (world.fetch("/a").await, world.fetch("/b").await);
    assert_eq!(
        (own.error_type, terms_of(&other)),
        (Some("disallowed"), "train-ai=n content-usage robots.txt".to_owned())
    );
    assert!(other.success && own.message.unwrap().contains("(User-agent: fetchwise/1.0)"));
}

#[tokio::test]
async fn concurrent_links_request_the_rules_once() {
    let world = World::new(site(Site::Slow {
        wait: Duration::from_millis(100),
        behind: Box::new(Site::Html("User-agent: *\nDisallow: /1".to_owned())),
    }));
    let links: Vec<Link> = (0..20)
        .map(|n| Link {
            robots: RobotsUse::Obey,
            ..Link::new(world.origin.url(HOST, &format!("/{n}")))
        })
        .collect();
    let all =
        futures_util::future::join_all(links.iter().map(|link| world.pipeline.fetch(link))).await;
    assert_eq!(world.asked(ROBOTS), 1);
    assert_eq!(all.iter().filter(|report| report.error_type == Some("disallowed")).count(), 11);
}

#[tokio::test]
async fn a_missing_robots_txt_allows_everything() {
    for status in [400, 401, 403, 404, 410, 451] {
        let world = World::new(site(Site::Status(status)));
        assert!(world.fetch("/a").await.success, "{status}");
    }
}

#[tokio::test]
async fn a_host_with_an_unreadable_robots_txt_is_paused() {
    for broken in [Site::Status(500), Site::SERVER_ERROR, Site::Status(429), Site::Truncated] {
        let world = World::new(site(broken.clone()));
        let report = world.fetch("/a").await;
        assert_eq!((report.error_type, world.asked("/a")), (Some("paused"), 0), "{broken:?}");
        let until = report.paused_until.unwrap();
        assert!(report.message.unwrap().contains(ROBOTS));
        world.fetch("/a").await;
        assert_eq!(world.asked(ROBOTS), 1, "{broken:?}: it is not requested again at once");
        world.origin.set_site(HOST, text("User-agent: *\nDisallow: /b"));
        world.clock.set(until);
        assert!(world.fetch("/a").await.success);
        assert_eq!(world.fetch("/b").await.error_type, Some("disallowed"));
        assert!(world.fetch_with("/c", RobotsUse::Delay).await.success);
    }
}

/// A hold of the pace ended links as paused whose robots.txt was still to be read, so that a run
/// that waits for no pause lost them. It is a wait of the pace, as it is for pages.
#[tokio::test]
async fn robots_txt_waits_for_a_hold_of_the_pace_as_pages_do() {
    use fetchwise::pace::{Pace, PaceSettings};
    let limited = Site::RateLimited { retry_after: "120".to_owned(), free: 0 };
    let sites = [
        ("/", Site::Static),
        ("/limited", limited),
        (ROBOTS, Site::Html("User-agent: *\nAllow: /".to_owned())),
    ];
    let sites = sites.into_iter().map(|(prefix, site)| (prefix.to_owned(), site)).collect();
    let origin = Origin::start([(HOST, Site::Mixed(sites))]).unwrap();
    let clock = Arc::new(Clock::fixed(BEGIN));
    let builder = Selector::builder()
        .around(BEGIN)
        .clock(Arc::clone(&clock))
        .pace(Pace::new(PaceSettings::default()));
    let selector =
        Arc::new(builder.fetcher(FetcherSpec::by_name("direct_access")).build().unwrap());
    let guard = AddressGuard::new(["127.0.0.0/8".parse().unwrap()], false);
    let http = Arc::new(HttpFetcher::new(guard).unwrap());
    let robots = RobotsTxt::new(Arc::clone(&http) as Arc<_>, "fetchwise");
    let pipeline = Pipeline::builder(Arc::clone(&selector)).fetcher(http).robots(robots);
    let pipeline = pipeline.wait_at_most(Duration::ZERO).build().unwrap();
    assert!(!pipeline.fetch(&Link::new(origin.url(HOST, "/limited"))).await.success);
    let hold = selector.host_pause(HOST).unwrap();
    let link = Link { robots: RobotsUse::Obey, ..Link::new(origin.url(HOST, "/page")) };
    let report = pipeline.fetch(&link).await;
    assert_eq!(
        (report.error_type, origin.hits_at(HOST, ROBOTS)),
        (Some(Report::PACED), 0),
        "{report:?}"
    );
    assert!(report.paused_until.unwrap() <= hold, "{report:?}");
    clock.set(hold);
    pipeline.fetch(&link).await;
    assert_eq!(origin.hits_at(HOST, ROBOTS), 1);
}

#[tokio::test]
async fn rules_are_requested_again_after_a_day() {
    let world = World::new(text("User-agent: *\nDisallow: /a"));
    assert_eq!(world.fetch("/a").await.error_type, Some("disallowed"));
    world.origin.set_site(HOST, text(""));
    world.clock.set(BEGIN.saturating_add(Duration::from_secs(23 * 3600)));
    assert_eq!(world.fetch("/a").await.error_type, Some("disallowed"));
    world.clock.set(BEGIN.saturating_add(Duration::from_secs(24 * 3600)));
    assert!(world.fetch("/a").await.success);
}

/// Returns a robots.txt behind this number of redirects that forbids everything.
fn behind_redirects(many: usize) -> Site {
    let to = |n: usize| format!("/r{n}");
    let hop = |at: String, n| (at, Site::Redirect { status: 301, to: to(n) });
    let mut parts = vec![("/".to_owned(), Site::Static), hop(ROBOTS.to_owned(), 1)];
    parts.extend((1..many).map(|n| hop(to(n), n + 1)));
    parts.push((to(many), Site::Html("User-agent: *\nDisallow: /".to_owned())));
    Site::Mixed(parts)
}

#[tokio::test]
async fn five_redirects_lead_to_rules_and_the_sixth_to_none() {
    assert_eq!(World::new(behind_redirects(5)).fetch("/a").await.error_type, Some("disallowed"));
    assert!(World::new(behind_redirects(6)).fetch("/a").await.success);
    // Outside the networks that may be dialled: the guard applies to robots.txt as to pages.
    let report = World::new(site(Site::RedirectOut)).fetch("/a").await;
    assert_eq!(report.error_type, Some("refused_address"), "{report:?}");
}

#[tokio::test]
async fn at_most_five_hundred_kibibytes_are_read() {
    let filler = "# nothing to see here\n".repeat(500 * 1024 / 22);
    let world = World::new(text(&format!(
        "User-agent: *\nDisallow: /early\n{filler}\n{filler}Disallow: /late\n"
    )));
    assert_eq!(world.fetch("/early").await.error_type, Some("disallowed"));
    assert!(world.fetch("/late").await.success);
}

#[tokio::test]
async fn a_pipeline_without_a_robots_fetcher_reports_it() {
    let selector = Arc::new(Selector::builder().without_pace().build().unwrap());
    let pipeline = Pipeline::builder(selector).build().unwrap();
    let report =
        pipeline.fetch(&Link { robots: RobotsUse::Obey, ..Link::new("http://127.0.0.1:9/") }).await;
    assert_eq!(report.error_type, Some(Report::NO_FETCHER));
    assert!(report.message.unwrap().contains("robots.txt"));
}

fn training() -> ConsentSettings {
    ConsentSettings { purposes: vec![Purpose::TrainAi], ..ConsentSettings::default() }
}

fn terms_of(report: &Report) -> String {
    report.consent.as_ref().map_or_else(String::new, |consent| consent.terms_text())
}

#[tokio::test]
async fn pages_that_robots_txt_reserves_are_not_requested() {
    let world = World::for_purposes(Site::reserved("train-ai"), training());
    for n in 0..20 {
        // The terms count whatever the crawl does with the rules.
        let robots = if n % 2 == 0 { RobotsUse::Obey } else { RobotsUse::Ignore };
        let report = world.fetch_with(&format!("/a/{n}"), robots).await;
        assert_eq!(
            (report.error_type, report.success, report.requests),
            (Some("reserved"), false, 0),
            "{report:?}"
        );
        assert_eq!(terms_of(&report), "train-ai=n content-usage robots.txt");
        assert!(report.consent.unwrap().allowed_for.is_empty() && report.paused_until.is_none());
    }
    assert_eq!((world.origin.hits(HOST), world.asked(ROBOTS)), (1, 1), "robots.txt and no page");
    assert!(world.sink.all().is_empty(), "as disallowed: nothing is recorded");
}

#[tokio::test]
async fn with_mark_every_reserved_page_comes_and_says_so() {
    let world = World::for_purposes(
        Site::reserved("train-ai"),
        ConsentSettings { on_reserved: OnReserved::Mark, ..training() },
    );
    for n in 0..10 {
        let report = world.fetch(&format!("/a/{n}")).await;
        assert!(report.success && report.response.is_some(), "{report:?}");
        assert_eq!(
            terms_of(&report),
            "train-ai=n content-usage robots.txt, train-ai=n content-usage header"
        );
        assert!(report.consent.unwrap().allowed_for.is_empty());
    }
    let attempts = world.sink.all();
    let stored = |name: &str| {
        attempts[0].response_headers.iter().find(|header| header.name == name).unwrap()
    };
    assert_eq!((attempts.len(), attempts[0].success), (10, true));
    assert!(stored(CONSENT_HEADER).value.contains("train-ai=n content-usage robots.txt"));
    assert_eq!(stored(ALLOWED_FOR_HEADER).value, "none");
}

#[tokio::test]
async fn without_purposes_terms_are_recorded_and_no_page_is_skipped() {
    let world = World::new(Site::reserved("train-ai"));
    let report = world.fetch("/a").await;
    assert!(report.success && terms_of(&report).contains("robots.txt"), "{report:?}");
    assert_eq!(
        report.consent.unwrap().allowed_for,
        [Purpose::Search, Purpose::AiInput, Purpose::Archive]
    );
    let ignoring = World::new(Site::reserved("train-ai"));
    let report = ignoring.fetch_with("/a", RobotsUse::Ignore).await;
    assert_eq!(
        (report.success, terms_of(&report)),
        (true, "train-ai=n content-usage header".to_owned())
    );
    assert_eq!(ignoring.asked(ROBOTS), 0, "robots.txt is not requested for its terms");
    let silent = World::new(text("User-agent: *\nAllow: /"));
    assert_eq!(silent.fetch("/a").await.consent, None);
}

#[tokio::test]
async fn the_terms_of_a_response_withhold_its_page() {
    let page = "<meta name=robots content='noai'><h1>Opening hours</h1>".to_owned()
        + &"<p>The museum is open.</p>".repeat(40);
    for (site, terms) in [
        (Site::with_header("X-Robots-Tag", "noai", Site::Static), "train-ai=n x-robots-tag header"),
        (
            Site::with_header("Content-Signal", "ai-train=no", Site::Static),
            "train-ai=n content-signal header",
        ),
        (Site::Html(page), "train-ai=n x-robots-tag meta"),
    ] {
        let world = World::for_purposes(site.clone(), training());
        let report = world.fetch_with("/a", RobotsUse::Ignore).await;
        assert_eq!((report.error_type, report.requests), (Some("reserved"), 1), "{report:?}");
        assert!(
            terms_of(&report).contains(terms) && report.response.is_none() && report.bytes == 0,
            "{report:?}"
        );
        let attempt = world.sink.all().remove(0);
        assert_eq!((attempt.success, attempt.weight, attempt.is_banned), (false, 0.0, false));
        let both =
            ConsentSettings { purposes: vec![Purpose::TrainAi, Purpose::Search], ..training() };
        let report =
            World::for_purposes(site.clone(), both).fetch_with("/a", RobotsUse::Ignore).await;
        assert_eq!(
            (report.success, report.consent.unwrap().allowed_for),
            (true, vec![Purpose::Search])
        );
        let deaf = ConsentSettings { respect: vec![Vocabulary::Rsl], ..training() };
        let report = World::for_purposes(site, deaf).fetch_with("/a", RobotsUse::Ignore).await;
        assert_eq!(
            (report.success, report.consent.unwrap().allowed_for),
            (true, vec![Purpose::TrainAi])
        );
    }
}

#[tokio::test]
async fn terms_that_cannot_be_read_permit() {
    let robots = "User-agent: *\nContent-Usage: train-ai=maybe\nContent-Usage: (\nContent-Usage: /a\nContent-Signal: ai-train";
    let pages = Site::with_header("Content-Usage", "train-ai=n, (", Site::Static);
    let site = Site::Mixed(vec![
        ("/".to_owned(), pages),
        (ROBOTS.to_owned(), Site::Html(robots.to_owned())),
    ]);
    let report = World::for_purposes(site, training()).fetch("/a").await;
    assert_eq!(
        (report.success, report.consent.unwrap().allowed_for),
        (true, vec![Purpose::TrainAi])
    );
    // A file that is not there has no terms. One that cannot be read may reserve the page.
    for (broken, error) in [
        (Site::Status(404), None),
        (Site::Status(500), Some("paused")),
        (Site::Truncated, Some("paused")),
        (Site::Reset, Some("network_error")),
    ] {
        let of = |consent| World::for_purposes(self::site(broken.clone()), consent);
        let report = of(training()).fetch_with("/a", RobotsUse::Ignore).await;
        assert_eq!((report.error_type, report.success), (error, error.is_none()), "{report:?}");
        let marking = ConsentSettings { on_reserved: OnReserved::Mark, ..training() };
        assert!(
            of(marking).fetch_with("/a", RobotsUse::Ignore).await.success,
            "{broken:?}: no page is skipped"
        );
    }
}

#[tokio::test]
async fn the_terms_of_an_error_page_are_not_those_of_the_page() {
    let site = Site::with_header("X-Robots-Tag", "noai", Site::NOT_FOUND);
    let report = World::for_purposes(site, training()).fetch_with("/a", RobotsUse::Ignore).await;
    assert_eq!(report.error_type, Some("not_found"));
}

const LICENSE: &str = "<rsl xmlns='https://rslstandard.org/rsl'><content url='/news/'><license><permits type='usage'>search\
    </permits><prohibits type='usage'>ai-all</prohibits></license></content></rsl>";

/// Returns a site whose robots.txt names a licence.
fn licensed(license: Site) -> Site {
    let robots = Site::Html("License: /license.xml\nUser-agent: *\nAllow: /".to_owned());
    let parts = [("/", Site::Static), (ROBOTS, robots), ("/license.xml", license)];
    Site::Mixed(parts.into_iter().map(|(prefix, site)| (prefix.to_owned(), site)).collect())
}

fn reading_licenses() -> ConsentSettings {
    ConsentSettings { licenses: LicenseUse::Read, ..training() }
}

#[tokio::test]
async fn pages_that_a_licence_reserves_are_not_requested() {
    let world = World::for_purposes(licensed(Site::Html(LICENSE.to_owned())), reading_licenses());
    let links: Vec<Link> =
        (0..10).map(|n| Link::new(world.origin.url(HOST, &format!("/news/{n}")))).collect();
    for report in
        futures_util::future::join_all(links.iter().map(|link| world.pipeline.fetch(link))).await
    {
        assert_eq!((report.error_type, report.requests), (Some("reserved"), 0), "{report:?}");
        let terms = terms_of(&report);
        assert!(
            terms.contains(
                "license=/license.xml rsl robots.txt, search=y rsl robots.txt, train-ai=n"
            ),
            "{terms}"
        );
    }
    let open = world.fetch("/about").await;
    assert_eq!((open.success, open.consent.unwrap().allowed_for), (true, vec![Purpose::TrainAi]));
    assert_eq!(
        (world.asked(ROBOTS), world.asked("/license.xml"), world.origin.hits(HOST)),
        (1, 1, 3)
    );
    // The file is read again after a day.
    world.origin.set_site(HOST, licensed(Site::Html(LICENSE.replace("ai-all", "ai-input"))));
    world.clock.set(BEGIN.saturating_add(Duration::from_secs(23 * 3600)));
    assert_eq!(world.fetch("/news/1").await.error_type, Some("reserved"));
    world.clock.set(BEGIN.saturating_add(Duration::from_secs(24 * 3600)));
    assert!(world.fetch("/news/1").await.success);
    assert_eq!(world.asked("/license.xml"), 2);
}

#[tokio::test]
async fn a_licence_is_requested_only_to_be_read_and_one_that_is_not_there_says_nothing() {
    let recording = World::for_purposes(licensed(Site::Html(LICENSE.to_owned())), training());
    let report = recording.fetch("/news/1").await;
    assert_eq!(
        (report.success, terms_of(&report)),
        (true, "license=/license.xml rsl robots.txt".to_owned())
    );
    assert_eq!(recording.asked("/license.xml"), 0);
    let too_long = LICENSE.replace("<content", &format!("{}<content", " ".repeat(64 << 10)));
    for (broken, requests, error) in [
        (Site::NOT_FOUND, 1, None),
        (Site::Html(too_long), 1, None),
        (Site::RedirectOut, 2, None),
        // These may reserve the page.
        (Site::Status(500), 2, Some("paused")),
        (Site::Truncated, 2, Some("paused")),
    ] {
        let world = World::for_purposes(licensed(broken.clone()), reading_licenses());
        for n in 0..3 {
            assert_eq!(world.fetch(&format!("/news/{n}")).await.error_type, error, "{broken:?}");
        }
        assert_eq!(world.asked("/license.xml"), 1, "{broken:?}: it is not requested again at once");
        world.clock.set(BEGIN.saturating_add(Duration::from_secs(5 * 60)));
        assert_eq!(world.fetch("/news/4").await.error_type, error, "{broken:?}");
        assert_eq!(world.asked("/license.xml"), requests, "{broken:?}");
        let marking = ConsentSettings { on_reserved: OnReserved::Mark, ..reading_licenses() };
        assert!(
            World::for_purposes(licensed(broken.clone()), marking).fetch("/news/1").await.success,
            "{broken:?}"
        );
    }
    let lost = World::for_purposes(licensed(Site::Reset), reading_licenses());
    assert_eq!(lost.fetch("/news/1").await.error_type, Some("network_error"));
    let deaf = ConsentSettings { respect: vec![Vocabulary::ContentUsage], ..reading_licenses() };
    let world = World::for_purposes(licensed(Site::Html(LICENSE.to_owned())), deaf);
    assert!(world.fetch("/news/1").await.success, "recorded, and not decisive");
}
