//! [`CommandFetcher`]: a fetcher that is another program, with JSON lines as its protocol
//! (`docs/guides/command-fetcher.md`).
//!
//! One child serves concurrent requests, distinguished by `id`. It starts at the first request, and
//! again after it died.
//!
//! Invariants: whatever the child writes, a request ends by its deadline, in bounded memory, with a
//! response or with an error that names the program. The child dials itself, so only the address
//! before it gets the URL and the final URL that it reports can be checked.

mod options;
mod process;
mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::sync::{Mutex, Semaphore};
use url::Url;

use super::body::{Body, BodyCollector, BodyError};
use super::dial::Dialer;
use super::signing::RequestSigner;
use super::{FetchError, FetchFuture, Fetcher, LimitMet, Limits, Request, Response};
use crate::fetch::command::process::{ChildProcess, ReplyError, Supervisor};
use crate::fetch::local_faults::is_local_fault;
use fetchwise_types::attempt::error_kind::ErrorKind;
use wire::{Content, Reply, ResponseMessage};

pub use options::CommandOptions;
pub use process::CommandError;

/// Bytes per read of a body in a file.
const COPY_CHUNK: usize = 256 << 10;

/// A fetcher that sends requests to another program. See the [module](self) and
/// `docs/guides/command-fetcher.md`.
///
/// Dropping it ends the child; [`CommandFetcher::close`] also waits for the end.
pub struct CommandFetcher {
    options: Arc<CommandOptions>,
    dialer: Dialer,
    signer: Option<RequestSigner>,
    supervisor: Mutex<Supervisor>,
    slots: Semaphore,
}

impl CommandFetcher {
    /// Returns a fetcher that uses the program of `options` for the hosts that `dialer`'s guard
    /// allows. Starts nothing yet.
    pub fn new(options: CommandOptions, dialer: Dialer) -> Self {
        let options = Arc::new(options);
        let slots = Semaphore::new(options.max_in_flight.max(1));
        Self {
            supervisor: Mutex::new(Supervisor::new(Arc::clone(&options))),
            options,
            dialer,
            signer: None,
            slots,
        }
    }

    /// Makes each request carry the headers of a signature by `signer`. The program adds them to
    /// its first request. It signs no redirect: a signature is for one URL.
    #[must_use]
    pub fn signer(mut self, signer: impl Into<RequestSigner>) -> Self {
        self.signer = Some(signer.into());
        self
    }

    /// Returns the maximum number of concurrent requests to the child.
    pub fn max_in_flight(&self) -> usize {
        self.options.max_in_flight.max(1)
    }

    /// Starts the child now, so a missing program is reported before the first fetch.
    ///
    /// # Errors
    /// [`CommandError`] if it cannot be run.
    pub async fn start(&self) -> Result<(), CommandError> {
        self.supervisor.lock().await.running().map(drop)
    }

    /// Returns the process id of the child, while there is one.
    pub async fn pid(&self) -> Option<u32> {
        self.supervisor.lock().await.pid()
    }

    /// Closes the child's standard input and waits for its end; kills it after a short time.
    /// Pending and later fetches fail.
    pub async fn close(&self) {
        self.slots.close();
        let running = self.supervisor.lock().await.close();
        if let Some(running) = running {
            running.end().await;
        }
    }

    async fn fetch_page(&self, request: Request<'_>) -> Result<Response, FetchError> {
        let closed = |_| {
            FetchError::new(
                ErrorKind::NetworkError,
                CommandError::Closed.to_string(),
                Duration::ZERO,
            )
        };
        let _slot = self.slots.acquire().await.map_err(closed)?;
        let started = Instant::now();
        let deadline = request.limits.deadline;
        match tokio::time::timeout(deadline, self.request_page(request, started)).await {
            Ok(Ok(response)) => Ok(Response { duration: started.elapsed(), ..response }),
            Ok(Err(error)) => Err(FetchError { duration: started.elapsed(), ..error }),
            Err(_) => {
                let message = format!(
                    "no response from {} within {} ms",
                    self.program(),
                    deadline.as_millis()
                );
                let error = FetchError::new(ErrorKind::Timeout, message, started.elapsed());
                Err(FetchError { limit: Some(LimitMet::Deadline(deadline)), ..error })
            }
        }
    }

