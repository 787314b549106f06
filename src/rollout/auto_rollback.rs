//! A guard over a selector that records: it counts what both arms come to, and takes learning out of service when it does harm.
//!
//! [`CountingSink`] sits between the selector and its journal, and adds attempts up where they have an arm; [`Guard::tick`], which whoever
//! runs the crawler calls about once a second, does all the rest: it looks when a look is due, keeps what was found, and hears an
//! operator's word from the file. Invariant: no attempt waits for a look. Must not know who runs it, nor print anything.

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
use crate::rollout::state_file::{FILE, Fallen, Kept, Stage};
use crate::router::{Fallback, Mode};
use crate::selector::{Released, Selector, Sink, SinkError};
use fetchwise_types::attempt::Attempt;
use fetchwise_types::rfc3339;
use fetchwise_types::time::Timestamp;

/// The longest that learning stays out of service by itself.
const MAX_RETRY: Duration = Duration::from_secs(365 * 86_400);

/// What an operator should hear.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// Learning is out of service from now on.
    FellBack(Fallback),
    /// Learning is still out of service, as it was when the process ended.
    StillFallen(Fallback),
    /// Somebody put learning back into service.
    Resumed,
    /// Learning gets another chance by itself, as the settings say.
    Retried(Fallback),
    /// What has happened could not be kept: a restart will not know of it.
    NotKept(String),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FellBack(why) => write!(
                f,
                "ROLLOUT: FELL BACK TO THE ROUTER TABLE, learning is out of service: {}. It stays so until `fetchwise rollout --resume`",
                why.reason
            ),
            Self::StillFallen(why) => write!(
                f,
                "ROLLOUT: learning is out of service since {}, the router table serves: {}. `fetchwise rollout --resume` puts it back",
                rfc3339::format(why.at),
                why.reason
            ),
            Self::Resumed => {
                f.write_str("rollout: learning is back in service, with a new stage and nothing held against it")
            }
            Self::Retried(why) => write!(
                f,
                "rollout: learning was out of service since {} and gets another chance, with a new stage",
                rfc3339::format(why.at)
            ),
            Self::NotKept(error) => write!(f, "rollout: what was found does not outlive this process: {error}"),
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
    kept: Kept,
    fold: Aggregate,
    /// When the file was written that `kept` is from.
    written: Option<SystemTime>,
    /// Whether attempts are added up.
    counts: bool,
}

impl Guard {
    /// Begins to watch `selector`, before it records anything: what is kept in `dir` is in force from now on, and attempts of a
    /// stage that is under way are counted in from the journal. Cost: without a split that is under way, one small file; with one,
    /// a pass over the journal.
    ///
    /// # Errors
    /// [`RolloutError`] when the file or the journal cannot be read.
    pub fn open(
        dir: &Path,
        selector: &Selector,
        settings: GuardSettings,
    ) -> Result<(Arc<Self>, Vec<Event>), RolloutError> {
        let kept = Kept::read(dir)?.unwrap_or_default();
        let fold = Aggregate::new(Window::default(), costs_of(selector));
        let written = written(dir);
        let state = State { settings, kept, fold, written, counts: false };
        let guard = Self { dir: dir.to_owned(), state: Mutex::new(state) };
        let mut events = Vec::new();
        guard.bring_up(selector, &mut events)?;
        Ok((Arc::new(guard), events))
    }

    /// A sink that counts what goes through it to `sink`.
    pub fn watched<S: Sink>(self: &Arc<Self>, sink: S) -> CountingSink<S> {
        CountingSink { guard: Arc::clone(self), sink }
    }

    /// Other settings from now on.
    pub fn set_settings(&self, settings: GuardSettings) {
        self.lock().settings = settings;
    }

    /// What is known of the rollout.
    pub fn kept(&self) -> Kept {
        self.lock().kept.clone()
    }

    /// An operator puts learning back into service: a new stage begins, with nothing held against it. Says what was lifted; none where
    /// learning was in service.
    ///
    /// # Errors
    /// [`RolloutError`] when that does not outlive this process, in which learning is back all the same.
    pub fn resume(&self, selector: &Selector) -> Result<Option<Fallback>, RolloutError> {
        let (mut state, now) = (self.lock(), selector.now());
        let lifted = state.kept.resume(now).map(|fallen| fallen.why());
        selector.resume();
        if lifted.is_none() {
            return Ok(None);
        }
        let since = state.kept.stage.as_ref().map(|stage| stage.began);
        state.fold = state.fold.anew(Window { since: since.or(Some(now)), until: None });
        state.kept.write(&self.dir)?;
        state.written = written(&self.dir);
        Ok(lifted)
    }

