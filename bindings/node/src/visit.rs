//! Visits: the library's state machine, stepped from JavaScript. Nothing is decided here.

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
use fetchwise::visit::{End as KeptEnd, Fetch, Step as KeptStep, Visit as Kept, VisitOutcome, Wait};
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

/// One URL on its way, from the decision to the last recorded attempt: retries, other fetchers, pauses and paces included.
///
/// `next()` says what to do: fetch, wait, or nothing more; `report()` says what came of it. `close()` gives back whatever it held; so does
/// the collection of garbage, later.
#[napi]
pub struct Visit {
    kept: Mutex<Option<Kept<Handle, Url>>>,
    core: Handle,
    number: u64,
    end: OnceLock<KeptEnd>,
    /// What the last step holds: a step that somebody keeps must not hold it for longer than the visit.
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
        let visit = Kept::new(core.clone(), url)?.without(without).with_heuristics(known);
        let visit = match link {
            Some(link) => visit.link_id(link),
            None => visit,
        };
        let visit = match prefer {
            Some(name) => visit.prefer(name)?,
            None => visit,
        };
        // Relaxed: it only has to be another one each time.
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Self { kept: Mutex::new(Some(visit)), core, number, end: OnceLock::new(), out: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Kept<Handle, Url>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[napi]
impl Visit {
    /// What to do next, or null when the visit has ended (`end` says how). Report a fetch before asking again: one that was not reported is
    /// as if it had never been handed out.
    #[napi(catch_unwind)]
    pub fn next(&self) -> Result<Option<Step>> {
        self.core.0.check()?;
        let mut kept = self.lock();
        let Some(visit) = kept.as_mut() else { return Ok(None) };
        take(&self.out.lock().unwrap_or_else(PoisonError::into_inner));
        let step = match visit.next() {
            KeptStep::Fetch(fetch) => Some(Step::fetch(&self.core, self.number, visit, fetch)),
            KeptStep::Wait(wait) => Some(Step::waiting(self.number, visit, wait)),
            KeptStep::End(end) => {
                let _ = self.end.set(end);
                *kept = None;
                None
            }
            _ => return Err(Failure::misuse("this release knows no such step").into()),
        };
        if let Some(step) = &step {
            *self.out.lock().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&step.held);
        }
        Ok(step)
    }

    /// Says what came of a fetch: a `FetchResult`, a `Verdict`, `content` or an `ErrorKind`, or the error that the client threw. The attempt
    /// is recorded before this returns. Without a duration, in milliseconds, the time since the step counts.
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
                return Err(Failure::misuse("there is nothing to report of a step that waits").into());
            }
            None => return Err(Failure::misuse("this step was reported, or waited for, already").into()),
        }
        self.core.0.settle_if_ending();
        Ok(())
    }

    /// Does not wait for `step`: the visit ends, with the failure that it has, or as paused until then.
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

    /// Gives back what it and its last step held. Nothing more is handed out; what was recorded stays.
    #[napi(catch_unwind)]
    pub fn close(&self) {
        take(&self.out.lock().unwrap_or_else(PoisonError::into_inner));
        *self.lock() = None;
    }

    /// How it ended, once `next()` has returned null.
    #[napi(catch_unwind, getter)]
    pub fn end(&self) -> Option<End> {
        self.end.get().map(|end| End::of(&self.core, end))
    }

    /// The address to ask for: the URL, or where a redirect that was written in HTML has led.
    #[napi(catch_unwind, getter)]
    pub fn url(&self) -> Option<String> {
        self.lock().as_ref().map(|visit| visit.url().as_str().to_owned())
    }

    /// How many attempts it has recorded.
    #[napi(catch_unwind, getter)]
    pub fn requests(&self) -> u32 {
        match self.end.get() {
            Some(end) => end.requests,
            None => self.lock().as_ref().map_or(0, Kept::requests),
        }
    }
}

/// What a step holds, shared with its visit.
type Slot = Arc<Mutex<Option<Held>>>;

fn take(slot: &Slot) -> Option<Held> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

