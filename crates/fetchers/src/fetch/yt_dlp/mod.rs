//! `youtube_downloader`: a fetcher that runs yt-dlp as a supervised program, once per page, for
//! media behind a player.
//!
//! Invariants: a run ends by its deadline with its whole process group. Every connection of it goes
//! through the [`FilteringProxy`], and so to addresses that the guard allows. A response is one
//! media file within the limits. Its metadata (title, length, formats) and its subtitles are kept
//! next to it if a folder is configured. `errors` classifies its messages.

mod errors;

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::OnceCell;
use url::Url;

use super::body::{Body, BodyCollector, BodyError};
use super::dial::Dialer;
use super::proxy::FilteringProxy;
use super::{FetchError, FetchFuture, Fetcher, LimitMet, Limits, Request, Response};
use crate::fetch::local_faults::{is_local_fault, is_local_spawn_fault};
use crate::fetch::process_group::{ChildGroup, MAX_TAIL_LINE, ScratchDir, StderrTail, read_line};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::response::Header;

/// Default name under which attempts are logged.
pub const DEFAULT_NAME: &str = "youtube_downloader";

/// Prefixes of a progress line and of the line with the downloaded file's name.
const PROGRESS: &str = "fetchwise-progress ";
const FILE: &str = "fetchwise-file ";

/// Maximum time for the program to end after the end of its output.
const MAX_END: Duration = Duration::from_secs(2);
/// Bytes per read of the downloaded file.
const COPY_CHUNK: usize = 256 << 10;
/// Maximum bytes of one output line.
const MAX_LINE: usize = 64 << 10;

/// Progress of a download.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// URL of the page.
    pub url: Url,
    /// Received bytes of the current file.
    pub bytes: u64,
    /// Length of the file, if known.
    pub total: Option<u64>,
}

/// Callback that gets the progress of downloads.
pub type OnProgress = Arc<dyn Fn(&Progress) + Send + Sync>;

/// Settings of a [`DownloadFetcher`].
#[derive(Clone)]
pub struct DownloadOptions {
    /// Name under which attempts are logged.
    pub name: String,
    /// yt-dlp: its path, or its name in `PATH`.
    pub program: PathBuf,
    /// Format, as in yt-dlp's `--format`; `None` for its best one.
    pub format: Option<String>,
    /// Languages of subtitles, as in yt-dlp's `--sub-langs`; empty for no subtitles.
    pub subtitles: Vec<String>,
    /// Minimum deadline of a download.
    pub max_time: Duration,
    /// Folder for media, their metadata (`.info.json`) and subtitles; `None` keeps nothing.
    pub dir: Option<PathBuf>,
    /// Further arguments for the program.
    pub arguments: Vec<OsString>,
    /// Maximum number of concurrent downloads.
    pub max_in_flight: usize,
    /// Callback that gets the progress.
    pub on_progress: Option<OnProgress>,
}

impl Default for DownloadOptions {
    fn default() -> Self {
        Self {
            name: DEFAULT_NAME.to_owned(),
            program: "yt-dlp".into(),
            format: None,
            subtitles: Vec::new(),
            max_time: Duration::from_secs(600),
            dir: None,
            arguments: Vec::new(),
            max_in_flight: 2,
            on_progress: None,
        }
    }
}

impl fmt::Debug for DownloadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DownloadOptions")
            .field("name", &self.name)
            .field("program", &self.program)
            .finish_non_exhaustive()
    }
}

/// A fetcher of media by yt-dlp. See the [module](self).
pub struct DownloadFetcher {
    options: DownloadOptions,
    dialer: Dialer,
    /// Proxy for all of the program's connections, started with the first download.
    proxy: OnceCell<FilteringProxy>,
}

impl DownloadFetcher {
    /// Returns a fetcher that runs the program of `options` for the hosts that `dialer`'s guard
    /// allows. Starts nothing yet.
    pub fn new(options: DownloadOptions, dialer: Dialer) -> Self {
        Self { options, dialer, proxy: OnceCell::new() }
    }

    async fn download(&self, request: Request<'_>) -> Result<Response, FetchError> {
        let (started, deadline) = (Instant::now(), request.limits.deadline);
        match tokio::time::timeout(deadline, self.run(request)).await {
            Ok(Ok(response)) => Ok(Response { duration: started.elapsed(), ..response }),
            Ok(Err(error)) => Err(FetchError { duration: started.elapsed(), ..error }),
            Err(_) => {
                let message =
                    format!("the download did not end within {} s", deadline.as_secs_f64());
                let error = FetchError::new(ErrorKind::Timeout, message, started.elapsed());
                Err(FetchError { limit: Some(LimitMet::Deadline(deadline)), ..error })
            }
        }
    }

