//! One run: one policy, one seed, every visit of the web in order of time.
//!
//! A learning policy is driven as in any crawler: by [visits](fetchwise::visit), under a clock that
//! the world sets. Nothing here decides or records, except for the oracle, which is not part of the
//! selector.

use std::sync::Arc;
use std::time::Duration;

use url::Url;

use super::error::SimulateError;
use super::generate::{Visit, Web};
use super::oracle::Oracle;
use super::world::{Role, World};
use crate::counters::{Adaptation, Counters};
use crate::environment::{End, Environment, Outcome, ResponseSignals, Tool, unbanned};
use crate::policies::RunPolicy;
use crate::vendor_change::ShiftWatch;
use crate::visit_driver::{Timing, drive};
use crate::visit_result::VisitResult;
use fetchwise::attempt::Attempt;
use fetchwise::backoff::BackoffSettings;
use fetchwise::decision::Source;
use fetchwise::fetch_result::{Block, FetchResult, Outcome as Answered};
use fetchwise::heuristic::Heuristic;
use fetchwise::policy::{self, Policy};
use fetchwise::score::Settings;
use fetchwise::selector::{AfterRefusal, PortablePrior, Selector, VisitSettings};
use fetchwise::time::{Clock, Timestamp};

/// The time at which worlds begin. It is arbitrary, but the same in each run.
pub(crate) const BEGIN_MS: i64 = 1_767_225_600_000;

/// The common data of all runs of one seed.
pub(crate) struct RunContext<'w> {
    pub(crate) world: &'w World,
    pub(crate) web: &'w Web,
    pub(crate) tools: &'w [Tool],
    pub(crate) seed: u64,
    /// Whether to measure the duration of decisions.
    pub(crate) timing: bool,
}

impl RunContext<'_> {
    /// Runs the oracle.
    pub(crate) fn run_oracle(&self) -> Counters {
        let mut ground = Environment::new(self.world, self.web, self.tools, self.seed);
        let mut oracle = Oracle::new(self.world, self.tools);
        self.run(|visit| {
            let mut fetched = VisitResult::default();
            for place in oracle.order(&ground.condition(visit)).to_vec() {
                fetched.first.get_or_insert((place, Source::Inferred));
                let outcome = ground.attempt(visit, place);
                if fetched.add(self.world, &self.tools[place], &outcome) {
                    break;
                }
            }
            fetched
        })
    }

    /// Runs `policy` in a new selector.
    pub(crate) fn run_policy(&self, player: RunPolicy) -> Result<Counters, SimulateError> {
        let clock = Self::clock();
        let compares = player.compares.as_deref();
        let selector = self.selector(player.policy, player.tags, player.priors, &clock)?;
        let mut ground = Environment::new(self.world, self.web, self.tools, self.seed);
        let mut timing = Timing::default();
        let mut tally = self.run(|visit| {
            let crawler = Crawler { selector: &selector, compares, clock: &clock };
            self.fetch(crawler, visit, &mut ground, &mut timing)
        });
        tally.decide_ns = timing.nanoseconds;
        tally.decisions = timing.steps;
        Ok(tally)
    }

    /// Crawls the web with the default policy, and returns what that teaches of no single host.
    pub(crate) fn learn_priors(&self) -> Result<Vec<PortablePrior>, SimulateError> {
        let clock = Self::clock();
        let selector = self.selector(Box::new(policy::Default), true, Vec::new(), &clock)?;
        let mut ground = Environment::new(self.world, self.web, self.tools, self.seed);
        let mut timing = Timing::default();
        self.run(|visit| {
            let crawler = Crawler { selector: &selector, compares: None, clock: &clock };
            self.fetch(crawler, visit, &mut ground, &mut timing)
        });
        Ok(selector.portable_priors(selector.now()))
    }

    /// Returns the clock of a run, set to the beginning of the world.
    pub(crate) fn clock() -> Arc<Clock> {
        Arc::new(Clock::fixed(Timestamp::from_millis(BEGIN_MS)))
    }

    /// Makes a crawler fetch the URL of `visit`, at its time.
    pub(crate) fn fetch(
        &self,
        crawler: Crawler<'_>,
        visit: &Visit,
        ground: &mut Environment<'_>,
        timing: &mut Timing,
    ) -> VisitResult {
        let Ok(url) = Url::parse(&self.web.url(visit)) else { return VisitResult::default() };
        crawler.clock.set(Timestamp::from_millis(BEGIN_MS + visit.at_ms));
        let Crawler { selector, compares, clock } = crawler;
        Crawl { stage: self, selector, compares, url: &url, visit, clock, timing }.fetch(ground)
    }

    /// Returns a selector without evidence, with the world's fetchers.
    pub(crate) fn selector(
        &self,
        policy: Box<dyn Policy>,
        tags: bool,
        priors: Vec<PortablePrior>,
        clock: &Arc<Clock>,
    ) -> Result<Selector, SimulateError> {
        let settings = Settings {
            page_value: self.world.value,
            blocked_cost: self.world.blocked_cost,
            max_attempts: self.world.max_attempts,
            ..Settings::default()
        };
        let settings =
            if tags { settings } else { Settings { host_signal_weight: 0.0, ..settings } };
        let specs = (0..self.tools.len()).filter_map(|place| self.world.spec(place));
        let builder =
            specs.fold(Selector::builder().without_pace(), |builder, spec| builder.fetcher(spec));
        let begin = Timestamp::from_millis(BEGIN_MS);
        // The simulation judges the choice of fetchers. The random outcome of two equal requests is
        // the same, so retries are off. Pauses postpone a URL, but here each URL comes once, at its
        // time.
        let visits =
            VisitSettings { max_retries: 0, max_timeouts: u32::MAX, ..VisitSettings::default() };
        let backoff =
            BackoffSettings { host_block_threshold: u32::MAX, ..BackoffSettings::default() };
        let backoff = BackoffSettings {
            blocked_base: Duration::ZERO,
            failed_base: Duration::ZERO,
            ..backoff
        };
        let builder = builder.after_refusal(AfterRefusal::Escalate);
        let builder = builder
            .settings(settings)
            .visits(visits)
            .backoff(backoff)
            .policy(policy)
            .portable_priors(priors);
        Ok(builder.around(begin).clock(Arc::clone(clock)).build()?)
    }

    /// Makes `fetch` fetch every URL, in order of time, and counts the results.
    pub(crate) fn run(&self, mut fetch: impl FnMut(&Visit) -> VisitResult) -> Counters {
        let mut tally = Counters::new(self.world);
        let mut adaptation = Adaptation::new(self.world, self.web, self.tools);
        let mut shifts = ShiftWatch::new(self.world, self.web, self.tools);
        let mut visits_of = vec![0u32; self.web.hosts.len()];
        for visit in &self.web.visits {
            let fetched = fetch(visit);
            let earlier = &mut visits_of[visit.host as usize];
            let has_vendor_block =
                unbanned(self.world, self.web, visit, visit.at_ms).vendor_block.is_some();
            tally.add(visit, &fetched, *earlier, has_vendor_block);
            let first = fetched.first.map(|first| first.0);
            adaptation.see(visit, *earlier, first, &mut tally.adapted);
            shifts.see(visit, *earlier, first);
            *earlier += 1;
        }
        adaptation.finish(&mut tally.adapted);
        tally.followed = shifts.followed;
        tally
    }
}

