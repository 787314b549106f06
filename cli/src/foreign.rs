//! What other nodes of a fleet have told a data directory, attempt by attempt.
//!
//! Must not know what is counted.

use std::path::Path;

use super::failure::Failure;
use fetchwise::evidence::Fact;

/// Nodes of which older attempts are known as evidence only, and are not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Foreign {
    pub(crate) folded: usize,
}

impl Foreign {
    /// What to say under a table.
    pub(crate) fn note(self) -> Option<String> {
        let nodes = if self.folded == 1 { "1 other node".to_owned() } else { format!("{} other nodes", self.folded) };
        (self.folded > 0).then(|| format!("older attempts of {nodes} are known as evidence only, and are not counted"))
    }
}

/// Shows every attempt that others have told; none where the directory's node has never been in a fleet.
#[cfg(feature = "fleet")]
pub(crate) fn facts(dir: &Path, mut show: impl FnMut(&Fact<'_>)) -> Result<Option<Foreign>, Failure> {
    let shown = fetchwise_fleet::peers::facts(dir, |_, fact| show(fact));
    let shown = shown.map_err(|error| Failure::failed(super::out::plain(&error.to_string())))?;
    Ok(shown.map(|shown| Foreign { folded: shown.folded }))
}

/// Without the feature nobody is told anything.
#[cfg(not(feature = "fleet"))]
#[allow(clippy::unnecessary_wraps, reason = "the same call as with a fleet")]
pub(crate) fn facts(_: &Path, _: impl FnMut(&Fact<'_>)) -> Result<Option<Foreign>, Failure> {
    Ok(None)
}
