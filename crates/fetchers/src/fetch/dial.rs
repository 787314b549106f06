//! Name lookup and dialling under the address guard, for `direct_access` and the filtering proxy.
//!
//! Invariants: a socket address is dialled only after [`AddressGuard::check`] allowed exactly that
//! address. A name is never looked up again between the check and the dialling, so a changing DNS
//! answer (DNS rebinding) gains nothing.
//!
//! Must not know: HTTP and TLS.

use std::collections::HashSet;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use dns_lookup::{LookupError, LookupErrorKind};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::upstream::{Upstream, UpstreamFailure};
use crate::fetch::address_guard::{AddressGuard, AddressRefused};
use crate::fetch::local_faults;
use fetchwise_types::attempt::error_kind::ErrorKind;

/// Time to wait for one address before the next one is tried alongside it (RFC 8305).
const STAGGER: Duration = Duration::from_millis(250);

/// Maximum number of addresses to try per name.
const MAX_CANDIDATES: usize = 8;

/// The future that a [`Resolve`] returns.
pub type LookupFuture<'a> = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>>;

/// A resolver of names. The default is [`SystemResolver`]; a crawler with its own DNS cache plugs
/// it in here.
pub trait Resolve: Send + Sync {
    /// Returns the addresses of `host`, best first. An empty result, or an error of the kind
    /// [`io::ErrorKind::NotFound`], says that the name does not resolve, which is final. Another
    /// error says that no server knew the answer: it may pass. See also
    /// [`local_faults::is_local_fault`].
    fn lookup<'a>(&'a self, host: &'a str) -> LookupFuture<'a>;
}

/// The system's resolver (`getaddrinfo`), on tokio's threads for blocking work.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn lookup<'a>(&'a self, host: &'a str) -> LookupFuture<'a> {
        let host = host.to_owned();
        Box::pin(async move {
            let found = spawn_blocking(move || dns_lookup::lookup_host(&host).map(Vec::from_iter));
            match found.await.map_err(io::Error::other)? {
                Ok(addresses) => Ok(addresses),
                // Without a network, or without a descriptor for the query, every name is
                // "unknown".
                Err(error) => Err(local_faults::why_no_lookup().unwrap_or_else(|| why(error))),
            }
        })
    }
}

/// Returns the error of a [`Resolve`]: the system's has the same kind for each failed lookup.
fn why(error: LookupError) -> io::Error {
    match error.kind() {
        LookupErrorKind::NoName | LookupErrorKind::NoData => {
            io::Error::new(io::ErrorKind::NotFound, error)
        }
        _ => error.into(),
    }
}

/// The reason why no connection was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// The guard refused every address of the host; none was dialled.
    #[error("{}{refused}", if is_literal(host) { String::new() } else { format!("{host}: ") })]
    Refused {
        /// Requested host.
        host: String,
        /// The first of its addresses.
        #[source]
        refused: AddressRefused,
    },
    /// The name does not resolve.
    #[error("{host} does not resolve: {reason}")]
    Dns {
        /// Requested host.
        host: String,
        /// Message of the resolver.
        reason: String,
    },
    /// No name server answered, or none that knows the name.
    #[error("cannot look up {host}: {error}")]
    NoAnswer {
        /// Requested host.
        host: String,
        /// Error of the resolver.
        #[source]
        error: io::Error,
    },
    /// No address accepted a connection.
    #[error("cannot connect to {host} ({address}): {error}")]
    Connect {
        /// Requested host.
        host: String,
        /// Last address that was tried.
        address: SocketAddr,
        /// Error of the system.
        #[source]
        error: io::Error,
    },
    /// The proxy failed to make the connection.
    #[error("{reason}")]
    Proxy {
        /// Requested host.
        host: String,
        /// Message of the proxy, with its name.
        reason: String,
    },
    /// The proxy could not reach the host.
    #[error("{reason}")]
    Behind {
        /// Requested host.
        host: String,
        /// Message of the proxy, with its name.
        reason: String,
    },
    /// This machine lacked a descriptor, a port or a network: no request was made.
    #[error("cannot connect to {host}: local fault: {error}")]
    Local {
        /// Requested host.
        host: String,
        /// Error of the system.
        #[source]
        error: io::Error,
    },
}

