//! The settings in effect, with the rules that follow from them.
//!
//! Must not know: who changes the settings.

use std::sync::Arc;

use crate::limiter::admission::LevelRules;
use crate::settings::PaceSettings;

/// Settings with the rules that follow from them.
#[derive(Debug)]
pub(crate) struct ActiveSettings {
    pub(crate) settings: Arc<PaceSettings>,
    pub(crate) rules: LevelRules,
}

impl ActiveSettings {
    /// Returns settings with their rules; `key` returns the hash of a name.
    pub(crate) fn new(settings: PaceSettings, key: impl Fn(&str) -> u64) -> Self {
        let settings = settings.clamped();
        Self { rules: LevelRules::new(&settings, key), settings: Arc::new(settings) }
    }
}
