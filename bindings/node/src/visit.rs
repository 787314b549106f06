//! Visits: the library's state machine, stepped from JavaScript.
//! Must not know: how anything is decided.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use fetchwise::fetch_result::FetchResult as CoreFetchResult;
use fetchwise::heuristic::Heuristic;
use fetchwise::registry::FetcherSet;
use fetchwise::time::Timestamp;
use fetchwise::visit::{End as CoreEnd, Fetch, Step as CoreStep, Visit as CoreVisit, VisitOutcome, Wait};
use napi::bindgen_prelude::{ClassInstance, Either3, Function};
use napi::threadsafe_function::ThreadsafeFunctionCallMode;
use napi_derive::napi;
use url::Url;

use crate::build_selector::Handle;
use crate::convert as given;
use crate::decision::Decision;
use crate::detector::Verdict;
use crate::errors::{Code, Failure};
use crate::fetch_result::FetchResult;

type Result<T> = std::result::Result<T, napi::Error<Code>>;

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// The visit of one URL, from the decision to the last recorded attempt, including retries, other fetchers, pauses and
/// paces.
///
/// `next()` returns the next step: fetch, wait, or null; `report()` takes the result. `close()` releases everything
/// that the visit holds; so does garbage collection, later.
#[napi]
pub struct Visit {
    kept: Mutex<Option<CoreVisit<Handle, Url>>>,
    core: Handle,
    number: u64,
    end: OnceLock<CoreEnd>,
    /// The contents of the last step: a step that the caller keeps must not hold them longer than the visit does.
    out: Mutex<Slot>,
}

