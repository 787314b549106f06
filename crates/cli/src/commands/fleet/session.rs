//! Short membership in a fleet, for a command that writes to the log and does not crawl: it
//! publishes what it wrote and leaves.
//!
//! Invariants: a node that may not join fails before it writes anything.
//!
//! Must not know: what is written.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fetchwise::journal::Journal;
use fetchwise_fleet::Fleet;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::runtime::{Builder, Runtime};

use super::args::FleetArgs;
use super::join::{connect, fleet_failure, nats, options};
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::{note, plain};

/// The time limit for a broker that accepts nothing.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval at which the progress is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A short membership. While it lasts, the node publishes what the log has on disk.
pub(crate) struct FleetSession {
    runtime: Runtime,
    fleet: Fleet,
    journal: Arc<Journal>,
}

/// Joins the fleet that the settings name, if there is one. If the broker is unavailable, the node
/// publishes when it next joins, unless the settings require the broker.
pub(crate) fn open_session(
    settings: &Settings,
    args: &FleetArgs,
    journal: &Arc<Journal>,
) -> Result<Option<FleetSession>, Failure> {
    let Some(nats) = nats(settings, args)? else { return Ok(None) };
    let (selector, _) = settings.load_selector()?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let fleet = runtime.block_on(async {
        let transport = connect(nats, settings.config.fleet.required).await?;
        let joining = Fleet::join(
            Arc::clone(journal),
            Arc::new(selector),
            transport,
            options(settings, args),
        );
        joining.await.map_err(fleet_failure)
    })?;
    Ok(Some(FleetSession { runtime, fleet, journal: Arc::clone(journal) }))
}

impl FleetSession {
    /// Publishes the rest and releases the log. Returns whether the broker has everything;
    /// otherwise reports the reason.
    pub(crate) fn end(self) -> bool {
        let Self { runtime, fleet, journal } = self;
        let told = runtime.block_on(async {
            let told = publish_all(&fleet, &journal).await;
            fleet.stop().await;
            told
        });
        runtime.shutdown_timeout(Duration::from_millis(500));
        if let Err(why) = &told {
            note(format_args!(
                "warning: {}: the rest follows when this node next joins the fleet",
                plain(why)
            ));
        }
        told.is_ok()
    }
}

/// Waits until everything on disk is published.
async fn publish_all(fleet: &Fleet, journal: &Journal) -> Result<(), String> {
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
        if moved.elapsed() >= PUBLISH_TIMEOUT
            || !status.broker && moved.elapsed() >= PUBLISH_TIMEOUT / 4
        {
            return Err("the broker does not accept the imported attempts".to_owned());
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Returns a progress bar, which shows on a terminal only.
fn bar(len: u64) -> ProgressBar {
    let bar = match std::io::stderr().is_terminal() {
        true => ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr()),
        false => ProgressBar::hidden(),
    };
    if let Ok(style) =
        ProgressStyle::with_template("notifying the fleet {bar:40} {human_pos}/{human_len} {eta}")
    {
        bar.set_style(style);
    }
    bar
}
