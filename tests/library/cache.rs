//! Validators against servers on loopback: which requests carry them, and what an unchanged page
//! costs and changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::pipeline::RecordingSink;
use fetchwise::Selector;
use fetchwise::cache_use::CacheUse;
use fetchwise::consent::{ConsentSettings, OnReserved, Purpose};
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::pipeline::{Link, Pipeline, Report};
use fetchwise::registry::FetcherSpec;
use fetchwise::response::header;
use fetchwise::robots::RobotsTxt;
use fetchwise::selector::SelectContext;
use fetchwise::store::files::Files;
use fetchwise::store::validators::ValidatorLog;
use fetchwise::store::warc::Warc;
use fetchwise::store::{Delivered, Store, StoredBody};
use fetchwise::time::{Clock, Timestamp};
use fetchwise_testsite::origin::{Origin, ReceivedRequest, Site};

const HOST: &str = "127.0.0.1";
const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
const DAY: Duration = Duration::from_secs(24 * 3600);

const UNCHANGED: Site = Site::Validators { max_age: None, version: 0 };

struct World {
    origin: Origin,
    pipeline: Pipeline,
    clock: Arc<Clock>,
    sink: RecordingSink,
}

/// Returns a crawl whose validators and bodies are in `dir`.
fn world(site: Site, cache_use: CacheUse, dir: &Path, store: Option<Arc<dyn Store>>) -> World {
    world_for(site, cache_use, dir, store, ConsentSettings::default())
}

/// Returns a crawl for purposes.
fn world_for(
    site: Site,
    cache_use: CacheUse,
    dir: &Path,
    store: Option<Arc<dyn Store>>,
    consent: ConsentSettings,
) -> World {
    let clock = Arc::new(Clock::fixed(BEGIN));
    let sink = RecordingSink::default();
    let builder = Selector::builder()
        .without_pace()
        .around(BEGIN)
        .clock(Arc::clone(&clock))
        .sink(sink.clone());
    let builder = builder
        .fetcher(FetcherSpec { measures_cost: true, ..FetcherSpec::by_name("direct_access") });
    let builder = builder.fetcher(FetcherSpec::by_name("playwright_stealth"));
    let selector = Arc::new(builder.build().unwrap());
    let guard = || AddressGuard::new(["127.0.0.0/8".parse().unwrap()], false);
    let plain = HttpFetcher::builder().guard(guard()).keep_exchange(true).build().unwrap();
    let stealth = HttpFetcher::builder().name("playwright_stealth").guard(guard()).build().unwrap();
    let log = Arc::new(ValidatorLog::open(&dir.join("validators.jsonl")).unwrap());
    let builder = Pipeline::builder(selector)
        .fetcher(Arc::new(plain))
        .fetcher(Arc::new(stealth))
        .cache(cache_use, log);
    let builder = match store {
        Some(store) => builder.store(store),
        None => builder,
    };
    let robots = HttpFetcher::builder().guard(guard()).build().unwrap();
    let builder = builder.robots(RobotsTxt::new(Arc::new(robots), "fetchwise")).consent(consent);
    World {
        origin: Origin::start([(HOST, site)]).unwrap(),
        pipeline: builder.build().unwrap(),
        clock,
        sink,
    }
}

fn in_files(site: Site, cache_use: CacheUse, dir: &Path) -> World {
    world(site, cache_use, dir, files(dir))
}

fn files(dir: &Path) -> Option<Arc<dyn Store>> {
    Some(Arc::new(Files::new(dir.join("pages")).unwrap()))
}

fn purposes(purposes: &[Purpose]) -> ConsentSettings {
    ConsentSettings { purposes: purposes.to_vec(), ..ConsentSettings::default() }
}

impl World {
    /// Returns the next crawl of the same site in the same directory.
    fn again(self, cache_use: CacheUse, dir: &Path, consent: ConsentSettings) -> Self {
        let Self { origin, pipeline, .. } = self;
        drop(pipeline);
        Self { origin, ..world_for(UNCHANGED, cache_use, dir, files(dir), consent) }
    }

