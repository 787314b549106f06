//! Single decisions for `select` and `explain`, and their text and JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::{Args, ValueEnum};
use url::Url;

use super::settings::Settings;
use crate::parse::input::{open_lines, scheme_hint, unreadable};
use crate::setup::fetcher_availability::{BrowserArgs, FetcherAvailability};
use crate::terminal::exit::Failure;
use crate::terminal::output::{CHOSEN, ERROR, Output, note, plain, styled};
use fetchwise::attempt::Hint;
use fetchwise::decision::Decision;
use fetchwise::explain_text::DecisionText;
use fetchwise::heuristic::Heuristic;
use fetchwise::heuristic::url::{MAX_URL_BYTES, domain_of, identity, parse};
use fetchwise::journal::LoadReport;
use fetchwise::registry::{FetcherId, FetcherSet, FetcherSpec};
use fetchwise::router::{RouteError, Routed, Router};
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::unknown_name::UnknownName;
use fetchwise_crawl::input::lines::LineError;
use fetchwise_present::{DecisionJson, PauseJson, ProblemJson, Unavailable};
use fetchwise_serve::{Paused, pause_cause};

/// The inputs of a decision besides URL and evidence.
#[derive(Clone, Debug, Args)]
pub(crate) struct ContextArgs {
    /// Prefer this fetcher
    #[arg(long, value_name = "NAME")]
    pub(crate) prefer: Option<String>,
    /// Describe the last failure of the URL
    #[arg(long, value_name = "KIND")]
    pub(crate) last_failure: Option<HintArg>,
    /// Exclude a fetcher that was already tried for the URL; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) tried: Vec<String>,
    /// Add a heuristic of the URL, as for fetch; repeatable
    #[arg(long, value_name = "TYPE=VALUE", value_parser = read_tag)]
    pub(crate) tag: Vec<Heuristic>,
    /// Consider also fetchers that `fetch` could not use here: built-in ones, and those in the log
    #[arg(long, conflicts_with_all = ["chromium", "no_browser"])]
    pub(crate) all_fetchers: bool,
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
}

/// Parses `video_platform=vimeo`.
pub(crate) fn read_tag(text: &str) -> Result<Heuristic, String> {
    let (kind, value) =
        text.split_once('=').ok_or("expected TYPE=VALUE, as in video_platform=vimeo")?;
    Heuristic::of_caller(kind.trim(), value.trim()).map_err(|error| error.to_string())
}

/// The kind of the last failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HintArg {
    /// A captcha, 403 or 429
    Blocked,
    /// An empty page, or one that needs JavaScript
    Empty,
    /// No response in time
    Timeout,
    /// Any other failure
    Unknown,
}

impl From<Hint> for HintArg {
    fn from(hint: Hint) -> Self {
        match hint {
            Hint::Blocked => Self::Blocked,
            Hint::Empty => Self::Empty,
            Hint::Timeout => Self::Timeout,
            Hint::Unknown => Self::Unknown,
        }
    }
}

impl From<HintArg> for Hint {
    fn from(arg: HintArg) -> Self {
        match arg {
            HintArg::Blocked => Self::Blocked,
            HintArg::Empty => Self::Empty,
            HintArg::Timeout => Self::Timeout,
            HintArg::Unknown => Self::Unknown,
        }
    }
}

/// The inputs of all decisions of a command.
pub(crate) struct Decider<'s> {
    /// The selector, with all evidence.
    pub(crate) selector: Selector,
    /// A selector with the evidence of this node only, if peers have added to it.
    pub(crate) own: Option<Selector>,
    /// What was loaded along with the evidence.
    pub(crate) loaded: LoadReport,
    /// The caller's name for the link, if it is not the URL.
    link: Option<String>,
    router: &'s Router,
    settings: &'s Settings,
    prefer: Option<FetcherId>,
    tried: FetcherSet,
    hint: Option<Hint>,
    /// The heuristics that the caller knows.
    heuristics: Vec<Heuristic>,
    /// The unavailable candidates, each with the reason.
    missing: BTreeMap<FetcherId, String>,
    /// The unavailable candidates that stderr has already reported.
    reported: BTreeSet<FetcherId>,
}

/// A decision, and the unavailable candidate that evidence or the caller's wish would favour.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalDecision {
    pub(crate) routed: Routed,
    pub(crate) unavailable: Option<FetcherId>,
}

/// In a fleet, adds the evidence of peers to `selector` and returns a selector without it.
#[cfg(feature = "fleet")]
fn with_peers(settings: &Settings, selector: &Selector) -> Result<Option<Selector>, Failure> {
    let dir = settings.data_dir()?;
    // An earlier state is rebuilt from the node's own log.
    if settings.is_historical() || !dir.join("peers").is_dir() {
        return Ok(None);
    }
    let (own, _) = settings.load_selector()?;
    let reported = fetchwise_fleet::peer_store::load_peers(&dir, selector);
    let reported = reported.map_err(|error| Failure::failed(plain(&error.to_string())))?;
    Ok(if reported > 0 { Some(own) } else { None })
}

