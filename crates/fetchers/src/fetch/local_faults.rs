//! Shortages of this machine: file descriptors, ports, disk, routes, and time that it slept.
//!
//! Owns: the distinction between a local fault and a fault of the site.
//!
//! Invariants: a fault is local only if the system itself reports it (an error number for its own
//! resources, or no route to any network). A server can never cause a local fault.
//!
//! Must not know: what is fetched.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// Maximum number of descriptors to request. Children inherit the limit, and some programs iterate
/// over all descriptors up to it.
const WANTED: u64 = 65_536;

/// Descriptors that a process needs besides its connections: the log, the runtime, pipes of
/// children.
const RESERVED: u64 = 64;

/// Maximum number of idle connections to keep open.
const KEPT: u64 = 256;

/// Descriptors that one fetch can hold: its connection, a second one that is being tried, and a
/// file for its body.
const PER_FETCH: u64 = 3;

/// Distance from the limit below which the next descriptor may be unavailable.
const SCARCE: u64 = 16;

/// The limit before it was raised.
#[cfg(unix)]
static BEFORE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();

/// Raises this process's soft limit of open files up to the hard limit (at most 65,536), and
/// returns the new limit.
///
/// A crawler calls it once, before its first fetch. Children of fetchers keep the limit that this
/// process started with, on Linux. Returns [`u64::MAX`] on systems without such a limit.
pub fn raise_descriptor_limit() -> u64 {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let now = getrlimit(Resource::Nofile);
        let Some(soft) = now.current else { return u64::MAX };
        let wanted = now.maximum.map_or(WANTED, |hard| hard.min(WANTED));
        if soft >= wanted
            || setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..now }).is_err()
        {
            return soft;
        }
        let _ = BEFORE.set(soft);
        wanted
    }
    #[cfg(not(unix))]
    u64::MAX
}

/// Returns how long this machine has been asleep since it was started: the clock that measures
/// deadlines stands still meanwhile. Zero on systems that do not say.
pub fn time_asleep() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::time::{ClockId, clock_gettime};
        let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
        // This order, so that the time between the two calls is no sleep.
        let with_sleep = read(ClockId::Boottime);
        with_sleep.saturating_sub(read(ClockId::Monotonic))
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    Duration::ZERO
}

/// Gives a child the limit that this process started with. Some programs iterate over all
/// descriptors up to the limit, and others fail with descriptors above 1023.
pub(super) fn restore_descriptor_limit(pid: u32) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        if let (Some(before), Some(pid)) = (BEFORE.get(), pid) {
            let limit = Rlimit { current: Some(*before), ..getrlimit(Resource::Nofile) };
            // A child that has ended needs no limit.
            let _ = prlimit(Some(pid), Resource::Nofile, limit);
        }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let _ = pid;
}

/// Returns how many concurrent fetches fit into `descriptors`, at least 1.
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

/// Returns how many idle connections this process may keep, given its descriptor limit.
pub(super) fn connections_kept() -> usize {
    #[cfg(unix)]
    let descriptors =
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    #[cfg(not(unix))]
    let descriptors = u64::MAX;
    usize::try_from(kept_within(descriptors)).unwrap_or(usize::MAX)
}

fn kept_within(descriptors: u64) -> u64 {
    KEPT.min(descriptors / 4)
}

/// Returns whether `error` reports a shortage on this machine, or a resource that it may not use.
///
/// An error of a connection attempt needs its address too: see [`is_local_dial_fault`].
pub fn is_local_fault(error: &io::Error) -> bool {
    #[cfg(unix)]
    {
        use rustix::io::Errno;
        const LOCAL: [Errno; 9] = [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::FBIG,
            Errno::ROFS,
            Errno::NETDOWN,
        ];
        if error
            .raw_os_error()
            .is_some_and(|number| LOCAL.iter().any(|local| local.raw_os_error() == number))
        {
            return true;
        }
    }
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::OutOfMemory
            | io::ErrorKind::NetworkDown
    )
}

/// Returns whether a connection to `address` failed for a local reason: one of [`is_local_fault`],
/// no free port, or no network at all.
pub fn is_local_dial_fault(error: &io::Error, address: SocketAddr) -> bool {
    if is_local_fault(error) {
        return true;
    }
    match error.kind() {
        // With a route, the ports are exhausted. Without one, this machine does not support the
        // address family, which must not hold up other fetches.
        io::ErrorKind::AddrNotAvailable => has_route_to(address) || !has_network(),
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => !has_network(),
        _ => false,
    }
}

