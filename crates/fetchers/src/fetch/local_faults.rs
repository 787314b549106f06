//! What this machine runs out of: file descriptors, ports, disk, routes. The one place that tells such a local fault from a
//! fault of the site.
//!
//! Invariant: a fault is called local only when the system says so itself (an error number of its own resources, or no route
//! to anywhere); whatever a server can bring about is never local. It must not know what is fetched.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Descriptors that are asked for at most. Children inherit the limit, and some programs go through all descriptors up to it.
const WANTED: u64 = 65_536;

/// Descriptors that a process uses beside its connections: the log, the runtime, pipes of children.
const RESERVED: u64 = 64;

/// Connections that are kept open for the next request at most.
const KEPT: u64 = 256;

/// Descriptors that one fetch may hold at a time: its connection, a second one that is being tried, a file for its body.
const PER_FETCH: u64 = 3;

/// So near to the limit the next descriptor may not be had.
const SCARCE: u64 = 16;

/// Raises this process's soft limit of open files as far as the hard limit (and good sense) allows, and says what it is now.
///
/// A crawler calls it once, before its first fetch. Where there is no such limit the answer is [`u64::MAX`].
pub fn raise_descriptor_limit() -> u64 {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let now = getrlimit(Resource::Nofile);
        let Some(soft) = now.current else { return u64::MAX };
        let wanted = now.maximum.map_or(WANTED, |hard| hard.min(WANTED));
        if soft >= wanted || setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..now }).is_err() {
            return soft;
        }
        wanted
    }
    #[cfg(not(unix))]
    u64::MAX
}

/// How many fetches at a time fit into so many descriptors; 1 at least.
///
/// ```
/// use fetchwise_fetchers::fetch::local_faults::fetches_within;
/// assert_eq!(fetches_within(1024), 234);
/// assert_eq!(fetches_within(10), 1);
/// ```
pub fn fetches_within(descriptors: u64) -> usize {
    let left = descriptors.saturating_sub(RESERVED + kept_within(descriptors));
    usize::try_from(left / PER_FETCH).unwrap_or(usize::MAX).max(1)
}

/// How many idle connections may be kept, in a process with this one's limit of descriptors.
pub(super) fn connections_kept() -> usize {
    #[cfg(unix)]
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    #[cfg(not(unix))]
    let descriptors = u64::MAX;
    usize::try_from(kept_within(descriptors)).unwrap_or(usize::MAX)
}

fn kept_within(descriptors: u64) -> u64 {
    KEPT.min(descriptors / 4)
}

/// Whether `error` says that this machine has run out of something, or was not allowed to have it.
///
/// An error of a connection attempt needs its address, too: see [`is_local_dial_fault`].
pub fn is_local_fault(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        const LOCAL: [Errno; 8] = [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::ROFS,
            Errno::NETDOWN,
        ];
        if error.raw_os_error().is_some_and(|number| LOCAL.iter().any(|local| local.raw_os_error() == number)) {
            return true;
        }
    }
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::OutOfMemory
            | io::ErrorKind::NetworkDown
    )
}

/// Whether a connection to `address` failed for want of something here: of what [`is_local_fault`] knows, of a free port, or of
/// any network at all.
pub fn is_local_dial_fault(error: &io::Error, address: SocketAddr) -> bool {
    if is_local_fault(error) {
        return true;
    }
    match error.kind() {
        // Where there is a route, it is the ports that are used up. Without one it is an address of a family that is not
        // spoken here, which is no reason to hold up everything else.
        io::ErrorKind::AddrNotAvailable => has_route_to(address) || !has_network(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => !has_network(),
        _ => false,
    }
}

/// Whether a program did not start for want of something here, and not because it is not there or may not be run.
pub(super) fn is_local_spawn_fault(error: &io::Error) -> bool {
    // Too many processes are EAGAIN.
    is_local_fault(error) || error.kind() == io::ErrorKind::WouldBlock
}

/// Why no name can be looked up here, whatever the name; none when the fault is not to be found on this machine.
///
/// Resolvers call a name unknown when they could not ask for it.
pub(super) fn why_no_lookup() -> Option<io::Error> {
    match UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) {
        Err(error) if is_local_fault(&error) => return Some(error),
        _ => {}
    }
    if let Some(error) = scarce_descriptors() {
        return Some(error);
    }
    (!has_network()).then(|| io::Error::new(io::ErrorKind::NetworkDown, "this machine has no route to any network"))
}

/// Whether there is a route to `address`. Asks the system's table; nothing is sent.
fn has_route_to(address: SocketAddr) -> bool {
    let unspecified: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((unspecified, 0)).and_then(|socket| socket.connect(address)).is_ok()
}

/// Whether this machine has a way to anywhere but itself.
fn has_network() -> bool {
    // Any two addresses of the internet do; nothing is sent to them.
    let public: [IpAddr; 2] =
        [Ipv4Addr::new(1, 1, 1, 1).into(), Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0, 0, 1).into()];
    public.into_iter().any(|ip| has_route_to(SocketAddr::new(ip, 53))) || has_local_network()
}

/// Whether a network is attached though nothing leads on from it to the internet.
fn has_local_network() -> bool {
    let names_an_interface = |path: &str, column: usize, skip: &[&str]| {
        std::fs::read_to_string(path).unwrap_or_default().lines().any(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            fields.get(column).is_some_and(|name| *name != "lo" && *name != "Iface")
                && !skip.iter().any(|prefix| line.starts_with(prefix))
        })
    };
    names_an_interface("/proc/net/route", 0, &[]) || names_an_interface("/proc/net/ipv6_route", 9, &["fe80", "ff00"])
}

/// Looking a name up takes a few descriptors for a moment: whether there were likely none.
#[cfg(unix)]
fn scarce_descriptors() -> Option<io::Error> {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::Nofile).current?;
    match std::fs::read_dir("/proc/self/fd") {
        Ok(open) => {
            let scarce = open.count() as u64 + SCARCE > limit;
            scarce.then(|| io::Error::from_raw_os_error(rustix::io::Errno::MFILE.raw_os_error()))
        }
        Err(error) => is_local_fault(&error).then_some(error),
    }
}

#[cfg(not(unix))]
fn scarce_descriptors() -> Option<io::Error> {
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::io::Errno;

    fn error(number: Errno) -> io::Error {
        io::Error::from_raw_os_error(number.raw_os_error())
    }

    #[test]
    fn what_runs_out_here_is_local_and_what_a_server_does_is_not() {
        for local in [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::NOSPC, Errno::DQUOT] {
            assert!(is_local_fault(&error(local)), "{local:?}");
        }
        let loopback = SocketAddr::from(([127, 0, 0, 1], 80));
        for remote in [Errno::CONNREFUSED, Errno::CONNRESET, Errno::TIMEDOUT, Errno::PIPE, Errno::ACCESS, Errno::NOENT]
        {
            assert!(!is_local_fault(&error(remote)), "{remote:?}");
            assert!(!is_local_dial_fault(&error(remote), loopback), "{remote:?}");
        }
        assert!(is_local_dial_fault(&error(Errno::ADDRNOTAVAIL), loopback), "there is a route: the ports are used up");
    }

    #[test]
    fn the_limit_is_never_lowered() {
        let before = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
        let raised = raise_descriptor_limit();
        assert!(raised >= before.min(WANTED), "{before} {raised}");
        assert_eq!(raise_descriptor_limit(), raised);
    }
}
