//! Automatic rollback: counts the results of both arms, and takes learning out of service when it
//! does harm.
//!
//! [`CountingSink`] sits between the selector and its journal, and counts attempts that have an
//! arm. The owner of the crawler calls [`Guard::tick`] about once per second. It takes an interim
//! look when one is due, saves the result, and reads an operator's changes from the file.
//!
//! Invariants: no attempt waits for a look.
//!
//! Must not know: who runs it, nor how to print.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::RolloutError;
use super::report::costs_of;
use crate::ab_test::{Aggregate, GuardSettings, Window};
use crate::backoff::LinkState;
use crate::journal::{self, Entry};
use crate::rollout::state_file::{FILE, FallbackRecord, RolloutState, Stage};
use crate::router::{Fallback, Mode};
use crate::selector::{Released, Selector, Sink, SinkError};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::rfc3339;
use fetchwise_types::time::Timestamp;

/// The longest time that learning stays out of service before it is tried again.
const MAX_RETRY: Duration = Duration::from_secs(365 * 86_400);

/// An event for the operator.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Learning is out of service from now on.
    FellBack(Fallback),
    /// Learning is still out of service, as it was when the process ended.
    StillFallen(Fallback),
    /// An operator put learning back into service.
    Resumed,
    /// Learning is tried again automatically, as the settings say.
    Retried(Fallback),
    /// The state could not be saved: a restart will not have it.
    NotSaved(String),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FellBack(why) => write!(
                f,
                "ROLLOUT: FELL BACK TO THE ROUTER TABLE, learning is out of service: {}. \
                 It stays out until `fetchwise rollout --resume`",
                why.reason
            ),
            Self::StillFallen(why) => write!(
                f,
                "ROLLOUT: learning is out of service since {}, the router table serves: {}. \
                 `fetchwise rollout --resume` puts it back",
                rfc3339::format(why.at),
                why.reason
            ),
            Self::Resumed => f.write_str("rollout: learning is back in service, with a new stage"),
            Self::Retried(why) => write!(
                f,
                "rollout: learning was out of service since {} and is tried again, with a new stage",
                rfc3339::format(why.at)
            ),
            Self::NotSaved(error) => {
                write!(f, "rollout: cannot save the state, a restart will not have it: {error}")
            }
        }
    }
}

/// Watches one selector over one data directory.
#[derive(Debug)]
pub struct Guard {
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    settings: GuardSettings,
    saved: RolloutState,
    aggregate: Aggregate,
    /// Modification time of the file that `saved` was read from.
    written: Option<SystemTime>,
    /// Whether attempts are counted.
    counts: bool,
}

impl Guard {
    /// Starts to watch `selector` before it records anything. The state in `dir` applies from now
    /// on, and the attempts of the current stage are read from the journal.
    ///
    /// Cost: one small file, and for a current split a pass over the journal.
    ///
    /// # Errors
    /// [`RolloutError`] when the file or the journal cannot be read.
    pub fn open(
        dir: &Path,
        selector: &Selector,
        settings: GuardSettings,
    ) -> Result<(Arc<Self>, Vec<Event>), RolloutError> {
        let kept = RolloutState::read(dir)?.unwrap_or_default();
        let aggregate = Aggregate::new(Window::default(), costs_of(selector));
        let written = written(dir);
        let state = State { settings, saved: kept, aggregate, written, counts: false };
        let guard = Self { dir: dir.to_owned(), state: Mutex::new(state) };
        let mut events = Vec::new();
        guard.bring_up(selector, &mut events)?;
        Ok((Arc::new(guard), events))
    }

    /// Returns a sink that counts attempts on their way to `sink`.
    pub fn watched<S: Sink>(self: &Arc<Self>, sink: S) -> CountingSink<S> {
        CountingSink { guard: Arc::clone(self), sink }
    }

    /// Replaces the settings.
    pub fn set_settings(&self, settings: GuardSettings) {
        self.lock().settings = settings;
    }