/// Returns whether a program failed to start for a local shortage, rather than because it is
/// missing or not executable.
pub(super) fn is_local_spawn_fault(error: &io::Error) -> bool {
    // Too many processes are EAGAIN.
    is_local_fault(error) || error.kind() == io::ErrorKind::WouldBlock
}

/// Returns the local reason why no name can be looked up, or `None` if the cause is not on this
/// machine.
///
/// Resolvers call a name unknown if they could not send the query.
pub(super) fn why_no_lookup() -> Option<io::Error> {
    match UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)) {
        Err(error) if is_local_fault(&error) => return Some(error),
        _ => {}
    }
    if let Some(error) = scarce_descriptors() {
        return Some(error);
    }
    (!has_network()).then(|| {
        io::Error::new(io::ErrorKind::NetworkDown, "this machine has no route to any network")
    })
}

/// Returns whether there is a route to `address`, according to the system's routing table; sends
/// nothing.
fn has_route_to(address: SocketAddr) -> bool {
    let unspecified: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((unspecified, 0)).and_then(|socket| socket.connect(address)).is_ok()
}

/// Returns whether this machine can reach any other machine.
fn has_network() -> bool {
    // Any two internet addresses work; nothing is sent to them.
    let public: [IpAddr; 2] =
        [Ipv4Addr::new(1, 1, 1, 1).into(), Ipv6Addr::new(0x2606, 0x4700, 0, 0, 0, 0, 0, 1).into()];
    public.into_iter().any(|ip| has_route_to(SocketAddr::new(ip, 53))) || has_local_network()
}

/// Returns whether a network is attached, even if it does not lead to the internet.
fn has_local_network() -> bool {
    let names_an_interface = |path: &str, column: usize, skip: &[&str]| {
        std::fs::read_to_string(path).unwrap_or_default().lines().any(|line| {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            fields.get(column).is_some_and(|name| *name != "lo" && *name != "Iface")
                && !skip.iter().any(|prefix| line.starts_with(prefix))
        })
    };
    names_an_interface("/proc/net/route", 0, &[])
        || names_an_interface("/proc/net/ipv6_route", 9, &["fe80", "ff00"])
}

/// Returns an error if descriptors are nearly exhausted: a name lookup needs a few for a moment.
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
    fn shortages_are_local_and_server_errors_are_not() {
        for local in [
            Errno::MFILE,
            Errno::NFILE,
            Errno::NOBUFS,
            Errno::NOMEM,
            Errno::NOSPC,
            Errno::DQUOT,
            Errno::FBIG,
        ] {
            assert!(is_local_fault(&error(local)), "{local:?}");
        }
        let loopback = SocketAddr::from(([127, 0, 0, 1], 80));
        for remote in [
            Errno::CONNREFUSED,
            Errno::CONNRESET,
            Errno::TIMEDOUT,
            Errno::PIPE,
            Errno::ACCESS,
            Errno::NOENT,
        ] {
            assert!(!is_local_fault(&error(remote)), "{remote:?}");
            assert!(!is_local_dial_fault(&error(remote), loopback), "{remote:?}");
        }
        assert!(
            is_local_dial_fault(&error(Errno::ADDRNOTAVAIL), loopback),
            "there is a route: the ports are exhausted"
        );
    }

    #[test]
    fn a_child_gets_the_limit_from_before_it_was_raised() {
        raise_descriptor_limit();
        let Some(before) = BEFORE.get() else { return };
        let mut child = std::process::Command::new("sleep").arg("300").spawn().unwrap();
        restore_descriptor_limit(child.id());
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let line = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
        assert_eq!(line.split_whitespace().next(), Some(before.to_string().as_str()), "{line}");
    }

    #[test]
    fn the_limit_is_never_lowered() {
        let before = rustix::process::getrlimit(rustix::process::Resource::Nofile)
            .current
            .unwrap_or(u64::MAX);
        let raised = raise_descriptor_limit();
        assert!(raised >= before.min(WANTED), "{before} {raised}");
        assert_eq!(raise_descriptor_limit(), raised);
    }
}