impl DialError {
    /// Returns the kind of an attempt that ended with this error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused { .. } => ErrorKind::RefusedAddress,
            Self::Dns { .. } => ErrorKind::DnsError,
            Self::NoAnswer { .. }
            | Self::Connect { .. }
            | Self::Behind { .. }
            | Self::Local { .. } => ErrorKind::NetworkError,
            Self::Proxy { .. } => ErrorKind::ProxyError,
        }
    }

    /// Returns whether the host refused the connection.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Connect { error, .. } if error.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// Returns whether this machine caused the fault, so it is not attributed to the host.
    pub fn is_local(&self) -> bool {
        matches!(self, Self::Local { .. })
    }
}

/// Opens TCP connections to hosts whose addresses the guard allows.
#[derive(Clone)]
pub struct Dialer {
    guard: Arc<AddressGuard>,
    resolver: Arc<dyn Resolve>,
    upstream: Option<Arc<Upstream>>,
}

impl Dialer {
    /// Returns a dialer under `guard`, with the system's resolver.
    pub fn new(guard: AddressGuard) -> Self {
        Self::with_resolver(guard, Arc::new(SystemResolver))
    }

    /// Returns a dialer under `guard` that uses `resolver`.
    pub fn with_resolver(guard: AddressGuard, resolver: Arc<dyn Resolve>) -> Self {
        Self { guard: Arc::new(guard), resolver, upstream: None }
    }

    /// Routes connections through `upstream`. A user who names a proxy wants it dialled, wherever
    /// it is, so the guard checks destinations only. A name that resolves here passes if all of its
    /// addresses pass. A name that does not resolve here is left to the proxy, which looks up all
    /// names again.
    #[must_use]
    pub fn through(self, upstream: Upstream) -> Self {
        Self { upstream: Some(Arc::new(upstream)), ..self }
    }

    /// Returns the upstream proxy, if any.
    pub(super) fn upstream(&self) -> Option<&Upstream> {
        self.upstream.as_deref()
    }

    /// Connects to `host`: a name, or an address (an IPv6 address with or without brackets).
    ///
    /// The guard's refused addresses are skipped. The others are tried in the resolver's order,
    /// alternating between address families; the next one starts as soon as one fails or does not
    /// respond within 250 ms. There is no timeout besides the system's: the caller bounds it.
    ///
    /// # Errors
    /// See [`DialError`].
    pub async fn dial(&self, host: &str, port: u16) -> Result<TcpStream, DialError> {
        if let Some(upstream) = self.upstream() {
            let stream = self.dial_proxy(upstream, host).await?;
            return upstream.through(stream, host, port).await.map_err(|failure| match failure {
                UpstreamFailure::Proxy(reason) => {
                    DialError::Proxy { host: host.to_owned(), reason }
                }
                UpstreamFailure::Host(reason) => {
                    DialError::Behind { host: host.to_owned(), reason }
                }
            });
        }
        let addresses = self.checked_addresses(host).await?;
        self.race(host, addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()).await
    }

    /// Connects to the proxy for a request to `host`, which must be allowed.
    pub(super) async fn dial_proxy(
        &self,
        upstream: &Upstream,
        host: &str,
    ) -> Result<TcpStream, DialError> {
        match self.check(host).await {
            Ok(()) | Err(DialError::Dns { .. } | DialError::NoAnswer { .. }) => {}
            Err(refused) => return Err(refused),
        }
        let failed = |reason: String| DialError::Proxy { host: host.to_owned(), reason };
        let proxy = upstream.host();
        let addresses = match self.addresses(proxy).await {
            Ok(addresses) if !addresses.is_empty() => interleave_families(addresses),
            Ok(_) => return Err(failed(format!("the proxy {upstream} has no address"))),
            Err(error) if error.is_local() => return Err(error),
            Err(error) => return Err(failed(format!("the proxy {upstream}: {error}"))),
        };
        let addresses =
            addresses.into_iter().map(|ip| SocketAddr::new(ip, upstream.port())).collect();
        self.race(proxy, addresses).await.map_err(|error| match error {
            local @ DialError::Local { .. } => local,
            other => failed(format!("the proxy {upstream}: {other}")),
        })
    }

