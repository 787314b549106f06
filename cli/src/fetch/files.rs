//! Whether the system lets this process open as many files as the run needs, a connection being one.

use crate::failure::Failure;

/// Files beside the connections: the log, the store, the runtime, pipes to other programs.
#[cfg(unix)]
const BESIDE: u64 = 64;

/// Raises the limit on open files as far as `concurrency` connections at once need it.
///
/// # Errors
/// When it may not be raised so far: connections would fail one by one, and sites be blamed for it.
#[cfg(unix)]
pub(super) fn make_room_for(concurrency: u16) -> Result<(), Failure> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    let needed = u64::from(concurrency) + BESIDE;
    let allows = |limit: Option<u64>| limit.is_none_or(|files| files >= needed);
    if allows(limit.current) {
        return Ok(());
    }
    if allows(limit.maximum) && setrlimit(Resource::Nofile, Rlimit { current: Some(needed), ..limit }).is_ok() {
        return Ok(());
    }
    let files = limit.maximum.or(limit.current).unwrap_or_default();
    Err(Failure::usage(format_args!(
        "--concurrency {concurrency} needs {needed} open files, and this process may have {files}"
    ))
    .advise(format!(
        "use at most --concurrency {}, or raise the limit (ulimit -n)",
        files.saturating_sub(BESIDE).max(1)
    )))
}

/// There is no such limit here.
#[cfg(not(unix))]
pub(super) fn make_room_for(_concurrency: u16) -> Result<(), Failure> {
    Ok(())
}
