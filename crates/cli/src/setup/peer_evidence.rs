//! What other nodes of a fleet have told a data directory.
//!
//! Owns: what is counted of attempts that are known as evidence only. Must not know what is counted of the others.

use std::path::Path;

use super::settings::Settings;
use crate::terminal::exit::Failure;
use fetchwise::evidence::{Fact, Said, Share};

/// What is known as evidence only.
#[derive(Clone, Debug, Default)]
#[cfg_attr(not(feature = "fleet"), allow(dead_code, reason = "without the feature nobody is told anything"))]
pub(crate) struct Foreign {
    /// Nodes that have told some of it in a share, or whose messages are in a snapshot by now.
    pub(crate) nodes: usize,
    /// All of it together.
    pub(crate) share: Share,
}

/// Attempts that are known as evidence only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Folded {
    pub(crate) attempts: u64,
    pub(crate) success: f64,
    blocked: f64,
    pub(crate) total: f64,
}

impl Folded {
    /// Together with `n` attempts of which `k` did something: the share of all that did. What is known as evidence only goes by its
    /// weight, in which what is older counts less.
    fn rate(self, (k, n): (u64, u64), weight: f64) -> Option<f64> {
        let folded = if self.total > 0.0 { self.attempts as f64 * weight / self.total } else { 0.0 };
        let all = n + self.attempts;
        (all > 0).then(|| (k as f64 + folded) / all as f64)
    }

    /// The share that delivered, with `n` more attempts of which `k` did.
    pub(crate) fn success_rate(self, k: u64, n: u64) -> Option<f64> {
        self.rate((k, n), self.success)
    }

    /// The share that was blocked, with `n` more attempts of which `k` were.
    pub(crate) fn ban_rate(self, k: u64, n: u64) -> Option<f64> {
        self.rate((k, n), self.blocked)
    }
}

impl<'s> FromIterator<&'s Said> for Folded {
    fn from_iter<T: IntoIterator<Item = &'s Said>>(all: T) -> Self {
        all.into_iter().fold(Self::default(), |sum, said| Self {
            attempts: sum.attempts + said.attempts,
            success: sum.success + said.success,
            blocked: sum.blocked + said.blocked,
            total: sum.total + said.total,
        })
    }
}

impl Foreign {
    /// What to say under a table where `is_left_out` of it.
    pub(crate) fn note(&self, is_left_out: &str) -> Option<String> {
        let nodes = if self.nodes == 1 { "1 other node".to_owned() } else { format!("{} other nodes", self.nodes) };
        (self.nodes > 0).then(|| format!("older attempts of {nodes} are known as evidence only: {is_left_out}"))
    }
}

/// Shows every attempt that others have told one by one, and gives back what else they have; none where the directory's node has never
/// been in a fleet.
#[cfg(feature = "fleet")]
pub(crate) fn facts(
    dir: &Path,
    settings: &Settings,
    mut show: impl FnMut(&Fact<'_>),
) -> Result<Option<Foreign>, Failure> {
    let rest = settings.blank()?;
    let shown = fetchwise_fleet::peer_store::facts(dir, Some(&rest), |_, fact| show(fact));
    let shown = shown.map_err(|error| Failure::failed(crate::terminal::output::plain(&error.to_string())))?;
    Ok(shown.map(|shown| Foreign { nodes: shown.folded, share: rest.share(settings.clock.now(), 0.0) }))
}

/// Without the feature nobody is told anything.
#[cfg(not(feature = "fleet"))]
#[allow(clippy::unnecessary_wraps, reason = "the same call as with a fleet")]
pub(crate) fn facts(_: &Path, _: &Settings, _: impl FnMut(&Fact<'_>)) -> Result<Option<Foreign>, Failure> {
    Ok(None)
}
