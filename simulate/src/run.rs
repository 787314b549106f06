//! One run: one policy, one seed, every visit of the web in order of time.
//!
//! A learning policy is driven through the calls that a crawler makes: `select` for each attempt, `record` after it, the
//! clock by value. Nothing here decides, except for the oracle, which has no part in the selector.

use std::time::Instant;

use url::Url;

use super::generate::{Visit, Web};
use super::oracle::Oracle;
use super::tally::{Adaptation, Tally};
use super::web::{End, Ground, Outcome, Tool};
use super::world::{Role, World};
use super::{Player, SimulateError};
use fetchwise::attempt::outcome::ErrorKind;
use fetchwise::attempt::{Attempt, ErrorType, Hint};
use fetchwise::decision::{Decision, Source, Take};
use fetchwise::policy::Policy;
use fetchwise::score::Settings;
use fetchwise::selector::{Selector, Situation};
use fetchwise::time::Timestamp;

/// When worlds begin: any time would do, as long as it is the same one in each run.
const BEGIN_MS: i64 = 1_767_225_600_000;

/// What is the same for every run of one seed.
pub(crate) struct Stage<'w> {
    pub(crate) world: &'w World,
    pub(crate) web: &'w Web,
    pub(crate) tools: &'w [Tool],
    pub(crate) seed: u64,
    /// Measure how long decisions take.
    pub(crate) timing: bool,
}

/// What one URL came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fetched {
    pub(crate) utility: f64,
    pub(crate) cost: f64,
    pub(crate) attempts: u32,
    pub(crate) blocked: u32,
    pub(crate) bans: u32,
    pub(crate) success: bool,
    pub(crate) deceived: bool,
    /// The first attempt's fetcher and label.
    pub(crate) first: Option<(usize, Source)>,
}

impl Stage<'_> {
    /// Runs the oracle.
    pub(crate) fn run_oracle(&self) -> Tally {
        let mut ground = Ground::new(self.world, self.web, self.tools, self.seed);
        let mut oracle = Oracle::new(self.world, self.tools);
        self.run(&mut ground, |ground, visit| {
            let mut fetched = Fetched::default();
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

    /// Runs `policy` in a selector of its own.
    pub(crate) fn run_policy(&self, player: Player) -> Result<Tally, SimulateError> {
        let selector = self.selector(player.policy)?;
        let compares = player.compares.as_deref();
        let mut ground = Ground::new(self.world, self.web, self.tools, self.seed);
        let mut decide_ns: u64 = 0;
        let mut decisions: u64 = 0;
        let mut tally = self.run(&mut ground, |ground, visit| {
            let Ok(url) = Url::parse(&self.web.url(visit)) else { return Fetched::default() };
            let mut crawl =
                Crawl { stage: self, selector: &selector, compares, url: &url, visit, decide_ns: 0, decisions: 0 };
            let fetched = crawl.fetch(ground);
            decide_ns += crawl.decide_ns;
            decisions += crawl.decisions;
            fetched
        });
        tally.decide_ns = decide_ns;
        tally.decisions = decisions;
        Ok(tally)
    }

    fn selector(&self, policy: Box<dyn Policy>) -> Result<Selector, SimulateError> {
        let settings = Settings {
            value: self.world.value,
            blocked_cost: self.world.blocked_cost,
            max_attempts: self.world.max_attempts,
            ..Settings::default()
        };
        let specs = (0..self.tools.len()).filter_map(|place| self.world.spec(place));
        let builder = specs.fold(Selector::builder(), |builder, spec| builder.fetcher(spec));
        Ok(builder.settings(settings).policy(policy).around(Timestamp::from_millis(BEGIN_MS)).build()?)
    }

    fn run(&self, ground: &mut Ground<'_>, mut fetch: impl FnMut(&mut Ground<'_>, &Visit) -> Fetched) -> Tally {
        let mut tally = Tally::new(self.world);
        let mut adaptation = Adaptation::new(self.world, self.web, self.tools);
        let mut visits_of = vec![0u32; self.web.hosts.len()];
        for visit in &self.web.visits {
            let fetched = fetch(ground, visit);
            let earlier = &mut visits_of[visit.host as usize];
            tally.add(visit, &fetched, *earlier);
            adaptation.see(visit, *earlier, fetched.first.map(|first| first.0), &mut tally.adapted);
            *earlier += 1;
        }
        adaptation.finish(&mut tally.adapted);
        tally
    }
}

impl Fetched {
    /// Adds one try. True when the URL has ended.
    fn add(&mut self, world: &World, tool: &Tool, outcome: &Outcome) -> bool {
        self.attempts += 1;
        self.cost += tool.cost;
        self.utility -= tool.cost;
        if outcome.banned_now {
            self.bans += 1;
            self.utility -= world.ban_cost;
        }
        match outcome.end {
            End::Content => {
                self.success = true;
                self.utility += tool.quality * world.value;
            }
            End::False => {
                self.deceived = true;
                self.utility -= world.false_success_cost;
            }
            End::Blocked => {
                self.blocked += 1;
                self.utility -= world.blocked_cost;
            }
            End::Empty | End::Timeout | End::NotFound => {}
        }
        matches!(outcome.end, End::Content | End::False | End::NotFound)
    }
}

/// One URL on its way through the selector.
struct Crawl<'c> {
    stage: &'c Stage<'c>,
    selector: &'c Selector,
    compares: Option<&'c dyn Fn(&str) -> bool>,
    url: &'c Url,
    visit: &'c Visit,
    decide_ns: u64,
    decisions: u64,
}

