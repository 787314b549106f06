//! Admission of one request at its levels: its host, the host's site, and its address.
//!
//! Owns: the agreement of all levels before a request goes out, and the choice of the level that a
//! response affects.
//!
//! Invariants: a request that is booked on one level is booked on all.
//!
//! Must not know: where the levels are stored.

use std::collections::HashMap;

use super::host::HostEntry;
use super::permit::{ADDRESS_TRIAL, PACED, Permit, SHARED_PACED, SITE_TRIAL, TRIAL, wrapped};
use crate::limiter::limit_hit::LimitHit;
use crate::limiter::rate_gate::{GateDecision, RateGate, Rules};
use crate::limiter::shared_levels::SharedEntry;
use crate::persistence::float16::PositiveF16;
use crate::persistence::persisted_state::PersistedState;
use crate::settings::{HostPace, PaceMode, PaceSettings};
use crate::signals::failure_accumulator::SignalEffect;
use crate::signals::local_load::LocalLoad;
use crate::signals::response::{Admit, Cause, Level, Response, ResponseEffect, Signal};
use fetchwise_types::time::Timestamp;

/// Rate limit of shared levels, in requests per second: no limit in practice.
const MAX_SHARED_RATE: f64 = 1e5;
/// Share of the previous rate at which a known host resumes.
const RESUMED: f64 = 0.7;
/// Factor by which a ceiling (or a rate, without one) must change before it is stored.
const MOVED: f64 = 1.25;

/// The levels, with the flags of their trials on a permit.
const LEVELS: [(Level, u8); 3] =
    [(Level::Host, TRIAL), (Level::Site, SITE_TRIAL), (Level::Address, ADDRESS_TRIAL)];

/// The rules of each level. They follow from the settings, and each request reads them several
/// times.
#[derive(Debug)]
pub(crate) struct LevelRules {
    host: Rules,
    /// Those of a host with a configured rate.
    configured_host: Rules,
    site: Rules,
    address: Rules,
    /// What is configured for hosts, by the hashes of their names.
    configured: HashMap<u64, HostPace>,
}

impl LevelRules {
    /// Creates the rules; `key` returns the hash of a name.
    pub(crate) fn new(settings: &PaceSettings, key: impl Fn(&str) -> u64) -> Self {
        let PaceSettings { max_rate, min_rate, max_retry_after_s, max_crawl_delay_s, .. } =
            *settings;
        let is_fixed = settings.mode == PaceMode::Fixed;
        let host = Rules {
            level: Level::Host,
            is_fixed,
            max_rate,
            min_rate,
            max_retry_after_s,
            max_crawl_delay_s,
        };
        Self {
            host,
            configured_host: Rules { is_fixed: true, ..host },
            site: Rules { level: Level::Site, max_rate: MAX_SHARED_RATE, ..host },
            address: Rules { level: Level::Address, max_rate: MAX_SHARED_RATE, ..host },
            configured: settings.hosts.iter().map(|(name, pace)| (key(name), *pace)).collect(),
        }
    }

    /// Returns what is configured for a host.
    pub(crate) fn configured(&self, key: u64) -> Option<&HostPace> {
        if self.configured.is_empty() { None } else { self.configured.get(&key) }
    }
}

/// The levels of one request at one moment.
pub(crate) struct Admission<'r> {
    pub(crate) settings: &'r PaceSettings,
    pub(crate) rules: &'r LevelRules,
    pub(crate) load: &'r LocalLoad,
    pub(crate) key: u64,
    /// What is configured for the host.
    pub(crate) configured: Option<&'r HostPace>,
    pub(crate) host: HostEntry<'r>,
    pub(crate) site: Option<&'r mut SharedEntry>,
    pub(crate) address: Option<&'r mut SharedEntry>,
    pub(crate) now: i64,
}