enum Held {
    // In a box: it is ten times as large as the other.
    Fetch(Box<Fetch<Handle>>),
    Wait(Wait),
    /// A wait that somebody is waiting for: dropping it lets go.
    Listening(#[allow(dead_code, reason = "it is held, and dropped")] Pin<Box<dyn Future<Output = ()> + Send>>),
}

/// Tells JavaScript, from whichever thread brings what is waited for.
struct Bell(Box<dyn Fn() + Send + Sync>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// What to do next in a visit: make one request with `fetcher`, within `deadline` milliseconds, for `url`; or, when `wait` is true, come
/// back in `delay` milliseconds.
#[napi]
pub struct Step {
    visit: u64,
    url: String,
    /// What is only there for a request.
    fetch: Option<Request>,
    /// What is only there for a wait: until when, and why.
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
    fn fetch(core: &Handle, number: u64, visit: &Kept<Handle, Url>, fetch: Fetch<Handle>) -> Self {
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

    fn waiting(number: u64, visit: &Kept<Handle, Url>, wait: Wait) -> Self {
        let (url, why) = (visit.url().as_str().to_owned(), (wait.until(), wait.reason().to_string()));
        Self { visit: number, url, fetch: None, wait: Some(why), held: Arc::new(Mutex::new(Some(Held::Wait(wait)))) }
    }

    fn take_wait(&self) -> std::result::Result<Wait, Failure> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        match held.take() {
            Some(Held::Wait(wait)) => Ok(wait),
            // A mistake must not cost the request.
            Some(fetch @ Held::Fetch(_)) => {
                *held = Some(fetch);
                Err(Failure::misuse("this step does not wait: it is a request to be made"))
            }
            Some(Held::Listening(_)) | None => Err(Failure::misuse("this step was waited for, or reported, already")),
        }
    }
}

#[napi]
impl Step {
    /// Whether to wait and ask again.
    #[napi(catch_unwind, getter)]
    pub fn wait(&self) -> bool {
        self.wait.is_some()
    }

    /// How long to wait at most, in milliseconds from now; 0 for a request. Coming back earlier is right, too.
    #[napi(catch_unwind, getter)]
    pub fn delay(&self) -> f64 {
        self.wait.as_ref().map_or(0.0, |(until, _)| until.since(Timestamp::now()).as_secs_f64() * 1000.0)
    }

    /// What is waited for: `probe`, `trial`, `local_fault`, `pace` or `doubt`; null for a request.
    #[napi(catch_unwind, getter)]
    pub fn reason(&self) -> Option<&str> {
        self.wait.as_ref().map(|(_, why)| why.as_str())
    }

    /// The fetcher to use; null for a wait.
    #[napi(catch_unwind, getter)]
    pub fn fetcher(&self) -> Option<&str> {
        self.fetch.as_ref().map(|fetch| fetch.fetcher.as_str())
    }

    /// The address to ask for.
    #[napi(catch_unwind, getter)]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Milliseconds for the whole request; null for a wait.
    #[napi(catch_unwind, getter)]
    pub fn deadline(&self) -> Option<f64> {
        self.fetch.as_ref().map(|fetch| fetch.deadline.as_secs_f64() * 1000.0)
    }

    /// Whether it is a probe: short, because a longer request can follow.
    #[napi(catch_unwind, getter)]
    pub fn is_probe(&self) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| fetch.is_probe)
    }

    /// How many redirects may be followed.
    #[napi(catch_unwind, getter)]
    pub fn max_redirects(&self) -> u32 {
        self.fetch.as_ref().map_or(0, |fetch| fetch.max_redirects)
    }

    /// The decision that chose the fetcher; null for a wait.
    #[napi(catch_unwind, getter)]
    pub fn decision(&self) -> Option<Decision> {
        self.fetch.as_ref().map(|fetch| fetch.decision.clone())
    }

    /// Has `come` called when what is waited for has come; it may come never, since some waits only time ends. True when it has come
    /// already. `ready()` is made of it.
    #[napi(catch_unwind, skip_typescript, js_name = "_listen")]
    pub fn listen(&self, come: Function<'_, (), ()>) -> napi::Result<bool> {
        let mut wait = match self.take_wait() {
            Ok(wait) => wait,
            Err(failure) => return Err(napi::Error::from_reason(failure.to_string())),
        };
        // It does not keep the process running: the timer beside it does.
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

    /// Lets go of what `_listen` waits for.
    #[napi(catch_unwind, skip_typescript, js_name = "_letGo")]
    pub fn let_go(&self) {
        take(&self.held);
    }
}

/// How a visit ended.
#[napi(object)]
#[derive(Clone, Debug)]
pub struct End {
    /// What it came to.
    #[napi(ts_type = "'delivered' | 'failed' | 'paused' | 'no_viable_fetcher' | 'no_route' | 'no_fetcher'")]
    pub kind: String,
    /// Whether content came.
    pub is_delivered: bool,
    /// Why it failed: an `ErrorKind`, or a name of one's own.
    pub error_type: Option<String>,
    /// The vendor that nobody gets past.
    pub vendor: Option<String>,
    /// The fetcher that delivered, or made the last attempt.
    pub fetcher: Option<String>,
    /// The label of the decision that delivered, or ended it.
    pub source: Option<String>,
    /// The fetcher's confidence when it was chosen.
    pub confidence: f64,
    /// The last HTTP status.
    pub status: Option<u32>,
    /// Whether any attempt was blocked.
    pub is_banned: bool,
    /// Attempts that were recorded.
    pub requests: u32,
    /// Until when it is paused, in milliseconds since 1970.
    pub paused_until: Option<f64>,
    /// What is paused: `link`, `host` or `pace`.
    pub paused: Option<String>,
    /// What happened, for a person; empty when content came.
    pub message: String,
}

impl End {
    fn of(core: &Handle, end: &KeptEnd) -> Self {
        let mut out = Self {
            kind: String::new(),
            is_delivered: end.is_delivered(),
            error_type: None,
            vendor: None,
            fetcher: end.fetcher.map(|id| core.0.kept.fetcher_name(id).to_owned()),
            source: end.source.map(|source| source.name().to_owned()),
            confidence: end.confidence,
            status: end.status.map(u32::from),
            is_banned: end.is_banned,
            requests: end.requests,
            paused_until: end.paused_until.map(given::ms),
            paused: None,
            message: end.message.clone(),
        };
        let kind = match &end.how {
            VisitOutcome::Delivered => "delivered",
            VisitOutcome::Failed(error) => {
                out.error_type = Some(error.name().to_owned());
                "failed"
            }
            VisitOutcome::Paused { until, whom } => {
                out.paused_until = Some(given::ms(*until));
                out.paused = Some(whom.to_string());
                "paused"
            }
            VisitOutcome::NoViableFetcher { vendor } => {
                out.vendor = Some(vendor.clone());
                "no_viable_fetcher"
            }
            VisitOutcome::NoRoute(_) => "no_route",
            VisitOutcome::NoFetcher => "no_fetcher",
            _ => "ended",
        };
        out.kind = kind.to_owned();
        out
    }
}
