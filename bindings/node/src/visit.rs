//! Visits: the library's state machine, stepped from JavaScript.
//! Must not know: how anything is decided.

use std::sync::Arc;
use std::task::{Wake, Waker};

use fetchwise::fetch_result::FetchResult as CoreFetchResult;
use fetchwise::time::Timestamp;
use fetchwise::visit::End as CoreEnd;
use fetchwise_bindings_core::visit::{Asked, EndDetails, HeldStep, SteppedVisit, VisitSettings};
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

/// The visit of one URL, from the decision to the last recorded attempt, including retries, other
/// fetchers, pauses and paces.
///
/// `next()` returns the next step: fetch, wait, or null; `report()` takes the result. `close()`
/// releases everything that the visit holds; so does garbage collection, later.
#[napi]
pub struct Visit {
    kept: SteppedVisit<Handle>,
    core: Handle,
}

impl Visit {
    pub fn begin(
        core: Handle,
        url: Url,
        settings: VisitSettings<'_>,
    ) -> std::result::Result<Self, Failure> {
        Ok(Self { kept: SteppedVisit::begin(core.clone(), url, settings)?, core })
    }
}

#[napi]
impl Visit {
    /// Returns the next step, or null when the visit has ended (`end` says how). Report a fetch
    /// before the next call: an unreported one has no effect.
    #[napi(catch_unwind)]
    pub fn next(&self) -> Result<Option<Step>> {
        self.core.0.check()?;
        Ok(self.kept.next().map(|(held, asked)| Step::new(&self.core, held, asked)))
    }

    /// Reports the result of a fetch: a `FetchResult`, a `Verdict`, `content` or an `ErrorKind`, or
    /// the error that the client threw. Records the attempt before it returns. `duration` is in
    /// milliseconds; the default is the time since the step.
    #[napi(catch_unwind)]
    pub fn report(
        &self,
        step: &Step,
        #[napi(
            ts_arg_type = "FetchResult | Verdict | Error | 'content' | ErrorKind | (string & {})"
        )]
        outcome: Either3<
            ClassInstance<'_, FetchResult>,
            ClassInstance<'_, Verdict>,
            String,
        >,
        duration: Option<f64>,
    ) -> Result<()> {
        self.core.0.check()?;
        self.kept.check(&step.held).map_err(Failure::misuse)?;
        let mut answer: CoreFetchResult = match outcome {
            Either3::A(answer) => answer.kept.clone(),
            Either3::B(verdict) => verdict.answer(),
            Either3::C(kind) => FetchResult::named(&kind).kept,
        };
        if let Some(ms) = duration {
            answer.duration = Some(given::span("duration", ms)?);
        }
        self.kept.report(&step.held, answer).map_err(Failure::misuse)?;
        self.core.0.settle_if_ending();
        Ok(())
    }

    /// Declines to wait for `step`. The visit ends with its last failure, or as paused until then.
    #[napi(catch_unwind)]
    pub fn give_up(&self, step: &Step) -> Result<()> {
        Ok(self.kept.give_up(&step.held).map_err(Failure::misuse)?)
    }

    /// Releases everything that the visit and its last step hold. It returns no further steps;
    /// recorded attempts stay.
    #[napi(catch_unwind)]
    pub fn close(&self) {
        self.kept.close();
    }

    /// The end of the visit, once `next()` has returned null.
    #[napi(catch_unwind, getter)]
    pub fn end(&self) -> Option<End> {
        self.kept.end().map(|end| End::of(&self.core, end))
    }

    /// The address to request: the URL, or the target of a redirect that was written in HTML.
    #[napi(catch_unwind, getter)]
    pub fn url(&self) -> Option<String> {
        self.kept.url()
    }

    /// The number of attempts that the visit has recorded.
    #[napi(catch_unwind, getter)]
    pub fn requests(&self) -> u32 {
        self.kept.requests()
    }
}

