//! What can change while a crawler runs: mode, split, router table, rules, and the guard over a rollout. SIGHUP has all of it read
//! again; the guard is asked now and then, and what it has to say goes to stderr.
//!
//! Invariant: what is read again is in force as a whole, or not at all. Must not know what else the process does.

use std::sync::{Arc, Weak};
use std::time::Duration;

use fetchwise::config::Config;
use fetchwise::detect::Detector;
use fetchwise::rollout::{Event, Guard};
use fetchwise::router::{Mode, Router};
use fetchwise::selector::Selector;
use tokio::task::JoinHandle;

use super::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::{ERROR, note, plain, styled};

/// The guard is asked so often what is due.
const TICK: Duration = Duration::from_secs(1);

/// Reads again what can change.
pub(crate) struct Reload {
    settings: Settings,
    /// Weak: who waits for a signal must not keep a crawler from ending.
    selector: Weak<Selector>,
    detectors: Vec<Weak<Detector>>,
    guard: Weak<Guard>,
}

impl Reload {
    /// For a crawler that was begun with `settings`.
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
        }
    }

    /// Reads config, router table and rules again and puts them in force, while others decide and read pages. Says what is in force.
    ///
    /// # Errors
    /// When any of it cannot be used: everything stays as it was.
    pub(crate) fn now(&self) -> Result<String, Failure> {
        let gone = || Failure::failed("the crawler has ended");
        let selector = self.selector.upgrade().ok_or_else(gone)?;
        let detectors: Option<Vec<_>> = self.detectors.iter().map(Weak::upgrade).collect();
        let detectors = detectors.ok_or_else(gone)?;
        let guard = self.guard.upgrade().ok_or_else(gone)?;
        let settings = self.settings.again()?;
        let router = settings.router()?.clone();
        // Everything is read and checked before anything changes.
        let rules = settings.rules();
        if let Some(path) = rules {
            Detector::from_file(path).map_err(Failure::usage)?;
        }
        let before = selector.router();
        selector.set_router(router.clone()).map_err(|error| settings.about_table(error))?;
        let read = detectors.iter().try_for_each(|detector| match rules {
            Some(path) => detector.reload_file(path).map_err(Failure::usage),
            None if self.settings.rules().is_some() => detector.reload("").map_err(Failure::usage),
            None => Ok(()),
        });
        if let Err(failure) = read {
            // The file has changed since it was checked.
            let _ = selector.set_router((*before).clone());
            return Err(failure);
        }
        guard.set_settings(settings.config.guard());
        guard.tick(&selector).iter().for_each(say);
        Ok(self.words(&settings, &router, detectors.first().map_or(0, |detector| detector.rule_count())))
    }

    /// As [`Reload::now`], with what came of it on stderr.
    pub(crate) fn now_aloud(&self) {
        match self.now() {
            Ok(words) => note(format_args!("fetchwise: {words}")),
            Err(failure) => note(format_args!(
                "{}: mode, router table and the rules stay as they are: {}",
                styled(ERROR, "error"),
                plain(&failure.to_string()).trim_end()
            )),
        }
    }

    fn words(&self, settings: &Settings, router: &Router, rules: usize) -> String {
        let files: Vec<String> = settings.files().map(|path| plain(&path.display().to_string())).collect();
        let mode = match router.mode {
            Mode::Split => format!("split, {:.1} % of the hosts to learning", 100.0 * router.split_share),
            mode => mode.name().to_owned(),
        };
        let mut words = format!("read {} again", files.join(", "));
        words += &format!(": mode {mode}; {} routes; {rules} rules", router.table.len());
        if settings.is_mode_given() {
            words += "; the mode is the command line's or the environment's, which goes before the config";
        }
        if fixed(&settings.config) != fixed(&self.settings.config) {
            words += "; what else has changed in the config holds from the next start on";
        }
        words
    }
}

/// The part of a config that holds until the process ends, to be compared.
fn fixed(config: &Config) -> String {
    let mut rest = config.clone();
    let none = Config::default();
    (rest.mode, rest.split_share, rest.router, rest.rules, rest.rollout) =
        (none.mode, none.split_share, none.router, none.rules, none.rollout);
    format!("{rest:?}")
}

/// SIGHUPs that have come and were not heard yet.
pub(crate) struct Hangups {
    #[cfg(unix)]
    signals: Option<tokio::signal::unix::Signal>,
}

/// Begins to listen to SIGHUP: before anything that takes long, or the signal would end a process that is just starting. What comes
/// meanwhile is heard by [`on_hangup`]. Where there is nothing to read the signal means what it does without this: the terminal is
/// gone, and so is the process. Called within a runtime.
#[cfg(unix)]
pub(crate) fn listen(settings: &Settings) -> std::io::Result<Hangups> {
    use tokio::signal::unix::{SignalKind, signal};

    let signals = settings.files().next().map(|_| signal(SignalKind::hangup())).transpose()?;
    Ok(Hangups { signals })
}

/// There is no SIGHUP here.
#[cfg(not(unix))]
pub(crate) fn listen(_settings: &Settings) -> std::io::Result<Hangups> {
    Ok(Hangups {})
}

/// Reads again whenever the process gets SIGHUP. Called within a runtime.
#[cfg_attr(not(unix), allow(unused_variables, reason = "there is no SIGHUP"))]
pub(crate) fn on_hangup(hangups: Hangups, reload: Reload) -> JoinHandle<()> {
    tokio::spawn(async move {
        #[cfg(unix)]
        if let Some(mut signals) = hangups.signals {
            let reload = Arc::new(reload);
            while signals.recv().await.is_some() {
                let reload = Arc::clone(&reload);
                // Files are read: pages go on meanwhile.
                let _ = tokio::task::spawn_blocking(move || reload.now_aloud()).await;
            }
        }
    })
}

/// Asks the guard now and then, for as long as there is a selector. Called within a runtime.
pub(crate) fn watch(guard: &Arc<Guard>, selector: &Arc<Selector>) -> JoinHandle<()> {
    let (guard, selector) = (Arc::clone(guard), Arc::downgrade(selector));
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(selector) = selector.upgrade() else { return };
            let guard = Arc::clone(&guard);
            // A look that is due works for a moment.
            let told = tokio::task::spawn_blocking(move || guard.tick(&selector).iter().for_each(say)).await;
            if told.is_err() {
                return;
            }
        }
    })
}

/// Says what the guard has found, loudly where somebody has to act.
pub(crate) fn say(event: &Event) {
    let words = plain(&event.to_string());
    match event {
        Event::FellBack(_) | Event::StillFallen(_) | Event::NotKept(_) => {
            note(format_args!("{}: {words}", styled(ERROR, "warning")));
        }
        _ => note(format_args!("fetchwise: {words}")),
    }
}