    /// Looks `host` up and checks that all of its addresses are allowed, without dialling any. For
    /// fetchers that dial themselves and may use any of the addresses.
    ///
    /// # Errors
    /// [`DialError::Refused`] if one of them is not allowed, [`DialError::Dns`] if there is none,
    /// [`DialError::NoAnswer`] if that is not known.
    pub async fn check(&self, host: &str) -> Result<(), DialError> {
        let candidates = self.addresses(host).await?;
        match candidates.iter().find_map(|&address| self.guard.check(address).err()) {
            Some(refused) => Err(DialError::Refused { host: host.to_owned(), refused }),
            None if candidates.is_empty() => Err(dns(host, "no addresses".to_owned())),
            None => Ok(()),
        }
    }

    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, DialError> {
        let bare = without_brackets(host);
        match bare.parse::<IpAddr>() {
            Ok(literal) => Ok(vec![literal]),
            Err(_) => self.resolver.lookup(bare).await.map_err(|error| {
                if local_faults::is_local_fault(&error) {
                    DialError::Local { host: host.to_owned(), error }
                } else if error.kind() == io::ErrorKind::NotFound {
                    dns(host, error.to_string())
                } else {
                    DialError::NoAnswer { host: host.to_owned(), error }
                }
            }),
        }
    }

    async fn checked_addresses(&self, host: &str) -> Result<Vec<IpAddr>, DialError> {
        let candidates = self.addresses(host).await?;
        let mut refused = None;
        let mut open = Vec::with_capacity(candidates.len());
        for address in candidates {
            match self.guard.check(address) {
                Ok(()) => open.push(address),
                Err(why) => refused = refused.or(Some(why)),
            }
        }
        match (open.is_empty(), refused) {
            (false, _) => Ok(interleave_families(open)),
            (true, Some(refused)) => Err(DialError::Refused { host: host.to_owned(), refused }),
            (true, None) => Err(dns(host, "no addresses".to_owned())),
        }
    }

    async fn race(&self, host: &str, addresses: Vec<SocketAddr>) -> Result<TcpStream, DialError> {
        let mut left = addresses.into_iter();
        let mut running = FuturesUnordered::new();
        let mut last_error = None;
        loop {
            if let Some(address) = left.next() {
                running.push(async move { (address, TcpStream::connect(address).await) });
            }
            let ended = tokio::select! {
                ended = running.next() => ended,
                () = sleep(STAGGER), if left.len() > 0 => None,
            };
            match ended {
                Some((_, Ok(stream))) => {
                    // Requests are small and wait for their response; a failure only costs latency.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Some((_, Err(error))) if last_error.as_ref().is_some_and(DialError::is_local) => {
                    drop(error)
                }
                Some((address, Err(error)))
                    if local_faults::is_local_dial_fault(&error, address) =>
                {
                    // One address that could not be tried is enough: it may be the one that works.
                    last_error = Some(DialError::Local { host: host.to_owned(), error });
                }
                Some((address, Err(error))) => {
                    last_error = Some(DialError::Connect { host: host.to_owned(), address, error });
                }
                None => {}
            }
            if running.is_empty() && left.len() == 0 {
                return Err(last_error.unwrap_or_else(|| dns(host, "no addresses".to_owned())));
            }
        }
    }
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").field("guard", &self.guard).finish_non_exhaustive()
    }
}

fn is_literal(host: &str) -> bool {
    without_brackets(host).parse::<IpAddr>().is_ok()
}

/// Returns an IPv6 address without the brackets that it has in a URL.
pub(super) fn without_brackets(host: &str) -> &str {
    host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host)
}

fn dns(host: &str, reason: String) -> DialError {
    DialError::Dns { host: host.to_owned(), reason }
}

/// Returns each address once, alternating between the family of the first one and the other, at
/// most [`MAX_CANDIDATES`].
fn interleave_families(addresses: Vec<IpAddr>) -> Vec<IpAddr> {
    let mut seen = HashSet::new();
    let first_is_v4 = addresses.first().is_some_and(IpAddr::is_ipv4);
    let (same, other): (Vec<_>, Vec<_>) =
        addresses.into_iter().filter(|a| seen.insert(*a)).partition(|a| a.is_ipv4() == first_is_v4);
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    let mut ordered = Vec::new();
    while ordered.len() < MAX_CANDIDATES {
        let before = ordered.len();
        ordered.extend(same.next());
        ordered.extend(other.next());
        if ordered.len() == before {
            break;
        }
    }
    ordered
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_says_that_a_name_cannot_exist() {
        // No query leaves for it: a label is empty.
        let error = SystemResolver.lookup("a..example").await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_a_name_that_does_not_exist_is_not_found() {
        for (code, is_unknown) in [(-2, true), (-5, true), (-3, false), (-4, false), (-10, false)] {
            let kind = why(LookupError::new(code)).kind();
            assert_eq!(kind == io::ErrorKind::NotFound, is_unknown, "{code}");
        }
    }
}
