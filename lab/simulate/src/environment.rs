//! The environment: the results of a fetcher's requests in a generated web, with random outcomes,
//! blocks, rendering, and hosts that ban.
//!
//! Owns: the state that a run changes, which is the pressure on each host and its bans. The random
//! outcomes are a function of seed, URL, fetcher and purpose.
//!
//! Must not know: who decided to make a request.

use super::generate::{Visit, Web};
use super::vendor::VendorBlock;
use super::world::{Protection, Render, Role, World};
use crate::rng::{Purpose, coin};

const DAY_MS: f64 = 86_400_000.0;
const HOUR_MS: f64 = 3_600_000.0;
/// The first ban of a host, which each further ban doubles up to four times, and the extension by
/// each try during a ban.
const BAN_DAYS: f64 = 0.25;
const BAN_PROLONGED_DAYS: f64 = 0.01;
/// The probability that stealth passes while its address is banned, as a share of the usual one.
const STEALTH_WHILE_BANNED: f64 = 0.6;
/// A flaky host's success, as a share, and the factor of its timeouts.
const FLAKY_SUCCESS: f64 = 0.78;
const FLAKY_TIMEOUTS: f64 = 8.0;
/// False successes at a block, and of fetchers that render, as a share of the world's.
const FALSE_AT_BLOCK: f64 = 0.4;
const FALSE_RENDERED: f64 = 0.2;
/// The probability that the classifier recognises a block, and an empty page.
const RECOGNISES_BLOCK: f64 = 0.85;
const RECOGNISES_EMPTY: f64 = 0.90;

/// The abilities of a fetcher of the world, in the form that a run needs.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    pub(crate) role: Role,
    pub(crate) cost: f64,
    pub(crate) quality: f64,
    render: [f64; 5],
    protection: [f64; 5],
    pressure: f64,
    place: usize,
}

impl Tool {
    /// Returns the fetchers of `world`, in its order.
    pub(crate) fn all(world: &World) -> Vec<Self> {
        let of = |(place, fetcher): (usize, &super::world::Fetcher)| Self {
            role: world.role(place),
            cost: fetcher.cost,
            quality: fetcher.quality,
            render: fetcher.render.array(),
            protection: fetcher.protection.array(),
            pressure: fetcher.pressure,
            place,
        };
        world.fetchers.iter().enumerate().map(of).collect()
    }

    fn timeouts(&self) -> f64 {
        match self.role {
            Role::Direct | Role::Downloader => 1.0,
            Role::Browser => 1.5,
            Role::Stealth => 1.8,
            Role::Archive => 2.0,
        }
    }
}

/// What a URL requires now. Only the oracle knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Condition {
    pub(crate) render: Render,
    /// The protection that applies to this URL: none for an exempt file.
    pub(crate) protection: Protection,
    /// The vendor's block that this URL meets, if the world has vendors.
    pub(crate) vendor_block: Option<VendorBlock>,
    pub(crate) flaky: bool,
    pub(crate) banned: bool,
}

/// The probabilities of one try of a live URL, given its condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Probabilities {
    pub(crate) timeout: f64,
    /// The probability to pass the block, without a timeout.
    pub(crate) pass: f64,
    /// The probability that a block looks like content.
    pub(crate) false_block: f64,
    /// The probability to read the page, after passing.
    pub(crate) render: f64,
    /// The probability that an unread page looks like content.
    pub(crate) false_render: f64,
    /// Whether the try is certainly blocked, before anything else.
    pub(crate) shut_out: bool,
}

impl Probabilities {
    /// Returns the probabilities of `tool` under `condition`.
    pub(crate) fn of(world: &World, tool: &Tool, condition: &Condition) -> Self {
        let flaky = condition.flaky;
        let is_vendor_blocked = condition.banned;
        let shut_out = is_vendor_blocked
            && matches!(tool.role, Role::Direct | Role::Browser | Role::Downloader);
        let pass = match (condition.vendor_block, &world.tags) {
            (Some(vendor_block), Some(tags)) => {
                vendor_block.pass(&world.vendors, tags.noise, tool.place)
            }
            _ => tool.protection[condition.protection as usize],
        };
        let meets_blocks = matches!(tool.role, Role::Direct | Role::Browser | Role::Stealth);
        Self {
            timeout: (world.timeout * tool.timeouts() * if flaky { FLAKY_TIMEOUTS } else { 1.0 })
                .min(1.0),
            pass: if is_vendor_blocked && tool.role == Role::Stealth {
                pass * STEALTH_WHILE_BANNED
            } else {
                pass
            },
            false_block: if meets_blocks { FALSE_AT_BLOCK * world.false_success } else { 0.0 },
            render: tool.render[condition.render as usize]
                * if flaky { FLAKY_SUCCESS } else { 1.0 },
            false_render: world.false_success
                * if tool.role == Role::Direct { 1.0 } else { FALSE_RENDERED },
            shut_out,
        }
    }

