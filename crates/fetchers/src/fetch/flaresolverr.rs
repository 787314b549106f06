//! A fetcher that uses a service with its own browser, by the protocol of FlareSolverr: one POST
//! per page, the page in a JSON response.
//!
//! Invariants: a page's host is looked up and checked before the service gets the URL, and the
//! final host that the service reports is checked again. The service itself is dialled wherever it
//! is, because a user named it. A fault of the service is `proxy_error`; a page that it could not
//! get is what its response says.
//!
//! Must not know: how a page is judged.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use rustls::{ClientConfig, RootCertStore};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

use super::body::BodyCollector;
use super::dial::Dialer;
use super::http::Connector;
use super::{FetchError, FetchFuture, Fetcher, LimitMet, Limits, Request, Response};
use crate::fetch::address_guard::AddressGuard;
use crate::fetch::cooldown::Cooldown;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::response::Header;

/// Time between the service's deadline and ours.
const MARGIN: Duration = Duration::from_secs(1);
/// Maximum ratio of a response's length to the page in it: JSON escapes characters.
const MAX_ESCAPE_RATIO: u64 = 6;
/// Maximum bytes of a response, which has to be in memory entirely.
const MAX_RESPONSE: u64 = 64 << 20;

/// Settings of a [`SolverFetcher`].
#[derive(Clone)]
pub struct SolverOptions {
    /// Name under which attempts are logged.
    pub name: String,
    /// Address of the service, e.g. `http://127.0.0.1:8191/v1`.
    pub address: Url,
    /// Maximum number of concurrent requests to it.
    pub max_in_flight: usize,
    /// Minimum deadline of a page, because a challenge takes time.
    pub max_time: Duration,
}

impl SolverOptions {
    /// Returns the options for the service at `address` under `name`, with two concurrent pages.
    pub fn new(name: impl Into<String>, address: Url) -> Self {
        Self { name: name.into(), address, max_in_flight: 2, max_time: Duration::from_secs(60) }
    }
}

/// Omits the address, which may contain a key.
impl fmt::Debug for SolverOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, max_in_flight, max_time, .. } = self;
        let mut debug = f.debug_struct("SolverOptions");
        debug.field("name", name).field("max_in_flight", max_in_flight).field("max_time", max_time);
        debug.finish_non_exhaustive()
    }
}

/// A fetcher of pages from a service with a browser. See the [module](self).
pub struct SolverFetcher {
    options: SolverOptions,
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    dialer: Dialer,
    cooldown: Cooldown,
}

/// The reason why the fetcher could not be built.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up TLS: {0}")]
pub struct SolverError(#[source] rustls::Error);

#[derive(Serialize)]
struct SolverRequest<'a> {
    cmd: &'static str,
    url: &'a str,
    #[serde(rename = "maxTimeout")]
    max_timeout: u64,
}

#[derive(Deserialize)]
struct SolverResponse {
    status: String,
    #[serde(default)]
    message: String,
    solution: Option<Solution>,
}

#[derive(Deserialize)]
struct Solution {
    url: Option<String>,
    status: Option<u16>,
    #[serde(default)]
    headers: Map<String, Value>,
    #[serde(default)]
    response: String,
}

impl SolverFetcher {
    /// Returns a fetcher that uses the service of `options` for the hosts that `dialer`'s guard
    /// allows.
    ///
    /// # Errors
    /// [`SolverError`] if TLS cannot be set up.
    pub fn new(options: SolverOptions, dialer: Dialer) -> Result<Self, SolverError> {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        let tls =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(SolverError)?
                .with_root_certificates(roots)
                .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(Connector::new(Dialer::new(AddressGuard::new([], true))));
        // A kept connection may turn out to be dead when a page is requested, and that request
        // cannot be repeated.
        let client =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Ok(Self { options, client, dialer, cooldown: Cooldown::default() })
    }

    async fn solve(&self, request: Request<'_>) -> Result<Response, FetchError> {
        if let Some(reason) = self.cooldown.pause_reason() {
            return Err(FetchError::unavailable(reason));
        }
        let (started, deadline) = (Instant::now(), request.limits.deadline);
        match tokio::time::timeout(deadline, self.request_page(request)).await {
            Ok(Ok(response)) => {
                self.cooldown.record_response();
                Ok(Response { duration: started.elapsed(), ..response })
            }
            Ok(Err(error)) => {
                match error.kind {
                    ErrorKind::ProxyError => self.cooldown.record_failure(None, &error.message),
                    _ => self.cooldown.record_response(),
                }
                Err(FetchError { duration: started.elapsed(), ..error })
            }
            Err(_) => {
                let message =
                    format!("no response from the service within {} s", deadline.as_secs_f64());
                let error = FetchError::new(ErrorKind::Timeout, message, started.elapsed());
                Err(FetchError { limit: Some(LimitMet::Deadline(deadline)), ..error })
            }
        }
    }