impl Visit {
    pub fn begin(
        core: Handle,
        url: Url,
        (prefer, link): (Option<&str>, Option<&str>),
        without: FetcherSet,
        known: Vec<Heuristic>,
    ) -> std::result::Result<Self, Failure> {
        let visit = CoreVisit::new(core.clone(), url)?.without(without).with_heuristics(known);
        let visit = match link {
            Some(link) => visit.link_id(link),
            None => visit,
        };
        let visit = match prefer {
            Some(name) => visit.prefer(name)?,
            None => visit,
        };
        // Relaxed: each number only has to be unique.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Self { kept: Mutex::new(Some(visit)), core, number, end: OnceLock::new(), out: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Option<CoreVisit<Handle, Url>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[napi]
impl Visit {
    /// Returns the next step, or null when the visit has ended (`end` says how). Report a fetch before the next call:
    /// an unreported one has no effect.
    #[napi(catch_unwind)]
    pub fn next(&self) -> Result<Option<Step>> {
        self.core.0.check()?;
        let mut kept = self.lock();
        let Some(visit) = kept.as_mut() else { return Ok(None) };
        take(&self.out.lock().unwrap_or_else(PoisonError::into_inner));
        let step = match visit.next() {
            CoreStep::Fetch(fetch) => Some(Step::fetch(&self.core, self.number, visit, fetch)),
            CoreStep::Wait(wait) => Some(Step::waiting(self.number, visit, wait)),
            CoreStep::End(end) => {
                let _ = self.end.set(end);
                *kept = None;
                None
            }
        };
        if let Some(step) = &step {
            *self.out.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&step.held);
        }
        Ok(step)
    }

    /// Reports the result of a fetch: a `FetchResult`, a `Verdict`, `content` or an `ErrorKind`, or the error that the
    /// client threw. Records the attempt before it returns. `duration` is in milliseconds; the default is the time
    /// since the step.
    #[napi(catch_unwind)]
    pub fn report(
        &self,
        step: &Step,
        #[napi(ts_arg_type = "FetchResult | Verdict | Error | 'content' | ErrorKind | (string & {})")] outcome: Either3<
            ClassInstance<'_, FetchResult>,
            ClassInstance<'_, Verdict>,
            String,
        >,
        duration: Option<f64>,
    ) -> Result<()> {
        self.core.0.check()?;
        if step.visit != self.number {
            return Err(Failure::misuse("this step belongs to another visit").into());
        }
        let mut answer: CoreFetchResult = match outcome {
            Either3::A(answer) => answer.kept.clone(),
            Either3::B(verdict) => verdict.answer(),
            Either3::C(kind) => FetchResult::named(&kind).kept,
        };
        if let Some(ms) = duration {
            answer.duration = Some(given::span("duration", ms)?);
        }
        let mut kept = self.lock();
        let Some(visit) = kept.as_mut() else { return Err(Failure::misuse("the visit has ended").into()) };
        match take(&step.held) {
            Some(Held::Fetch(fetch)) => visit.report(*fetch, answer),
            Some(wait) => {
                *step.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(wait);
                return Err(Failure::misuse("cannot report a step that waits").into());
            }
            None => return Err(Failure::misuse("this step was already reported or waited for").into()),
        }
        self.core.0.settle_if_ending();
        Ok(())
    }

    /// Declines to wait for `step`. The visit ends with its last failure, or as paused until then.
    #[napi(catch_unwind)]
    pub fn give_up(&self, step: &Step) -> Result<()> {
        let wait = step.take_wait()?;
        let mut kept = self.lock();
        if let Some(visit) = kept.as_mut() {
            let _ = self.end.set(visit.give_up(&wait));
            *kept = None;
        }
        Ok(())
    }

    /// Releases everything that the visit and its last step hold. It returns no further steps; recorded attempts stay.
    #[napi(catch_unwind)]
    pub fn close(&self) {
        take(&self.out.lock().unwrap_or_else(PoisonError::into_inner));
        *self.lock() = None;
    }

    /// The end of the visit, once `next()` has returned null.
    #[napi(catch_unwind, getter)]
    pub fn end(&self) -> Option<End> {
        self.end.get().map(|end| End::of(&self.core, end))
    }

    /// The address to request: the URL, or the target of a redirect that was written in HTML.
    #[napi(catch_unwind, getter)]
    pub fn url(&self) -> Option<String> {
        self.lock().as_ref().map(|visit| visit.url().as_str().to_owned())
    }

    /// The number of attempts that the visit has recorded.
    #[napi(catch_unwind, getter)]
    pub fn requests(&self) -> u32 {
        match self.end.get() {
            Some(end) => end.requests,
            None => self.lock().as_ref().map_or(0, CoreVisit::requests),
        }
    }
}

/// The contents of a step, shared with its visit.
type Slot = Arc<Mutex<Option<Held>>>;

fn take(slot: &Slot) -> Option<Held> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

enum Held {
    // Boxed: it is ten times as large as the other variant.
    Fetch(Box<Fetch<Handle>>),
    Wait(Wait),
    /// A wait with a listener; dropping it cancels the listener.
    Listening(#[allow(dead_code, reason = "it is held, and dropped")] Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// Notifies JavaScript, from the thread on which the event happens.
struct Bell(Box<dyn Fn() + Send + Sync>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// The next step of a visit: either one request with `fetcher` for `url`, within `deadline` milliseconds, or, when
/// `wait` is true, a wait of `delay` milliseconds.
#[napi]
pub struct Step {
    visit: u64,
    url: String,
    /// Only for a request.
    fetch: Option<Request>,
    /// Only for a wait: its end, and the reason.
    wait: Option<(Timestamp, String)>,
    held: Slot,
}

struct Request {
    fetcher: String,
    deadline: Duration,
    is_probe: bool,
    max_redirects: u32,
    decision: Decision,
}

impl Step {
    fn fetch(core: &Handle, number: u64, visit: &CoreVisit<Handle, Url>, fetch: Fetch<Handle>) -> Self {
        let decided = fetchwise::decision::Decision::Selected(*fetch.decision());
        let request = Request {
            fetcher: fetch.fetcher().to_owned(),
            deadline: fetch.deadline(),
            is_probe: fetch.is_probe(),
            max_redirects: fetch.max_redirects(),
            decision: Decision::new(&core.0.kept, &decided, None),
        };
        let held = Arc::new(Mutex::new(Some(Held::Fetch(Box::new(fetch)))));
        Self { visit: number, url: visit.url().as_str().to_owned(), fetch: Some(request), wait: None, held }
    }

    fn waiting(number: u64, visit: &CoreVisit<Handle, Url>, wait: Wait) -> Self {
        let (url, why) = (visit.url().as_str().to_owned(), (wait.until(), wait.reason().to_string()));
        Self { visit: number, url, fetch: None, wait: Some(why), held: Arc::new(Mutex::new(Some(Held::Wait(wait)))) }
    }

    fn take_wait(&self) -> std::result::Result<Wait, Failure> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.take() {
            Some(Held::Wait(wait)) => Ok(wait),
            // A mistake by the caller must not cost the request.
            Some(fetch @ Held::Fetch(_)) => {
                *held = Some(fetch);
                Err(Failure::misuse("this step does not wait: it is a request"))
            }
            Some(Held::Listening(_)) | None => Err(Failure::misuse("this step was already reported or waited for")),
        }
    }
}

#[napi]
impl Step {
    /// Whether to wait and then call `next()` again.
    #[napi(catch_unwind, getter)]
    pub fn wait(&self) -> bool {
        self.wait.is_some()
    }

    /// The longest time to wait, in milliseconds from now; 0 for a request. An earlier call is also fine.
    #[napi(catch_unwind, getter)]
    pub fn delay(&self) -> f64 {
        self.wait.as_ref().map_or(0.0, |(until, _)| until.since(Timestamp::now()).as_secs_f64() * 1000.0)
    }

    /// The reason of the wait: `probe`, `trial`, `local_fault`, `pace` or `doubt`; null for a request.
    #[napi(catch_unwind, getter)]
    pub fn reason(&self) -> Option<&str> {
        self.wait.as_ref().map(|(_, why)| why.as_str())
    }

    /// The fetcher to use; null for a wait.
    #[napi(catch_unwind, getter)]
    pub fn fetcher(&self) -> Option<&str> {
        self.fetch.as_ref().map(|fetch| fetch.fetcher.as_str())
    }

    /// The address to request.
    #[napi(catch_unwind, getter)]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Milliseconds for the whole request; null for a wait.
    #[napi(catch_unwind, getter)]
    pub fn deadline(&self) -> Option<f64> {
        self.fetch.as_ref().map(|fetch| fetch.deadline.as_secs_f64() * 1000.0)
    }

    /// Whether the request is a probe: short, because a longer request can follow.
    #[napi(catch_unwind, getter)]
    pub fn is_probe(&self) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| fetch.is_probe)
    }

