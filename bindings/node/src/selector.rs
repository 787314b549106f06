//! The selector. `select` and `record` are synchronous, because a microsecond is less than a turn
//! of the event loop; long work returns a promise.

use std::path::Path;
use std::sync::Arc;

use fetchwise::analytics::{By, Row, Stats};
use fetchwise::backoff::LinkState;
use fetchwise::heuristic::url::{ContentKind, domain_of, identity};
use fetchwise::journal::{Entry, Journal as Log, Tombstone, TombstoneTarget, replay};
use fetchwise::registry::FetcherSet;
use fetchwise::selector::SelectContext;
use fetchwise::time::Timestamp;
use napi::Env;
use napi::bindgen_prelude::{AsyncTask, ClassInstance, Either, Object, Unknown};
use napi_derive::napi;
use url::Url;

use crate::attempt::Attempt;
use crate::build_selector::{Core, Fetcher, Handle, Plan, SelectorOptions};
use crate::convert;
use crate::decision::Decision;
use crate::errors::{Code, Failure};
use crate::explain::Explanation;
use crate::journal::{Journal, Shared};
use crate::thread_pool::{Work, promise};
use crate::visit::Visit;
use fetchwise_bindings_core::candidates::all_but;
use fetchwise_bindings_core::select_many::select_many;
use fetchwise_bindings_core::visit::VisitSettings;

type Result<T> = std::result::Result<T, napi::Error<Code>>;

/// Options of a decision.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct SelectOptions<'a> {
    /// A hint at the last failure.
    #[napi(ts_type = "Hint")]
    pub hint: Option<String>,
    /// The fetcher that the caller prefers.
    pub prefer: Option<String>,
    /// The fetchers that were tried or are unavailable.
    pub excluded: Option<Vec<String>>,
    /// The number of attempts so far; defaults to the number of excluded fetchers.
    pub attempts: Option<f64>,
    /// What the caller knows besides the URL.
    #[napi(ts_type = "Record<string, string> | Array<[string, string]>")]
    pub heuristics: Option<Object<'a>>,
    /// The caller's name for the URL.
    pub link: Option<String>,
    /// The time of the decision, in milliseconds since 1970; defaults to now.
    pub at: Option<f64>,
}

/// Options of a visit.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct VisitOptions<'a> {
    /// The available fetchers; defaults to all candidates.
    pub fetchers: Option<Vec<String>>,
    /// The fetcher of the first attempt.
    pub prefer: Option<String>,
    /// The caller's name for the URL.
    pub link: Option<String>,
    /// What the caller knows besides the URL.
    #[napi(ts_type = "Record<string, string> | Array<[string, string]>")]
    pub heuristics: Option<Object<'a>>,
}

/// Decayed weights of one heuristic and fetcher; `attempts` do not decay.
#[napi(object)]
pub struct Masses {
    /// Weight of successes.
    pub success: f64,
    /// Weight of all attempts.
    pub total: f64,
    /// Weight of blocks.
    pub blocked: f64,
    /// Number of attempts.
    pub attempts: f64,
}

/// Counts of recorded attempts.
#[napi(object)]
pub struct StatsRow {
    /// The subject of the row: a domain, a fetcher, a day.
    pub key: String,
    /// Requests.
    pub attempts: f64,
    /// Requests that delivered content.
    pub delivered: f64,
    /// Requests that the site blocked.
    pub banned: f64,
    /// The share that delivered, if there are requests.
    pub success_rate: Option<f64>,
    /// The share that was blocked, if there are requests.
    pub ban_rate: Option<f64>,
    /// Requests per page.
    pub requests_per_page: Option<f64>,
    /// Requests whose decision is known.
    pub decided: f64,
    /// Requests decided by sufficient evidence.
    pub learned: f64,
    /// Requests decided without such evidence.
    pub inferred: f64,
    /// Requests decided as probes.
    pub probed: f64,
    /// Requests decided as exploration.
    pub explored: f64,
}

/// The object to forget: one of the two.
#[napi(object, object_to_js = false)]
pub struct ForgetOptions {
    /// A domain, with all its evidence.
    pub domain: Option<String>,
    /// A link, with its pauses.
    pub link: Option<String>,
}

/// Learns which fetcher works for which URL.
#[napi]
pub struct Selector {
    pub(crate) core: Arc<Core>,
    owns_journal: bool,
}

