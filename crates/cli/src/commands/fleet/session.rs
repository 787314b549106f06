//! The part in a fleet of a command that writes to the log and does not crawl: it says what it has written, and leaves.
//!
//! Invariant: who may not join is told so before anything is written. Must not know what is written.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fetchwise::journal::Journal;
use fetchwise_fleet::Fleet;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::runtime::{Builder, Runtime};

use super::join::{FleetArgs, about, connect, nats, options};
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::{note, plain};

/// A broker that takes nothing for so long is not waited for.
const PATIENCE: Duration = Duration::from_secs(20);
/// How often somebody looks how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A part in a fleet. What the log has on disk is published while it lasts.
pub(crate) struct Part {
    runtime: Runtime,
    fleet: Fleet,
    journal: Arc<Journal>,
}

/// Joins the fleet that the settings name, if they name one. A broker that is away hears of it when the node joins the next time, unless
/// the settings require one.
pub(crate) fn part(settings: &Settings, args: &FleetArgs, journal: &Arc<Journal>) -> Result<Option<Part>, Failure> {
    let Some(nats) = nats(settings, args)? else { return Ok(None) };
    let (selector, _) = settings.learned()?;
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Failure::failed)?;
    let fleet = runtime.block_on(async {
        let transport = connect(nats, settings.config.fleet.required).await?;
        let joining = Fleet::join(Arc::clone(journal), Arc::new(selector), transport, options(settings, args));
        joining.await.map_err(about)
    })?;
    Ok(Some(Part { runtime, fleet, journal: Arc::clone(journal) }))
}

impl Part {
    /// Says what is left, and lets go of the log. Whether the broker has all of it; where it has not, why is said.
    pub(crate) fn end(self) -> bool {
        let Self { runtime, fleet, journal } = self;
        let told = runtime.block_on(async {
            let told = say_all(&fleet, &journal).await;
            fleet.stop().await;
            told
        });
        runtime.shutdown_timeout(Duration::from_millis(500));
        if let Err(why) = &told {
            note(format_args!(
                "warning: {}: the fleet hears of the rest when this node is in it the next time",
                plain(why)
            ));
        }
        told.is_ok()
    }
}

/// Waits until all that is on disk is published.
async fn say_all(fleet: &Fleet, journal: &Journal) -> Result<(), String> {
    journal.flush().await.map_err(|error| error.to_string())?;
    let end = journal.durable_seq();
    let mut known = fleet.status().published;
    let bar = bar(end.saturating_sub(known));
    let mut moved = Instant::now();
    loop {
        let status = fleet.status();
        if status.published >= end {
            bar.finish_and_clear();
            return Ok(());
        }
        if status.published > known {
            bar.inc(status.published - known);
            (known, moved) = (status.published, Instant::now());
        }
        if let Some(why) = status.stopped {
            return Err(format!("this node publishes nothing ({why})"));
        }
        if moved.elapsed() >= PATIENCE || !status.broker && moved.elapsed() >= PATIENCE / 4 {
            return Err("the broker does not take what was imported".to_owned());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A bar on a terminal, nothing elsewhere.
fn bar(len: u64) -> ProgressBar {
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr()),
        false => ProgressBar::hidden(),
    };
    if let Ok(style) = ProgressStyle::with_template("telling the fleet {bar:40} {human_pos}/{human_len} {eta}") {
        bar.set_style(style);
    }
    bar
}