impl<'r> Admission<'r> {
    /// Returns the levels that take part: for a host that is alone, only itself.
    fn levels(&self) -> &'static [(Level, u8)] {
        if self.site.is_none() && self.address.is_none() { &LEVELS[..1] } else { &LEVELS }
    }

    /// Returns whether the request may go out, and books it if so.
    pub(crate) fn admit(&mut self, cost: u16) -> Admit {
        self.wake();
        let (mut wait, mut is_at_capacity, mut flags) = (i64::MIN, false, 0);
        for &(level, trial) in self.levels() {
            match self.gate(level).map(|mut gate| gate.decide(cost)) {
                None | Some(GateDecision::Go) => {}
                Some(GateDecision::Trial) => flags |= trial,
                Some(GateDecision::Wait(until)) => wait = wait.max(until),
                Some(GateDecision::AtCapacity) => is_at_capacity = true,
            }
        }
        if wait > self.now {
            return Admit::Wait(Timestamp::from_millis(wait));
        }
        if is_at_capacity {
            return Admit::AtCapacity;
        }
        Admit::Go(self.book(cost, flags))
    }

    /// Books a request that went out at `sent`, whether the levels admit it or not.
    pub(crate) fn book_sent(&mut self, cost: u16, sent: i64) -> Permit {
        self.wake();
        self.book(cost, 0).sent_at(sent)
    }

    fn book(&mut self, cost: u16, mut flags: u8) -> Permit {
        let (key, site, now) = (self.key, self.host.identity.site, self.now);
        if let Some(entry) = &mut self.site {
            entry.record_request(key, now);
        }
        if let Some(entry) = &mut self.address {
            entry.record_request(site, now);
        }
        let even = 0.9 + 0.2 * self.chance();
        let mut next = [0; LEVELS.len()];
        for (&(level, trial), next) in self.levels().iter().zip(&mut next) {
            let Some(mut gate) = self.gate(level) else { continue };
            if gate.book(cost, flags & trial != 0, even) {
                flags |= if level == Level::Host { PACED } else { SHARED_PACED };
            }
            *next = wrapped(gate.active.next);
        }
        let seen = self
            .gate(Level::Host)
            .map(|gate| (gate.counts(), gate.active.in_flight))
            .unwrap_or_default();
        Permit::new(key, now, seen, flags, cost).with_next(next)
    }

    /// Takes back a request that never went out.
    pub(crate) fn cancel(&mut self, permit: &Permit) {
        let sent = permit.sent(self.now);
        for (&(level, trial), next) in self.levels().iter().zip(permit.next) {
            if let Some(mut gate) = self.gate(level) {
                gate.unbook(permit.has(trial));
                gate.uncount(permit.cost());
                gate.free_turn(next, sent);
            }
        }
    }

    /// Records the response to a request. Returns what the caller must know, and the level and
    /// cause of a record for the store.
    pub(crate) fn record_response(
        &mut self,
        permit: &Permit,
        response: &Response,
    ) -> (ResponseEffect, Option<(Level, Cause)>) {
        let sent = permit.sent(self.now);
        let mut is_known = false;
        for &(level, trial) in self.levels() {
            let Some(mut gate) = self.gate(level) else { continue };
            gate.touch();
            gate.unbook(permit.has(trial));
            if let Some(cost) = response.cost {
                gate.correct(permit.cost(), cost);
            }
            is_known |= gate.is_before_limit_hit(sent);
        }
        let has_new_limit =
            response.policy.filter(|_| response.signal != Signal::NotAsked).is_some_and(|policy| {
                self.gate(Level::Host).is_some_and(|mut gate| gate.apply_declared_limit(&policy))
            });
        let record = has_new_limit.then_some((Level::Host, Cause::Declared));
        if is_known {
            return (self.effect_of_known(response.signal), record);
        }
        // Only a block depends on it.
        let has_success = response.signal == Signal::Block && self.has_success(response.fetcher.0);
        if LEVELS.iter().any(|(_, trial)| permit.has(*trial))
            && let Some(effect) = self.trials(permit, response, has_success)
        {
            return effect;
        }
        let Some(mut host) = self.gate(Level::Host) else {
            return (ResponseEffect::Nothing, record);
        };
        match host.accumulate(permit, response, has_success) {
            SignalEffect::Doubt { hold_until, doubt } => (
                ResponseEffect::Doubt { hold_until: Timestamp::from_millis(hold_until), doubt },
                record,
            ),
            SignalEffect::LimitHit(hit) => self.charge(hit),
            SignalEffect::Refused => (
                ResponseEffect::Refused { until: Timestamp::from_millis(self.now) },
                record.or_else(|| self.moved()),
            ),
            SignalEffect::Nothing
                if matches!(response.signal, Signal::Content | Signal::ClientError) =>
            {
                let grown = self.good(permit, response);
                (ResponseEffect::Nothing, record.or(grown))
            }
            SignalEffect::Nothing => (ResponseEffect::Nothing, record.or_else(|| self.moved())),
        }
    }

    /// Returns the effect of a response to a request from before the last limit hit.
    fn effect_of_known(&mut self, signal: Signal) -> ResponseEffect {
        if matches!(signal, Signal::Content | Signal::ClientError | Signal::NotAsked) {
            return ResponseEffect::Nothing;
        }
        let holds = self.levels().iter().filter_map(|&(level, _)| self.gate(level)?.hold()).max();
        ResponseEffect::Refused { until: Timestamp::from_millis(holds.unwrap_or(self.now)) }
    }

    /// Returns whether the fetcher had a recent success on the host or on its shared levels, so
    /// that it is no worse than others here.
    fn has_success(&mut self, fetcher: u16) -> bool {
        let now = self.now;
        self.levels().iter().any(|&(level, _)| {
            self.gate(level).is_some_and(|gate| gate.active.has_success(fetcher, now))
        })
    }

    /// Returns the time of the last limit hit of the shared levels; 0 for none.
    fn shared_limit_hit_at(&mut self) -> i64 {
        let levels = self.levels();
        let of = |gate: RateGate<'_>| {
            gate.active.trouble.as_ref().map_or(0, |trouble| trouble.limit_hit_at)
        };
        levels.iter().skip(1).filter_map(|&(level, _)| self.gate(level).map(of)).max().unwrap_or(0)
    }

    /// Handles the response to a trial. Returns its effect, unless the response must also count
    /// like any other.
    fn trials(
        &mut self,
        permit: &Permit,
        response: &Response,
        has_success: bool,
    ) -> Option<(ResponseEffect, Option<(Level, Cause)>)> {
        let asked_to_wait = response.retry_after.is_some_and(|span| !span.is_zero());
        let mut effect = None;
        let mut doubted = None;
        let blamed_at = self.shared_limit_hit_at();
        for &(level, _) in self.levels().iter().filter(|(_, trial)| permit.has(*trial)) {
            let Some(mut gate) = self.gate(level) else { continue };
            let in_doubt =
                gate.active.trouble.as_ref().is_some_and(|trouble| trouble.doubt.is_some());
            match response.signal {
                Signal::NotAsked => effect = Some((ResponseEffect::Nothing, None)),
                Signal::Content | Signal::ClientError if in_doubt => {
                    // The hold of the level above is the reason why this page came.
                    if level != Level::Host || !gate.end_older_doubt(blamed_at) {
                        gate.decide_for_page(response.fetcher.0);
                    }
                }
                Signal::Content | Signal::ClientError => gate.end_hold_after_trial(),
                _ if in_doubt => doubted = Some(level),
                // A single one may be the page's own.
                Signal::ServerError
                    if gate.persisted.cause() != Cause::Errors && !gate.is_second_odd_trial() =>
                {
                    effect = Some((ResponseEffect::Nothing, None))
                }
                Signal::Block
                    if !asked_to_wait && level == Level::Host && gate.test_block_noise(true) =>
                {
                    effect = Some((ResponseEffect::Nothing, None));
                }
                Signal::Unavailable | Signal::Broken | Signal::ServerError
                    if !asked_to_wait
                        && level == Level::Host
                        && gate.test_noise(Some(response.signal)) =>
                {
                    effect = Some((ResponseEffect::Nothing, None));
                }
                _ => {
                    let hold_until = gate.trial_blocked(response.signal, response.retry_after);
                    let hold_until = Timestamp::from_millis(hold_until);
                    effect = Some((
                        ResponseEffect::LimitHit { hold_until, level },
                        Some((level, gate.persisted.cause())),
                    ));
                }
            }
        }
        // A level above that is still on hold explains the block; the doubt stays open.
        if effect.is_some() || asked_to_wait || response.signal != Signal::Block {
            return effect;
        }
        Some(match self.gate(doubted?)?.blocked_again(has_success) {
            Some(hit) => self.charge(hit),
            None => (ResponseEffect::Nothing, None),
        })
    }

    /// Charges a limit hit to one of the levels.
    fn charge(&mut self, hit: LimitHit) -> (ResponseEffect, Option<(Level, Cause)>) {
        let (key, site, now) = (self.key, self.host.identity.site, self.now);
        // Both are called, because both count who was blocked.
        let by_site =
            self.site.as_mut().is_some_and(|entry| entry.record_limit_hit(Level::Site, key, now));
        let by_address = self
            .address
            .as_mut()
            .is_some_and(|entry| entry.record_limit_hit(Level::Address, site, now));
        let level = match (by_address, by_site) {
            (true, _) => Level::Address,
            (false, true) => Level::Site,
            (false, false) => Level::Host,
        };
        // A site whose second host is new has no counts yet; the limit hit of its first request
        // must not get lost.
        let level = if self.gate(level).is_some() { level } else { Level::Host };
        if level != Level::Host
            && let Some(mut host) = self.gate(Level::Host)
        {
            host.end_doubt();
            host.end_trial();
        }
        let Some(mut gate) = self.gate(level) else { return (ResponseEffect::Nothing, None) };
        let hit = match level {
            Level::Host => hit,
            _ => LimitHit {
                counts: gate.counts(),
                in_flight: gate.active.in_flight.saturating_add(1),
                ..hit
            },
        };
        let hold_until = Timestamp::from_millis(gate.apply_limit_hit(&hit));
        gate.note_ceiling();
        (ResponseEffect::LimitHit { hold_until, level }, Some((level, hit.cause)))
    }

    /// Records a good response on all levels.
    fn good(&mut self, permit: &Permit, response: &Response) -> Option<(Level, Cause)> {
        let mut record = None;
        let (load, site) = (self.load, self.host.identity.site);
        for &(level, _) in self.levels() {
            let Some(mut gate) = self.gate(level) else { continue };
            let (counts, in_flight) = match level {
                Level::Host => (permit.counts, permit.in_flight),
                _ => (gate.counts(), gate.active.in_flight.saturating_add(1)),
            };
            gate.clean(&counts, in_flight);
            if let Some(trouble) = &mut gate.active.trouble {
                trouble.fresh = trouble.fresh.saturating_sub(1);
            }
            if response.signal == Signal::Content {
                let now = gate.now;
                gate.active.record_success(response.fetcher.0, now);
            }
            if level == Level::Host && response.signal == Signal::Content {
                if let Some(latency) = response.latency.filter(|_| !gate.rules.is_fixed) {
                    let measured = response.local_delay.unwrap_or_default().as_secs_f64();
                    gate.latency(permit, latency.as_secs_f64(), measured, load, site);
                }
                if response.renders
                    && let Some(cost) = response.cost
                {
                    gate.rendered(cost);
                }
            }
            if let Some(cause) = gate.grow(permit, response.cost.unwrap_or(permit.cost()), &counts)
            {
                gate.note_ceiling();
                record = Some((level, cause));
            }
        }
        record.or_else(|| self.moved())
    }

    /// Returns the level whose ceiling (or rate, without one) has changed enough to be stored.
    fn moved(&mut self) -> Option<(Level, Cause)> {
        self.levels().iter().find_map(|&(level, _)| {
            let mut gate = self.gate(level)?;
            gate.has_moved(MOVED).then(|| {
                gate.note_ceiling();
                (level, Cause::Growth)
            })
        })
    }

    /// Returns the persisted state of a level, with its name.
    pub(crate) fn persisted_state(&self, level: Level) -> Option<(&str, PersistedState)> {
        let of = |entry: &Option<&mut SharedEntry>| {
            entry
                .as_ref()
                .and_then(|entry| entry.state.as_ref().map(|state| state.persisted_state()))
        };
        match level {
            Level::Host => Some((&self.host.identity.name, self.host.persisted_state())),
            Level::Site => Some((&self.site.as_ref()?.name, of(&self.site)?)),
            Level::Address => Some((&self.address.as_ref()?.name, of(&self.address)?)),
        }
    }

    /// Returns the gate of a level, if it is active.
    pub(crate) fn gate(&mut self, level: Level) -> Option<RateGate<'_>> {
        let (rules, now) = (self.rules(level), self.now);
        match level {
            Level::Host => self.host.active_gate(rules, now),
            Level::Site => self.site.as_mut()?.state.as_mut()?.active_gate(rules, now),
            Level::Address => self.address.as_mut()?.state.as_mut()?.active_gate(rules, now),
        }
    }

    /// Creates the state that a request needs.
    pub(crate) fn wake(&mut self) {
        let now = self.now;
        let shared = [self.rules(Level::Site), self.rules(Level::Address)];
        let mut site_rate = None;
        for (entry, rules) in [&mut self.site, &mut self.address].into_iter().zip(shared) {
            let Some(state) = entry.as_mut().and_then(|entry| entry.state.as_mut()) else {
                continue;
            };
            let gate = state.activate(rules, u8::MAX, shared_start, now);
            if rules.level == Level::Site {
                site_rate = gate.ceiling().1.map(|_| gate.rate());
            }
        }
        let (rules, configured) =
            (self.rules(Level::Host), self.configured.copied().unwrap_or_default());
        let max_par = configured.parallel.unwrap_or(self.settings.max_parallel);
        let start = self.settings.initial_rate;
        let rate = |persisted: &PersistedState| match (configured.rate, rules.is_fixed) {
            (Some(rate), _) => rate,
            (None, true) => start,
            (None, false) => host_start(persisted, start, site_rate, rules.max_rate),
        };
        self.host.wake(max_par, rate, now);
    }

    /// Applies changed settings to a host that is in use.
    pub(crate) fn reconfigure(&mut self) {
        let (settings, rules) = (self.settings, self.rules(Level::Host));
        let configured = self.configured.copied().unwrap_or_default();
        let rate = match (configured.rate, rules.is_fixed) {
            (Some(rate), _) => Some(rate),
            (None, true) => Some(settings.initial_rate),
            (None, false) => None,
        };
        let max_par = configured.parallel.unwrap_or(settings.max_parallel);
        if let Some(mut gate) = self.host.active_gate(rules, self.now) {
            gate.reconfigure(max_par, rate);
        }
    }

    fn rules(&self, level: Level) -> &'r Rules {
        match level {
            Level::Host if self.configured.is_some_and(|host| host.rate.is_some()) => {
                &self.rules.configured_host
            }
            Level::Host => &self.rules.host,
            Level::Site => &self.rules.site,
            Level::Address => &self.rules.address,
        }
    }

    /// Returns a number in [0, 1) that is the same for the same history.
    fn chance(&self) -> f64 {
        let next = self.host.active().map_or(0, |active| active.next ^ active.at.rotate_left(20));
        let hash = mixed(self.key ^ self.settings.seed ^ next.cast_unsigned());
        (hash >> 11) as f64 / (1_u64 << 53) as f64
    }
}

