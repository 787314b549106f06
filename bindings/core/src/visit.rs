//! A visit, stepped by a language with a garbage collector, and its steps.
//!
//! Owns: the library's visit until it ends or is closed, and the contents of its last step.
//!
//! Invariants: a step that the language keeps holds nothing longer than its visit does; each step
//! is reported or waited for at most once, and a misuse of it changes nothing.
//!
//! Must not know: the classes of either language, and how they convert results.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use fetchwise::decision::Decision;
use fetchwise::fetch_result::FetchResult;
use fetchwise::heuristic::Heuristic;
use fetchwise::registry::{FetcherId, FetcherSet};
use fetchwise::time::Timestamp;
use fetchwise::visit::{End, Fetch, Step, Visit, VisitOutcome, Wait};
use fetchwise::{Error, Selector};
use url::Url;

static NUMBER: AtomicU64 = AtomicU64::new(0);

const SPENT: &str = "this step was already reported or waited for";

/// What the caller of a visit wants besides its URL.
#[derive(Default)]
pub struct VisitSettings<'a> {
    /// The fetcher to try first.
    pub prefer: Option<&'a str>,
    /// The identity of the link, if it is not the URL.
    pub link: Option<&'a str>,
    /// Fetchers that the visit may not use.
    pub without: FetcherSet,
    /// Heuristics that the caller knows.
    pub known: Vec<Heuristic>,
}

/// The visit of one URL.
pub struct SteppedVisit<S: Deref<Target = Selector> + Clone> {
    visit: Mutex<Option<Visit<S, Url>>>,
    number: u64,
    end: OnceLock<End>,
    /// The contents of the last step: the language may keep the step alive long after the visit was
    /// abandoned.
    last: Mutex<Slot<S>>,
}

/// The contents of a step, shared with its visit.
type Slot<S> = Arc<Mutex<Option<Held<S>>>>;

enum Held<S: Deref<Target = Selector>> {
    // Boxed: it is ten times as large as the other variants.
    Fetch(Box<Fetch<S>>),
    Wait(Wait),
    /// A wait with a listener; dropping it cancels the listener.
    Listening(
        #[allow(dead_code, reason = "it is held, and dropped")]
        Pin<Box<dyn Future<Output = ()> + Send>>,
    ),
}

/// A step of a visit, by which the caller reports or waits.
pub struct HeldStep<S: Deref<Target = Selector>> {
    visit: u64,
    url: String,
    held: Slot<S>,
}

/// What a step asks of its caller.
pub enum Asked {
    /// One request.
    Request {
        /// The fetcher to use.
        fetcher: FetcherId,
        /// The time for the whole request.
        deadline: Duration,
        /// Whether the request is a probe.
        is_probe: bool,
        /// The maximum number of redirects.
        max_redirects: u32,
        /// The decision that chose the fetcher.
        decision: Decision,
    },
    /// A wait.
    Wait {
        /// Its latest end.
        until: Timestamp,
        /// The name of its reason.
        reason: String,
    },
}