    /// The maximum number of redirects.
    #[napi(catch_unwind, getter)]
    pub fn max_redirects(&self) -> u32 {
        self.fetch.as_ref().map_or(0, |fetch| fetch.max_redirects)
    }

    /// The decision that chose the fetcher; null for a wait.
    #[napi(catch_unwind, getter)]
    pub fn decision(&self) -> Option<Decision> {
        self.fetch.as_ref().map(|fetch| fetch.decision.clone())
    }

    /// Calls `come` when the event that is waited for happens; never if only time can end the wait. Returns true if it
    /// has happened already. `ready()` is built on it.
    #[napi(catch_unwind, skip_typescript, js_name = "_listen")]
    pub fn listen(&self, come: Function<'_, (), ()>) -> napi::Result<bool> {
        let mut wait = match self.take_wait() {
            Ok(wait) => wait,
            Err(failure) => return Err(napi::Error::from_reason(failure.to_string())),
        };
        // This does not keep the process running; the timer alongside it does.
        let call = come.build_threadsafe_function::<()>().weak::<true>().build()?;
        let ring = move || {
            call.call((), ThreadsafeFunctionCallMode::NonBlocking);
        };
        let waker = Waker::from(Arc::new(Bell(Box::new(ring))));
        let mut coming: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move { wait.notified().await });
        if let Poll::Ready(()) = coming.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(true);
        }
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some(Held::Listening(coming));
        Ok(false)
    }

    /// Cancels the listener of `_listen`.
    #[napi(catch_unwind, skip_typescript, js_name = "_letGo")]
    pub fn let_go(&self) {
        take(&self.held);
    }
}

/// The end of a visit.
#[napi(object)]
#[derive(Clone, Debug)]
pub struct End {
    /// How the visit ended.
    #[napi(ts_type = "'delivered' | 'failed' | 'paused' | 'paced' | 'no_viable_fetcher' | 'no_route' | 'no_fetcher'")]
    pub kind: String,
    /// Whether the visit delivered content.
    pub is_delivered: bool,
    /// The reason of the failure: an `ErrorKind`, or a custom name.
    pub error_type: Option<String>,
    /// The vendor that no fetcher gets past.
    pub vendor: Option<String>,
    /// The fetcher that delivered, or that made the last attempt.
    pub fetcher: Option<String>,
    /// The label of the decision that delivered, or that ended the visit.
    pub source: Option<String>,
    /// The fetcher's confidence at the time of the decision.
    pub confidence: f64,
    /// The last HTTP status.
    pub status: Option<u32>,
    /// Whether any attempt was blocked.
    pub is_banned: bool,
    /// The number of recorded attempts.
    pub requests: u32,
    /// Whether the last attempt was the trial of a host that refuses all requests. That says nothing of the link.
    pub was_trial: bool,
    /// Whether what was delivered is a page of no site: of a parked domain, a hoster, or a product before its log-in.
    pub is_default_page: bool,
    /// The end of the pause, in milliseconds since 1970.
    pub paused_until: Option<f64>,
    /// The paused object: `link`, `host` or `pace`.
    pub paused: Option<String>,
    /// An explanation for people; empty when content was delivered.
    pub message: String,
}

impl End {
    fn of(core: &Handle, end: &CoreEnd) -> Self {
        let mut out = Self {
            kind: end.how.name().to_owned(),
            is_delivered: end.is_delivered(),
            error_type: None,
            vendor: None,
            fetcher: end.fetcher.map(|id| core.0.kept.fetcher_name(id).to_owned()),
            source: end.source.map(|source| source.name().to_owned()),
            confidence: end.confidence,
            status: end.status.map(u32::from),
            is_banned: end.is_banned,
            requests: end.requests,
            was_trial: end.was_trial,
            is_default_page: end.is_default_page,
            paused_until: end.paused_until.map(given::date_ms),
            paused: None,
            message: end.message.clone(),
        };
        match &end.how {
            VisitOutcome::Failed(error) => out.error_type = Some(error.name().to_owned()),
            VisitOutcome::Paused { until, whom } => {
                out.paused_until = Some(given::date_ms(*until));
                out.paused = Some(whom.to_string());
            }
            VisitOutcome::NoViableFetcher { vendor } => out.vendor = Some(vendor.clone()),
            _ => {}
        }
        out
    }
}
