//! A selector and the settings of its visits, from a TOML file.
//!
//! Invariants: errors are text that names the file, the line and the key. Must not know: how a
//! package converts its arguments.

use std::path::Path;

use fetchwise::config::Config;
use fetchwise::pace::{PaceMode, PaceSettings};
use fetchwise::selector::{Selector, SelectorBuilder, VisitSettings};

/// Returns the builder of a selector from `file`, or from the defaults, and the settings of its
/// pace, which is on unless the file or `pace` turns it off; `pace` overrides the file. Fails when
/// both the caller (`names_fetchers`) and the file name fetchers.
pub fn begin(
    file: Option<&Path>,
    names_fetchers: bool,
    pace: Option<bool>,
) -> Result<(SelectorBuilder, PaceSettings), String> {
    let (builder, mut settings) = match file {
        Some(path) => {
            let config = Config::load(path).map_err(|error| error.to_string())?;
            if names_fetchers && !config.fetchers.is_empty() {
                return Err(format!(
                    "{} names fetchers itself: leave out those of the call",
                    path.display()
                ));
            }
            (config.selector().visits(visits(&config)), config.pace())
        }
        None => (Selector::builder(), PaceSettings::default()),
    };
    if let Some(wanted) = pace {
        settings.mode = match (wanted, settings.mode) {
            (false, _) => PaceMode::Off,
            (true, PaceMode::Off) => PaceMode::Learn,
            (true, other) => other,
        };
    }
    Ok((builder, settings))
}

/// Returns the settings of visits that the file has.
fn visits(config: &Config) -> VisitSettings {
    let (http, base) = (&config.http, VisitSettings::default());
    let deadline = http.timeout.unwrap_or(base.deadline);
    VisitSettings {
        deadline,
        probe_deadline: config.tuning.probe_timeout.unwrap_or(base.probe_deadline).min(deadline),
        max_redirects: http.max_redirects.unwrap_or(base.max_redirects),
        escalate_after_block: config
            .backoff
            .escalate_after_block
            .unwrap_or(base.escalate_after_block),
        ..base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(file: Option<&str>, pace: Option<bool>) -> PaceMode {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fetchwise.toml");
        std::fs::write(&path, file.unwrap_or_default()).unwrap();
        begin(file.map(|_| path.as_path()), false, pace).unwrap().1.mode
    }

    #[test]
    fn the_pace_is_on_unless_the_file_or_the_caller_turns_it_off() {
        let (off, fixed) = ("[pace]\nmode = \"off\"\n", "[pace]\nmode = \"fixed\"\n");
        let other = "[tuning]\nhalf_life_days = 30\n";
        assert_eq!(
            [None, Some(true), Some(false)].map(|pace| mode(None, pace)),
            [PaceMode::Learn, PaceMode::Learn, PaceMode::Off]
        );
        for (file, of_file) in
            [(off, PaceMode::Off), (fixed, PaceMode::Fixed), (other, PaceMode::Learn)]
        {
            let of_caller = if of_file == PaceMode::Off { PaceMode::Learn } else { of_file };
            assert_eq!(mode(Some(file), None), of_file, "{file}");
            assert_eq!(mode(Some(file), Some(true)), of_caller, "{file}");
            assert_eq!(mode(Some(file), Some(false)), PaceMode::Off, "{file}");
        }
    }
}
