//! Importance: the weight of a general heuristic's evidence, as computed by analytics.
//!
//! It applies to flags, user-defined types, depth and suffix only. Site, domain and section are
//! exempt, because importance is computed over all fetchers together: a site where the browser
//! always succeeds and plain requests always fail would count as unimportant.
//!
//! Invariants: switched off it costs one comparison per level; switched on, reading takes no lock
//! and allocates nothing.
//!
//! Must not know: how importance is computed.

use std::hash::BuildHasherDefault;

use papaya::HashMap;

use crate::evidence::{Key, PrehashedHasher};

/// The effect of importance on evidence.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum ImportanceUse {
    /// No effect.
    #[default]
    Off,
    /// Evidence of heuristics with an importance below `min` is not read.
    Prune {
        /// From 0 to 1.
        min: f64,
    },
    /// Evidence is multiplied by `importance / full`, but never by more than 1.
    Scale {
        /// The importance from which on evidence counts in full; above 0.
        full: f64,
    },
}

impl ImportanceUse {
    /// Returns the factor of evidence of this importance.
    fn factor(self, importance: f64) -> f64 {
        match self {
            Self::Off => 1.0,
            Self::Prune { min } => f64::from(u8::from(importance >= min)),
            Self::Scale { full } => (importance / full.max(f64::MIN_POSITIVE)).clamp(0.0, 1.0),
        }
    }
}

/// The importance of types and values.
#[derive(Debug, Default)]
pub(crate) struct Importances {
    by_key: HashMap<u64, f64, BuildHasherDefault<PrehashedHasher>>,
}

/// Returns the key of a type as a whole: no heuristic has this type.
fn type_key(kind: &str) -> Key {
    Key::of("\0type", kind)
}

impl Importances {
    /// Sets the importance of a heuristic, or of a type when `value` is `None`. Ignores an
    /// importance that is not finite.
    pub(crate) fn set(&self, kind: &str, value: Option<&str>, importance: f64) {
        if importance.is_finite() {
            let key = value.map_or_else(|| type_key(kind), |value| Key::of(kind, value));
            self.by_key.pin().insert(key.bits(), importance);
        }
    }

    /// Returns the factor of a heuristic's evidence: by its own importance, else by its type's,
    /// else 1.
    #[inline]
    pub(crate) fn factor(&self, how: ImportanceUse, kind: &str, key: Key) -> f64 {
        if how == ImportanceUse::Off { 1.0 } else { self.look_up(how, kind, key) }
    }

    fn look_up(&self, how: ImportanceUse, kind: &str, key: Key) -> f64 {
        let by_key = self.by_key.pin();
        let known = by_key.get(&key.bits()).or_else(|| by_key.get(&type_key(kind).bits()));
        known.map_or(1.0, |importance| how.factor(*importance))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_precedes_its_type_and_unknown_importance_counts_in_full() {
        let importances = Importances::default();
        importances.set("suffix", None, 0.1);
        importances.set("suffix", Some(".pdf"), 0.4);
        importances.set("suffix", Some(".zip"), f64::NAN);
        let factor = |how, value| importances.factor(how, "suffix", Key::of("suffix", value));
        let (scale, prune) =
            (ImportanceUse::Scale { full: 0.2 }, ImportanceUse::Prune { min: 0.2 });
        assert_eq!(
            [factor(scale, ".pdf"), factor(scale, ".html"), factor(scale, ".zip")],
            [1.0, 0.5, 0.5]
        );
        assert_eq!([factor(prune, ".pdf"), factor(prune, ".html")], [1.0, 0.0]);
        assert_eq!(importances.factor(scale, "path_depth", Key::of("path_depth", "3")), 1.0);
        assert_eq!(factor(ImportanceUse::Off, ".html"), 1.0);
    }
}
