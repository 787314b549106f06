//! A local origin server: many sites on this machine's loopback addresses, each with a behaviour
//! that crawlers meet on the web.
//!
//! fetchwise keys evidence by host, without the port, so each site needs its own host. A host is a
//! loopback address (`127.0.0.1`, `127.0.0.2`, ...: Linux can bind all of 127/8) or a name
//! (`shop.localhost`) on 127.0.0.1 that the `Host` header selects. All hosts share one port.
//! Browsers resolve `*.localhost` to loopback themselves. The system resolver often does not, so a
//! client of a named site needs its own mapping.
//!
//! Invariants: it listens on loopback only. Every request is in the ledger before its response is
//! sent. A response depends only on the site, the path and the number of the request, so a repeated
//! test sees the same. Only a [quota](Site::Quota) looks at the clock.
//!
//! ```
//! use fetchwise_testsite::origin::{Origin, Site};
//! use std::io::{Read, Write};
//!
//! let origin = Origin::start([("127.0.0.1", Site::Static)])?;
//! let mut stream = std::net::TcpStream::connect(("127.0.0.1", origin.port()))?;
//! stream.write_all(b"GET /notes HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
//! let mut answer = String::new();
//! stream.read_to_string(&mut answer)?;
//! assert!(answer.starts_with("HTTP/1.1 200 OK"));
//! assert_eq!(origin.hits("127.0.0.1"), 1);
//! # Ok::<(), std::io::Error>(())
//! ```

mod body;
mod bots;
mod certificate;
mod files;
mod ledger;
mod respond;
mod server;
mod site;

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;

pub use super::pages::charset::Charset;
pub use super::pages::html::Challenge;
pub use bots::{BadKeys, VerifiedBots};
pub use certificate::Certificate;
pub use ledger::{ReceivedRequest, Tally};
pub use site::{Coding, Site};

use crate::pages::article::Article;
use ledger::Ledger;
use server::{Hosts, Server};

/// Attempts to find a port that is free on every address.
const PORT_TRIES: u32 = 32;

/// A running origin server. Dropping it closes its listeners and its connections.
#[derive(Debug)]
pub struct Origin {
    hosts: Arc<Hosts>,
    port: u16,
    scheme: &'static str,
    server: Option<Server>,
}

impl Origin {
    /// Serves each site under its host until the [`Origin`] is dropped, on a free port that all of
    /// them share.
    ///
    /// A host is a loopback address or a name; names are served on 127.0.0.1.
    ///
    /// # Errors
    ///
    /// Fails for an address that is not loopback ([`io::ErrorKind::InvalidInput`]) or cannot be
    /// bound (outside Linux, addresses other than 127.0.0.1 have to be configured first), for a
    /// duplicate host, and when no thread can be started.
    pub fn start<H: Into<String>>(sites: impl IntoIterator<Item = (H, Site)>) -> io::Result<Self> {
        Self::start_with(sites, None)
    }

    /// Serves the sites as [`start`](Self::start) does, over https with HTTP/2 and HTTP/1.1.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start), and when the certificate does not fit its key.
    pub fn start_tls<H: Into<String>>(
        sites: impl IntoIterator<Item = (H, Site)>,
        certificate: &Certificate,
    ) -> io::Result<Self> {
        Self::start_with(sites, Some(certificate))
    }