#[napi]
impl Selector {
    /// Replays its journal, if it has one, before it returns; `Selector.open` does that on another
    /// thread.
    #[napi(catch_unwind, constructor)]
    pub fn new(env: &Env, options: Option<SelectorOptions<'_>>) -> napi::Result<Self> {
        let mut options = options.unwrap_or_default();
        let made = || {
            let plan = Plan::of(&mut options)?;
            let (log, owns_journal) = match options.journal {
                None => (None, false),
                Some(Either::A(journal)) => (Some(Arc::clone(&journal.shared)), false),
                Some(Either::B(dir)) => {
                    let how = options.journal_options.unwrap_or_default().options()?;
                    (Some(Shared::open(Path::new(&dir), how)?), true)
                }
            };
            Ok(Self { core: plan.core(log)?, owns_journal })
        };
        made().map_err(|failure: Failure| failure.into_js(env))
    }

    /// Opens the journal in `dir`, and creates the directory if it is missing. Replays it on
    /// another thread and resolves to a selector over it.
    #[napi(
        catch_unwind,
        ts_args_type = "dir: string, options?: Omit<SelectorOptions, 'journal'> | undefined | null",
        ts_return_type = "Promise<Selector>"
    )]
    pub fn open(
        dir: String,
        options: Option<SelectorOptions<'_>>,
    ) -> Result<AsyncTask<Work<Arc<Core>, Self>>> {
        let mut options = options.unwrap_or_default();
        if options.journal.is_some() {
            return Err(Failure::misuse(
                "invalid option journal: Selector.open opens the journal itself",
            )
            .into());
        }
        let plan = Plan::of(&mut options)?;
        let how = options.journal_options.unwrap_or_default().options()?;
        let work = move || plan.core(Some(Shared::open(Path::new(&dir), how)?));
        Ok(promise(work, |core| Self { core, owns_journal: true }))
    }

    /// Decides about `url`. Takes about a microsecond, no lock and no system call, unless evidence
    /// that `maxKeys` moved to disk has to be read.
    #[napi(catch_unwind)]
    pub fn select(
        &self,
        env: &Env,
        #[napi(ts_arg_type = "string | URL")] url: Unknown<'_>,
        options: Option<SelectOptions<'_>>,
    ) -> Result<Decision> {
        let url = convert::url(&url)?;
        let wish = options.unwrap_or_default();
        let known = convert::known(env, wish.heuristics.as_ref())?;
        let situation = self.situation(&url, &wish, &known)?;
        self.core.kept.bring_back(&url, &known);
        let decided = self.core.kept.select(&url, &situation).map_err(Failure::url)?;
        Ok(Decision::new(&self.core.kept, &decided, situation.hint))
    }

    /// Decides about many URLs as `select` does about one, and returns the decisions in the same
    /// order. With many domains this takes less time, because the evidence of several URLs is
    /// requested from memory at once. The options apply to all URLs; each link is known by its URL.
    /// Throws if one of them cannot be fetched.
    #[napi(catch_unwind)]
    pub fn select_many(
        &self,
        env: &Env,
        #[napi(ts_arg_type = "Array<string | URL>")] urls: Vec<Unknown<'_>>,
        #[napi(ts_arg_type = "Omit<SelectOptions, 'link'> | undefined | null")] options: Option<
            SelectOptions<'_>,
        >,
    ) -> Result<Vec<Decision>> {
        let urls = urls.iter().map(convert::url).collect::<std::result::Result<Vec<_>, _>>()?;
        let wish = options.unwrap_or_default();
        if wish.link.is_some() {
            return Err(Failure::misuse(
                "invalid option link: it names one link; selectMany decides about many",
            )
            .into());
        }
        let known = convert::known(env, wish.heuristics.as_ref())?;
        let all = self.context(LinkState::default(), &wish, &known)?;
        let decided = select_many(&self.core.kept, &urls, &all).map_err(Failure::url)?;
        Ok(decided
            .iter()
            .map(|decided| Decision::new(&self.core.kept, decided, all.hint))
            .collect())
    }

    /// Explains the decision that `select` would make.
    #[napi(catch_unwind)]
    pub fn explain(
        &self,
        env: &Env,
        #[napi(ts_arg_type = "string | URL")] url: Unknown<'_>,
        options: Option<SelectOptions<'_>>,
    ) -> Result<Explanation> {
        let url = convert::url(&url)?;
        let wish = options.unwrap_or_default();
        let known = convert::known(env, wish.heuristics.as_ref())?;
        let situation = self.situation(&url, &wish, &known)?;
        let explained = self.core.kept.explain(&url, &situation).map_err(Failure::url)?;
        Ok(Explanation::new(&self.core.kept, url.as_str(), &explained))
    }

    /// Records an attempt, first in memory and then in the journal. When it throws, the attempt
    /// will not survive the process.
    #[napi(catch_unwind)]
    pub fn record(&self, attempt: &Attempt) -> Result<()> {
        self.core.check()?;
        self.learn(attempt)?;
        self.core.settle_if_ending();
        Ok(())
    }

    /// Records many attempts, in order. When it throws, it has ignored all attempts after the first
    /// failed one.
    #[napi(catch_unwind)]
    pub fn record_batch(&self, attempts: Vec<ClassInstance<'_, Attempt>>) -> Result<()> {
        self.core.check()?;
        for attempt in &attempts {
            self.learn(attempt)?;
        }
        self.core.settle_if_ending();
        Ok(())
    }

    /// Begins a visit of `url`: all steps from the decision to the last attempt, driven by the
    /// caller's network code.
    #[napi(catch_unwind)]
    pub fn visit(
        &self,
        env: &Env,
        #[napi(ts_arg_type = "string | URL")] url: Unknown<'_>,
        options: Option<VisitOptions<'_>>,
    ) -> Result<Visit> {
        self.core.check()?;
        let url = convert::url(&url)?;
        let VisitOptions { fetchers, prefer, link, heuristics } = options.unwrap_or_default();
        let without = match fetchers {
            Some(names) => all_but(&self.core.kept, &names).map_err(Failure::config)?,
            None => FetcherSet::EMPTY,
        };
        if let Some(name) = &prefer {
            self.core.candidate(name)?;
        }
        let known = convert::known(env, heuristics.as_ref())?;
        let settings =
            VisitSettings { prefer: prefer.as_deref(), link: link.as_deref(), without, known };
        Ok(Visit::begin(Handle(Arc::clone(&self.core)), url, settings)?)
    }

    /// Returns the exact decayed weights of one heuristic and fetcher, over pages or, with `files`,
    /// over files.
    #[napi(catch_unwind)]
    pub fn masses(
        &self,
        kind: String,
        value: String,
        fetcher: String,
        files: Option<bool>,
        at: Option<f64>,
    ) -> Result<Masses> {
        let content = if files == Some(true) { ContentKind::File } else { ContentKind::Page };
        let weights =
            self.core.kept.weights((&kind, &value), content, &fetcher, convert::time(at)?);
        Ok(Masses {
            success: weights.success,
            total: weights.total,
            blocked: weights.blocked,
            attempts: weights.attempts as f64,
        })
    }

    /// Returns counts of everything in its journal, by `all`, `domain`, `fetcher`, `day` or `week`.
    #[napi(catch_unwind, ts_return_type = "Promise<Array<StatsRow>>")]
    pub fn stats(
        &self,
        #[napi(ts_arg_type = "'all' | 'domain' | 'fetcher' | 'day' | 'week'")] by: Option<String>,
    ) -> Result<AsyncTask<Work<Vec<StatsRow>, Vec<StatsRow>>>> {
        let by = by.map_or(Ok(By::All), |name| name.parse::<By>().map_err(Failure::value))?;
        let log = Arc::clone(self.log()?);
        let work = move || {
            log.wait(Log::settled)?;
            let mut stats = Stats::new(by);
            replay(&log.dir, |_, entry| {
                if let Entry::Attempt(attempt) = entry {
                    stats.observe(&attempt);
                }
            })?;
            Ok(stats.rows().into_iter().map(|(key, row)| counts(key, &row)).collect())
        };
        Ok(promise(work, |rows| rows))
    }

    /// Returns the end of the pause of a URL's host or of a domain, in milliseconds since 1970;
    /// null when it is not paused.
    #[napi(catch_unwind)]
    pub fn host_pause(&self, host: String) -> Option<f64> {
        let until = self.core.kept.host_pause(&domain(&host))?;
        (until > Timestamp::now()).then(|| convert::date_ms(until))
    }

    /// Ends the pause of a host now, as if it had never been paused. Returns the time at which it
    /// would have ended, or null.
    #[napi(catch_unwind)]
    pub fn unpause_host(&self, host: String) -> Result<Option<f64>> {
        self.core.check()?;
        Ok(self.core.kept.unpause_host(&domain(&host), Timestamp::now()).map(convert::date_ms))
    }

    /// Ends the pause of a link now; the link stays at risk. Returns the time at which it would
    /// have ended, or null.
    #[napi(catch_unwind)]
    pub fn unpause_link(&self, link: String) -> Result<Option<f64>> {
        self.core.check()?;
        Ok(self.core.kept.unpause_link(&link, Timestamp::now()).map(convert::date_ms))
    }

    /// Forgets a domain or a link: at once in memory, and in the journal from the next start on.
    #[napi(catch_unwind, ts_args_type = "what: { domain: string } | { link: string }")]
    pub fn forget(&self, what: ForgetOptions) -> Result<()> {
        self.core.check()?;
        let target = match (what.domain, what.link) {
            (Some(domain), None) => {
                self.core.kept.forget_domain(&domain);
                TombstoneTarget::Domain(domain)
            }
            (None, Some(link)) => {
                self.core.kept.forget_link(&link);
                TombstoneTarget::Link(link)
            }
            _ => return Err(Failure::misuse("expected either a domain or a link").into()),
        };
        let Some(log) = &self.core.log else { return Ok(()) };
        let tombstone = Tombstone { target, at: Timestamp::date() };
        let appended = log.with(|log| log.append_tombstone(&tombstone))?;
        Ok(appended.map(drop).map_err(Failure::from)?)
    }

    /// The candidates, in order.
    #[napi(catch_unwind, getter, ts_return_type = "Array<Required<Fetcher>>")]
    pub fn fetchers(&self) -> Vec<Fetcher> {
        self.core.kept.candidates().map(|(_, spec)| Fetcher::of(spec)).collect()
    }

    /// The journal that the selector records into, or null.
    #[napi(catch_unwind, getter)]
    pub fn journal(&self) -> Option<Journal> {
        self.core.log.as_ref().map(|log| Journal { shared: Arc::clone(log) })
    }

    /// Resolves when everything recorded so far is on disk; at once without a journal.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn flush(&self) -> AsyncTask<Work<(), ()>> {
        let log = self.core.log.clone();
        promise(move || log.map_or(Ok(()), |log| log.wait(Log::flush)), |()| ())
    }

    /// Resolves when everything recorded so far is acknowledged. By default it then survives
    /// `kill -9`.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn settled(&self) -> AsyncTask<Work<(), ()>> {
        let log = self.core.log.clone();
        promise(move || log.map_or(Ok(()), |log| log.wait(Log::settled)), |()| ())
    }

    /// Writes the learned paces to the journal, and closes the journal if the selector opened it.
    #[napi(catch_unwind, ts_return_type = "Promise<void>")]
    pub fn close(&self) -> AsyncTask<Work<(), ()>> {
        let (core, owns_journal) = (Arc::clone(&self.core), self.owns_journal);
        let work = move || {
            if let Some(pace) = core.kept.pace() {
                pace.close(Timestamp::now());
            }
            match &core.log {
                Some(log) if owns_journal => log.close(),
                _ => Ok(()),
            }
        };
        promise(work, |()| ())
    }
}