    async fn run(&self, request: Request<'_>) -> Result<Response, FetchError> {
        let local = |what: &str, why: &io::Error| {
            FetchError::local(format!("{what}: {why}"), Duration::ZERO)
        };
        let host = request.url.host_str().unwrap_or_default();
        self.dialer.check(host).await.map_err(|why| FetchError {
            local: why.is_local(),
            ..error(why.kind(), why.to_string())
        })?;
        let proxy =
            self.proxy.get_or_try_init(|| FilteringProxy::start_with(self.dialer.clone())).await;
        let proxy = proxy.map_err(|why| local("cannot start the proxy", &why))?;
        let scratch = ScratchDir::new("fetchwise-download-")
            .map_err(|why| local("cannot create a folder for the download", &why))?;
        let mut group =
            ChildGroup::spawn(self.command(request, &scratch, proxy), Some(scratch.path()))
                .map_err(|why| match is_local_spawn_fault(&why) {
                    true => local("cannot start yt-dlp", &why),
                    false => FetchError::unavailable(format!(
                        "cannot run {}: {why}",
                        self.options.program.display()
                    )),
                })?;
        let faults = proxy.local_faults();
        let (file, tail) = self.read_output(&mut group, request.url).await;
        let status = group.wait(MAX_END).await;
        group.finish(Duration::ZERO).await;
        let is_fine = status.is_some_and(|status| status.success());
        match file.filter(|_| is_fine) {
            Some(file) => self.to_response(request, &file, &scratch).await,
            None if proxy.local_faults() > faults => {
                Err(FetchError::local(tail.summary(1), Duration::ZERO))
            }
            None => Err(failure(request, is_fine, &tail, proxy)),
        }
    }

    fn command(
        &self,
        request: Request<'_>,
        scratch: &ScratchDir,
        proxy: &FilteringProxy,
    ) -> Command {
        let options = &self.options;
        let mut command = Command::new(&options.program);
        command
            .args(["--ignore-config", "--no-cache-dir", "--no-playlist", "--playlist-items", "1", "--restrict-filenames"])
            .args(["--newline", "--progress", "--no-simulate", "--no-warnings", "--no-mtime", "--retries", "1"])
            .arg("--progress-template")
            .arg(format!(
                "download:{PROGRESS}%(progress.downloaded_bytes)s %(progress.total_bytes,progress.total_bytes_estimate)s"
            ))
            .arg("--print")
            .arg(format!("after_move:{FILE}%(filepath)s"))
            .args(["--max-filesize", &request.limits.max_body.to_string(), "--write-info-json", "--output"])
            .arg(scratch.path().join("%(id).80B.%(ext)s"));
        if let Some(format) = &options.format {
            command.args(["--format", format]);
        }
        if !options.subtitles.is_empty() {
            command.args(["--write-subs", "--sub-langs", &options.subtitles.join(",")]);
        }
        let (user, password) = proxy.credentials();
        let address = format!("http://{user}:{password}@{}", proxy.addr());
        for name in
            ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"]
        {
            command.env(name, &address);
        }
        command
            .env_remove("no_proxy")
            .env_remove("NO_PROXY")
            .args(&options.arguments)
            .arg("--")
            .arg(request.url.as_str())
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Reads the program's output to its end. Returns the downloaded file and the last lines of
    /// standard error.
    async fn read_output(
        &self,
        group: &mut ChildGroup,
        url: &Url,
    ) -> (Option<PathBuf>, StderrTail) {
        let tail = StderrTail::default();
        let (stdout, stderr) = (group.child().stdout.take(), group.child().stderr.take());
        let read_stderr = async {
            let Some(stderr) = stderr else { return };
            let (mut from, mut line) = (BufReader::new(stderr), Vec::new());
            while let Ok(Some(_)) = read_line(&mut from, &mut line, MAX_TAIL_LINE).await {
                tail.push(&String::from_utf8_lossy(&line));
            }
        };
        let read_stdout = async {
            let mut file = None;
            let Some(stdout) = stdout else { return file };
            let (mut from, mut line) = (BufReader::new(stdout), Vec::new());
            while let Ok(Some(_)) = read_line(&mut from, &mut line, MAX_LINE).await {
                let text = String::from_utf8_lossy(&line);
                if let Some(name) = text.strip_prefix(FILE) {
                    file = Some(PathBuf::from(name.trim_end()));
                } else if let Some(numbers) = text.strip_prefix(PROGRESS) {
                    self.report_progress(url, numbers);
                }
            }
            file
        };
        let (file, ()) = tokio::join!(read_stdout, read_stderr);
        (file, tail)
    }

    fn report_progress(&self, url: &Url, numbers: &str) {
        let Some(on_progress) = &self.options.on_progress else { return };
        let mut numbers = numbers.split_ascii_whitespace();
        // An estimate has a fraction, and an unknown value is "NA".
        let mut next = || numbers.next().and_then(|text| text.split('.').next()?.parse().ok());
        if let Some(bytes) = next() {
            on_progress(&Progress { url: url.clone(), bytes, total: next() });
        }
    }

    async fn to_response(
        &self,
        request: Request<'_>,
        file: &Path,
        scratch: &ScratchDir,
    ) -> Result<Response, FetchError> {
        let broken = |why: &io::Error| FetchError {
            local: is_local_fault(why),
            ..error(ErrorKind::NetworkError, format!("cannot read the downloaded file: {why}"))
        };
        let file = in_folder(scratch.path(), file).map_err(|why| broken(&why))?;
        let body = read(&file, request.limits).await?;
        if let Some(dir) = self.options.dir.clone() {
            let from = scratch.path().to_owned();
            let copied = tokio::task::spawn_blocking(move || copy_outputs(&from, &dir))
                .await
                .map_err(io::Error::other)
                .flatten();
            copied.map_err(|why| {
                FetchError::local(format!("cannot store the download: {why}"), Duration::ZERO)
            })?;
        }
        let extension = file
            .extension()
            .map(|extension| extension.to_string_lossy().to_lowercase())
            .unwrap_or_default();
        let headers = vec![Header::new("content-type", media_type(&extension))];
        Ok(Response::new(200, headers, body, request.url.clone()))
    }
}

impl fmt::Debug for DownloadFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DownloadFetcher").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Fetcher for DownloadFetcher {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn renders(&self) -> bool {
        false
    }

    fn max_in_flight(&self) -> usize {
        self.options.max_in_flight.max(1)
    }

    fn deadline(&self, asked: Duration) -> Duration {
        asked.max(self.options.max_time)
    }

    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
        Box::pin(self.download(request))
    }
}

