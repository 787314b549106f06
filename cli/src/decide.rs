//! Decisions as commands show them: what `select` and `explain` have in common.

use std::path::Path;

use serde::Serialize;
use url::Url;

use super::args::SituationArgs;
use super::failure::Failure;
use super::input::{Lines, unreadable};
use super::out::{CHOSEN, ERROR, Out, plain, styled};
use super::settings::Settings;
use fetchwise::attempt::Hint;
use fetchwise::decision::Decision;
use fetchwise::heuristic::url::{URL_MAX_BYTES, parse};
use fetchwise::journal::Loaded;
use fetchwise::registry::{FetcherId, FetcherSet};
use fetchwise::rfc3339;
use fetchwise::router::{RouteError, Routed, Router};
use fetchwise::selector::{Selector, Situation};

/// Everything a decision is made with.
pub(crate) struct Decider<'s> {
    /// The selector, with all evidence.
    pub(crate) selector: Selector,
    loaded: Loaded,
    router: &'s Router,
    settings: &'s Settings,
    wanted: Option<FetcherId>,
    tried: FetcherSet,
    hint: Option<Hint>,
}

/// One decision, as JSON has it.
#[derive(Debug, Serialize)]
pub(crate) struct DecisionJson<'a> {
    url: &'a str,
    decision: &'static str,
    fetcher: Option<String>,
    confidence: f64,
    sample_size: f64,
    mode: &'static str,
    rule: &'static str,
    propensity: Option<f64>,
    paused_until: Option<String>,
    /// What the other arm would have taken, in the modes shadow and split.
    shadow_fetcher: Option<String>,
}

/// An error about one URL, as JSON has it.
#[derive(Debug, Serialize)]
pub(crate) struct ErrorJson<'a> {
    /// The URL.
    pub(crate) url: &'a str,
    /// Always false.
    pub(crate) success: bool,
    /// `invalid_url` or `no_route`.
    pub(crate) error_type: &'static str,
    /// What is wrong, for a person.
    pub(crate) error: String,
}

impl<'s> Decider<'s> {
    /// Reads the log.
    pub(crate) fn new(settings: &'s Settings, args: &SituationArgs) -> Result<Self, Failure> {
        let router = settings.router()?;
        let (selector, loaded) = settings.learned()?;
        let wanted = args.fetcher.as_deref().map(|name| candidate(&selector, name)).transpose()?;
        let mut tried = FetcherSet::EMPTY;
        for name in &args.tried {
            tried.insert(candidate(&selector, name)?);
        }
        Ok(Self { selector, loaded, router, settings, wanted, tried, hint: args.last_failure.map(Hint::from) })
    }

    /// What is known about `url` besides evidence.
    pub(crate) fn situation(&self, url: &Url) -> Situation {
        let link = self.loaded.links.get(url.as_str()).copied().unwrap_or_default();
        Situation {
            link,
            hint: self.hint.or(link.hint),
            wanted: self.wanted,
            excluded: self.tried,
            attempts: u32::try_from(self.tried.len()).unwrap_or(u32::MAX),
            ..Situation::first(self.settings.clock.now())
        }
    }

    /// Decides about a URL that was read.
    pub(crate) fn decide(&self, url: &Url) -> Result<Routed, RouteError> {
        self.router.decide(&self.selector, url, &self.situation(url), None)
    }

    /// The decision as JSON; `text` is the URL as it was given.
    pub(crate) fn json<'a>(&self, text: &'a str, routed: &Routed) -> DecisionJson<'a> {
        let take = routed.decision.taken();
        let (decision, rule, paused_until) = match routed.decision {
            Decision::Take(take) => (take.source.name(), take.rule.name(), None),
            Decision::Paused { until, .. } => ("paused", "paused", Some(rfc3339::format(until))),
            Decision::GiveUp => ("none", "none", None),
        };
        let name = |id| self.selector.fetcher_name(id).to_owned();
        DecisionJson {
            url: text,
            decision,
            fetcher: take.map(|take| name(take.fetcher)),
            confidence: take.map_or(0.0, |take| take.confidence),
            sample_size: take.map_or(0.0, |take| take.sample_size),
            mode: self.router.mode.name(),
            rule,
            propensity: take.map(|take| take.propensity),
            paused_until,
            shadow_fetcher: routed.shadow.map(name),
        }
    }

    /// The decision in words.
    pub(crate) fn words(&self, routed: &Routed) -> String {
        match routed.decision {
            Decision::Take(take) => format!(
                "{}  {} (confidence {:.2} over {:.1} attempts)",
                styled(CHOSEN, plain(self.selector.fetcher_name(take.fetcher))),
                take.source.name(),
                take.confidence,
                take.sample_size
            ),
            Decision::Paused { until, host } => {
                let what = if host { "its host is paused" } else { "paused" };
                format!("{} until {}", styled(ERROR, what), rfc3339::format(until))
            }
            Decision::GiveUp => styled(ERROR, "no fetcher is worth a try"),
        }
    }
}

/// Shows an error about one URL.
pub(crate) fn show_error(out: &mut Out, url: &str, error: &RouteError) -> Result<(), Failure> {
    let error_type = match error {
        RouteError::Url(_) => "invalid_url",
        _ => "no_route",
    };
    let error = error.to_string();
    if out.json {
        return out.object(&ErrorJson { url, success: false, error_type, error });
    }
    out.line(format_args!("{}  {}", styled(ERROR, "error"), plain(&error)))
}

/// Reads a URL as it was given.
pub(crate) fn read_url(text: &str) -> Result<Url, RouteError> {
    Ok(parse(text.trim())?)
}

/// The candidate called `name`.
fn candidate(selector: &Selector, name: &str) -> Result<FetcherId, Failure> {
    let known = selector.fetcher_id(name).filter(|id| selector.candidates().any(|(candidate, _)| candidate == *id));
    known.ok_or_else(|| {
        let names: Vec<&str> = selector.candidates().map(|(_, spec)| &*spec.name).collect();
        Failure::usage(format_args!("there is no fetcher {name:?}")).advise(format!("there are: {}", names.join(", ")))
    })
}

/// Calls `f` with each URL of the arguments, and with each line of stdin where one of them is `-`.
pub(crate) fn each_url(urls: &[String], mut f: impl FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
    for url in urls {
        if url != "-" {
            f(url)?;
            continue;
        }
        let path = Path::new("-");
        let mut lines = Lines::open(path, URL_MAX_BYTES * 2)?;
        while let Some(line) = lines.next_line().map_err(|error| unreadable(path, &error))? {
            match line.text {
                Ok(text) if text.trim().is_empty() || text.starts_with('#') => {}
                Ok(text) => f(text.trim())?,
                Err(error) => return Err(Failure::usage(format_args!("stdin, line {}: {error}", line.number))),
            }
        }
    }
    Ok(())
}
