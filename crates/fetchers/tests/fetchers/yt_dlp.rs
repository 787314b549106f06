//! The real yt-dlp, with its generic extractor, on pages and media on loopback. Without yt-dlp the
//! tests are skipped, or fail if `FETCHWISE_SYSTEM_TESTS` is set. `make yt-dlp` installs it,
//! `FETCHWISE_YT_DLP` names a program.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::detect::Detector;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::dial::Dialer;
use fetchwise::fetch::yt_dlp::{DownloadFetcher, DownloadOptions, Progress};
use fetchwise::fetch::{FetchError, Fetcher, Limits, Request, Response};
use fetchwise::fetch_result::Outcome;
use fetchwise_testsite::requirements::required;
use fetchwise_testsite::services::{Reply, Service, ServiceRequest};

const CLIP_BYTES: usize = 300_000;

/// Returns the program. Without one, reports the test as skipped.
fn yt_dlp() -> Option<PathBuf> {
    let named = std::env::var_os("FETCHWISE_YT_DLP").map(PathBuf::from);
    let on_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|dir| dir.join("yt-dlp")).find(|program| program.is_file())
    };
    let installed = || {
        // The test is target/debug/deps/NAME.
        let target = std::env::current_exe().ok()?.ancestors().nth(3)?.to_owned();
        Some(target.join("yt-dlp/bin/yt-dlp")).filter(|program| program.is_file())
    };
    let found = named.or_else(on_path).or_else(installed);
    let missing = "no yt-dlp: `make yt-dlp` installs it, FETCHWISE_YT_DLP names a program";
    required(found.ok_or(missing), &format!("tests with yt-dlp ({missing})"))
}

fn clip() -> Vec<u8> {
    (0..CLIP_BYTES).map(|n| u8::try_from(n * 31 % 251).unwrap()).collect()
}

fn site(request: &ServiceRequest) -> Reply {
    let page = "<html><head><title>A clip about the harbour</title></head><body><h1>Harbour</h1>\
                <video controls src=\"/clip.mp4\"><track kind=\"subtitles\" src=\"/clip.vtt\" srclang=\"en\"></video></body></html>";
    match request.target.split('?').next().unwrap_or_default() {
        "/clip.mp4" => Reply::status(200).body("video/mp4", clip()),
        "/page" => Reply::status(200).body("text/html", page),
        "/clip.vtt" => Reply::status(200).body("text/vtt", "WEBVTT\n\n00:00.000 --> 00:02.000\nThe harbour.\n"),
        "/text" => {
            Reply::status(200).body("text/html", "<html><title>x</title><body><p>Nothing to play.</p></body></html>")
        }
        "/inside" => Reply::status(302).header("Location", "http://127.0.0.1:9/secret.mp4"),
        "/evil" => Reply::status(200).body(
            "text/html",
            "<html><head><title>../../../evil \x1b[31m; touch evil &amp;</title></head><body>\
             <video controls src=\"/clip.mp4\"></video></body></html>",
        ),
        "/local.m3u8" => Reply::status(200).body(
            "application/vnd.apple.mpegurl",
            "#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\nfile:///etc/passwd\n#EXTINF:1,\nhttp://127.0.0.1:9/x\n\
             #EXT-X-ENDLIST\n",
        ),
        "/forbidden" => Reply::status(403),
        "/busy" => Reply::status(429),
        // Until the process ends.
        "/stuck" => loop {
            std::thread::park();
        },
        _ => Reply::status(404),
    }
}

fn serve() -> Service {
    Service::start(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 41)), site).unwrap()
}

/// Returns a fetcher that may dial only the site's address.
fn fetcher(options: DownloadOptions) -> DownloadFetcher {
    let guard = AddressGuard::new(["127.0.0.41/32".parse().unwrap()], false);
    DownloadFetcher::new(options, Dialer::new(guard))
}

fn options(program: &Path) -> DownloadOptions {
    DownloadOptions { program: program.to_owned(), ..DownloadOptions::default() }
}

async fn get(fetcher: &DownloadFetcher, url: &str, limits: Limits) -> Result<Response, FetchError> {
    fetcher.fetch(Request::new(&url.parse().unwrap(), &limits)).await
}

fn a_minute() -> Limits {
    Limits { deadline: Duration::from_secs(60), ..Limits::default() }
}

#[tokio::test]
async fn a_media_file_is_complete_and_its_progress_is_reported() {
    let Some(program) = yt_dlp() else { return };
    let service = serve();
    let reported: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let sink = Arc::clone(&reported);
    let on_progress =
        Some(Arc::new(move |progress: &Progress| sink.lock().unwrap().push(progress.clone())) as _);
    let one = fetcher(DownloadOptions { on_progress, ..options(&program) });
    let url = service.url("/clip.mp4");
    let response = get(&one, &url, a_minute()).await.unwrap();
    assert_eq!((response.status, response.body.len()), (200, CLIP_BYTES as u64));
    assert_eq!(response.body.head().as_ref(), clip(), "it is entirely in memory");
    assert_eq!(response.headers[0].value.as_str(), "video/mp4");
    let verdict = Detector::new().judge_page(&response.page(&url.parse().unwrap()));
    assert_eq!(verdict.outcome, Outcome::Content);
    let reported = reported.lock().unwrap();
    let last = reported.last().unwrap();
    assert_eq!(
        (last.bytes, last.total, last.url.as_str()),
        (CLIP_BYTES as u64, Some(CLIP_BYTES as u64), url.as_str())
    );
}