impl RateGate<'_> {
    /// Remembers the ceiling (or the rate, without one) as stored.
    fn note_ceiling(&mut self) {
        self.persisted.noted = PositiveF16::new(self.notable());
    }

    fn has_moved(&self, factor: f64) -> bool {
        let (noted, now) = (self.persisted.noted.get(), self.notable());
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
        if let Some(trouble) = &mut self.active.trouble {
            trouble.trial = crate::limiter::active_state::Trial::No;
            self.persisted.set_trial(false);
        }
    }

    /// Records that a rendered page made `cost` requests.
    fn rendered(&mut self, cost: u16) {
        let known = if self.persisted.render_cost == 0 {
            f64::from(cost)
        } else {
            f64::from(self.persisted.render_cost)
        };
        let moved = known + 0.2 * (f64::from(cost) - known);
        // Rounded towards the new value, so that small differences also count.
        let rounded = if f64::from(cost) > known { moved.ceil() } else { moved.floor() };
        self.persisted.render_cost = rounded.clamp(1.0, 255.0) as u8;
    }
}

fn shared_start(persisted: &PersistedState) -> f64 {
    let ceiling = persisted.cap.iter().filter_map(|cap| cap.some()).fold(f64::INFINITY, f64::min);
    RESUMED * ceiling
}

fn host_start(
    persisted: &PersistedState,
    start: f64,
    site_rate: Option<f64>,
    max_rate: f64,
) -> f64 {
    let ceiling = persisted.cap.iter().filter_map(|cap| cap.some()).fold(f64::INFINITY, f64::min);
    let rate = match (ceiling.is_finite(), persisted.rate.some(), site_rate) {
        (true, ..) => RESUMED * ceiling,
        (false, Some(rate), _) => RESUMED * rate,
        (false, None, Some(site)) => (site / 2.0).min(start),
        (false, None, None) => start,
    };
    rate.clamp(crate::limiter::rate_gate::MIN_RATE, max_rate)
}

/// Mixes the bits of a number, like the finaliser of a good 64-bit hash.
fn mixed(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