    /// Returns the state of the rollout.
    pub fn state(&self) -> RolloutState {
        self.lock().saved.clone()
    }

    /// Puts learning back into service on behalf of an operator: a new stage begins, without
    /// earlier results. Returns the fallback that ended; `None` if learning was in service.
    ///
    /// # Errors
    /// [`RolloutError`] when the state cannot be saved. Learning is back in this process anyway.
    pub fn resume(&self, selector: &Selector) -> Result<Option<Fallback>, RolloutError> {
        let (mut state, now) = (self.lock(), selector.clock().date());
        let lifted = state.saved.resume(now).map(|fallen| fallen.why());
        selector.resume();
        if lifted.is_none() {
            return Ok(None);
        }
        let since = state.saved.stage.as_ref().map(|stage| stage.began);
        state.aggregate =
            state.aggregate.with_window(Window { since: since.or(Some(now)), until: None });
        state.saved.write(&self.dir)?;
        state.written = written(&self.dir);
        Ok(lifted)
    }

    /// Does what is due, and returns the events for the operator. Cost: reads one file's time; a
    /// due look takes a moment, during which attempts are still counted.
    pub fn tick(&self, selector: &Selector) -> Vec<Event> {
        let (now, mut events) = (selector.clock().date(), Vec::new());
        self.read_operator_changes(selector, now, &mut events);
        let mut state = self.lock();
        if !state.settings.is_on {
            // An operator may have taken learning out of service by hand, which the guard must not
            // undo.
            if state.saved.fallen_back.as_ref().map(FallbackRecord::why).as_ref()
                == selector.fallen_back().as_deref()
                && selector.fallen_back().is_some()
            {
                selector.resume();
                events.push(Event::Resumed);
            }
            state.counts = false;
            return events;
        }
        if let Some(fallen) = &state.saved.fallen_back {
            let why = fallen.why();
            if selector.fallen_back().is_none() {
                selector.fall_back(why);
            } else if state.is_due_for_retry(why.at, now) {
                state.saved.fallen_back = None;
                state.saved.restart_stage(now);
                selector.resume();
                events.push(Event::Retried(why));
                self.keep(&mut state, &mut events);
            } else {
                return events;
            }
        }
        self.begin_stage(&mut state, selector, now, &mut events);
        let (settings, looks) = (state.settings.clone(), state.saved.looks);
        if !state.counts || !looks.is_due(&state.aggregate, &settings) {
            return events;
        }
        // No attempt waits for a look.
        let aggregate = state.aggregate.clone();
        drop(state);
        self.look(selector, &aggregate, &settings, now, &mut events);
        events
    }

    fn look(
        &self,
        selector: &Selector,
        aggregate: &Aggregate,
        settings: &GuardSettings,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) {
        let mut looks = self.lock().saved.looks;
        let Some(look) = looks.look(aggregate, settings) else { return };
        let mut state = self.lock();
        state.saved.looks = looks;
        state.saved.last_look = Some(look.clone());
        if look.is_worse {
            let router = selector.router();
            let reason = look.to_string();
            let why =
                Fallback { at: now, from: router.mode, split_share: router.split_share, reason };
            state.saved.fallen_back = Some(FallbackRecord::new(&why, look));
            state.saved.falls = state.saved.falls.saturating_add(1);
            state.counts = false;
            selector.fall_back(why.clone());
            events.push(Event::FellBack(why));
        }
        self.keep(&mut state, events);
    }

    /// Applies the saved state, and counts the attempts of the current stage in the journal.
    fn bring_up(&self, selector: &Selector, events: &mut Vec<Event>) -> Result<(), RolloutError> {
        let mut state = self.lock();
        if !state.settings.is_on {
            return Ok(());
        }
        if let Some(fallen) = &state.saved.fallen_back {
            selector.fall_back(fallen.why());
            if !selector.router().table.is_empty() {
                events.push(Event::StillFallen(fallen.why()));
            }
            return Ok(());
        }
        self.begin_stage(&mut state, selector, selector.clock().date(), events);
        if state.counts {
            journal::replay(&self.dir, |_, entry| {
                if let Entry::Attempt(attempt) = entry {
                    state.count(&attempt);
                }
            })?;
        }
        Ok(())
    }