impl<S: Deref<Target = Selector> + Clone> SteppedVisit<S> {
    /// Begins the visit of `url`.
    ///
    /// # Errors
    /// If the URL cannot be fetched, or the preferred fetcher is unknown.
    pub fn begin(selector: S, url: Url, settings: VisitSettings<'_>) -> Result<Self, Error> {
        let mut visit =
            Visit::new(selector, url)?.without(settings.without).with_heuristics(settings.known);
        if let Some(link) = settings.link {
            visit = visit.link_id(link);
        }
        if let Some(name) = settings.prefer {
            visit = visit.prefer(name)?;
        }
        // Relaxed: each number only has to be unique.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            visit: Mutex::new(Some(visit)),
            number,
            end: OnceLock::new(),
            last: Mutex::default(),
        })
    }

    /// Returns the next step, `None` when the visit has ended or is closed.
    pub fn next(&self) -> Option<(HeldStep<S>, Asked)> {
        let mut open = lock(&self.visit);
        let visit = open.as_mut()?;
        drop(take(&lock(&self.last)));
        let (held, asked) = match visit.next() {
            Step::Fetch(fetch) => {
                let asked = Asked::Request {
                    fetcher: fetch.fetcher_id(),
                    deadline: fetch.deadline(),
                    is_probe: fetch.is_probe(),
                    max_redirects: fetch.max_redirects(),
                    decision: Decision::Selected(*fetch.decision()),
                };
                (Held::Fetch(Box::new(fetch)), asked)
            }
            Step::Wait(wait) => {
                let asked = Asked::Wait { until: wait.until(), reason: wait.reason().to_string() };
                (Held::Wait(wait), asked)
            }
            Step::End(end) => {
                let _ = self.end.set(end);
                *open = None;
                return None;
            }
        };
        let held = Arc::new(Mutex::new(Some(held)));
        *lock(&self.last) = Arc::clone(&held);
        Some((HeldStep { visit: self.number, url: visit.url().as_str().to_owned(), held }, asked))
    }

    /// Returns the misuse if `step` belongs to another visit.
    ///
    /// # Errors
    /// If it does.
    pub fn check(&self, step: &HeldStep<S>) -> Result<(), &'static str> {
        if step.visit == self.number { Ok(()) } else { Err("this step belongs to another visit") }
    }

    /// Reports the result of `step`, which records the attempt.
    ///
    /// # Errors
    /// If the step belongs to another visit, is a wait, or was reported, or the visit has ended.
    pub fn report(&self, step: &HeldStep<S>, result: FetchResult) -> Result<(), &'static str> {
        self.check(step)?;
        let mut open = lock(&self.visit);
        let visit = open.as_mut().ok_or("the visit has ended")?;
        visit.report(*step.take_fetch()?, result);
        Ok(())
    }

    /// Declines to wait for `step`, which ends the visit.
    ///
    /// # Errors
    /// If the step is a request, or was waited for.
    pub fn give_up(&self, step: &HeldStep<S>) -> Result<(), &'static str> {
        let wait = step.take_wait()?;
        let mut open = lock(&self.visit);
        if let Some(visit) = open.as_mut() {
            let _ = self.end.set(visit.give_up(&wait));
            *open = None;
        }
        Ok(())
    }

    /// Releases everything that the visit and its last step hold.
    pub fn close(&self) {
        drop(take(&lock(&self.last)));
        *lock(&self.visit) = None;
    }

    /// Returns the end of the visit, once it has ended.
    pub fn end(&self) -> Option<&End> {
        self.end.get()
    }

    /// Returns the address to request, while the visit is open.
    pub fn url(&self) -> Option<String> {
        lock(&self.visit).as_ref().map(|visit| visit.url().as_str().to_owned())
    }

    /// Returns the number of recorded attempts; 0 for a visit that was closed before its end.
    pub fn requests(&self) -> u32 {
        match self.end.get() {
            Some(end) => end.requests,
            None => lock(&self.visit).as_ref().map_or(0, Visit::requests),
        }
    }
}

impl<S: Deref<Target = Selector>> HeldStep<S> {
    /// Returns the address to request.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Takes the wait out of the step.
    ///
    /// # Errors
    /// If the step is a request, which stays, or was waited for.
    pub fn take_wait(&self) -> Result<Wait, &'static str> {
        let mut held = lock(&self.held);
        match held.take() {
            Some(Held::Wait(wait)) => Ok(wait),
            // A mistake by the caller must not cost the request.
            Some(fetch @ Held::Fetch(_)) => {
                *held = Some(fetch);
                Err("this step does not wait: it is a request")
            }
            Some(Held::Listening(_)) | None => Err(SPENT),
        }
    }

    fn take_fetch(&self) -> Result<Box<Fetch<S>>, &'static str> {
        let mut held = lock(&self.held);
        match held.take() {
            Some(Held::Fetch(fetch)) => Ok(fetch),
            Some(wait) => {
                *held = Some(wait);
                Err("cannot report a step that waits")
            }
            None => Err(SPENT),
        }
    }

    /// Wakes `waker` when the event that `wait`, taken out of this step, waits for happens; never
    /// if only time can end the wait. Returns whether it has happened already. [`HeldStep::let_go`]
    /// cancels it.
    pub fn listen(&self, mut wait: Wait, waker: &Waker) -> bool {
        let mut coming: Pin<Box<dyn Future<Output = ()> + Send>> =
            Box::pin(async move { wait.notified().await });
        if coming.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            return true;
        }
        *lock(&self.held) = Some(Held::Listening(coming));
        false
    }

    /// Drops the contents of the step.
    pub fn let_go(&self) {
        drop(take(&self.held));
    }
}

/// The parts of an end that only some outcomes have.
#[derive(Default)]
pub struct EndDetails<'a> {
    /// The reason of the failure, as the name of an `ErrorKind`, or a custom name.
    pub error_type: Option<&'a str>,
    /// The vendor that no fetcher gets past.
    pub vendor: Option<&'a str>,
    /// The end of the pause.
    pub paused_until: Option<Timestamp>,
    /// The name of the paused object.
    pub paused: Option<String>,
}

impl<'a> EndDetails<'a> {
    /// Returns the details of `end`.
    pub fn of(end: &'a End) -> Self {
        let details = Self { paused_until: end.paused_until, ..Self::default() };
        match &end.how {
            VisitOutcome::Failed(error) => Self { error_type: Some(error.name()), ..details },
            VisitOutcome::Paused { until, whom } => {
                Self { paused_until: Some(*until), paused: Some(whom.to_string()), ..details }
            }
            VisitOutcome::NoViableFetcher { vendor } => Self { vendor: Some(vendor), ..details },
            _ => details,
        }
    }
}

fn take<S: Deref<Target = Selector>>(slot: &Slot<S>) -> Option<Held<S>> {
    lock(slot).take()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