    /// Returns the probabilities of content, of a block, and of a false success.
    pub(crate) fn ends(&self) -> (f64, f64, f64) {
        if self.shut_out {
            return (0.0, 1.0, 0.0);
        }
        let answered = 1.0 - self.timeout;
        let vendor_block = answered * (1.0 - self.pass);
        let passed = answered * self.pass;
        let deceived =
            vendor_block * self.false_block + passed * (1.0 - self.render) * self.false_render;
        (passed * self.render, vendor_block * (1.0 - self.false_block), deceived)
    }
}

/// The true end of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Content,
    /// A failure that looks like content.
    False,
    Blocked,
    Empty,
    Timeout,
    NotFound,
}

/// A try: its end, whether the classifier recognises it, and whether it caused a ban.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    /// Whether the classifier recognises the reason of the failure.
    pub(crate) recognised: bool,
    pub(crate) banned_now: bool,
    /// The signals of the response, as indexes into the world's lists.
    pub(crate) shown: ResponseSignals,
}

/// The signals in a response: the vendor, framework and server of its host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseSignals {
    pub(crate) vendor: Option<u8>,
    pub(crate) framework: Option<u8>,
    pub(crate) server: Option<u8>,
}

/// The state of one host towards this crawler.
#[derive(Clone, Copy, Debug, Default)]
struct HostPressure {
    pressure: f64,
    at_ms: i64,
    banned_until_ms: i64,
    bans: u32,
}

/// A web and the state that one run changes.
pub(crate) struct Environment<'w> {
    pub(crate) world: &'w World,
    pub(crate) web: &'w Web,
    tools: &'w [Tool],
    seed: u64,
    moods: Vec<HostPressure>,
}

impl<'w> Environment<'w> {
    pub(crate) fn new(world: &'w World, web: &'w Web, tools: &'w [Tool], seed: u64) -> Self {
        Self { world, web, tools, seed, moods: vec![HostPressure::default(); web.hosts.len()] }
    }

    /// Returns what the URL of `visit` requires at its time.
    pub(crate) fn condition(&self, visit: &Visit) -> Condition {
        let banned = visit.at_ms < self.moods[visit.host as usize].banned_until_ms;
        Condition { banned, ..unbanned(self.world, self.web, visit, visit.at_ms) }
    }

    /// Makes one try with the fetcher at `place`.
    pub(crate) fn attempt(&mut self, visit: &Visit, place: usize) -> Outcome {
        let tool = &self.tools[place];
        let banned_now = self.bear(visit, tool);
        let chances = Probabilities::of(self.world, tool, &self.condition(visit));
        let luck = |purpose| coin(self.seed, visit.id, place, purpose);
        let end = if chances.shut_out {
            End::Blocked
        } else if visit.dead {
            End::NotFound
        } else if luck(Purpose::Timeout) < chances.timeout {
            End::Timeout
        } else if luck(Purpose::Protection) >= chances.pass {
            if luck(Purpose::FalseBlock) < chances.false_block { End::False } else { End::Blocked }
        } else if luck(Purpose::Render) < chances.render {
            End::Content
        } else if luck(Purpose::FalseRender) < chances.false_render {
            End::False
        } else {
            End::Empty
        };
        let recognised = match end {
            End::Blocked => luck(Purpose::Recognised) < RECOGNISES_BLOCK,
            End::Empty => luck(Purpose::Recognised) < RECOGNISES_EMPTY,
            _ => true,
        };
        Outcome { end, recognised, banned_now, shown: self.shown(visit, place, end, recognised) }
    }

    /// Returns the signals of the response: a recognised block shows its vendor, a delivered page
    /// its framework and server. An archive shows nothing of the host.
    fn shown(&self, visit: &Visit, place: usize, end: End, recognised: bool) -> ResponseSignals {
        let (host, world) = (&self.web.hosts[visit.host as usize], self.world);
        let luck = |purpose| coin(self.seed, visit.id, place, purpose);
        let is_archive = self.tools[place].role == Role::Archive;
        let Some(tags) = world.tags.filter(|_| !is_archive && recognised) else {
            return ResponseSignals::default();
        };
        match end {
            End::Blocked => {
                let vendor_block = host
                    .vendor_block(world, visit.at_ms)
                    .filter(|_| luck(Purpose::ShowsVendor) < tags.recognised);
                let any = (luck(Purpose::WhichVendor) * world.vendors.len() as f64) as u8;
                let vendor = vendor_block.map(|vendor_block| {
                    if luck(Purpose::ShowsAny) < tags.wrong { any } else { vendor_block.vendor }
                });
                ResponseSignals { vendor, ..ResponseSignals::default() }
            }
            End::Content | End::Empty if !visit.file => {
                ResponseSignals { vendor: None, framework: host.framework, server: host.server }
            }
            End::Content => ResponseSignals { server: host.server, ..ResponseSignals::default() },
            _ => ResponseSignals::default(),
        }
    }