/// Notifies JavaScript, from the thread on which the event happens.
struct Bell(Box<dyn Fn() + Send + Sync>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// The next step of a visit: either one request with `fetcher` for `url`, within `deadline`
/// milliseconds, or, when `wait` is true, a wait of `delay` milliseconds.
#[napi]
pub struct Step {
    held: HeldStep<Handle>,
    asked: Asked,
    /// The name of the fetcher and the decision, only for a request.
    chosen: Option<(String, Decision)>,
}

impl Step {
    fn new(core: &Handle, held: HeldStep<Handle>, asked: Asked) -> Self {
        let selector = &core.0.kept;
        let chosen = match &asked {
            Asked::Request { fetcher, decision, .. } => Some((
                selector.fetcher_name(*fetcher).to_owned(),
                Decision::new(selector, decision, None),
            )),
            Asked::Wait { .. } => None,
        };
        Self { held, asked, chosen }
    }
}

#[napi]
impl Step {
    /// Whether to wait and then call `next()` again.
    #[napi(catch_unwind, getter)]
    pub fn wait(&self) -> bool {
        matches!(self.asked, Asked::Wait { .. })
    }

    /// The longest time to wait, in milliseconds from now; 0 for a request. An earlier call is also
    /// fine.
    #[napi(catch_unwind, getter)]
    pub fn delay(&self) -> f64 {
        match &self.asked {
            Asked::Wait { until, .. } => until.since(Timestamp::now()).as_secs_f64() * 1000.0,
            Asked::Request { .. } => 0.0,
        }
    }

    /// The reason of the wait: `probe`, `trial`, `local_fault`, `pace` or `doubt`; null for a
    /// request.
    #[napi(catch_unwind, getter)]
    pub fn reason(&self) -> Option<&str> {
        match &self.asked {
            Asked::Wait { reason, .. } => Some(reason),
            Asked::Request { .. } => None,
        }
    }

    /// The fetcher to use; null for a wait.
    #[napi(catch_unwind, getter)]
    pub fn fetcher(&self) -> Option<&str> {
        self.chosen.as_ref().map(|(fetcher, _)| fetcher.as_str())
    }

    /// The address to request.
    #[napi(catch_unwind, getter)]
    pub fn url(&self) -> &str {
        self.held.url()
    }

    /// Milliseconds for the whole request; null for a wait.
    #[napi(catch_unwind, getter)]
    pub fn deadline(&self) -> Option<f64> {
        match &self.asked {
            Asked::Request { deadline, .. } => Some(deadline.as_secs_f64() * 1000.0),
            Asked::Wait { .. } => None,
        }
    }

    /// Whether the request is a probe: short, because a longer request can follow.
    #[napi(catch_unwind, getter)]
    pub fn is_probe(&self) -> bool {
        matches!(self.asked, Asked::Request { is_probe: true, .. })
    }

    /// The maximum number of redirects.
    #[napi(catch_unwind, getter)]
    pub fn max_redirects(&self) -> u32 {
        match &self.asked {
            Asked::Request { max_redirects, .. } => *max_redirects,
            Asked::Wait { .. } => 0,
        }
    }

    /// The decision that chose the fetcher; null for a wait.
    #[napi(catch_unwind, getter)]
    pub fn decision(&self) -> Option<Decision> {
        self.chosen.as_ref().map(|(_, decision)| decision.clone())
    }

    /// Calls `come` when the event that is waited for happens; never if only time can end the wait.
    /// Returns true if it has happened already. `ready()` is built on it.
    #[napi(catch_unwind, skip_typescript, js_name = "_listen")]
    pub fn listen(&self, come: Function<'_, (), ()>) -> napi::Result<bool> {
        let wait = self
            .held
            .take_wait()
            .map_err(|misuse| napi::Error::from_reason(Failure::misuse(misuse).to_string()))?;
        // This does not keep the process running; the timer alongside it does.
        let call = come.build_threadsafe_function::<()>().weak::<true>().build()?;
        let ring = move || {
            call.call((), ThreadsafeFunctionCallMode::NonBlocking);
        };
        Ok(self.held.listen(wait, &Waker::from(Arc::new(Bell(Box::new(ring))))))
    }

    /// Cancels the listener of `_listen`.
    #[napi(catch_unwind, skip_typescript, js_name = "_letGo")]
    pub fn let_go(&self) {
        self.held.let_go();
    }
}

/// The end of a visit.
#[napi(object)]
#[derive(Clone, Debug)]
pub struct End {
    /// How the visit ended.
    #[napi(
        ts_type = "'delivered' | 'failed' | 'paused' | 'paced' | 'no_viable_fetcher' | 'no_route' | 'no_fetcher'"
    )]
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
    /// Whether the last attempt was the trial of a host that refuses all requests. That says
    /// nothing of the link.
    pub was_trial: bool,
    /// Whether what was delivered is a page of no site: of a parked domain, a hoster, or a product
    /// before its log-in.
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
        let details = EndDetails::of(end);
        Self {
            kind: end.how.name().to_owned(),
            is_delivered: end.is_delivered(),
            error_type: details.error_type.map(str::to_owned),
            vendor: details.vendor.map(str::to_owned),
            fetcher: end.fetcher.map(|id| core.0.kept.fetcher_name(id).to_owned()),
            source: end.source.map(|source| source.name().to_owned()),
            confidence: end.confidence,
            status: end.status.map(u32::from),
            is_banned: end.is_banned,
            requests: end.requests,
            was_trial: end.was_trial,
            is_default_page: end.is_default_page,
            paused_until: details.paused_until.map(given::date_ms),
            paused: details.paused,
            message: end.message.clone(),
        }
    }
}