#[tokio::test]
async fn a_pages_video_is_stored_with_its_metadata_and_subtitles() {
    let Some(program) = yt_dlp() else { return };
    let (service, dir) = (serve(), tempfile::tempdir().unwrap());
    let one = fetcher(DownloadOptions {
        dir: Some(dir.path().join("media")),
        subtitles: vec!["all".to_owned()],
        ..options(&program)
    });
    let response = get(&one, &service.url("/page"), a_minute()).await.unwrap();
    assert_eq!(response.body.len(), CLIP_BYTES as u64);
    let mut names: Vec<String> = std::fs::read_dir(dir.path().join("media"))
        .unwrap()
        .map(|f| f.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["page-1.en.vtt", "page-1.info.json", "page-1.mp4"]);
    let known = std::fs::read(dir.path().join("media/page-1.info.json")).unwrap();
    let known: serde_json::Value = serde_json::from_slice(&known).unwrap();
    assert!(known["title"].as_str().unwrap().contains("A clip about the harbour"), "{known}");
    assert_eq!(std::fs::read(dir.path().join("media/page-1.mp4")).unwrap(), clip());
}

#[tokio::test]
async fn failures_have_their_own_error_kinds() {
    let Some(program) = yt_dlp() else { return };
    let service = serve();
    let one = fetcher(options(&program));
    for (path, kind, status) in [
        ("/gone", ErrorKind::NotFound, Some(404)),
        ("/forbidden", ErrorKind::Blocked403, Some(403)),
        ("/busy", ErrorKind::Blocked403, Some(429)),
        ("/text", ErrorKind::WrongTool, None),
    ] {
        let error = get(&one, &service.url(path), a_minute()).await.unwrap_err();
        assert_eq!(
            (error.kind, error.status, error.local),
            (kind, status, false),
            "{path}: {error}"
        );
    }
    let short = Limits { max_body: 1000, ..a_minute() };
    let error = get(&one, &service.url("/clip.mp4"), short).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge, "{error}");
}

#[tokio::test]
async fn the_guard_applies_to_the_page_and_its_links() {
    let Some(program) = yt_dlp() else { return };
    let service = serve();
    let one = fetcher(options(&program));
    let error = get(&one, "http://127.0.0.1:9/clip.mp4", a_minute()).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::RefusedAddress, "{error}");
    assert!(service.requests().is_empty());
    let error = get(&one, &service.url("/inside"), a_minute()).await.unwrap_err();
    assert!(error.message.contains("403"), "the proxy refuses the address: {error}");
}

/// What a hostile site writes into pages and playlists stays data: no file outside the folder, none
/// of this machine's.
#[tokio::test]
async fn a_hostile_site_reads_and_writes_no_files() {
    let Some(program) = yt_dlp() else { return };
    let (service, dir) = (serve(), tempfile::tempdir().unwrap());
    let media = dir.path().join("a/b/c/media");
    let one = fetcher(DownloadOptions { dir: Some(media.clone()), ..options(&program) });
    let response = get(&one, &service.url("/evil"), a_minute()).await.unwrap();
    assert_eq!(response.body.len(), CLIP_BYTES as u64);
    for stored in std::fs::read_dir(&media).unwrap() {
        let name = stored.unwrap().file_name().into_string().unwrap();
        assert!(name.starts_with("evil-1.") && !name.contains(['/', '\x1b', ';']), "{name:?}");
    }
    let folders =
        ["a", "a/b", "a/b/c"].map(|path| std::fs::read_dir(dir.path().join(path)).unwrap().count());
    assert_eq!(folders, [1, 1, 1], "nothing lies outside the folder");
    match get(&one, &service.url("/local.m3u8"), a_minute()).await {
        Ok(response) => {
            let text = String::from_utf8_lossy(response.body.head()).into_owned();
            assert!(!text.contains("root:"), "a file of this machine came back");
        }
        Err(error) => assert!(!error.to_string().contains("root:"), "{error}"),
    }
}

#[tokio::test]
async fn a_run_ends_by_its_deadline_and_a_missing_program_is_unavailable() {
    let Some(program) = yt_dlp() else { return };
    let service = serve();
    let one = fetcher(DownloadOptions { max_time: Duration::ZERO, ..options(&program) });
    let limits = Limits { deadline: Duration::from_secs(4), ..Limits::default() };
    let error = get(&one, &service.url("/stuck"), limits).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
    assert_eq!(one.deadline(Duration::from_secs(4)), Duration::from_secs(4));
    let error =
        get(&fetcher(options(Path::new("/no/such/yt-dlp"))), &service.url("/page"), a_minute())
            .await
            .unwrap_err();
    assert!(error.unavailable, "{error:?}");
}
