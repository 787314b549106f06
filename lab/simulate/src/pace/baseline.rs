//! The pacing of other crawlers, written from their sources and simplified: identities do not
//! change, and a blocked URL is retried until it comes.
//!
//! Must not know: the world around it.

use super::server::{Reply, Status};
use crate::pace::pacer::{Admission, NextStep, Pacer, Token, again};

/// A pacing method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum PacingMethod {
    /// Sixteen in parallel.
    None,
    /// The same, with a pause of ten minutes after three blocked links, doubled each time.
    ThreeLinks,
    /// One request per interval in seconds.
    Every(f64),
    /// AIMD: 0.2/s more each second, half after a block.
    Aimd,
    /// The adaptive retry mode of the AWS SDKs: beta 0.7, C 0.4.
    Cubic,
    /// Scrapy's AutoThrottle with this target: initial delay 5 s, at most 60 s, eight in parallel.
    AutoThrottle(f64),
    /// Crawlee's: after a 429 a wait from 2 s up to 60 s, doubled each time and reset by any
    /// success.
    Crawlee,
    /// Netflix's Gradient2 on parallel requests: smoothing 0.2, queue 4, tolerance 1.5.
    Gradient2,
    /// StormCrawler's: one second; after a 429 or 503 a minute, doubled each time.
    Storm,
    /// Heritrix's: five times the latency, from 3 to 30 s.
    Heritrix,
}

/// A baseline for the hosts of one site.
#[derive(Debug)]
pub(super) struct Baseline {
    way: PacingMethod,
    hosts: Vec<Host>,
    parallel: u32,
}

#[derive(Clone, Copy, Debug)]
struct Host {
    in_flight: u32,
    next: i64,
    held: i64,
    /// Requests per second, seconds between them, or parallel requests, depending on the method.
    value: f64,
    blocks: u32,
    level: u32,
    since: i64,
    top: f64,
    long: f64,
    first_block: i64,
    is_trial: bool,
}

const MINUTE_MS: i64 = 60_000;

impl Baseline {
    pub(super) fn new(way: PacingMethod, hosts: usize, parallel: u8) -> Self {
        let value = match way {
            PacingMethod::Aimd | PacingMethod::Cubic => 2.0,
            PacingMethod::AutoThrottle(_) => 5.0,
            PacingMethod::Heritrix => 3.0,
            _ => 16.0,
        };
        let host = Host {
            in_flight: 0,
            next: 0,
            held: 0,
            value,
            blocks: 0,
            level: 0,
            since: 0,
            top: 0.0,
            long: 0.0,
            first_block: 0,
            is_trial: false,
        };
        Self { way, hosts: vec![host; hosts], parallel: u32::from(parallel) }
    }

    /// Returns the seconds between requests, and the number of parallel requests.
    fn gap_and_places(&self, host: &Host) -> (f64, u32) {
        match self.way {
            PacingMethod::None | PacingMethod::ThreeLinks | PacingMethod::Crawlee => {
                (0.0, self.parallel)
            }
            PacingMethod::Every(seconds) => (seconds, 1),
            PacingMethod::Aimd | PacingMethod::Cubic => (1.0 / host.value, self.parallel),
            PacingMethod::AutoThrottle(_) => (host.value, 8),
            PacingMethod::Gradient2 => (0.0, (host.value as u32).clamp(1, self.parallel)),
            PacingMethod::Storm => (1.0, 1),
            PacingMethod::Heritrix => (host.value, 1),
        }
    }
}

impl Pacer for Baseline {
    fn admit(&mut self, host: usize, now: i64) -> Admission {
        let state = self.hosts[host];
        let (gap, places) = self.gap_and_places(&state);
        if state.held > now {
            return Admission::Wait(state.held);
        }
        if state.in_flight >= places || state.is_trial && state.in_flight > 0 {
            return Admission::Full;
        }
        if state.next > now {
            return Admission::Wait(state.next);
        }
        let state = &mut self.hosts[host];
        state.next = now + (gap * 1000.0) as i64;
        state.in_flight += 1;
        Admission::Go(Token::default())
    }