    async fn request_page(
        &self,
        request: Request<'_>,
        started: Instant,
    ) -> Result<Response, FetchError> {
        self.check(request.url).await?;
        let running = self.running(started + request.limits.deadline).await?;
        let url = request.url.as_str();
        let signature = self.signer.as_ref().map(|signer| signer.headers(request.url)).transpose();
        let signature =
            signature.map_err(|why| FetchError::unsigned(why, started.elapsed()))?.flatten();
        let mut pending = running
            .send(|id| wire::request_line(id, url, request.limits, signature.as_ref()))
            .map_err(|e| error(ErrorKind::NetworkError, e))?;
        let message = match pending.reply().await {
            Ok(Reply::Response(message)) => message,
            Ok(Reply::Error { kind, message, status, headers }) => {
                return Err(FetchError {
                    status,
                    headers,
                    ..self.reported_error(&kind, &message, request.limits)
                });
            }
            Ok(Reply::Invalid(why)) => {
                return Err(error(
                    ErrorKind::NetworkError,
                    format!("invalid response from {}: {why}", self.program()),
                ));
            }
            Err(ReplyError::LineTooLong(len)) => {
                let message = format!(
                    "response line of {} too long: {len} bytes, limit {}; use body_path for a long body",
                    self.program(),
                    self.options.max_line
                );
                return Err(error(ErrorKind::TooLarge, message));
            }
            Err(ReplyError::Died(death)) => return Err(error(ErrorKind::NetworkError, death)),
        };
        self.to_response(request, message, &running).await
    }

    /// Returns the child. After a death, waits for the pause if it ends before the deadline.
    async fn running(&self, deadline: Instant) -> Result<Arc<ChildProcess>, FetchError> {
        loop {
            let wait = match self.supervisor.lock().await.running() {
                Ok(running) => return Ok(running),
                Err(CommandError::Resting { wait_ms, .. })
                    if Instant::now() + Duration::from_millis(wait_ms) < deadline =>
                {
                    Duration::from_millis(wait_ms)
                }
                Err(shortage @ CommandError::Local { .. }) => {
                    return Err(FetchError::local(shortage.to_string(), Duration::ZERO));
                }
                Err(other) => return Err(FetchError::unavailable(other.to_string())),
            };
            tokio::time::sleep(wait).await;
        }
    }

    /// Refuses addresses that may not be dialled before the child gets the URL. The child looks the
    /// name up again: a changing DNS answer gets past this check, and only the child (or the
    /// network around it) can prevent that.
    async fn check(&self, url: &Url) -> Result<(), FetchError> {
        let host = match (url.scheme(), url.host_str()) {
            ("http" | "https", Some(host)) if !host.is_empty() => host,
            _ => return Err(error(ErrorKind::InvalidUrl, "not an http or https URL with a host")),
        };
        self.dialer
            .check(host)
            .await
            .map_err(|why| FetchError { local: why.is_local(), ..error(why.kind(), why) })
    }

    async fn to_response(
        &self,
        request: Request<'_>,
        message: ResponseMessage,
        running: &ChildProcess,
    ) -> Result<Response, FetchError> {
        let ResponseMessage { status, headers, content, final_url, truncated } = message;
        let limits = request.limits;
        let final_url = match final_url {
            None => request.url.clone(),
            Some(text) => self.final_url(request.url, &text).await?,
        };
        let head_bytes: usize = headers.iter().map(|h| h.name.len() + h.value.len() + 4).sum();
        let result = if head_bytes > limits.max_headers {
            let message = format!("the headers are longer than {} bytes", limits.max_headers);
            Err(past(LimitMet::Headers(limits.max_headers), ErrorKind::TooLarge, message))
        } else {
            match content {
                Content::Bytes(bytes) => collect(&bytes, limits).await,
                Content::File(path) => self.read_file(&path, running, limits).await,
            }
        };
        match result {
            Ok(body) => {
                Ok(Response { truncated, ..Response::new(status, headers, body, final_url) })
            }
            Err(why) => Err(FetchError { status: Some(status), headers, ..why }),
        }
    }