impl Selector {
    fn situation<'k>(
        &self,
        url: &Url,
        wish: &SelectOptions<'_>,
        heuristics: &'k [fetchwise::heuristic::Heuristic],
    ) -> std::result::Result<SelectContext<'k>, Failure> {
        let link = self.core.kept.link_state(wish.link.as_deref().unwrap_or_else(|| identity(url)));
        self.context(link, wish, heuristics)
    }

    fn context<'k>(
        &self,
        link: LinkState,
        wish: &SelectOptions<'_>,
        heuristics: &'k [fetchwise::heuristic::Heuristic],
    ) -> std::result::Result<SelectContext<'k>, Failure> {
        let excluded =
            wish.excluded.as_ref().map_or(Ok(FetcherSet::EMPTY), |names| self.core.set(names))?;
        let attempts = wish
            .attempts
            .map(|given| convert::count("attempts", given, u64::from(u32::MAX)))
            .transpose()?;
        Ok(SelectContext {
            now: convert::time(wish.at)?,
            link,
            hint: convert::hint(wish.hint.as_deref())?,
            excluded,
            attempts: attempts.map_or(excluded.len() as u32, |given| given as u32),
            prefer: wish.prefer.as_ref().map(|name| self.core.candidate(name)).transpose()?,
            host_trial: false,
            heuristics,
        })
    }

    fn learn(&self, attempt: &Attempt) -> std::result::Result<(), Failure> {
        Ok(self.core.kept.record(attempt.kept.clone(), Timestamp::now())?)
    }

    fn log(&self) -> std::result::Result<&Arc<Shared>, Failure> {
        self.core
            .log
            .as_ref()
            .ok_or_else(|| Failure::misuse("cannot read stats: this selector has no journal"))
    }
}

fn counts(key: String, row: &Row) -> StatsRow {
    StatsRow {
        key,
        attempts: row.attempts as f64,
        delivered: row.delivered as f64,
        banned: row.banned as f64,
        success_rate: row.success_rate(),
        ban_rate: row.ban_rate(),
        requests_per_page: row.requests_per_page(),
        decided: row.decided as f64,
        learned: row.learned as f64,
        inferred: row.inferred as f64,
        probed: row.probed as f64,
        explored: row.explored as f64,
    }
}

/// Returns the domain under which evidence stores a host, or the host of a URL.
fn domain(host: &str) -> String {
    let name = Url::parse(host).ok().and_then(|url| url.host_str().map(str::to_owned));
    domain_of(&name.unwrap_or_else(|| host.to_ascii_lowercase())).to_owned()
}
