//! The settings of a [`HttpFetcher`]: its name, its trusted certificates, its request headers, and
//! its connection pool.
//!
//! Invariants: headers that cannot be sent and certificates that cannot be trusted are refused
//! here, not at the first fetch.
//!
//! Must not know: requests.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, ACCEPT_LANGUAGE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::Empty;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

use super::connector::Connector;
use super::decode;
use crate::fetch::address_guard::AddressGuard;
use crate::fetch::dial::{Dialer, Resolve, SystemResolver};
use crate::fetch::host_headers::{HostHeaders, is_of_transport};
use crate::fetch::http::tracked_connection::TrackingConnector;
use crate::fetch::response_head::MAX_HEAD;
use crate::fetch::signing::RequestSigner;
use crate::fetch::upstream::Upstream;

/// Default name under which the plain fetcher's attempts are logged.
pub const DEFAULT_NAME: &str = "direct_access";

/// Default `User-Agent`.
pub const DEFAULT_USER_AGENT: &str =
    concat!("fetchwise/", env!("CARGO_PKG_VERSION"), " (+", env!("CARGO_PKG_REPOSITORY"), ")");

/// HTTP/2 reads more, so that a head over the limit is nearly always distinguished from a protocol
/// error.
const MAX_HEAD_H2: u32 = 4 << 20;

/// Maximum header lines of a response; more are `too_large`.
const MAX_HEADER_LINES: usize = 1024;

/// Maximum idle connections per host.
pub(super) const IDLE_PER_HOST: usize = 8;
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);
const H2_STREAM_WINDOW: u32 = 1 << 20;
const H2_CONNECTION_WINDOW: u32 = 4 << 20;

/// A client for requests without a body, over TLS or not, on connections of a dialer.
pub(super) type HttpClient = Client<TrackingConnector<HttpsConnector<Connector>>, Empty<Bytes>>;

/// Versions of HTTP that a client offers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Versions {
    All,
    Http1,
}

/// Settings of a [`HttpFetcher`](super::HttpFetcher).
pub struct HttpFetcherBuilder {
    pub(super) name: String,
    guard: AddressGuard,
    resolver: Arc<dyn Resolve>,
    pub(super) upstream: Option<Upstream>,
    roots: Vec<CertificateDer<'static>>,
    headers: Vec<(String, String)>,
    pub(super) temp_dir: Option<PathBuf>,
    pub(super) keeps_exchange: bool,
    pub(super) signer: Option<RequestSigner>,
    pub(super) requires_signature: bool,
    pub(super) host_headers: HostHeaders,
}

impl fmt::Debug for HttpFetcherBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Header values may be secrets.
        f.debug_struct("HttpFetcherBuilder")
            .field("name", &self.name)
            .field("guard", &self.guard)
            .finish_non_exhaustive()
    }
}

impl Default for HttpFetcherBuilder {
    fn default() -> Self {
        Self {
            name: DEFAULT_NAME.to_owned(),
            guard: AddressGuard::default(),
            resolver: Arc::new(SystemResolver),
            upstream: None,
            roots: Vec::new(),
            headers: Vec::new(),
            temp_dir: None,
            keeps_exchange: false,
            signer: None,
            requires_signature: true,
            host_headers: HostHeaders::default(),
        }
    }
}

impl HttpFetcherBuilder {
    /// Sets the name under which attempts are logged. Default: `direct_access`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the addresses that may be dialled. Default: public ones only.
    #[must_use]
    pub fn guard(mut self, guard: AddressGuard) -> Self {
        self.guard = guard;
        self
    }

    /// Sets the resolver of names. Default: the system's.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Sets an upstream proxy. Default: none.
    #[must_use]
    pub fn upstream(mut self, upstream: Upstream) -> Self {
        self.upstream = Some(upstream);
        self
    }

    /// Trusts a certificate authority (DER) besides Mozilla's.
    #[must_use]
    pub fn root_certificate(mut self, der: impl Into<Vec<u8>>) -> Self {
        self.roots.push(CertificateDer::from(der.into()));
        self
    }

    /// Trusts the certificate authorities in a file (PEM, one or more) besides Mozilla's.
    ///
    /// # Errors
    /// [`BuildError::CaFile`] if it cannot be read or contains no certificate.
    pub fn ca_file(mut self, path: impl AsRef<Path>) -> Result<Self, BuildError> {
        let path = path.as_ref();
        let failed = |reason: String| BuildError::CaFile { path: path.to_owned(), reason };
        let read =
            CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let found = read.map_err(|error| failed(error.to_string()))?;
        if found.is_empty() {
            return Err(failed("no certificate in the file: expected PEM".to_owned()));
        }
        self.roots.extend(found);
        Ok(self)
    }

    /// Sets the `User-Agent`. Default: [`DEFAULT_USER_AGENT`].
    #[must_use]
    pub fn user_agent(self, value: impl Into<String>) -> Self {
        self.header("user-agent", value)
    }

