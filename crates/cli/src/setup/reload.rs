//! Reloading of what can change while a crawler runs: mode, split, router table, rules, and the settings of the
//! automatic rollback.
//!
//! SIGHUP reloads all of it. A task ticks the automatic rollback and reports its events on stderr.
//!
//! Invariants: a reload takes effect as a whole or not at all.
//!
//! Must not know: what else the process does.

use std::sync::{Arc, Weak};
use std::time::Duration;

use fetchwise::config::Config;
use fetchwise::detect::Detector;
use fetchwise::rollout::{Event, Guard};
use fetchwise::router::{Mode, Router};
use fetchwise::selector::Selector;
use tokio::task::JoinHandle;

use super::identity::Identity;
use super::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::{note, note_labelled, plain, shown};

/// The interval at which the automatic rollback is ticked.
const TICK: Duration = Duration::from_secs(1);

/// A reloader of what can change.
pub(crate) struct Reloader {
    settings: Settings,
    /// Weak, so that a task that waits for a signal does not keep a crawler alive.
    selector: Weak<Selector>,
    detectors: Vec<Weak<Detector>>,
    guard: Weak<Guard>,
    identity: Option<Identity>,
}

impl Reloader {
    /// Returns a reloader for a crawler that was started with `settings`.
    pub(crate) fn new(
        settings: &Settings,
        selector: &Arc<Selector>,
        detectors: &[&Arc<Detector>],
        guard: &Arc<Guard>,
    ) -> Self {
        Self {
            settings: settings.clone(),
            selector: Arc::downgrade(selector),
            detectors: detectors.iter().map(|detector| Arc::downgrade(detector)).collect(),
            guard: Arc::downgrade(guard),
            identity: None,
        }
    }

    /// Reloads the keys of this identity too.
    pub(crate) fn with_identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Reads config, router table and rules, and applies them while the crawler runs. Returns a text that says what
    /// applies now.
    ///
    /// # Errors
    /// Fails if any of them is unusable; then nothing changes.
    pub(crate) fn reload(&self) -> Result<String, Failure> {
        let gone = || Failure::failed("the crawler has ended");
        let selector = self.selector.upgrade().ok_or_else(gone)?;
        let detectors: Option<Vec<_>> = self.detectors.iter().map(Weak::upgrade).collect();
        let detectors = detectors.ok_or_else(gone)?;
        let guard = self.guard.upgrade().ok_or_else(gone)?;
        let settings = self.settings.resolve_again()?;
        let router = settings.router()?.clone();
        // Read and check everything before the first change.
        let rules = settings.rules();
        if let Some(path) = rules {
            Detector::from_file(path).map_err(Failure::usage)?;
        }
        self.identity.as_ref().map_or(Ok(()), |identity| identity.reload(&settings))?;
        let before = selector.router();
        selector.set_router(router.clone()).map_err(|error| settings.router_failure(error))?;
        let read = detectors.iter().try_for_each(|detector| match rules {
            Some(path) => detector.reload_file(path).map_err(Failure::usage),
            None if self.settings.rules().is_some() => detector.reload("").map_err(Failure::usage),
            None => Ok(()),
        });
        if let Err(failure) = read {
            // The file has changed since the check.
            let _ = selector.set_router((*before).clone());
            return Err(failure);
        }
        guard.set_settings(settings.config.guard());
        guard.tick(&selector).iter().for_each(report_event);
        Ok(self.text(&settings, &router, detectors.first().map_or(0, |detector| detector.rule_count())))
    }

    /// Does the same as [`Reloader::reload`] and reports the result on stderr.
    pub(crate) fn reload_and_report(&self) {
        match self.reload() {
            Ok(words) => note(format_args!("fetchwise: {words}")),
            Err(failure) => note_labelled(
                "error",
                format_args!(
                    "reload failed, mode, router table and rules are unchanged: {}",
                    plain(&failure.to_string()).trim_end()
                ),
            ),
        }
    }

    fn text(&self, settings: &Settings, router: &Router, rules: usize) -> String {
        let files: Vec<String> = settings.files().map(shown).collect();
        let mode = match router.mode {
            Mode::Split => format!("split, {:.1} % of the hosts to learning", 100.0 * router.split_share),
            mode => mode.name().to_owned(),
        };
        let mut words = format!("reloaded {}", files.join(", "));
        words += &format!(": mode {mode}; {} routes; {rules} rules", router.table.len());
        if settings.is_mode_given() {
            words += "; the mode comes from the command line or the environment, which take precedence over the config";
        }
        if restart_only(&settings.config) != restart_only(&self.settings.config) {
            words += "; other changes of the config apply after a restart";
        }
        words
    }
}

