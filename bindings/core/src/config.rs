//! A selector and the settings of its visits, from a TOML file.
//!
//! Invariants: errors are text that names the file, the line and the key. Must not know: how a package converts its arguments.

use std::path::Path;

use fetchwise::config::Config;
use fetchwise::pace::{PaceMode, PaceSettings};
use fetchwise::selector::{Selector, SelectorBuilder, VisitSettings};

/// Returns the builder of a selector from `file`, or from the defaults, and the settings of its pace, if it has one. `pace` overrides
/// the file. Fails when both the caller (`names_fetchers`) and the file name fetchers.
pub fn begin(
    file: Option<&Path>,
    names_fetchers: bool,
    pace: Option<bool>,
) -> Result<(SelectorBuilder, Option<PaceSettings>), String> {
    let (builder, mut settings) = match file {
        Some(path) => {
            let config = Config::load(path).map_err(|error| error.to_string())?;
            if names_fetchers && !config.fetchers.is_empty() {
                return Err(format!("{} names fetchers itself: leave out those of the call", path.display()));
            }
            // There is a pace only when the file or the caller asks for one.
            let mut settings = config.pace();
            settings.mode = config.pace.mode.unwrap_or(PaceMode::Off);
            (config.selector().visits(visits(&config)), settings)
        }
        None => (Selector::builder(), PaceSettings { mode: PaceMode::Off, ..PaceSettings::default() }),
    };
    if let Some(wanted) = pace {
        settings.mode = match (wanted, settings.mode) {
            (false, _) => PaceMode::Off,
            (true, PaceMode::Off) => PaceMode::Learn,
            (true, other) => other,
        };
    }
    Ok((builder, (settings.mode != PaceMode::Off).then_some(settings)))
}

/// Returns the settings of visits that the file has.
fn visits(config: &Config) -> VisitSettings {
    let (http, base) = (&config.http, VisitSettings::default());
    let deadline = http.timeout.unwrap_or(base.deadline);
    VisitSettings {
        deadline,
        probe_deadline: http.probe_timeout.unwrap_or(base.probe_deadline).min(deadline),
        max_redirects: http.max_redirects.unwrap_or(base.max_redirects),
        escalate_after_block: config.backoff.escalate_after_block.unwrap_or(base.escalate_after_block),
        ..base
    }
}
