//! Background maintenance of the attempt log, for each command that writes for long.
//!
//! Owns: its options, which come from the settings, and its messages. `journal::maintenance` does
//! the work.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use indicatif::HumanBytes;

use super::settings::Settings;
use crate::terminal::exit::Failure;
use fetchwise::journal::DEFAULT_SEGMENT_BYTES;
use fetchwise::journal::maintenance::{
    BackgroundMaintenance, CompactCause, CompactReport, DEFAULT_COMPACT_THRESHOLD,
    MaintenanceEvent, MaintenanceOptions,
};

/// Background maintenance that is running, and its messages.
pub(crate) struct RunningMaintenance {
    upkeep: BackgroundMaintenance,
    messages: Receiver<String>,
}

impl RunningMaintenance {
    /// Returns the messages since the last call.
    pub(crate) fn messages(&self) -> impl Iterator<Item = String> {
        self.messages.try_iter()
    }

    /// Stops it; called before the journal is closed.
    pub(crate) fn stop(self) {
        self.upkeep.stop();
    }
}

/// Starts background maintenance alongside the writer of `dir`; returns none if the settings turn
/// it off.
pub(crate) fn start(
    settings: &Settings,
    dir: &Path,
) -> Result<Option<RunningMaintenance>, Failure> {
    let options = options(settings);
    if (options.compact_threshold.is_none(), options.max_disk_bytes, options.checkpoint_after)
        == (true, None, None)
    {
        return Ok(None);
    }
    let (tell, messages) = channel();
    let blank = settings.maintenance_selector_factory();
    let tell = move |did| {
        // The receiver may be gone.
        let _ = message(&did).map(|words| tell.send(words));
    };
    let upkeep =
        BackgroundMaintenance::start(dir, options, Arc::clone(&settings.clock), blank, tell);
    let upkeep = upkeep.map_err(|error| {
        Failure::failed(format_args!("cannot start background maintenance: {error}"))
    })?;
    Ok(Some(RunningMaintenance { upkeep, messages }))
}

fn options(settings: &Settings) -> MaintenanceOptions {
    let log = &settings.config.log;
    let mut options = MaintenanceOptions::default();
    if let Some(days) = log.retain_days {
        options.retain = Duration::from_secs(u64::from(days) * 86_400);
    }
    options.compact_threshold =
        log.compact_threshold.map_or(Some(DEFAULT_COMPACT_THRESHOLD), |at| at.share());
    options.max_disk_bytes = log.max_disk_bytes;
    options.segment_bytes = segment_bytes(settings);
    options.checkpoint_after =
        options.checkpoint_after.filter(|_| settings.config.max_keys.is_some());
    options
}

/// Returns the size of a log segment: small enough for the log's disk limit.
pub(crate) fn segment_bytes(settings: &Settings) -> u64 {
    let config = &settings.config;
    let bytes = config.tuning.segment_bytes.unwrap_or(DEFAULT_SEGMENT_BYTES);
    MaintenanceOptions::segment_bytes_within(bytes, config.log.max_disk_bytes)
}

fn message(did: &MaintenanceEvent) -> Option<String> {
    match did {
        MaintenanceEvent::CompactionFinished { cause, done, took } => {
            let CompactReport { attempts, bytes, .. } = done;
            let why = match cause {
                CompactCause::Expired { share } => {
                    format!("{:.0} % of it had expired", share * 100.0)
                }
                CompactCause::Unpacked { share } => {
                    format!("{:.0} % of it was not packed", share * 100.0)
                }
                CompactCause::Full { taken } => format!("it took {}", HumanBytes(*taken)),
                _ => "it was due".to_owned(),
            };
            Some(format!(
                "fetchwise: compacted the attempt log in the background because {why}: {} -> {} attempts, {} -> {}, \
                 in {:.1} s",
                attempts.0,
                attempts.1,
                HumanBytes(bytes.0),
                HumanBytes(bytes.1),
                took.as_secs_f64()
            ))
        }
        MaintenanceEvent::OverLimit { taken, max_disk_bytes } => Some(format!(
            "fetchwise: warning: the attempt log takes {}, more than log.max_disk_bytes ({}): the evidence alone needs \
             that much, and is never dropped",
            HumanBytes(*taken),
            HumanBytes(*max_disk_bytes)
        )),
        MaintenanceEvent::Failed(error) => {
            Some(format!("fetchwise: warning: the attempt log was not compacted: {error}"))
        }
        _ => None,
    }
}
