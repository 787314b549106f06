//! The limit of open files, which also limits parallel connections.

use fetchwise::fetch::local_faults;

use crate::terminal::output::note;

/// Returns how many of `wanted` parallel URLs the file limit allows, after raising it as far as
/// possible, and warns if that is fewer. Otherwise single connections would fail for lack of a file
/// descriptor.
pub(super) fn at_once(wanted: u16) -> usize {
    let files = local_faults::raise_descriptor_limit();
    let (wanted, most) = (usize::from(wanted), local_faults::fetches_within(files));
    if wanted > most {
        note(format_args!(
            "fetchwise: warning: at most {most} parallel URLs instead of {wanted}: this process may open only {files} \
             files; raise the limit (ulimit -n)"
        ));
    }
    wanted.min(most)
}