/// Returns the part of a config that only a restart changes, in a form that can be compared.
fn restart_only(config: &Config) -> String {
    let mut rest = config.clone();
    let none = Config::default();
    (rest.mode, rest.split_share, rest.router, rest.rules, rest.rollout) =
        (none.mode, none.split_share, none.router, none.rules, none.rollout);
    // The constants of `guard`.
    let (tuning, none_tuned) = (&mut rest.tuning, none.tuning);
    tuning.rollout_confidence = none_tuned.rollout_confidence;
    tuning.rollout_margin = none_tuned.rollout_margin;
    tuning.rollout_min_pages = none_tuned.rollout_min_pages;
    tuning.rollout_min_hosts = none_tuned.rollout_min_hosts;
    // The start derives it from the command and from `identity`.
    rest.signing = none.signing;
    format!("{rest:?}")
}

/// The SIGHUPs that have arrived and are not handled yet.
pub(crate) struct ReloadSignals {
    #[cfg(unix)]
    signals: Option<tokio::signal::unix::Signal>,
}

/// Starts to listen to SIGHUP. Called early, because an unhandled SIGHUP would end the process while it starts.
/// [`on_hangup`] handles those that arrive meanwhile. Without files to reload, SIGHUP keeps its default: the terminal
/// is gone, and the process ends. Called within a runtime.
#[cfg(unix)]
pub(crate) fn listen(settings: &Settings) -> std::io::Result<ReloadSignals> {
    use tokio::signal::unix::{SignalKind, signal};

    let signals = settings.files().next().map(|_| signal(SignalKind::hangup())).transpose()?;
    Ok(ReloadSignals { signals })
}

/// Returns nothing to listen to: this system has no SIGHUP.
#[cfg(not(unix))]
pub(crate) fn listen(_settings: &Settings) -> std::io::Result<ReloadSignals> {
    Ok(ReloadSignals {})
}

/// Reloads on every SIGHUP. Called within a runtime.
#[cfg_attr(not(unix), allow(unused_variables, reason = "only Unix has SIGHUP"))]
pub(crate) fn on_hangup(hangups: ReloadSignals, reload: Reloader) -> JoinHandle<()> {
    tokio::spawn(async move {
        #[cfg(unix)]
        if let Some(mut signals) = hangups.signals {
            let reload = Arc::new(reload);
            while signals.recv().await.is_some() {
                let reload = Arc::clone(&reload);
                // Reading files blocks, so another thread does it.
                let _ = tokio::task::spawn_blocking(move || reload.reload_and_report()).await;
            }
        }
    })
}

/// Ticks the automatic rollback until the selector is dropped. Called within a runtime.
pub(crate) fn watch_rollback(guard: &Arc<Guard>, selector: &Arc<Selector>) -> JoinHandle<()> {
    let (guard, selector) = (Arc::clone(guard), Arc::downgrade(selector));
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(selector) = selector.upgrade() else { return };
            let guard = Arc::clone(&guard);
            // A due check takes a moment, so another thread does it.
            let told = tokio::task::spawn_blocking(move || guard.tick(&selector).iter().for_each(report_event)).await;
            if told.is_err() {
                return;
            }
        }
    })
}

/// Reports an event of the automatic rollback on stderr; as a warning if somebody has to act.
pub(crate) fn report_event(event: &Event) {
    let words = plain(&event.to_string());
    match event {
        Event::FellBack(_) | Event::StillFallen(_) | Event::NotSaved(_) => {
            note_labelled("warning", &words);
        }
        _ => note(format_args!("fetchwise: {words}")),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn constants_of_a_rollout_need_no_restart_and_others_do() {
        let of = |text: &str| restart_only(&Config::from_toml(text, Path::new("c.toml")).unwrap());
        let rollout = "rollout.retry_after = '1day'\n[tuning]\nrollout_confidence = 0.9\nrollout_margin = 0.1\n\
                       rollout_min_pages = 20\nrollout_min_hosts = 5\n";
        assert_eq!(of(rollout), of(""));
        assert_ne!(of("tuning.explore_rate = 0.1"), of(""));
    }
}