    /// Does what is due, and says what an operator should hear. Cost: looks at one file's time; a look that is due works for a moment,
    /// while attempts go on being counted.
    pub fn tick(&self, selector: &Selector) -> Vec<Event> {
        let (now, mut events) = (selector.now(), Vec::new());
        self.hear_operator(selector, now, &mut events);
        let mut state = self.lock();
        if !state.settings.is_on {
            // Somebody may have taken learning out of service by hand: that is not the guard's to lift.
            if state.kept.fallen_back.as_ref().map(Fallen::why).as_ref() == selector.fallen_back().as_deref()
                && selector.fallen_back().is_some()
            {
                selector.resume();
                events.push(Event::Resumed);
            }
            state.counts = false;
            return events;
        }
        if let Some(fallen) = &state.kept.fallen_back {
            let why = fallen.why();
            if selector.fallen_back().is_none() {
                selector.fall_back(why);
            } else if state.is_rested(why.at, now) {
                state.kept.fallen_back = None;
                state.kept.begin_anew(now);
                selector.resume();
                events.push(Event::Retried(why));
                self.keep(&mut state, &mut events);
            } else {
                return events;
            }
        }
        self.begin_stage(&mut state, selector, now, &mut events);
        let (settings, looks) = (state.settings.clone(), state.kept.looks);
        if !state.counts || !looks.is_due(&state.fold, &settings) {
            return events;
        }
        // No attempt waits for a look.
        let fold = state.fold.clone();
        drop(state);
        self.look(selector, &fold, &settings, now, &mut events);
        events
    }

    fn look(
        &self,
        selector: &Selector,
        fold: &Aggregate,
        settings: &GuardSettings,
        now: Timestamp,
        events: &mut Vec<Event>,
    ) {
        let mut looks = self.lock().kept.looks;
        let Some(look) = looks.look(fold, settings) else { return };
        let mut state = self.lock();
        state.kept.looks = looks;
        state.kept.last_look = Some(look.clone());
        if look.is_worse {
            let router = selector.router();
            let reason = look.to_string();
            let why = Fallback { at: now, from: router.mode, split_share: router.split_share, reason };
            state.kept.fallen_back = Some(Fallen::new(&why, look));
            state.kept.falls = state.kept.falls.saturating_add(1);
            state.counts = false;
            selector.fall_back(why.clone());
            events.push(Event::FellBack(why));
        }
        self.keep(&mut state, events);
    }

    /// Puts in force what was kept, and counts in what the stage under way has in the journal.
    fn bring_up(&self, selector: &Selector, events: &mut Vec<Event>) -> Result<(), RolloutError> {
        let mut state = self.lock();
        if !state.settings.is_on {
            return Ok(());
        }
        if let Some(fallen) = &state.kept.fallen_back {
            selector.fall_back(fallen.why());
            if !selector.router().table.is_empty() {
                events.push(Event::StillFallen(fallen.why()));
            }
            return Ok(());
        }
        self.begin_stage(&mut state, selector, selector.now(), events);
        if state.counts {
            journal::replay(&self.dir, |_, entry| {
                if let Entry::Attempt(attempt) = entry {
                    state.count(&attempt);
                }
            })?;
        }
        Ok(())
    }

    /// Begins another stage where the router is not the one of the stage that is kept. A router without a table is none of a
    /// rollout's: somebody fetches a page by hand.
    fn begin_stage(&self, state: &mut State, selector: &Selector, now: Timestamp, events: &mut Vec<Event>) {
        let router = selector.router();
        if router.table.is_empty() {
            state.counts = false;
            return;
        }
        let stage = Stage::of(&router, now);
        let counts = router.mode == Mode::Split;
        match &state.kept.stage {
            Some(kept) if kept.is_like(&stage) => {
                let window = Window { since: Some(kept.began), until: None };
                if counts && state.fold.window() != window {
                    state.fold = state.fold.anew(window);
                }
            }
            _ => {
                state.fold = state.fold.anew(Window { since: Some(now), until: None });
                state.kept.stage = Some(stage);
                state.kept.begin_anew(now);
                self.keep(state, events);
            }
        }
        state.counts = counts;
    }

    /// Somebody may have written the file, or removed it.
    fn hear_operator(&self, selector: &Selector, now: Timestamp, events: &mut Vec<Event>) {
        let written = written(&self.dir);
        let mut state = self.lock();
        if written == state.written {
            return;
        }
        // What cannot be read is no word.
        let Ok(kept) = Kept::read(&self.dir) else { return };
        state.written = written;
        let is_lifted = state.kept.fallen_back.is_some() && kept.as_ref().is_none_or(|kept| kept.fallen_back.is_none());
        match kept {
            Some(kept) => state.kept = kept,
            None => {
                state.kept.resume(now);
            }
        }
        if is_lifted {
            selector.resume();
            let since = state.kept.stage.as_ref().map(|stage| stage.began);
            state.fold = state.fold.anew(Window { since: since.or(Some(now)), until: None });
            events.push(Event::Resumed);
        }
    }

    fn keep(&self, state: &mut State, events: &mut Vec<Event>) {
        match state.kept.write(&self.dir) {
            Ok(()) => state.written = written(&self.dir),
            Err(error) => events.push(Event::NotKept(error.to_string())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in between leaves counts that are right or one short.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, attempt: &Attempt) {
        if self.counts {
            self.fold.observe(attempt);
        }
    }

    /// Whether learning has been out of service for so long that it gets another chance.
    fn is_rested(&self, since: Timestamp, now: Timestamp) -> bool {
        let Some(first) = self.settings.retry_after else { return false };
        let doubled = 1u32.checked_shl(self.kept.falls.saturating_sub(1)).unwrap_or(u32::MAX);
        now.since(since) >= first.saturating_mul(doubled).min(MAX_RETRY)
    }
}

/// When the file was written.
fn written(dir: &Path) -> Option<SystemTime> {
    fs::metadata(dir.join(FILE)).and_then(|found| found.modified()).ok()
}

/// A sink whose attempts a [`Guard`] counts on their way.
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