    fn done(
        &mut self,
        host: usize,
        _token: Token,
        reply: &Reply,
        tries: u32,
        now: i64,
    ) -> NextStep {
        let state = &mut self.hosts[host];
        state.in_flight -= 1;
        let is_blocked = reply.is_refused || !matches!(reply.status, Status::Ok | Status::Error);
        let latency = reply.latency_ms as f64 / 1000.0;
        let limited = matches!(reply.status, Status::Limited | Status::Unavailable);
        match self.way {
            PacingMethod::None | PacingMethod::Every(_) => {}
            PacingMethod::ThreeLinks => three_links(state, is_blocked, now),
            PacingMethod::Aimd => aimd(state, is_blocked, now),
            PacingMethod::Cubic => cubic(state, is_blocked, now),
            PacingMethod::AutoThrottle(target) => {
                let wanted = (state.value + latency / target) / 2.0;
                let wanted = wanted.max(latency / target).min(60.0);
                if reply.status == Status::Ok || wanted > state.value {
                    state.value = wanted;
                }
            }
            PacingMethod::Crawlee => crawlee(state, limited, reply, now),
            PacingMethod::Gradient2 => gradient(state, latency, self.parallel),
            PacingMethod::Storm => {
                state.level = if limited { state.level + 1 } else { 0 };
                if limited {
                    state.held = now + (MINUTE_MS << (state.level - 1).min(10));
                }
            }
            PacingMethod::Heritrix => state.value = (5.0 * latency).clamp(3.0, 30.0),
        }
        again(reply, tries)
    }

    fn restart(&mut self, _now: i64) {
        *self = Self::new(self.way, self.hosts.len(), self.parallel as u8);
    }
}

fn three_links(state: &mut Host, is_blocked: bool, now: i64) {
    if !is_blocked {
        if state.is_trial {
            (state.is_trial, state.level) = (false, 0);
        }
        return;
    }
    if now < state.held {
        return;
    }
    if now - state.first_block > 10 * MINUTE_MS {
        (state.first_block, state.blocks) = (now, 0);
    }
    state.blocks += 1;
    if state.blocks >= 3 || state.is_trial {
        state.held = now + ((10 * MINUTE_MS) << state.level.min(5));
        (state.blocks, state.is_trial) = (0, true);
        state.level += 1;
    }
}

fn aimd(state: &mut Host, is_blocked: bool, now: i64) {
    let passed = (now - state.since) as f64 / 1000.0;
    if is_blocked {
        // Once per second, so that requests in flight together count once.
        if now - state.first_block >= 1000 {
            state.value = (state.value / 2.0).max(0.05);
            state.first_block = now;
        }
        state.since = now;
    } else if passed > 0.0 {
        state.value += 0.2 * passed.min(10.0);
        state.since = now;
    }
}

fn cubic(state: &mut Host, is_blocked: bool, now: i64) {
    const BETA: f64 = 0.7;
    const C: f64 = 0.4;
    if is_blocked {
        if now - state.first_block >= 1000 {
            state.top = state.value;
            state.value = (state.value * BETA).max(0.05);
            (state.first_block, state.since) = (now, now);
        }
        return;
    }
    let passed = (now - state.since) as f64 / 1000.0;
    let k = (state.top * (1.0 - BETA) / C).cbrt();
    let wanted = C * (passed - k).powi(3) + state.top;
    // As in the SDKs, never more than twice the current rate.
    state.value = wanted.clamp(0.05, (2.0 * state.value).max(0.5)).min(1000.0);
}

fn crawlee(state: &mut Host, limited: bool, reply: &Reply, now: i64) {
    if !limited {
        state.level = 0;
        return;
    }
    if now < state.held {
        return;
    }
    let wait =
        reply.retry_after_s.unwrap_or(2.0 * f64::from(1_u32 << state.level.min(10))).min(60.0);
    state.level += 1;
    state.held = now + (wait * 1000.0) as i64;
}

fn gradient(state: &mut Host, latency: f64, parallel: u32) {
    state.long =
        if state.long == 0.0 { latency } else { state.long + (latency - state.long) / 300.0 };
    if state.long / latency > 2.0 {
        state.long *= 0.95;
    }
    let gradient = (1.5 * state.long / latency).clamp(0.5, 1.0);
    let wanted = state.value * gradient + 4.0;
    state.value = (0.8 * state.value + 0.2 * wanted).clamp(1.0, f64::from(parallel));
}
