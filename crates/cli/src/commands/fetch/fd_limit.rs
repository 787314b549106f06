//! Whether the system lets this process open as many files as the run needs, a connection being one.

use fetchwise::fetch::local_faults;

use crate::terminal::output::note;

/// How many of `wanted` URLs at once there are files for, once the limit is raised as far as may be; a word when that is fewer.
/// Without it connections would fail one by one for want of a file.
pub(super) fn at_once(wanted: u16) -> usize {
    let files = local_faults::raise_descriptor_limit();
    let (wanted, most) = (usize::from(wanted), local_faults::fetches_within(files));
    if wanted > most {
        note(format_args!(
            "fetchwise: warning: {most} URLs at once instead of {wanted}, since this process may open {files} files only: raise \
             the limit (ulimit -n)"
        ));
    }
    wanted.min(most)
}
