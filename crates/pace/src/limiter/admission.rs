//! Admission of one request at its levels: its host, the host's site, and its address.
//!
//! Owns: the agreement of all levels before a request goes out, and the choice of the level that a response affects.
//!
//! Invariants: a request that is booked on one level is booked on all.
//!
//! Must not know: where the levels are stored.

use super::host::HostEntry;
use super::permit::{ADDRESS_TRIAL, PACED, Permit, SHARED_PACED, SITE_TRIAL, TRIAL, wrapped};
use crate::limiter::limit_hit::Found;
use crate::limiter::rate_gate::{Gate, Live, Rules};
use crate::limiter::shared_levels::SharedEntry;
use crate::persistence::float16::Small;
use crate::persistence::persisted_state::Remembered;
use crate::settings::{HostPace, PaceMode, PaceSettings};
use crate::signals::failure_accumulator::Sum;
use crate::signals::response::{Admit, Response, Cause, Done, Signal, Level};
use fetchwise_types::time::Timestamp;

/// Rate limit of shared levels, in requests per second: no limit in practice.
const MAX_SHARED_RATE: f64 = 1e5;
/// Share of the previous rate at which a known host resumes.
const RESUMED: f64 = 0.7;
/// Factor by which a ceiling (or a rate, without one) must change before it is stored.
const MOVED: f64 = 1.25;

/// The levels, with the flags of their trials on a permit.
const LEVELS: [(Level, u8); 3] = [(Level::Host, TRIAL), (Level::Site, SITE_TRIAL), (Level::Address, ADDRESS_TRIAL)];

/// The levels of one request at one moment.
pub(crate) struct Round<'r> {
    pub(crate) settings: &'r PaceSettings,
    pub(crate) key: u64,
    pub(crate) host: &'r mut HostEntry,
    pub(crate) site: Option<&'r mut SharedEntry>,
    pub(crate) address: Option<&'r mut SharedEntry>,
    pub(crate) now: i64,
}