    fn start_with<H: Into<String>>(
        sites: impl IntoIterator<Item = (H, Site)>,
        certificate: Option<&Certificate>,
    ) -> io::Result<Self> {
        let sites: Vec<(String, Site)> = sites
            .into_iter()
            .map(|(host, site)| (host.into().to_ascii_lowercase(), site))
            .collect();
        let mut addresses = Vec::new();
        for (host, _) in &sites {
            let address = address_of(host)?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let hosts = Arc::new(Hosts::new(sites)?);
        let (port, listeners) = bind_all(&addresses)?;
        let acceptor = certificate.map(Certificate::acceptor).transpose()?;
        let scheme = if acceptor.is_some() { "https" } else { "http" };
        let server = Server::start(listeners, acceptor, Arc::clone(&hosts))?;
        Ok(Self { hosts, port, scheme, server: Some(server) })
    }

    /// Returns the port of all hosts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of `path` (which starts with `/`) on `host`.
    pub fn url(&self, host: &str, path: &str) -> String {
        let (scheme, port) = (self.scheme, self.port);
        if host.contains(':') {
            format!("{scheme}://[{host}]:{port}{path}")
        } else {
            format!("{scheme}://{host}:{port}{path}")
        }
    }

    /// Returns the number of requests that `host` has received, including those for scripts and
    /// data; 0 for an unknown host.
    pub fn hits(&self, host: &str) -> u64 {
        self.hosts.ledger(host).map_or(0, |ledger| ledger.hits())
    }

    /// Returns the number of requests that `host` has received for exactly `path`, including the
    /// query.
    pub fn hits_at(&self, host: &str, path: &str) -> u64 {
        self.hosts.ledger(host).map_or(0, |ledger| ledger.hits_at(path))
    }

    /// Returns the number of responses of `host` with 401, 403 or 429.
    pub fn refusals(&self, host: &str) -> u64 {
        self.hosts.ledger(host).map_or(0, |ledger| ledger.refusals())
    }

    /// Returns the counts of `host`'s requests and responses; all 0 for an unknown host.
    pub fn tally(&self, host: &str) -> Tally {
        self.hosts.ledger(host).map_or_else(Tally::default, Ledger::tally)
    }

    /// Returns whether `host` has sent the content of `path` to any client.
    pub fn has_sent(&self, host: &str, path: &str) -> bool {
        self.hosts.ledger(host).is_some_and(|ledger| ledger.has_sent(path))
    }

    /// Returns the title of the article at `path` of `host`, which its page contains in every form.
    pub fn title(host: &str, path: &str) -> String {
        Article::at(host, path).title
    }

    /// Returns the number of TCP connections that `address` has accepted; 0 for an address that is
    /// not served. Connections to named hosts count for 127.0.0.1.
    pub fn connections(&self, address: IpAddr) -> u64 {
        self.hosts.connections(address)
    }

    /// Returns the number of bytes that `address` has written to its connections: heads and bodies
    /// of all responses, as encrypted with TLS. Those of named hosts count for 127.0.0.1.
    pub fn bytes_sent(&self, address: IpAddr) -> u64 {
        self.hosts.bytes_sent(address)
    }

    /// Returns the received requests, oldest first: the last 100,000 of each host, by time of
    /// arrival.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.hosts.requests()
    }

    /// Replaces the site of `host` from the next request on; its counters continue. Returns false
    /// for an unknown host.
    pub fn set_site(&self, host: &str, site: Site) -> bool {
        self.hosts.set_site(host, site)
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}

/// Returns the address that serves `host`.
fn address_of(host: &str) -> io::Result<IpAddr> {
    match host.parse::<IpAddr>() {
        Ok(address) if address.is_loopback() => Ok(address),
        Ok(address) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{address} is not a loopback address"),
        )),
        Err(_) => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    }
}

/// Binds every address to one port that is free on all of them.
fn bind_all(addresses: &[IpAddr]) -> io::Result<(u16, Vec<TcpListener>)> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "an origin needs at least one site");
    let Some((first, others)) = addresses.split_first() else { return Err(last) };
    for _ in 0..PORT_TRIES {
        let listener = TcpListener::bind((*first, 0))?;
        let port = listener.local_addr()?.port();
        match others
            .iter()
            .map(|address| TcpListener::bind((*address, port)))
            .collect::<io::Result<Vec<_>>>()
        {
            Ok(mut listeners) => {
                listeners.insert(0, listener);
                return Ok((port, listeners));
            }
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => last = e,
            Err(e) => return Err(e),
        }
    }
    Err(last)
}