    async fn fetch(&self, path: &str) -> Report {
        self.pipeline.fetch(&Link::new(self.origin.url(HOST, path))).await
    }

    /// Returns what the selector thinks of every fetcher, measured costs included.
    fn scores(&self, path: &str) -> String {
        let url = self.origin.url(HOST, path).parse().unwrap();
        let context = SelectContext { now: self.clock.now(), ..SelectContext::default() };
        format!("{:?}", self.pipeline.selector().explain(&url, &context).unwrap().candidates)
    }

    fn conditional(&self) -> usize {
        let is_conditional =
            |request: &ReceivedRequest| header(&request.headers, "if-none-match").is_some();
        self.origin.requests().iter().filter(|request| is_conditional(request)).count()
    }
}

#[tokio::test]
async fn the_second_crawl_of_unchanged_pages_gets_a_304_for_each_and_moves_no_score() {
    const PAGES: u64 = 1000;
    let dir = tempfile::tempdir().unwrap();
    let world = in_files(UNCHANGED, CacheUse::Revalidate, dir.path());
    let mut files = Vec::new();
    for n in 0..PAGES {
        let report = world.fetch(&format!("/a/{n}")).await;
        assert!(report.success && !report.not_modified, "{report:?}");
        files.push(report.file.unwrap());
    }
    assert_eq!(world.conditional(), 0);
    let sent = || world.origin.bytes_sent(HOST.parse().unwrap());
    let full = sent();
    let before = world.scores("/a/1");
    for (n, file) in files.iter().enumerate() {
        let report = world.fetch(&format!("/a/{n}")).await;
        assert!(report.success && report.not_modified && report.requests == 1, "{report:?}");
        assert_eq!((report.status, report.file.as_ref()), (Some(304), Some(file)));
    }
    assert_eq!((world.conditional() as u64, world.origin.hits(HOST)), (PAGES, 2 * PAGES));
    // What the server wrote to the connection, heads included.
    let again = sent() - full;
    assert!(full > 1000 * PAGES && again > 0 && again * 50 <= full, "{again} of {full} bytes");
    assert_eq!(world.scores("/a/1"), before, "neither estimates nor measured costs");
    let last = world.sink.all().pop().unwrap();
    assert_eq!((last.success, last.http_status, last.weight), (true, Some(304), 0.0));
}

#[tokio::test]
async fn a_changed_page_comes_in_full_and_its_new_validators_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let world = in_files(UNCHANGED, CacheUse::Revalidate, dir.path());
    world.fetch("/a").await;
    world.origin.set_site(HOST, Site::Validators { max_age: None, version: 1 });
    let changed = world.fetch("/a").await;
    assert!(changed.success && !changed.not_modified && changed.bytes > 0, "{changed:?}");
    assert!(world.fetch("/a").await.not_modified);
    world.origin.set_site(HOST, Site::Static);
    assert!(!world.fetch("/a").await.not_modified);
    let before = world.conditional();
    assert!(!world.fetch("/a").await.not_modified);
    assert_eq!(world.conditional(), before, "a page without validators is requested without any");
}

#[tokio::test]
async fn a_304_that_nobody_asked_for_stays_empty() {
    let dir = tempfile::tempdir().unwrap();
    let world = in_files(Site::Status(304), CacheUse::Revalidate, dir.path());
    let report = world.fetch("/a").await;
    assert!(!report.success && !report.not_modified, "{report:?}");
    assert_eq!(report.error_type, Some("empty_content"), "as it is without a cache");
    assert_eq!(world.sink.all()[0].error_type.as_ref().unwrap().name(), "wrong_tool");
    // A 304 about another ETag does not confirm ours.
    let dir = tempfile::tempdir().unwrap();
    let other = in_files(UNCHANGED, CacheUse::Revalidate, dir.path());
    other.fetch("/a").await;
    other.origin.set_site(HOST, Site::with_header("ETag", "\"other\"", Site::Status(304)));
    assert!(!other.fetch("/a").await.success);
}