/// A crawler: a selector, the comparison of its policy, and the clock of both.
#[derive(Clone, Copy)]
pub(crate) struct Crawler<'c> {
    pub(crate) selector: &'c Selector,
    pub(crate) compares: Option<&'c dyn Fn(&str) -> bool>,
    pub(crate) clock: &'c Clock,
}

/// The visit of one URL, driven with the random outcomes of the world instead of a network.
struct Crawl<'c> {
    stage: &'c RunContext<'c>,
    selector: &'c Selector,
    compares: Option<&'c dyn Fn(&str) -> bool>,
    url: &'c Url,
    visit: &'c Visit,
    clock: &'c Clock,
    timing: &'c mut Timing,
}

impl Crawl<'_> {
    fn fetch(&mut self, ground: &mut Environment<'_>) -> VisitResult {
        let (mut fetched, mut ended) = (VisitResult::default(), false);
        let Ok(mut way) = self.selector.visit(self.url) else { return fetched };
        let timing = self.stage.timing.then_some(&mut *self.timing);
        drive(&mut way, self.clock, timing, |fetch| {
            let place = fetch.fetcher_id().index();
            fetched.first.get_or_insert((place, fetch.decision().source));
            let outcome = ground.attempt(self.visit, place);
            ended = fetched.add(self.stage.world, &self.stage.tools[place], &outcome);
            answer(self.stage.world, &outcome)
        });
        if ended {
            self.compare(ground, &mut fetched);
        }
        fetched
    }

    /// Fetches with the browser too if the policy compares two ways. Its page has no further value.
    fn compare(&self, ground: &mut Environment<'_>, fetched: &mut VisitResult) {
        let Some(place) = self.stage.tools.iter().position(|tool| tool.role == Role::Browser)
        else {
            return;
        };
        if !self.compares.is_some_and(|compares| compares(self.url.as_str())) {
            return;
        }
        let outcome = ground.attempt(self.visit, place);
        let (success, deceived) = (fetched.success, fetched.deceived);
        let earned = fetched.utility;
        fetched.add(self.stage.world, &self.stage.tools[place], &outcome);
        if matches!(outcome.end, End::Content | End::False) {
            fetched.utility = earned - self.stage.tools[place].cost;
        }
        (fetched.success, fetched.deceived) = (success, deceived);
        let now = self.selector.now();
        let Ok(attempt) = Attempt::new(self.url, &self.stage.world.fetchers[place].name, now)
        else {
            return;
        };
        let attempt = match seen(&outcome) {
            Answered::Content => attempt.delivered(),
            other => {
                match self.selector.candidates().nth(place).map(|(_, spec)| other.counts_as(spec)) {
                    Some(Err(error)) => Attempt { error_type: Some(error), ..attempt },
                    _ => attempt,
                }
            }
        };
        // There is no sink that could reject it.
        let _ = self.selector.record(attempt, now);
    }
}

/// Returns a try as the crawler sees it, with the signals of the response.
fn answer(world: &World, outcome: &Outcome) -> FetchResult {
    let mut answer = FetchResult::from(seen(outcome));
    let ResponseSignals { vendor, framework, server } = outcome.shown;
    if let Some(vendor) = vendor {
        answer
            .heuristics
            .push(Heuristic::flag(format!("block_{}", world.vendors[usize::from(vendor)].name)));
    }
    if let Some(framework) = framework {
        let name = world.frameworks[usize::from(framework)].name.clone();
        answer.heuristics.push(Heuristic::new("spa_framework", name));
    }
    if let Some(server) = server {
        answer
            .heuristics
            .push(Heuristic::flag(format!("server_{}", world.servers[usize::from(server)].name)));
    }
    answer
}

/// Returns a try as the classifier sees it.
fn seen(outcome: &Outcome) -> Answered {
    match outcome.end {
        End::Content | End::False => Answered::Content,
        _ if !outcome.recognised => Answered::Other("unrecognised".into()),
        End::Blocked => Answered::Blocked(Block::challenge()),
        End::Empty => Answered::Empty,
        End::Timeout => Answered::Timeout,
        End::NotFound => Answered::Http(404),
    }
}