#[cfg(not(feature = "fleet"))]
#[allow(clippy::unnecessary_wraps, reason = "the signature is the same as with the feature fleet")]
fn with_peers(settings: &Settings, _: &Selector) -> Result<Option<Selector>, Failure> {
    if !settings.is_historical() {
        super::peer_attempt_counts::warn_if_ignored(&settings.data_dir()?);
    }
    Ok(None)
}

impl<'s> Decider<'s> {
    /// Reads the log and finds the available fetchers.
    pub(crate) fn new(settings: &'s Settings, args: &ContextArgs) -> Result<Self, Failure> {
        let router = settings.router()?;
        settings.warn_if_dir_missing();
        let (selector, loaded) = settings.load_selector()?;
        let own = with_peers(settings, &selector)?;
        settings.apply_router(&selector)?;
        let mut missing = BTreeMap::new();
        if !args.all_fetchers {
            let available = FetcherAvailability::find(settings, &args.browser)?;
            // The first line of a browser's reason is the reason; the next ones say how to install
            // it.
            let unavailable_reason = |spec: &FetcherSpec| {
                available.unavailable_reason(&spec.name)?.lines().next().map(str::to_owned)
            };
            missing.extend(
                selector
                    .candidates()
                    .filter_map(|(id, spec)| Some((id, unavailable_reason(spec)?))),
            );
        }
        let prefer = args.prefer.as_deref().map(|name| candidate(&selector, name)).transpose()?;
        let mut tried = FetcherSet::EMPTY;
        for name in &args.tried {
            tried.insert(candidate(&selector, name)?);
        }
        let (hint, reported) = (args.last_failure.map(Hint::from), BTreeSet::new());
        let heuristics = args.tag.clone();
        let link = None;
        Ok(Self {
            selector,
            own,
            loaded,
            link,
            router,
            settings,
            prefer,
            tried,
            hint,
            heuristics,
            missing,
            reported,
        })
    }

    /// Returns the decider for a URL with the caller's name for its link.
    pub(crate) fn for_link(self, link: &str) -> Self {
        Self { link: Some(link.to_owned()), ..self }
    }

