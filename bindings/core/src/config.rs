//! What a TOML file, as the program reads it, says of a selector and its visits: one reading for both packages, Python's and Node's.
//!
//! It knows neither language. What is wrong is told as text that names the file, the line and the key.

use std::path::Path;

use fetchwise::config::Config;
use fetchwise::pace::{PaceMode, PaceSettings};
use fetchwise::selector::{Selector, SelectorBuilder, VisitSettings};

/// Begins a selector from the file, or from nothing, with the pace that its visits keep, if they shall keep one. `pace` overrules the file;
/// `names_fetchers` says that the caller has fetchers of its own, which a file that has some, too, leaves no place for.
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
            // A pace is kept where somebody has asked for one, here or there.
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

/// How the file has visits go.
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