impl Round<'_> {
    /// Returns the levels that take part: for a host that is alone, only itself.
    fn levels(&self) -> &'static [(Level, u8)] {
        if self.site.is_none() && self.address.is_none() { &LEVELS[..1] } else { &LEVELS }
    }

    /// Returns whether the request may go out, and books it if so.
    pub(crate) fn admit(&mut self, cost: u16) -> Admit {
        self.wake();
        let (mut wait, mut is_full, mut flags) = (i64::MIN, false, 0);
        for &(level, trial) in self.levels() {
            match self.live(level).map(|mut live| live.gate()) {
                None | Some(Gate::Go) => {}
                Some(Gate::Trial) => flags |= trial,
                Some(Gate::Wait(until)) => wait = wait.max(until),
                Some(Gate::Full) => is_full = true,
            }
        }
        if wait > self.now {
            return Admit::Wait(Timestamp::from_millis(wait));
        }
        if is_full {
            return Admit::AtCapacity;
        }
        Admit::Go(self.book(cost, flags))
    }

    fn book(&mut self, cost: u16, mut flags: u8) -> Permit {
        let (key, site, now) = (self.key, self.host.who().site, self.now);
        if let Some(entry) = &mut self.site {
            entry.ask(key, now);
        }
        if let Some(entry) = &mut self.address {
            entry.ask(site, now);
        }
        let even = 0.9 + 0.2 * self.chance();
        let mut next = [0; LEVELS.len()];
        for (&(level, trial), next) in self.levels().iter().zip(&mut next) {
            let Some(mut live) = self.live(level) else { continue };
            if live.book(cost, flags & trial != 0, even) {
                flags |= if level == Level::Host { PACED } else { SHARED_PACED };
            }
            *next = wrapped(live.hot.next);
        }
        let (counts, in_flight) = match self.live(Level::Host) {
            Some(live) => (live.counts(), live.hot.in_flight),
            None => Default::default(),
        };
        Permit::new(key, now, counts, in_flight, flags, cost).with_next(next)
    }

    /// Takes back a request that never went out.
    pub(crate) fn give_back(&mut self, permit: &Permit) {
        let sent = permit.sent(self.now);
        for (&(level, trial), next) in self.levels().iter().zip(permit.next) {
            if let Some(mut live) = self.live(level) {
                live.unbook(permit.has(trial));
                live.correct(permit.cost(), 0);
                live.free_turn(next, sent);
            }
        }
    }

    /// Records the response to a request. Returns what the caller must know, and the level and cause of a record for
    /// the store.
    pub(crate) fn done(
        &mut self,
        permit: &Permit,
        answer: &Response,
        let_through: u16,
    ) -> (Done, Option<(Level, Cause)>) {
        let sent = permit.sent(self.now);
        let mut is_known = false;
        for &(level, trial) in self.levels() {
            let Some(mut live) = self.live(level) else { continue };
            live.touch();
            live.unbook(permit.has(trial));
            if let Some(cost) = answer.cost {
                live.correct(let_through, cost);
            }
            is_known |= live.is_before_event(sent);
        }
        let told = answer
            .policy
            .filter(|_| answer.heard != Signal::NotAsked)
            .is_some_and(|policy| self.live(Level::Host).is_some_and(|mut live| live.told(&policy)));
        let kept = told.then_some((Level::Host, Cause::Told));
        if is_known {
            return (Done::Nothing, kept);
        }
        let delivers = self.delivers(answer.fetcher.0);
        if let Some(ended) = self.trials(permit, answer, delivers) {
            return ended;
        }
        let Some(mut host) = self.live(Level::Host) else { return (Done::Nothing, kept) };
        match host.hear(permit, answer, delivers) {
            Sum::Doubt { hold_until, doubt } => {
                (Done::Doubt { hold_until: Timestamp::from_millis(hold_until), doubt }, kept)
            }
            Sum::Event(found) => self.charge(found),
            Sum::Nothing if matches!(answer.heard, Signal::Content | Signal::Nothing) => {
                let grown = self.good(permit, answer);
                (Done::Nothing, kept.or(grown))
            }
            Sum::Nothing => (Done::Nothing, kept.or_else(|| self.moved())),
        }
    }

    /// Returns whether the fetcher had a recent success on the host or on its shared levels, so that it is no worse
    /// than others here.
    fn delivers(&mut self, fetcher: u16) -> bool {
        let now = self.now;
        self.levels().iter().any(|&(level, _)| self.live(level).is_some_and(|live| live.hot.delivers(fetcher, now)))
    }

    /// Handles the response to a trial. Returns its effect, unless the response must also count like any other.
    fn trials(&mut self, permit: &Permit, answer: &Response, delivers: bool) -> Option<(Done, Option<(Level, Cause)>)> {
        let asked_to_wait = answer.retry_after.is_some_and(|span| !span.is_zero());
        let mut ended = None;
        let mut doubted = None;
        for &(level, _) in self.levels().iter().filter(|(_, trial)| permit.has(*trial)) {
            let Some(mut live) = self.live(level) else { continue };
            let in_doubt = live.hot.trouble.as_ref().is_some_and(|trouble| trouble.doubt.is_some());
            match answer.heard {
                Signal::NotAsked => ended = Some((Done::Nothing, None)),
                Signal::Content | Signal::Nothing if in_doubt => live.acquit(answer.fetcher.0),
                Signal::Content | Signal::Nothing => live.trial_good(),
                _ if in_doubt => doubted = Some(level),
                Signal::ServerError if live.cold.cause() != Cause::Errors => ended = Some((Done::Nothing, None)),
                _ => {
                    let hold_until = Timestamp::from_millis(live.trial_blocked(answer.retry_after));
                    ended = Some((Done::Event { hold_until, level }, Some((level, live.cold.cause()))));
                }
            }
        }
        // A level above that is still on hold explains the block; the doubt stays open.
        if ended.is_some() || asked_to_wait || answer.heard != Signal::Wall {
            return ended;
        }
        Some(match self.live(doubted?)?.walled_again(delivers) {
            Some(found) => self.charge(found),
            None => (Done::Nothing, None),
        })
    }

    /// Charges a limit hit to one of the levels.
    fn charge(&mut self, found: Found) -> (Done, Option<(Level, Cause)>) {
        let (key, site, now) = (self.key, self.host.who().site, self.now);
        // Both are called, because both count who was blocked.
        let by_site = self.site.as_mut().is_some_and(|entry| entry.is_to_blame(Level::Site, key, now));
        let by_address = self.address.as_mut().is_some_and(|entry| entry.is_to_blame(Level::Address, site, now));
        let level = match (by_address, by_site) {
            (true, _) => Level::Address,
            (false, true) => Level::Site,
            (false, false) => Level::Host,
        };
        // A site whose second host is new has no counts yet; the limit hit of its first request must not get lost.
        let level = if self.live(level).is_some() { level } else { Level::Host };
        if level != Level::Host
            && let Some(mut host) = self.live(Level::Host)
        {
            host.settle();
            host.end_trial();
        }
        let Some(mut live) = self.live(level) else { return (Done::Nothing, None) };
        let found = match level {
            Level::Host => found,
            _ => Found { counts: live.counts(), in_flight: live.hot.in_flight.saturating_add(1), ..found },
        };
        let hold_until = Timestamp::from_millis(live.event(&found));
        live.note_ceiling();
        (Done::Event { hold_until, level }, Some((level, found.cause)))
    }

    /// Records a good response on all levels.
    fn good(&mut self, permit: &Permit, answer: &Response) -> Option<(Level, Cause)> {
        let mut kept = None;
        for &(level, _) in self.levels() {
            let Some(mut live) = self.live(level) else { continue };
            let (counts, in_flight) = match level {
                Level::Host => (permit.counts, permit.in_flight),
                _ => (live.counts(), live.hot.in_flight.saturating_add(1)),
            };
            live.clean(&counts, in_flight);
            if answer.heard == Signal::Content {
                let now = live.now;
                live.hot.deliver(answer.fetcher.0, now);
            }
            if level == Level::Host && answer.heard == Signal::Content {
                if let Some(latency) = answer.latency.filter(|_| !live.rules.is_fixed) {
                    live.latency(permit, latency.as_secs_f64());
                }
                if answer.renders
                    && let Some(cost) = answer.cost
                {
                    live.rendered(cost);
                }
            }
            if let Some(cause) = live.grow(permit, &counts) {
                live.note_ceiling();
                kept = Some((level, cause));
            }
        }
        kept.or_else(|| self.moved())
    }

    /// Returns the level whose ceiling (or rate, without one) has changed enough to be stored.
    fn moved(&mut self) -> Option<(Level, Cause)> {
        self.levels().iter().find_map(|&(level, _)| {
            let mut live = self.live(level)?;
            live.has_moved(MOVED).then(|| {
                live.note_ceiling();
                (level, Cause::Growth)
            })
        })
    }

    /// Returns the persisted state of a level, with its name.
    pub(crate) fn remembered(&self, level: Level) -> Option<(&str, Remembered)> {
        let of = |entry: &Option<&mut SharedEntry>| {
            entry.as_ref().and_then(|entry| entry.kept.as_ref().map(|kept| kept.remembered()))
        };
        match level {
            Level::Host => Some((&self.host.who().name, self.host.remembered())),
            Level::Site => Some((&self.site.as_ref()?.name, of(&self.site)?)),
            Level::Address => Some((&self.address.as_ref()?.name, of(&self.address)?)),
        }
    }

    /// Returns the gate of a level, if it is active.
    pub(crate) fn live(&mut self, level: Level) -> Option<Live<'_>> {
        let (rules, now) = (self.rules(level), self.now);
        match level {
            Level::Host => self.host.awake(rules, now),
            Level::Site => self.site.as_mut()?.kept.as_mut()?.awake(rules, now),
            Level::Address => self.address.as_mut()?.kept.as_mut()?.awake(rules, now),
        }
    }

    /// Creates the state that a request needs.
    pub(crate) fn wake(&mut self) {
        let now = self.now;
        let shared = [self.rules(Level::Site), self.rules(Level::Address)];
        let mut site_rate = None;
        for (entry, rules) in [&mut self.site, &mut self.address].into_iter().zip(shared) {
            let Some(kept) = entry.as_mut().and_then(|entry| entry.kept.as_mut()) else { continue };
            let live = kept.live(rules, u8::MAX, shared_start, now);
            if rules.level == Level::Site {
                site_rate = live.ceiling().1.map(|_| live.rate());
            }
        }
        let (rules, given) = (self.rules(Level::Host), self.given());
        let max_par = given.parallel.unwrap_or(self.settings.max_parallel);
        let start = self.settings.initial_rate;
        let rate = |cold: &Remembered| match (given.rate, rules.is_fixed) {
            (Some(rate), _) => rate,
            (None, true) => start,
            (None, false) => host_start(cold, start, site_rate, rules.max_rate),
        };
        self.host.wake(max_par, rate, now);
    }

    fn given(&self) -> HostPace {
        if self.settings.hosts.is_empty() {
            return HostPace::default();
        }
        self.settings.hosts.get(&*self.host.who().name).copied().unwrap_or_default()
    }

    fn rules(&self, level: Level) -> Rules {
        let is_fixed = self.settings.mode == PaceMode::Fixed || (level == Level::Host && self.given().rate.is_some());
        let max_rate = if level == Level::Host { self.settings.max_rate } else { MAX_SHARED_RATE };
        let PaceSettings { max_retry_after_s, max_crawl_delay_s, .. } = *self.settings;
        Rules { level, is_fixed, max_rate, max_retry_after_s, max_crawl_delay_s }
    }

    /// Returns a number in [0, 1) that is the same for the same history.
    fn chance(&self) -> f64 {
        let next = self.host.hot().map_or(0, |hot| hot.next ^ hot.at.rotate_left(20));
        let hash = mixed(self.key ^ self.settings.seed ^ next.cast_unsigned());
        (hash >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl Live<'_> {
    /// Remembers the ceiling (or the rate, without one) as stored.
    fn note_ceiling(&mut self) {
        self.cold.noted = Small::new(self.notable());
    }

    fn has_moved(&self, factor: f64) -> bool {
        let (noted, now) = (self.cold.noted.get(), self.notable());
        now.is_finite() && !self.rules.is_fixed && (now > noted * factor || now * factor < noted)
    }

    fn notable(&self) -> f64 {
        match self.ceiling() {
            (ceiling, Some(_)) => ceiling,
            _ => self.rate(),
        }
    }

    /// Ends the trials on this level.
    fn end_trial(&mut self) {
        if let Some(trouble) = &mut self.hot.trouble {
            trouble.trial = crate::limiter::active_state::Trial::No;
            self.cold.set_trial(false);
        }
    }

    /// Records that a rendered page made `cost` requests.
    fn rendered(&mut self, cost: u16) {
        let known = if self.cold.render_cost == 0 { f64::from(cost) } else { f64::from(self.cold.render_cost) };
        let moved = known + 0.2 * (f64::from(cost) - known);
        // Rounded towards the new value, so that small differences also count.
        let rounded = if f64::from(cost) > known { moved.ceil() } else { moved.floor() };
        self.cold.render_cost = rounded.clamp(1.0, 255.0) as u8;
    }
}

fn shared_start(cold: &Remembered) -> f64 {
    let ceiling = cold.cap.iter().filter_map(|cap| cap.some()).fold(f64::INFINITY, f64::min);
    RESUMED * ceiling
}

fn host_start(cold: &Remembered, start: f64, site_rate: Option<f64>, max_rate: f64) -> f64 {
    let ceiling = cold.cap.iter().filter_map(|cap| cap.some()).fold(f64::INFINITY, f64::min);
    let rate = match (ceiling.is_finite(), cold.rate.some(), site_rate) {
        (true, ..) => RESUMED * ceiling,
        (false, Some(rate), _) => RESUMED * rate,
        (false, None, Some(site)) => (site / 2.0).min(start),
        (false, None, None) => start,
    };
    rate.clamp(crate::limiter::rate_gate::RATE_MIN, max_rate)
}

/// Mixes the bits of a number, like the finaliser of a good 64-bit hash.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
