//! A local origin server: many sites on this machine's loopback addresses, each with a behaviour a crawler meets in the wild.
//!
//! fetchwise keys what it learns by host, without the port, so each site has a host of its own: a loopback address
//! (`127.0.0.1`, `127.0.0.2`, ...: on Linux all of 127/8 can be bound) or a name (`shop.localhost`) that is told apart by the
//! `Host` header on 127.0.0.1. All share one port. Browsers resolve `*.localhost` to loopback by themselves; the system's
//! resolver often does not, so a client of a named site needs its own mapping.
//!
//! What it keeps to: it listens on loopback only; every request is on the ledger before it is answered; and what it answers
//! depends on the site, the path and the number of the request alone, so that a test run twice sees the same. Only a
//! [quota](Site::Quota) looks at the clock.
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
mod files;
mod ledger;
mod respond;
mod server;
mod site;

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;

pub use super::pages::charset::Charset;
pub use super::pages::html::Wall;
pub use ledger::{Seen, Tally};
pub use site::{Coding, Site};

use crate::pages::article::Article;
use ledger::Ledger;
use server::{Hosts, Server};

/// Ports tried until one is free on every address.
const PORT_TRIES: u32 = 32;

/// A running origin server. Dropping it closes its listeners and its connections.
#[derive(Debug)]
pub struct Origin {
    hosts: Arc<Hosts>,
    port: u16,
    server: Option<Server>,
}

impl Origin {
    /// Serves each site under its host until the [`Origin`] is dropped, on a free port that all of them share.
    ///
    /// A host is a loopback address or a name; names are served on 127.0.0.1.
    ///
    /// # Errors
    ///
    /// An address that is not loopback ([`io::ErrorKind::InvalidInput`]) or cannot be bound (outside Linux, addresses other
    /// than 127.0.0.1 have to be configured first); a host that is given twice; no thread for the server.
    pub fn start<H: Into<String>>(sites: impl IntoIterator<Item = (H, Site)>) -> io::Result<Self> {
        let sites: Vec<(String, Site)> =
            sites.into_iter().map(|(host, site)| (host.into().to_ascii_lowercase(), site)).collect();
        let mut addresses = Vec::new();
        for (host, _) in &sites {
            let address = address_of(host)?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let hosts = Arc::new(Hosts::new(sites)?);
        let (port, listeners) = bind_all(&addresses)?;
        let server = Server::start(listeners, Arc::clone(&hosts))?;
        Ok(Self { hosts, port, server: Some(server) })
    }

    /// The port that every host is served on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of `path` (which starts with `/`) on `host`.
    pub fn url(&self, host: &str, path: &str) -> String {
        if host.contains(':') {
            format!("http://[{host}]:{}{path}", self.port)
        } else {
            format!("http://{host}:{}{path}", self.port)
        }
    }

    /// How many requests `host` has received, those for scripts and data included. 0 for a host that is not served.
    pub fn hits(&self, host: &str) -> u64 {
        self.hosts.ledger(host).map_or(0, |ledger| ledger.hits())
    }

    /// How many requests `host` has received for exactly `path`, query included.
    pub fn hits_at(&self, host: &str, path: &str) -> u64 {
        self.hosts.ledger(host).map_or(0, |ledger| ledger.hits_at(path))
    }

    /// How many requests `host` has answered with 401, 403 or 429.
    pub fn refusals(&self, host: &str) -> u64 {
        self.hosts.ledger(host).map_or(0, |ledger| ledger.refused())
    }

    /// What `host` was asked for and showed in all. Nothing for a host that is not served.
    pub fn tally(&self, host: &str) -> Tally {
        self.hosts.ledger(host).map_or_else(Tally::default, Ledger::tally)
    }

    /// Whether `host` has sent the content of `path` to anybody.
    pub fn has_shown(&self, host: &str, path: &str) -> bool {
        self.hosts.ledger(host).is_some_and(|ledger| ledger.has_shown(path))
    }

    /// The title of the article at `path` of `host`, which stands in its page whoever renders it.
    pub fn title(host: &str, path: &str) -> String {
        Article::at(host, path).title
    }

    /// How many TCP connections `host` has accepted. Connections to a named host are counted for 127.0.0.1's address, under
    /// the host `127.0.0.1`; 0 for an address that is not served.
    pub fn connections(&self, address: IpAddr) -> u64 {
        self.hosts.connections(address)
    }

    /// The requests received, the oldest first: the last 100 000 of each host, by time of arrival.
    pub fn requests(&self) -> Vec<Seen> {
        self.hosts.requests()
    }

    /// Puts another site in the place of `host`'s from the next request on; its counters go on. False when there is no such
    /// host.
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

/// The address that `host` is served on.
fn address_of(host: &str) -> io::Result<IpAddr> {
    match host.parse::<IpAddr>() {
        Ok(address) if address.is_loopback() => Ok(address),
        Ok(address) => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{address} is no loopback address"))),
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
        match others.iter().map(|address| TcpListener::bind((*address, port))).collect::<io::Result<Vec<_>>>() {
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
