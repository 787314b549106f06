//! Reloading of what can change while a crawler runs: mode, split, router table, rules, the pace of
//! hosts, the costs of fetchers, and the settings of the automatic rollback.
//!
//! SIGHUP and `fetchwise reload` reload all of it. A task ticks the automatic rollback and reports
//! its events on stderr.
//!
//! Invariants: a reload takes effect as a whole or not at all.
//!
//! Must not know: what else the process does.

use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use fetchwise::detect::Detector;
use fetchwise::journal::{FetcherEntry, Journal};
use fetchwise::pace::{PaceMode, PaceSettings};
use fetchwise::registry::FetcherSpec;
use fetchwise::rollout::{Event, Guard};
use fetchwise::router::{Mode, Router};
use fetchwise::selector::Selector;
use tokio::task::JoinHandle;

use super::identity::Identity;
use super::setting_changes::{cost_changes, keys_after_restart, pace_changes};
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
    journal: Weak<Journal>,
    detectors: Vec<Weak<Detector>>,
    guard: Weak<Guard>,
    identity: Identity,
    /// Returns the pace of hosts that settings ask for.
    pace: Box<PaceOf>,
    /// The candidates at the start.
    candidates: Vec<FetcherSpec>,
    told: OnceLock<Box<OnReload>>,
    /// Held during a reload.
    reloading: Mutex<()>,
}

/// How the pace of hosts follows from settings.
pub(crate) type PaceOf = dyn Fn(&Settings) -> PaceSettings + Send + Sync;

/// What is called after a reload.
type OnReload = dyn Fn(&Reloaded) + Send + Sync;

/// The parts of a crawler that a reload changes.
pub(crate) struct ReloadedParts<'p> {
    pub(crate) selector: &'p Arc<Selector>,
    pub(crate) journal: &'p Arc<Journal>,
    pub(crate) detectors: &'p [&'p Arc<Detector>],
    pub(crate) guard: &'p Arc<Guard>,
    pub(crate) identity: &'p Identity,
}

/// What a reload did.
pub(crate) struct Reloaded {
    /// What applies now, for people.
    pub(crate) words: String,
    pub(crate) changed_pace: bool,
    pub(crate) changed_costs: bool,
}

