//! Attempts and evidence that a data directory has from other nodes of its fleet.
//!
//! Owns: the counts of attempts that are known as evidence only.
//!
//! Must not know: the counts of the other attempts.

use std::path::Path;

use super::settings::Settings;
use crate::terminal::exit::Failure;
use fetchwise::evidence::{EvidenceSnapshot, FetcherTotals, RemoteAttempt};

/// Peer attempts that are known as evidence only.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "used only with the feature fleet"))]
pub(crate) struct PeerEvidence {
    /// The number of nodes whose evidence comes from a snapshot.
    pub(crate) nodes: usize,
    /// The sum of this evidence.
    pub(crate) share: EvidenceSnapshot,
}

/// Sums over attempts that are known as evidence only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SnapshotCounts {
    pub(crate) attempts: u64,
    pub(crate) success: f64,
    blocked: f64,
    pub(crate) total: f64,
}

impl SnapshotCounts {
    /// Returns the rate of a property over these attempts and `n` more, `k` of which have it.
    /// Attempts known as evidence only count by `weight`, in which older ones count less.
    fn rate(self, (k, n): (u64, u64), weight: f64) -> Option<f64> {
        let folded =
            if self.total > 0.0 { self.attempts as f64 * weight / self.total } else { 0.0 };
        let all = n + self.attempts;
        (all > 0).then(|| (k as f64 + folded) / all as f64)
    }

    /// Returns the success rate, with `n` more attempts, `k` of which succeeded.
    pub(crate) fn success_rate(self, k: u64, n: u64) -> Option<f64> {
        self.rate((k, n), self.success)
    }

    /// Returns the ban rate, with `n` more attempts, `k` of which were blocked.
    pub(crate) fn ban_rate(self, k: u64, n: u64) -> Option<f64> {
        self.rate((k, n), self.blocked)
    }
}

impl<'s> FromIterator<&'s FetcherTotals> for SnapshotCounts {
    fn from_iter<T: IntoIterator<Item = &'s FetcherTotals>>(all: T) -> Self {
        all.into_iter().fold(Self::default(), |sum, totals| Self {
            attempts: sum.attempts + totals.attempts,
            success: sum.success + totals.success,
            blocked: sum.blocked + totals.blocked,
            total: sum.total + totals.total,
        })
    }
}

impl PeerEvidence {
    /// Returns the note under a table that leaves out `is_left_out` of these attempts.
    pub(crate) fn note(&self, is_left_out: &str) -> Option<String> {
        let nodes = if self.nodes == 1 {
            "1 other node".to_owned()
        } else {
            format!("{} other nodes", self.nodes)
        };
        (self.nodes > 0)
            .then(|| format!("older attempts of {nodes} are known as evidence only: {is_left_out}"))
    }
}

/// Calls `show` with every attempt that peers have sent one by one, and returns the rest of their
/// evidence. Returns none if the directory's node has never been in a fleet.
#[cfg(feature = "fleet")]
pub(crate) fn read(
    dir: &Path,
    settings: &Settings,
    mut show: impl FnMut(&RemoteAttempt<'_>),
) -> Result<Option<PeerEvidence>, Failure> {
    let rest = settings.empty_selector()?;
    let shown =
        fetchwise_fleet::peer_store::scan_attempts(dir, Some(rest.learned()), |_, fact| show(fact));
    let shown = shown
        .map_err(|error| Failure::failed(crate::terminal::output::plain(&error.to_string())))?;
    Ok(shown.map(|shown| PeerEvidence {
        nodes: shown.folded,
        share: rest.learned().evidence_snapshot(settings.clock.now(), 0.0),
    }))
}

/// Returns none, and warns if there are peers: this build does not read them.
#[cfg(not(feature = "fleet"))]
#[allow(clippy::unnecessary_wraps, reason = "the signature is the same as with the feature fleet")]
pub(crate) fn read(
    dir: &Path,
    _: &Settings,
    _: impl FnMut(&RemoteAttempt<'_>),
) -> Result<Option<PeerEvidence>, Failure> {
    warn_if_ignored(dir);
    Ok(None)
}

/// Warns if the directory has attempts of peers, which a build without the feature `fleet` does not
/// count.
#[cfg(not(feature = "fleet"))]
pub(crate) fn warn_if_ignored(dir: &Path) {
    let peers = dir.join("peers");
    if peers.is_dir() {
        crate::terminal::output::note(format_args!(
            "warning: attempts of other nodes in {} do not count: fetchwise was built without the feature `fleet`",
            peers.display()
        ));
    }
}