    async fn request_page(&self, request: Request<'_>) -> Result<Response, FetchError> {
        self.check(request.url).await?;
        let limits = request.limits;
        let max_timeout = limits.deadline.saturating_sub(MARGIN).max(limits.deadline / 2);
        let max_timeout = u64::try_from(max_timeout.as_millis()).unwrap_or(u64::MAX);
        let message = SolverRequest { cmd: "request.get", url: request.url.as_str(), max_timeout };
        let body = serde_json::to_vec(&message).map_err(|why| broken(&why))?;
        let mut post = http::Request::new(Full::new(Bytes::from(body)));
        *post.method_mut() = Method::POST;
        *post.uri_mut() = self
            .options
            .address
            .as_str()
            .parse()
            .map_err(|why: http::uri::InvalidUri| broken(&why))?;
        post.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response = self.client.request(post).await.map_err(|why| {
            let (_, message, local) = super::http::request_failure(&why);
            FetchError {
                local,
                ..error(ErrorKind::ProxyError, format!("request to the service failed: {message}"))
            }
        })?;
        let status = response.status();
        let most =
            usize::try_from(limits.max_body.saturating_mul(MAX_ESCAPE_RATIO).min(MAX_RESPONSE))
                .unwrap_or(usize::MAX);
        let body = match Limited::new(response.into_body(), most).collect().await {
            Ok(body) => body.to_bytes(),
            Err(why) if why.is::<http_body_util::LengthLimitError>() => {
                return Err(too_large(limits));
            }
            Err(why) => return Err(broken(&why)),
        };
        // A page that the service could not get is a status 500 with a message.
        match serde_json::from_slice::<SolverResponse>(&body) {
            Ok(SolverResponse { status, solution: Some(solution), .. }) if status == "ok" => {
                self.to_response(request, solution).await
            }
            Ok(response) => Err(failure(&response.message, limits)),
            Err(_) if status == StatusCode::OK => Err(broken(&"unexpected JSON")),
            Err(_) => Err(broken(&format_args!("status {status}"))),
        }
    }

    async fn to_response(
        &self,
        request: Request<'_>,
        solution: Solution,
    ) -> Result<Response, FetchError> {
        let final_url = match solution.url.as_deref().map(Url::parse) {
            None => request.url.clone(),
            Some(Ok(url)) => {
                if url.host() != request.url.host() {
                    self.check(&url).await?;
                }
                url
            }
            Some(Err(why)) => return Err(broken(&format_args!("invalid URL ({why})"))),
        };
        let mut headers: Vec<Header> = Vec::with_capacity(solution.headers.len());
        for (name, value) in &solution.headers {
            let Some(value) = value.as_str() else { continue };
            let fits = http::HeaderName::from_bytes(name.as_bytes()).is_ok()
                && HeaderValue::from_str(value).is_ok();
            // The text is decoded, and in UTF-8 whatever the server declared.
            if fits
                && !name.eq_ignore_ascii_case("content-encoding")
                && !name.eq_ignore_ascii_case("content-length")
            {
                headers.push(Header::new(name.as_str(), value));
            }
        }
        if !headers.iter().any(|header| header.name.eq_ignore_ascii_case("content-type")) {
            headers.push(Header::new("content-type", "text/html; charset=utf-8"));
        }
        let mut collector = BodyCollector::new(request.limits);
        let body = match collector.push(solution.response.as_bytes()).await {
            Ok(()) => collector.finish().await,
            Err(why) => Err(why),
        };
        let body = body.map_err(|why| match why {
            super::body::BodyError::TooLarge { .. } => too_large(request.limits),
            super::body::BodyError::Io(why) => FetchError::local(why.to_string(), Duration::ZERO),
        })?;
        // Older services omit the status.
        let status = solution.status.filter(|status| (100..600).contains(status)).unwrap_or(200);
        Ok(Response::new(status, headers, body, final_url))
    }

    async fn check(&self, url: &Url) -> Result<(), FetchError> {
        let host = match (url.scheme(), url.host_str()) {
            ("http" | "https", Some(host)) if !host.is_empty() => host,
            _ => {
                return Err(error(
                    ErrorKind::InvalidUrl,
                    "not an http or https URL with a host".to_owned(),
                ));
            }
        };
        let checked = self.dialer.check(host).await;
        checked.map_err(|why| FetchError {
            local: why.is_local(),
            ..error(why.kind(), why.to_string())
        })
    }
}

impl fmt::Debug for SolverFetcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SolverFetcher").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Fetcher for SolverFetcher {
    fn name(&self) -> &str {
        &self.options.name
    }

    fn renders(&self) -> bool {
        true
    }

    fn max_in_flight(&self) -> usize {
        self.options.max_in_flight.max(1)
    }

    fn deadline(&self, asked: Duration) -> Duration {
        asked.max(self.options.max_time)
    }

    fn fetch<'a>(&'a self, request: Request<'a>) -> FetchFuture<'a> {
        Box::pin(self.solve(request))
    }
}

/// Classifies the service's message, which sometimes names a browser's error.
fn failure(message: &str, limits: &Limits) -> FetchError {
    let text: String = message.chars().take(300).collect();
    let lower = text.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if has(&["timeout", "timed out"]) {
        let deadline = limits.deadline;
        return FetchError {
            limit: Some(LimitMet::Deadline(deadline)),
            ..error(ErrorKind::Timeout, text)
        };
    }
    let kind = if has(&["captcha", "challenge not solved", "blocked"]) {
        ErrorKind::BlockedCaptcha
    } else if has(&["err_name_not_resolved"]) {
        ErrorKind::DnsError
    } else if has(&["err_cert", "err_ssl"]) {
        ErrorKind::TlsError
    } else if has(&["err_connection", "err_empty_response", "err_address_unreachable"]) {
        ErrorKind::NetworkError
    } else {
        ErrorKind::ProxyError
    };
    error(kind, format!("the service reported: {text}"))
}

fn too_large(limits: &Limits) -> FetchError {
    let error =
        error(ErrorKind::TooLarge, format!("the page is longer than {} bytes", limits.max_body));
    FetchError { limit: Some(LimitMet::Body(limits.max_body)), ..error }
}

fn broken(why: &dyn fmt::Display) -> FetchError {
    error(ErrorKind::ProxyError, format!("invalid response from the service: {why}"))
}

/// The caller fills in the duration.
fn error(kind: ErrorKind, message: String) -> FetchError {
    FetchError::new(kind, message, Duration::ZERO)
}