    /// Checks the final URL that the child reports: a redirect may lead into a closed network.
    async fn final_url(&self, requested: &Url, text: &str) -> Result<Url, FetchError> {
        let url = Url::parse(text).map_err(|why| {
            let message = format!(
                "invalid final URL from {} ({why}): {}",
                self.program(),
                wire::excerpt(text.as_bytes())
            );
            error(ErrorKind::NetworkError, message)
        })?;
        if url.host() != requested.host() || url.scheme() != requested.scheme() {
            self.check(&url).await?;
        }
        Ok(url)
    }

    async fn read_file(
        &self,
        named: &str,
        running: &ChildProcess,
        limits: &Limits,
    ) -> Result<Body, FetchError> {
        let broken = |why: std::io::Error| {
            let message = format!(
                "cannot read the body of {} at {}: {why}",
                self.program(),
                wire::excerpt(named.as_bytes())
            );
            FetchError { local: is_local_fault(&why), ..error(ErrorKind::NetworkError, message) }
        };
        let (scratch, name) = (running.scratch().to_owned(), named.to_owned());
        let found = tokio::task::spawn_blocking(move || process::in_scratch(&scratch, &name)).await;
        let path = found.map_err(std::io::Error::other).flatten().map_err(broken)?;
        let opened = tokio::fs::File::open(&path).await;
        // The file is ours now, read or not.
        let _ = tokio::fs::remove_file(&path).await;
        let mut file = opened.map_err(broken)?;
        let mut collector = BodyCollector::new(limits);
        let mut chunk = vec![0; COPY_CHUNK];
        loop {
            match file.read(&mut chunk).await.map_err(broken)? {
                0 => return collector.finish().await.map_err(|why| body_error(&why)),
                read => collector.push(&chunk[..read]).await.map_err(|why| body_error(&why))?,
            }
        }
    }

    /// Converts an error that the child reports; the child knows `limits` and may have hit one.
    fn reported_error(&self, kind: &str, message: &str, limits: &Limits) -> FetchError {
        let message: String = message.chars().take(1000).collect();
        match ErrorKind::from_name(kind) {
            Some(known @ ErrorKind::RedirectLoop) => {
                past(LimitMet::Redirects(limits.max_redirects), known, message)
            }
            Some(known @ ErrorKind::TooLarge) => {
                past(LimitMet::Body(limits.max_body), known, message)
            }
            Some(known @ ErrorKind::Timeout) => {
                past(LimitMet::Deadline(limits.deadline), known, message)
            }
            Some(ErrorKind::LocalFault) => FetchError::local(message, Duration::ZERO),
            Some(known) => error(known, message),
            None => {
                let kind: String = kind.chars().take(100).collect();
                let text = format!(
                    "{} reported an error of the unknown kind {kind:?}: {message}",
                    self.program()
                );
                error(ErrorKind::NetworkError, text)
            }
        }
    }

    fn program(&self) -> String {
        format!("'{}'", process::program(&self.options))
    }
}

async fn collect(bytes: &[u8], limits: &Limits) -> Result<Body, FetchError> {
    let mut collector = BodyCollector::new(limits);
    collector.push(bytes).await.map_err(|e| body_error(&e))?;
    collector.finish().await.map_err(|e| body_error(&e))
}

fn body_error(why: &BodyError) -> FetchError {
    match why {
        BodyError::TooLarge { limit } => past(LimitMet::Body(*limit), ErrorKind::TooLarge, why),
        // The disk is local.
        BodyError::Io(_) => FetchError::local(why.to_string(), Duration::ZERO),
    }
}

/// Returns an error for a response that exceeds `limit`.
fn past(limit: LimitMet, kind: ErrorKind, message: impl ToString) -> FetchError {
    FetchError { limit: Some(limit), ..error(kind, message) }
}

/// The caller fills in the duration.
fn error(kind: ErrorKind, message: impl ToString) -> FetchError {
    FetchError::new(kind, message.to_string(), Duration::ZERO)
}

impl Fetcher for CommandFetcher {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn max_in_flight(&self) -> usize {
        Self::max_in_flight(self)
    }

    fn renders(&self) -> bool {
        self.options.renders
    }

    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
        Box::pin(self.fetch_page(request))
    }
}

impl fmt::Debug for CommandFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandFetcher").field("options", &self.options).finish_non_exhaustive()
    }
}