    /// Begins another stage if the router differs from that of the saved stage. A router without a
    /// table belongs to no rollout: it is a manual fetch of a page.
    fn begin_stage(
        &self,
        state: &mut State,
        selector: &Selector,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) {
        let router = selector.router();
        if router.table.is_empty() {
            state.counts = false;
            return;
        }
        let stage = Stage::of(&router, now);
        let counts = router.mode == Mode::Split;
        match &state.saved.stage {
            Some(kept) if kept.is_like(&stage) => {
                let window = Window { since: Some(kept.began), until: None };
                if counts && state.aggregate.window() != window {
                    state.aggregate = state.aggregate.with_window(window);
                }
            }
            _ => {
                state.aggregate =
                    state.aggregate.with_window(Window { since: Some(now), until: None });
                state.saved.stage = Some(stage);
                state.saved.restart_stage(now);
                self.keep(state, events);
            }
        }
        state.counts = counts;
    }

    /// Reads the file again if an operator has written or removed it.
    fn read_operator_changes(&self, selector: &Selector, now: Timestamp, events: &mut Vec<Event>) {
        let written = written(&self.dir);
        let mut state = self.lock();
        if written == state.written {
            return;
        }
        // An unreadable file is ignored.
        let Ok(kept) = RolloutState::read(&self.dir) else { return };
        state.written = written;
        let is_lifted = state.saved.fallen_back.is_some()
            && kept.as_ref().is_none_or(|kept| kept.fallen_back.is_none());
        match kept {
            Some(kept) => state.saved = kept,
            None => {
                state.saved.resume(now);
            }
        }
        if is_lifted {
            selector.resume();
            let since = state.saved.stage.as_ref().map(|stage| stage.began);
            state.aggregate =
                state.aggregate.with_window(Window { since: since.or(Some(now)), until: None });
            events.push(Event::Resumed);
        }
    }

    fn keep(&self, state: &mut State, events: &mut Vec<Event>) {
        match state.saved.write(&self.dir) {
            Ok(()) => state.written = written(&self.dir),
            Err(error) => events.push(Event::NotSaved(error.to_string())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // After a panic the counts are right or one short.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, attempt: &Attempt) {
        if self.counts {
            self.aggregate.observe(attempt);
        }
    }

    /// Returns whether learning has been out of service long enough to be tried again.
    fn is_due_for_retry(&self, since: Timestamp, now: Timestamp) -> bool {
        let Some(first) = self.settings.retry_after else { return false };
        let doubled = 1u32.checked_shl(self.saved.falls.saturating_sub(1)).unwrap_or(u32::MAX);
        now.since(since) >= first.saturating_mul(doubled).min(MAX_RETRY)
    }
}

/// Returns the file's modification time.
fn written(dir: &Path) -> Option<SystemTime> {
    fs::metadata(dir.join(FILE)).and_then(|found| found.modified()).ok()
}

/// A sink whose attempts a [`Guard`] counts.
#[derive(Debug)]
pub struct CountingSink<S> {
    guard: Arc<Guard>,
    sink: S,
}

impl<S: Sink> Sink for CountingSink<S> {
    fn append(&self, attempt: &Attempt) -> Result<(), SinkError> {
        if attempt.arm.is_some() {
            self.guard.lock().count(attempt);
        }
        self.sink.append(attempt)
    }

    fn link_state(&self, link: &str, url: &str, state: &LinkState, at: Timestamp) {
        self.sink.link_state(link, url, state, at);
    }

    fn host_pause(&self, domain: &str, until: Option<Timestamp>, at: Timestamp) {
        self.sink.host_pause(domain, until, at);
    }

    fn released(&self, what: Released<'_>, at: Timestamp) {
        self.sink.released(what, at);
    }
}