#[tokio::test]
async fn a_missing_body_and_an_old_one_are_fetched_in_full() {
    let dir = tempfile::tempdir().unwrap();
    let world = in_files(UNCHANGED, CacheUse::Revalidate, dir.path());
    let file = world.fetch("/a").await.file.unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(!world.fetch("/a").await.not_modified && file.exists());
    world.clock.set(BEGIN.saturating_add(29 * DAY));
    assert!(world.fetch("/a").await.not_modified);
    world.clock.set(BEGIN.saturating_add(30 * DAY));
    assert!(
        !world.fetch("/a").await.not_modified,
        "a full fetch every 30 days, whatever the 304s say"
    );
}

/// A file counted as the body of an unchanged page by its name, whatever was in it.
#[tokio::test]
async fn a_body_that_was_cut_emptied_or_overwritten_is_fetched_in_full() {
    let dir = tempfile::tempdir().unwrap();
    let world = in_files(UNCHANGED, CacheUse::Revalidate, dir.path());
    let file = world.fetch("/a").await.file.unwrap();
    let whole = std::fs::read(&file).unwrap();
    let mut other = whole.clone();
    other[0] ^= 1;
    for (what, broken) in
        [("cut", &whole[..whole.len() / 2]), ("emptied", &[][..]), ("overwritten", &other[..])]
    {
        std::fs::write(&file, broken).unwrap();
        let before = world.conditional();
        let report = world.fetch("/a").await;
        assert!(report.success && !report.not_modified, "{what}: {report:?}");
        assert_eq!(
            (std::fs::read(&file).unwrap(), world.conditional()),
            (whole.clone(), before),
            "{what}"
        );
        assert!(world.fetch("/a").await.not_modified, "{what}: the new body is there");
    }
}

#[tokio::test]
async fn a_fresh_page_whose_body_was_overwritten_is_requested() {
    let dir = tempfile::tempdir().unwrap();
    let world =
        in_files(Site::Validators { max_age: Some(60), version: 0 }, CacheUse::Fresh, dir.path());
    let file = world.fetch("/a").await.file.unwrap();
    assert_eq!(world.fetch("/a").await.requests, 0);
    std::fs::write(&file, "another page").unwrap();
    let report = world.fetch("/a").await;
    assert!(report.success && !report.not_modified && report.requests == 1, "{report:?}");
}

/// A store whose bodies vanish once it has said that it holds them.
struct Vanishing(Files);

impl Store for Vanishing {
    fn put(&self, page: &Delivered<'_>) -> std::io::Result<PathBuf> {
        self.0.put(page)
    }

    fn holds(&self, body: &StoredBody) -> bool {
        let is_held = self.0.holds(body);
        std::fs::write(&body.file, "").unwrap();
        is_held
    }

    fn put_not_modified(&self, page: &Delivered<'_>, earlier: &StoredBody) -> std::io::Result<()> {
        self.0.put_not_modified(page, earlier)
    }
}

#[tokio::test]
async fn a_body_that_vanishes_before_the_304_comes_is_not_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Vanishing(Files::new(dir.path().join("pages")).unwrap());
    let world = world(UNCHANGED, CacheUse::Revalidate, dir.path(), Some(Arc::new(store)));
    world.fetch("/a").await;
    let report = world.fetch("/a").await;
    assert_eq!(
        (report.success, report.error_type, report.status),
        (false, Some(Report::STORE_ERROR), Some(304))
    );
    let again = world.fetch("/a").await;
    assert!(again.success && !again.not_modified, "{again:?}");
}