    /// Adds one request to the pressure on the host. Returns true when the host bans now. A try
    /// during a ban extends it.
    fn bear(&mut self, visit: &Visit, tool: &Tool) -> bool {
        let protection = self.condition(visit).protection;
        let mood = &mut self.moods[visit.host as usize];
        if tool.pressure <= 0.0 {
            return false;
        }
        if visit.at_ms < mood.banned_until_ms {
            mood.banned_until_ms += (BAN_PROLONGED_DAYS * DAY_MS) as i64;
            return false;
        }
        let limit = match protection {
            Protection::None => return false,
            Protection::Rate => self.web.hosts[visit.host as usize].rate_limit,
            Protection::Captcha => 10.0,
            Protection::Hard | Protection::Fortress => 6.0,
        };
        mood.pressure =
            mood.pressure * (-((visit.at_ms - mood.at_ms) as f64) / HOUR_MS).exp2() + tool.pressure;
        mood.at_ms = visit.at_ms;
        if mood.pressure <= limit / self.world.ban {
            return false;
        }
        let ban_days = BAN_DAYS * f64::from(1u32 << mood.bans.min(4));
        mood.banned_until_ms = visit.at_ms + (ban_days * DAY_MS) as i64;
        mood.bans += 1;
        mood.pressure = 0.0;
        true
    }
}

/// Returns what the URL of `visit` requires at `at_ms`, without a ban.
pub(crate) fn unbanned(world: &World, web: &Web, visit: &Visit, at_ms: i64) -> Condition {
    let host = &web.hosts[visit.host as usize];
    let protection = host.protection.at(at_ms);
    let exempt = visit.file
        && host.files_exempt
        && matches!(protection, Protection::Captcha | Protection::Hard);
    Condition {
        render: if visit.file {
            Render::File
        } else {
            host.sections[usize::from(visit.section)].render.at(at_ms)
        },
        protection: if exempt { Protection::None } else { protection },
        vendor_block: if exempt { None } else { host.vendor_block(world, at_ms) },
        flaky: host.flaky,
        banned: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SHIPPED;

    fn world() -> World {
        World { urls: 3000, sites: 50, ..World::parse(SHIPPED[0].1, "test").unwrap() }
    }

    #[test]
    fn random_outcomes_do_not_depend_on_earlier_tries() {
        let world = world();
        let (web, tools) = (Web::generate(&world, 1), Tool::all(&world));
        let (mut one, mut other) =
            (Environment::new(&world, &web, &tools, 1), Environment::new(&world, &web, &tools, 1));
        // The archive causes no bans, so only random outcomes could differ.
        for visit in web.visits.iter().rev() {
            other.attempt(visit, 3);
        }
        for visit in &web.visits {
            assert_eq!(one.attempt(visit, 3).end, other.attempt(visit, 3).end);
        }
    }

    #[test]
    fn consecutive_requests_cause_a_ban_that_grows_with_each_try() {
        let world = world();
        let (web, tools) = (Web::generate(&world, 1), Tool::all(&world));
        let is_vendor_blocked = |visit: &&Visit| {
            !visit.file
                && web.hosts[visit.host as usize].protection.at(visit.at_ms) == Protection::Captcha
        };
        let visit = web.visits.iter().find(is_vendor_blocked).unwrap();
        let mut ground = Environment::new(&world, &web, &tools, 1);
        let bans: Vec<bool> = (0..30).map(|_| ground.attempt(visit, 0).banned_now).collect();
        assert_eq!(bans.iter().position(|banned| *banned), Some(10));
        assert_eq!(bans.iter().filter(|banned| **banned).count(), 1);
        assert_eq!(ground.attempt(visit, 1).end, End::Blocked);
        let until = ground.moods[visit.host as usize].banned_until_ms;
        ground.attempt(visit, 2);
        assert!(ground.moods[visit.host as usize].banned_until_ms > until);
        ground.attempt(visit, 3);
        assert!(ground.condition(visit).banned);
    }

    #[test]
    fn the_end_probabilities_of_a_try_sum_to_at_most_one() {
        let world = world();
        for tool in Tool::all(&world) {
            for (flaky, banned) in [(false, false), (true, false), (false, true)] {
                let condition = Condition {
                    render: Render::Spa,
                    protection: Protection::Captcha,
                    vendor_block: None,
                    flaky,
                    banned,
                };
                let (success, blocked, deceived) =
                    Probabilities::of(&world, &tool, &condition).ends();
                assert!(success >= 0.0 && blocked >= 0.0 && deceived >= 0.0);
                assert!(success + blocked + deceived <= 1.0 + 1e-12);
            }
        }
    }
}