impl Crawl<'_> {
    fn fetch(&mut self, ground: &mut Ground<'_>) -> Fetched {
        let mut fetched = Fetched::default();
        let mut situation = Situation::first(Timestamp::from_millis(BEGIN_MS + self.visit.at_ms));
        while let Some(take) = self.decide(&situation) {
            let place = take.fetcher.index();
            let Some(tool) = self.stage.tools.get(place) else { break };
            fetched.first.get_or_insert((place, take.source));
            let outcome = ground.attempt(self.visit, place);
            let ended = fetched.add(self.stage.world, tool, &outcome);
            let hint = self.record(self.selector.fetcher_name(take.fetcher), Some(&take), &outcome, &situation);
            if ended {
                self.compare(ground, &situation, &mut fetched);
                break;
            }
            situation.hint = Some(hint);
            situation.excluded.insert(take.fetcher);
            situation.attempts += 1;
        }
        fetched
    }

    /// Lets a policy that compares two ways have the browser's too. Its page is worth nothing more.
    fn compare(&self, ground: &mut Ground<'_>, situation: &Situation, fetched: &mut Fetched) {
        let Some(place) = self.stage.tools.iter().position(|tool| tool.role == Role::Browser) else { return };
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
        self.record(&self.stage.world.fetchers[place].name, None, &outcome, situation);
    }

    fn decide(&mut self, situation: &Situation) -> Option<Take> {
        let begin = self.stage.timing.then(Instant::now);
        let decision = self.selector.select(self.url, situation);
        if let Some(begin) = begin {
            self.decide_ns += begin.elapsed().as_nanos() as u64;
            self.decisions += 1;
        }
        decision.ok().as_ref().and_then(Decision::taken)
    }

    /// Records the try as the classifier saw it, and says what it hints at.
    fn record(&self, name: &str, take: Option<&Take>, outcome: &Outcome, situation: &Situation) -> Hint {
        let error = error_of(outcome);
        let hint = error.as_ref().map_or(Hint::Unknown, |error| error.kind().map_or(Hint::Unknown, Hint::after));
        let Ok(mut attempt) = Attempt::new(self.url, name, situation.now) else { return hint };
        attempt = match error {
            None => attempt.delivered(),
            Some(ErrorType::Known(kind)) => attempt.failed(kind),
            Some(other) => Attempt { error_type: Some(other), ..attempt },
        };
        attempt.hint = situation.hint;
        attempt.source = take.map(|take| take.source.name().into());
        attempt.propensity = take.map(|take| take.propensity);
        attempt.try_no = situation.attempts + 1;
        // There is no sink that could refuse it.
        let _ = self.selector.record(attempt, situation.now);
        hint
    }
}

/// Why a try failed, as far as it is recognised; none when something came that is taken for content.
fn error_of(outcome: &Outcome) -> Option<ErrorType> {
    let kind = match outcome.end {
        End::Content | End::False => return None,
        _ if !outcome.recognised => return Some(ErrorType::Other("unrecognised".into())),
        End::Blocked => ErrorKind::BlockedCaptcha,
        End::Empty => ErrorKind::WrongTool,
        End::Timeout => ErrorKind::Timeout,
        End::NotFound => ErrorKind::NotFound,
    };
    Some(ErrorType::Known(kind))
}