#[tokio::test]
async fn a_fresh_page_is_not_requested() {
    let dir = tempfile::tempdir().unwrap();
    let world =
        in_files(Site::Validators { max_age: Some(60), version: 0 }, CacheUse::Fresh, dir.path());
    let file = world.fetch("/a").await.file;
    world.clock.set(BEGIN.saturating_add(Duration::from_secs(59)));
    let fresh = world.fetch("/a").await;
    assert!(
        fresh.success && fresh.not_modified && fresh.requests == 0 && fresh.file == file,
        "{fresh:?}"
    );
    assert_eq!(world.origin.hits(HOST), 1);
    world.clock.set(BEGIN.saturating_add(Duration::from_secs(60)));
    let asked = world.fetch("/a").await;
    assert!(asked.not_modified && asked.requests == 1, "{asked:?}");
    world.clock.set(BEGIN.saturating_add(Duration::from_secs(119)));
    assert_eq!(world.fetch("/a").await.requests, 0, "the 304 made it fresh again");
}

#[tokio::test]
async fn without_a_store_pages_are_revalidated_and_off_keeps_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let bare = world(UNCHANGED, CacheUse::Revalidate, dir.path(), None);
    assert!(bare.fetch("/a").await.response.is_some());
    let again = bare.fetch("/a").await;
    assert!(
        again.success && again.not_modified && again.response.is_none() && again.file.is_none(),
        "{again:?}"
    );
    drop(bare);
    let off = in_files(UNCHANGED, CacheUse::Off, dir.path());
    off.fetch("/a").await;
    assert!(!off.fetch("/a").await.not_modified);
    assert_eq!(off.conditional(), 0);
}

#[tokio::test]
async fn an_archive_gets_a_revisit_that_names_the_earlier_record() {
    let dir = tempfile::tempdir().unwrap();
    let (path, second) = (dir.path().join("first.warc"), dir.path().join("second.warc"));
    let first = world(
        UNCHANGED,
        CacheUse::Revalidate,
        dir.path(),
        Some(Arc::new(Warc::open(&path).unwrap())),
    );
    assert!(!first.fetch("/a").await.not_modified);
    let port = first.origin.port();
    let World { origin, pipeline, .. } = first;
    drop(pipeline);
    let mut again = world(
        UNCHANGED,
        CacheUse::Revalidate,
        dir.path(),
        Some(Arc::new(Warc::open(&second).unwrap())),
    );
    again.origin = origin;
    assert_eq!(again.origin.port(), port);
    let report = again.fetch("/a").await;
    assert!(report.not_modified && report.file.as_deref() == Some(&*path), "{report:?}");
    let id = report.record.unwrap();
    let archived = std::fs::read_to_string(&path).unwrap();
    assert!(archived.contains(&format!("WARC-Record-ID: <{id}>")), "{id}");
    let revisit = std::fs::read_to_string(&second).unwrap();
    for line in [
        "WARC-Type: revisit",
        "WARC-Profile: http://netpreserve.org/warc/1.1/revisit/server-not-modified",
        &format!("WARC-Refers-To: <{id}>"),
        "HTTP/1.1 304 Not Modified",
        "If-None-Match: ",
    ] {
        assert!(revisit.contains(line), "{line}: {revisit}");
    }
}

/// Crawls three pages into an archive. Returns which of them were unchanged.
async fn crawl(origin: &mut Option<Origin>, dir: &Path, archive: &Path) -> [bool; 3] {
    let mut world =
        world(UNCHANGED, CacheUse::Revalidate, dir, Some(Arc::new(Warc::open(archive).unwrap())));
    if let Some(origin) = origin.take() {
        world.origin = origin;
    }
    let mut unchanged = [false; 3];
    for (n, unchanged) in unchanged.iter_mut().enumerate() {
        let report = world.fetch(&format!("/a/{n}")).await;
        assert!(report.success, "{report:?}");
        *unchanged = report.not_modified;
    }
    *origin = Some(world.origin);
    unchanged
}

