//! Ports for tests: one that refuses connections, and one for a program that cannot choose its own.
//!
//! Invariant: a refusing port is bound and does not listen, so no other process gets it while it
//! exists.

use std::io;
use std::net::{IpAddr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// The number of ports that [`on_a_free_port`] tries.
const TRIES: usize = 20;

/// A port that refuses connections for as long as this exists.
#[derive(Debug)]
pub struct RefusingPort {
    address: SocketAddr,
    socket: TcpSocket,
}

impl RefusingPort {
    /// Takes a port of `ip` that the system chooses.
    ///
    /// # Errors
    /// Fails if the address cannot be bound.
    pub fn on(ip: impl Into<IpAddr>) -> io::Result<Self> {
        Self::at((ip, 0))
    }

    /// Takes this address.
    ///
    /// # Errors
    /// Fails if the address cannot be bound, for example because another process has it.
    pub fn at(address: impl Into<SocketAddr>) -> io::Result<Self> {
        let address = address.into();
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.bind(address)?;
        Ok(Self { address: socket.local_addr()?, socket })
    }

    /// Returns its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections from now on. Called within a runtime.
    ///
    /// # Errors
    /// Fails if the system refuses to listen.
    pub fn listen(self) -> io::Result<TcpListener> {
        self.socket.listen(128)
    }
}

/// Calls `start` with a free port of `ip` until it returns something, for a program that needs its
/// port in advance. Another process can take the port before the program does, and then `start`
/// returns `None`.
///
/// # Panics
/// If `start` fails on twenty ports, or if `ip` has none.
pub fn on_a_free_port<T>(ip: IpAddr, mut start: impl FnMut(SocketAddr) -> Option<T>) -> T {
    let mut started = (0..TRIES).filter_map(|_| {
        let free = RefusingPort::on(ip).unwrap_or_else(|error| panic!("no port of {ip}: {error}"));
        let address = free.address();
        drop(free);
        start(address)
    });
    started.next().unwrap_or_else(|| panic!("the program did not start on {TRIES} ports of {ip}"))
}