/// Returns the reason why there is no file.
fn failure(
    request: Request<'_>,
    is_fine: bool,
    tail: &StderrTail,
    proxy: &FilteringProxy,
) -> FetchError {
    if is_fine {
        // The program skips a file that is too long, without an error.
        let limit = request.limits.max_body;
        let error = error(ErrorKind::TooLarge, format!("the file is longer than {limit} bytes"));
        return FetchError { limit: Some(LimitMet::Body(limit)), ..error };
    }
    let words = tail.summary(3);
    let words = words.trim_start_matches("; stderr: ");
    let words = words.rsplit_once("ERROR: ").map_or(words, |(_, message)| message);
    let (host, port) = (
        request.url.host_str().unwrap_or_default(),
        request.url.port_or_known_default().unwrap_or(80),
    );
    // The proxy knows more about the connection than the program does.
    if let Some(failure) = proxy.failure(host, port) {
        return FetchError { local: failure.local, ..error(failure.kind, failure.message) };
    }
    match errors::classify(words) {
        (ErrorKind::LocalFault, _) => FetchError::local(words, Duration::ZERO),
        (kind, status) => FetchError { status, ..error(kind, words.to_owned()) },
    }
}

/// Returns the file at `named` if it is in `folder`.
fn in_folder(folder: &Path, named: &Path) -> io::Result<PathBuf> {
    let (folder, file) = (fs::canonicalize(folder)?, fs::canonicalize(named)?);
    match file.starts_with(&folder) {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "not in the download folder")),
    }
}

async fn read(file: &Path, limits: &Limits) -> Result<Body, FetchError> {
    let broken = |why: BodyError| match why {
        BodyError::TooLarge { limit } => FetchError {
            limit: Some(LimitMet::Body(limit)),
            ..error(ErrorKind::TooLarge, why.to_string())
        },
        BodyError::Io(_) => FetchError::local(why.to_string(), Duration::ZERO),
    };
    let mut file = tokio::fs::File::open(file).await.map_err(|why| broken(BodyError::Io(why)))?;
    let (mut collector, mut chunk) = (BodyCollector::new(limits), vec![0; COPY_CHUNK]);
    loop {
        match file.read(&mut chunk).await.map_err(|why| broken(BodyError::Io(why)))? {
            0 => return collector.finish().await.map_err(broken),
            read => collector.push(&chunk[..read]).await.map_err(broken)?,
        }
    }
}

/// Copies the program's files in `from` to `dir`: the media, their metadata, subtitles.
fn copy_outputs(from: &Path, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if !name.as_encoded_bytes().starts_with(b".") && entry.file_type()?.is_file() {
            fs::copy(entry.path(), dir.join(name))?;
        }
    }
    Ok(())
}

/// Returns the media type of a file with this extension.
fn media_type(extension: &str) -> &'static str {
    match extension {
        "mp4" | "m4v" => "video/mp4",
        "webm" => "video/webm",
        "mkv" => "video/x-matroska",
        "mov" => "video/quicktime",
        "flv" => "video/x-flv",
        "3gp" => "video/3gpp",
        "ts" => "video/mp2t",
        "m4a" => "audio/mp4",
        "mp3" => "audio/mpeg",
        "ogg" | "oga" | "opus" => "audio/ogg",
        "wav" => "audio/wav",
        "aac" => "audio/aac",
        "flac" => "audio/flac",
        _ => "application/octet-stream",
    }
}

fn error(kind: ErrorKind, message: String) -> FetchError {
    FetchError::new(kind, message, Duration::ZERO)
}