/// An archive counted as the place of an unchanged page by its name: after it was deleted, emptied,
/// cut or replaced, the new archive had only revisits of records that existed nowhere.
#[tokio::test]
async fn an_archive_without_the_earlier_record_gets_the_page_in_full() {
    for name in ["crawl.warc", "crawl.warc.gz"] {
        let dir = tempfile::tempdir().unwrap();
        let (dir, origin) = (dir.path(), &mut None);
        let (path, other) = (dir.join(name), dir.join(format!("other-{name}")));
        assert_eq!(crawl(origin, dir, &path).await, [false; 3]);
        assert_eq!(crawl(origin, dir, &other).await, [true; 3], "{name}: the records are there");
        let another = std::fs::read(&other).unwrap();
        for (what, bytes) in [("emptied", &[][..]), ("another", &another[..])] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(crawl(origin, dir, &path).await, [false; 3], "{name}: {what}");
            assert_eq!(
                crawl(origin, dir, &path).await,
                [true; 3],
                "{name}: {what}, with its new records"
            );
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(crawl(origin, dir, &path).await, [false; 3], "{name}: deleted");
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        let after = crawl(origin, dir, &path).await;
        assert_eq!((after[0], after[2]), (true, false), "{name}: cut in half");
    }
}

/// A page with terms in its head, as long as an ordinary one.
fn page_with_meta() -> String {
    let text = "<p>The museum is open.</p>".repeat(40);
    format!("<meta name=robots content='noai'><h1>Opening hours</h1>{text}")
}

/// Returns sites whose first response has terms against training, with the terms. Later ones, 304s
/// included, have none.
fn sites_with_terms() -> Vec<(Site, &'static str)> {
    let fresh = Site::Validators { max_age: Some(60), version: 0 };
    let then = |first: Site, then: Site| Site::Drifting {
        after: 1,
        first: Box::new(first),
        then: Box::new(then),
    };
    let tagged = |site| {
        Site::with_header("Cache-Control", "max-age=60", Site::with_header("ETag", "\"a\"", site))
    };
    vec![
        (
            then(Site::with_header("Content-Usage", "train-ai=n", fresh.clone()), fresh),
            "train-ai=n content-usage header",
        ),
        (
            then(tagged(Site::Html(page_with_meta())), tagged(Site::Status(304))),
            "train-ai=n x-robots-tag meta",
        ),
    ]
}

#[tokio::test]
async fn the_terms_that_a_page_came_with_hold_for_its_304_and_while_it_is_fresh() {
    for (cache_use, requests) in [(CacheUse::Revalidate, 1), (CacheUse::Fresh, 0)] {
        for (site, terms) in sites_with_terms() {
            let dir = tempfile::tempdir().unwrap();
            let world = in_files(site, cache_use, dir.path());
            let file = world.fetch("/a").await.file;
            assert!(file.is_some());
            let world = world.again(cache_use, dir.path(), purposes(&[Purpose::TrainAi]));
            let report = world.fetch("/a").await;
            assert_eq!(
                (report.error_type, report.requests),
                (Some("reserved"), requests),
                "{terms}: {report:?}"
            );
            assert!(!report.success && !report.not_modified && report.file.is_none(), "{report:?}");
            let consent = report.consent.unwrap();
            assert!(
                consent.terms_text().contains(terms) && consent.allowed_for.is_empty(),
                "{consent:?}"
            );
            let mark =
                ConsentSettings { on_reserved: OnReserved::Mark, ..purposes(&[Purpose::TrainAi]) };
            let world = world.again(cache_use, dir.path(), mark);
            let report = world.fetch("/a").await;
            assert!(
                report.not_modified && report.requests == requests && report.file == file,
                "{report:?}"
            );
            assert!(report.consent.unwrap().allowed_for.is_empty(), "it says so");
            let world =
                world.again(cache_use, dir.path(), purposes(&[Purpose::Search, Purpose::TrainAi]));
            let report = world.fetch("/a").await;
            assert!(report.not_modified && report.file == file, "{report:?}");
            assert_eq!(report.consent.unwrap().allowed_for, [Purpose::Search]);
        }
    }
}