    /// Sets a header of every request, replacing the default one of that name. `Authorization` and
    /// `Cookie` are sent only to the first origin: a redirect to another origin omits them. Cookies
    /// that redirects set are added, and replace configured ones of the same name.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the folder for bodies longer than
    /// [`Limits::max_in_memory`](crate::fetch::Limits::max_in_memory). Default: the system's
    /// temporary folder.
    #[must_use]
    pub fn temp_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.temp_dir = Some(dir.into());
        self
    }

    /// Sets whether each response includes its requests
    /// ([`Response::exchange`](crate::fetch::Response::exchange)), for web archives. Default: no,
    /// since it copies the headers of every request.
    #[must_use]
    pub fn keep_exchange(mut self, keep: bool) -> Self {
        self.keeps_exchange = keep;
        self
    }

    /// Signs each request that goes out, redirects and resends included. A request that is refused
    /// with a wish for another signature is sent once more. Plain http is not signed. Default: none
    /// is signed.
    #[must_use]
    pub fn signer(mut self, signer: impl Into<RequestSigner>) -> Self {
        self.signer = Some(signer.into());
        self
    }

    /// Sets whether the fetcher is [unavailable](crate::fetch::FetchError::unavailable) while
    /// nothing can be signed (no key is valid, or the clock is wrong). Otherwise its requests then
    /// go out without a signature. Default: yes.
    #[must_use]
    pub fn require_signature(mut self, required: bool) -> Self {
        self.requires_signature = required;
        self
    }

    /// Sets headers of requests to some hosts, each redirect included. They replace others of the
    /// same names. A request with a `Signature` among them is not signed. No kept request has them.
    /// Default: none.
    #[must_use]
    pub fn host_headers(mut self, headers: HostHeaders) -> Self {
        self.host_headers = headers;
        self
    }

    /// Builds the client, with an empty connection pool.
    pub(super) fn client(&self, versions: Versions) -> Result<HttpClient, BuildError> {
        let mut dialer = Dialer::with_resolver(self.guard.clone(), self.resolver.clone());
        if let Some(upstream) = self.upstream.clone() {
            dialer = dialer.through(upstream);
        }
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls_config(&self.roots)?).https_or_http();
        let connector = match versions {
            Versions::All => connector.enable_all_versions().wrap_connector(Connector::new(dialer)),
            Versions::Http1 => connector.enable_http1().wrap_connector(Connector::new(dialer)),
        };
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_PER_HOST)
            // As browsers write them: some servers, and some bot detectors, care.
            .http1_title_case_headers(true)
            .http1_max_buf_size(MAX_HEAD)
            .http1_max_headers(MAX_HEADER_LINES)
            .http1_ignore_invalid_headers_in_responses(true)
            .http1_allow_spaces_after_header_name_in_responses(true)
            .http1_allow_obsolete_multiline_headers_in_responses(true)
            .http2_max_header_list_size(MAX_HEAD_H2)
            .http2_initial_stream_window_size(H2_STREAM_WINDOW)
            .http2_initial_connection_window_size(H2_CONNECTION_WINDOW)
            .build(TrackingConnector(connector));
        Ok(client)
    }

    /// Returns the headers of each request.
    pub(super) fn request_headers(&self) -> Result<HeaderMap, BuildError> {
        request_headers(&self.headers)
    }
}

fn tls_config(roots: &[CertificateDer<'static>]) -> Result<ClientConfig, BuildError> {
    let mut store = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for root in roots {
        store.add(root.clone()).map_err(BuildError::Certificate)?;
    }
    let config =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(BuildError::Tls)?
            .with_root_certificates(store)
            .with_no_client_auth();
    Ok(config)
}

fn request_headers(configured: &[(String, String)]) -> Result<HeaderMap, BuildError> {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(DEFAULT_USER_AGENT));
    headers.insert(
        ACCEPT,
        HeaderValue::from_static("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
    );
    headers.insert(ACCEPT_LANGUAGE, HeaderValue::from_static("en-US,en;q=0.9"));
    for (name, value) in configured {
        let bad = || BuildError::Header { name: name.clone() };
        let parsed = HeaderName::try_from(name.as_str()).map_err(|_| bad())?;
        if is_of_transport(&parsed) {
            return Err(BuildError::TransportHeader { name: name.clone() });
        }
        headers.insert(parsed, HeaderValue::try_from(value.as_str()).map_err(|_| bad())?);
    }
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(decode::ACCEPT_ENCODING));
    Ok(headers)
}

/// The reason why a [`HttpFetcher`](super::HttpFetcher) could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A configured header has a name or a value that HTTP does not allow.
    #[error("invalid header '{name}': its name or value has characters that HTTP does not allow")]
    Header {
        /// Configured name.
        name: String,
    },
    /// The transport sets the configured header itself.
    #[error("invalid header '{name}': the transport sets it")]
    TransportHeader {
        /// Configured name.
        name: String,
    },
    /// A file of certificate authorities cannot be read.
    #[error("cannot read certificates from {}: {reason}", path.display())]
    CaFile {
        /// The file.
        path: PathBuf,
        /// Reason of the failure.
        reason: String,
    },
    /// A root certificate is invalid.
    #[error("invalid root certificate: {0}")]
    Certificate(#[source] rustls::Error),
    /// TLS cannot be set up.
    #[error("cannot set up TLS: {0}")]
    Tls(#[source] rustls::Error),
}