    /// Returns the context of a decision about `url`, without the unavailable candidates.
    pub(crate) fn context(&self, url: &Url) -> SelectContext<'_> {
        let mut excluded = self.tried;
        self.missing.keys().for_each(|id| excluded.insert(*id));
        SelectContext { excluded, ..self.context_with_all(url) }
    }

    /// Returns what of `url` is paused, why and how often; none if the decision is not to wait.
    /// Reads the log.
    pub(crate) fn pause(
        &self,
        url: &Url,
        decided: &LocalDecision,
    ) -> Result<Option<PauseJson>, Failure> {
        let Decision::Paused { until, host: is_host } = decided.routed.decision else {
            return Ok(None);
        };
        let (dir, now) = (self.settings.data_dir()?, self.selector.now());
        let date = self.settings.clock.date_of(now);
        Ok(Some(if is_host {
            let host = domain_of(url.host_str().unwrap_or_default());
            let paused = self.selector.paused_hosts(now).into_iter().find(|of| of.domain == host);
            let cause = pause_cause(&dir, Paused::Host(host), date)?;
            PauseJson::of_host(host, until, paused.map_or(0, |of| of.times), cause)
        } else {
            let link = self.link_name(url);
            let failed = self.loaded.links.get(link).map_or(0, |link| link.risk_level);
            PauseJson::of_link(link, until, failed, pause_cause(&dir, Paused::Link(link), date)?)
        }))
    }

    fn link_name<'n>(&'n self, url: &'n Url) -> &'n str {
        self.link.as_deref().unwrap_or_else(|| identity(url))
    }

    /// Returns the same context with every candidate.
    fn context_with_all(&self, url: &Url) -> SelectContext<'_> {
        let name = self.link_name(url);
        let link = self.loaded.links.get(name).copied().unwrap_or_default();
        SelectContext {
            link,
            hint: self.hint.or(link.hint),
            prefer: self.prefer,
            excluded: self.tried,
            attempts: u32::try_from(self.tried.len()).unwrap_or(u32::MAX),
            heuristics: &self.heuristics,
            ..SelectContext::first_attempt(self.settings.clock.now())
        }
    }

    /// Decides about a URL. Reports on stderr, once per fetcher, that an unavailable fetcher would
    /// have been selected.
    pub(crate) fn decide(&mut self, url: &Url) -> Result<LocalDecision, RouteError> {
        self.selector.bring_back(url, &self.heuristics);
        let routed = self.selector.route(url, &self.context(url), None)?;
        let mut unavailable = None;
        if !self.missing.is_empty() {
            let with_all = self.selector.route(url, &self.context_with_all(url), None)?;
            unavailable = with_all
                .decision
                .selected()
                .map(|take| take.fetcher)
                .filter(|id| self.missing.contains_key(id));
        }
        if let Some(id) = unavailable.filter(|id| self.reported.insert(*id)) {
            note(format_args!(
                "warning: {} would be selected but is unavailable: {} (--all-fetchers considers it anyway)",
                plain(self.selector.fetcher_name(id)),
                self.unavailable_reason(id).unwrap_or_default()
            ));
        }
        Ok(LocalDecision { routed, unavailable })
    }

    /// Returns whether the candidate `name` is available.
    pub(crate) fn is_available(&self, name: &str) -> bool {
        self.selector.fetcher_id(name).is_none_or(|id| !self.missing.contains_key(&id))
    }

    fn unavailable_reason(&self, id: FetcherId) -> Option<&str> {
        self.missing.get(&id).map(String::as_str)
    }

    /// Returns the decision as JSON; `text` is the URL as given.
    pub(crate) fn json<'a>(&'a self, text: &'a str, decided: &LocalDecision) -> DecisionJson<'a> {
        let unavailable = decided.unavailable.map(|id| Unavailable {
            fetcher: self.selector.fetcher_name(id),
            reason: self.unavailable_reason(id),
        });
        DecisionJson::new(text, &self.selector, self.router.mode, &decided.routed, unavailable)
    }

    /// Returns the decision as text.
    pub(crate) fn text(&self, decided: &LocalDecision) -> String {
        let words = self.decision_text(&decided.routed);
        match decided.unavailable {
            Some(id) => {
                let name = plain(self.selector.fetcher_name(id));
                format!("{words}  {}", styled(ERROR, format_args!("{name} is not available")))
            }
            None => words,
        }
    }

    fn decision_text(&self, routed: &Routed) -> String {
        let DecisionText { head, rest } = DecisionText::new(&routed.decision, &self.selector);
        let style = if routed.decision.selected().is_some() { CHOSEN } else { ERROR };
        DecisionText { head: styled(style, plain(&head)), rest }.to_string()
    }
}

/// Prints an error about one URL.
pub(crate) fn show_error(out: &mut Output, url: &str, error: &RouteError) -> Result<(), Failure> {
    if out.json {
        return out.object(&ProblemJson::of_route(url, error));
    }
    show(out, &error.to_string())?;
    if let Some(hint) = scheme_hint(url) {
        note(format_args!("  hint: {}", plain(&hint)));
    }
    Ok(())
}

/// Prints an error about a line of stdin that is not a URL.
pub(crate) fn show_bad_line(
    out: &mut Output,
    number: u64,
    error: &LineError,
) -> Result<(), Failure> {
    let error = format!("stdin, line {number}: {error}");
    if out.json {
        return out.object(&ProblemJson::of_url(None, "invalid_line", error));
    }
    show(out, &error)
}

fn show(out: &mut Output, error: &str) -> Result<(), Failure> {
    out.line(format_args!("{}  {}", styled(ERROR, "error"), plain(error)))
}

/// Parses a URL as given.
pub(crate) fn read_url(text: &str) -> Result<Url, RouteError> {
    Ok(parse(text.trim())?)
}

/// Returns the candidate called `name`.
pub(crate) fn candidate(selector: &Selector, name: &str) -> Result<FetcherId, Failure> {
    let known = selector
        .fetcher_id(name)
        .filter(|id| selector.candidates().any(|(candidate, _)| candidate == *id));
    known.ok_or_else(|| {
        let names = selector.candidates().map(|(_, spec)| &*spec.name);
        Failure::usage(UnknownName::new("fetcher", name, names))
    })
}

/// Calls `f` with each URL of the arguments, and with each line of stdin for the argument `-`. A
/// line that cannot be read is passed as its error.
pub(crate) fn each_url(
    urls: &[String],
    mut f: impl FnMut(Result<&str, &LineError>, u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for url in urls {
        if url != "-" {
            f(Ok(url), 0)?;
            continue;
        }
        let path = Path::new("-");
        let mut lines = open_lines(path, MAX_URL_BYTES * 2)?;
        while let Some(line) = lines.next_line().map_err(|error| unreadable(path, &error))? {
            match line.text {
                Ok(text) if text.trim().is_empty() || text.starts_with('#') => {}
                Ok(text) => f(Ok(text.trim()), line.number)?,
                Err(error) => f(Err(&error), line.number)?,
            }
        }
    }
    Ok(())
}