#[tokio::test]
async fn the_terms_of_a_kept_page_count_together_with_those_that_robots_txt_has_today() {
    for cache_use in [CacheUse::Revalidate, CacheUse::Fresh] {
        let fresh = Site::Validators { max_age: Some(60), version: 0 };
        let pages = Site::with_header("X-Robots-Tag", "noai", fresh.clone());
        let with_robots = |text: &str, pages: &Site| {
            let robots = ("/robots.txt".to_owned(), Site::Html(text.to_owned()));
            Site::Mixed(vec![("/".to_owned(), pages.clone()), robots])
        };
        let dir = tempfile::tempdir().unwrap();
        let both = [Purpose::Search, Purpose::TrainAi];
        let world = in_files(with_robots("", &pages), cache_use, dir.path());
        assert!(world.fetch("/a").await.success);
        world.origin.set_site(HOST, with_robots("User-agent: *\nContent-Usage: search=n", &fresh));
        let report = world.again(cache_use, dir.path(), purposes(&both)).fetch("/a").await;
        assert_eq!(report.error_type, Some("reserved"), "{report:?}");
        let terms = report.consent.unwrap().terms_text();
        assert!(
            terms.contains("search=n content-usage robots.txt") && terms.contains("train-ai=n"),
            "{terms}"
        );
    }
}

#[tokio::test]
async fn a_304_changes_the_terms_that_it_names_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let usage = |value: &str| Site::with_header("Content-Usage", value, UNCHANGED);
    let world = in_files(UNCHANGED, CacheUse::Revalidate, dir.path());
    assert!(world.fetch("/a").await.success);
    let world = world.again(CacheUse::Revalidate, dir.path(), purposes(&[Purpose::TrainAi]));
    for (site, error) in [
        (UNCHANGED, None),
        (usage("train-ai=n"), Some("reserved")),
        (UNCHANGED, Some("reserved")),
        (usage("train-ai=y"), None),
        (UNCHANGED, None),
    ] {
        world.origin.set_site(HOST, site.clone());
        let report = world.fetch("/a").await;
        assert_eq!((report.error_type, report.status), (error, Some(304)), "{site:?}: {report:?}");
        assert_eq!(report.not_modified, error.is_none());
    }
}

#[tokio::test]
async fn a_reserved_page_ends_the_entry_of_its_earlier_version() {
    let dir = tempfile::tempdir().unwrap();
    let training = purposes(&[Purpose::TrainAi]);
    let world = world_for(UNCHANGED, CacheUse::Revalidate, dir.path(), files(dir.path()), training);
    assert!(world.fetch("/a").await.success);
    let changed = Site::Validators { max_age: None, version: 1 };
    world.origin.set_site(HOST, Site::with_header("Content-Usage", "train-ai=n", changed));
    let report = world.fetch("/a").await;
    assert_eq!((report.error_type, report.status), (Some("reserved"), Some(200)), "{report:?}");
    let before = world.conditional();
    // A 304 to the first version's validators would bring a body back that the site has reserved
    // since.
    world.origin.set_site(HOST, UNCHANGED);
    let report = world.fetch("/a").await;
    assert!(report.success && !report.not_modified, "{report:?}");
    assert_eq!(world.conditional(), before);
}

#[tokio::test]
async fn an_entry_of_an_earlier_release_has_no_terms_and_serves_no_crawl_with_purposes() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("validators.jsonl");
    let world = in_files(UNCHANGED, CacheUse::Revalidate, dir.path());
    assert!(world.fetch("/a").await.success);
    let World { origin, pipeline, .. } = world;
    drop(pipeline);
    let written = std::fs::read_to_string(&log).unwrap();
    assert!(written.contains(",\"terms\":[]"), "{written}");
    std::fs::write(&log, written.replace(",\"terms\":[]", "")).unwrap();
    let search = purposes(&[Purpose::Search]);
    let world = World {
        origin,
        ..world_for(UNCHANGED, CacheUse::Revalidate, dir.path(), files(dir.path()), search)
    };
    let report = world.fetch("/a").await;
    assert!(report.success && !report.not_modified && world.conditional() == 0, "{report:?}");
    assert!(world.fetch("/a").await.not_modified, "now they are known");
}