impl Reloader {
    /// Returns a reloader for a crawler that was started with `settings`.
    pub(crate) fn new(
        settings: &Settings,
        parts: &ReloadedParts<'_>,
        pace: Box<PaceOf>,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings: settings.clone(),
            selector: Arc::downgrade(parts.selector),
            journal: Arc::downgrade(parts.journal),
            detectors: parts.detectors.iter().map(|detector| Arc::downgrade(detector)).collect(),
            guard: Arc::downgrade(parts.guard),
            identity: parts.identity.clone(),
            pace,
            candidates: parts.selector.candidates().map(|(_, spec)| spec.clone()).collect(),
            told: OnceLock::new(),
            reloading: Mutex::new(()),
        })
    }

    /// Calls `told` after each reload that has taken effect, in a thread that may block. Only the
    /// first call counts.
    pub(crate) fn tell(&self, told: impl Fn(&Reloaded) + Send + Sync + 'static) {
        let _ = self.told.set(Box::new(told));
    }

    /// Reads config, router table and rules, and applies them while the crawler runs. Returns what
    /// applies now. Reads files, so it blocks.
    ///
    /// # Errors
    /// Fails if any of them is unusable; then nothing changes.
    pub(crate) fn reload(&self) -> Result<Reloaded, Failure> {
        let _reloading = self.reloading.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = || Failure::failed("the crawler has ended");
        let (selector, journal) =
            (self.selector.upgrade().ok_or_else(gone)?, self.journal.upgrade().ok_or_else(gone)?);
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
        self.identity.reload(&settings)?;
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
        let mut words = self.words(
            &settings,
            &router,
            detectors.first().map_or(0, |detector| detector.rule_count()),
        );
        let changed_pace = self.reload_pace(&settings, &selector, &mut words);
        let changed_costs = self.reload_costs(&settings, &selector, &journal, &mut words);
        let keys = keys_after_restart(&self.settings.resolved, &settings.resolved);
        if !keys.is_empty() {
            words += &format!("; {} and their new values apply after a restart", keys.join(", "));
        }
        let reloaded = Reloaded { words, changed_pace, changed_costs };
        self.told.get().into_iter().for_each(|told| told(&reloaded));
        Ok(reloaded)
    }

    /// Applies the settings of the pace, and adds what changed to `words`. Returns whether anything
    /// did.
    fn reload_pace(&self, settings: &Settings, selector: &Selector, words: &mut String) -> bool {
        let wanted = (self.pace)(settings);
        let mode = wanted.mode;
        let (active, changes) = match selector.pace() {
            Some(pace) => {
                let before = pace.settings();
                // A key of `[backoff]`, which only a restart changes.
                let wanted = PaceSettings { max_retry_after_s: before.max_retry_after_s, ..wanted };
                let after = pace.set_settings(wanted, selector.now());
                (after.mode, pace_changes(&before, &after))
            }
            None => (PaceMode::Off, Vec::new()),
        };
        if !changes.is_empty() {
            *words += &format!("; pace: {}", changes.join(", "));
        }
        if mode != active {
            *words += &format!("; pace.mode {mode} applies after a restart");
        }
        !changes.is_empty()
    }

    /// Applies the costs of fetchers, and adds what changed to `words`. Returns whether anything
    /// did. The log gets the new costs, so that its readers count with them.
    fn reload_costs(
        &self,
        settings: &Settings,
        selector: &Selector,
        journal: &Journal,
        words: &mut String,
    ) -> bool {
        let mut config = settings.config.clone();
        // The start derives it from the command and from `identity`.
        config.signing = self.settings.config.signing;
        let listed = config.candidates();
        let is_unlisted = self.settings.config.fetchers.is_empty();
        let cost = |spec: &FetcherSpec| {
            let of = |specs: &[FetcherSpec]| specs.iter().find(|of| of.name == spec.name).cloned();
            let wanted = match listed.is_empty() {
                false => of(&listed)?,
                true if is_unlisted => of(&self.candidates)?,
                true => FetcherSpec::by_name(&spec.name),
            };
            Some((wanted.cost, wanted.measures_cost))
        };
        let before: Vec<FetcherSpec> =
            selector.candidates().map(|(_, spec)| spec.clone()).collect();
        if !selector.set_costs(cost) {
            return false;
        }
        let at = selector.clock().date_of(selector.now());
        let known: Vec<FetcherEntry> =
            before.iter().map(|spec| FetcherEntry::of(spec, at)).collect();
        *words += &format!(
            "; cost: {}",
            cost_changes(&before, selector.candidates().map(|(_, spec)| spec)).join(", ")
        );
        if let Err(error) = journal.register_fetchers(selector, &known) {
            *words += &format!("; the log does not have the new costs: {error}");
        }
        true
    }

    /// Does the same as [`Reloader::reload`] and reports the result on stderr.
    pub(crate) fn reload_and_report(&self) {
        match self.reload() {
            Ok(Reloaded { words, .. }) => note(format_args!("fetchwise: {words}")),
            Err(failure) => note_labelled(
                "error",
                format_args!(
                    "reload failed, all settings are unchanged: {}",
                    plain(&failure.to_string()).trim_end()
                ),
            ),
        }
    }

    fn words(&self, settings: &Settings, router: &Router, rules: usize) -> String {
        let files: Vec<String> = settings.files().map(shown).collect();
        let mode = match router.mode {
            Mode::Split => {
                format!("split, {:.1} % of the hosts to learning", 100.0 * router.split_share)
            }
            mode => mode.name().to_owned(),
        };
        let files = if files.is_empty() { "the environment".to_owned() } else { files.join(", ") };
        let mut words = format!("reloaded {files}");
        words += &format!(": mode {mode}; {} routes; {rules} rules", router.table.len());
        if settings.is_mode_given() {
            words += "; the mode comes from the command line or the environment, which take precedence over the config";
        }
        words
    }
}

/// The SIGHUPs that have arrived and are not handled yet.
pub(crate) struct ReloadSignals {
    #[cfg(unix)]
    signals: Option<tokio::signal::unix::Signal>,
}

/// Starts to listen to SIGHUP. Called early, because an unhandled SIGHUP would end the process
/// while it starts. [`on_hangup`] handles those that arrive meanwhile. Without files to reload,
/// SIGHUP keeps its default: the terminal is gone, and the process ends. Called within a runtime.
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
pub(crate) fn on_hangup(hangups: ReloadSignals, reload: Arc<Reloader>) -> JoinHandle<()> {
    tokio::spawn(async move {
        #[cfg(unix)]
        if let Some(mut signals) = hangups.signals {
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
            let told = tokio::task::spawn_blocking(move || {
                guard.tick(&selector).iter().for_each(report_event)
            })
            .await;
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
