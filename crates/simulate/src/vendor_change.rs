//! A vendor changes its mind one day, for all of its hosts: how soon is that known at hosts where nobody has been since?
//!
//! Owns the watch over one run. What is counted is whether the first fetcher of a page is the one the oracle would have tried first:
//! at known hosts before the change, and at the first and second page of hosts that are met again two days after it or later. Must
//! not know which policy it watches.

use super::generate::{Visit, Web};
use super::oracle::Oracle;
use super::vendor::Wall;
use super::world::World;
use crate::environment::{Condition, Tool, unbanned};

/// A host visited so often is known.
const KNOWN_VISITS: u32 = 10;
/// A host is asked about when nobody has been there from the change until so long after it.
const AWAY_MS: i64 = 2 * 86_400_000;

/// How many were right, and of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Right {
    pub(crate) right: u64,
    pub(crate) of: u64,
}

impl Right {
    fn count(&mut self, right: bool) {
        self.right += u64::from(right);
        self.of += 1;
    }
}

/// What was counted in one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Followed {
    /// Pages of known hosts before their vendor changed its mind.
    pub(crate) known: Right,
    /// The first and the second page where a dearer fetcher, or none, is best since then.
    pub(crate) harder: [Right; 2],
    /// The same where a cheaper one is.
    pub(crate) easier: [Right; 2],
}

/// Where one host stands.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    last_ms: Option<i64>,
    /// Pages since the change; none before it is met again, or when it does not count.
    pages: Option<usize>,
}

/// Watches all hosts of a web.
pub(crate) struct ShiftWatch<'w> {
    world: &'w World,
    web: &'w Web,
    tools: &'w [Tool],
    oracle: Oracle<'w>,
    hosts: Vec<Seen>,
    pub(crate) followed: Followed,
}

impl<'w> ShiftWatch<'w> {
    pub(crate) fn new(world: &'w World, web: &'w Web, tools: &'w [Tool]) -> Self {
        let hosts = vec![Seen::default(); web.hosts.len()];
        Self { world, web, tools, oracle: Oracle::new(world, tools), hosts, followed: Followed::default() }
    }

    /// Sees the first fetcher that a visit got, of a host that was visited `earlier` times before.
    pub(crate) fn see(&mut self, visit: &Visit, earlier: u32, first: Option<usize>) {
        let before = self.hosts[visit.host as usize].last_ms.replace(visit.at_ms);
        let now = unbanned(self.world, self.web, visit, visit.at_ms);
        let Some(wall) = now.wall.filter(|_| !visit.file) else { return self.met(visit, before) };
        let Some(shift_ms) = self.shift_ms(&wall) else { return };
        if visit.at_ms < shift_ms {
            if earlier >= KNOWN_VISITS {
                let best = self.best(&now);
                self.followed.known.count(first == best);
            }
            return;
        }
        self.met(visit, before);
        let Some(pages @ 0..2) = self.hosts[visit.host as usize].pages else { return };
        self.hosts[visit.host as usize].pages = Some(pages + 1);
        let then = unbanned(self.world, self.web, visit, shift_ms - 1);
        if then.wall.is_none_or(|was| was.vendor != wall.vendor) || then.protection != now.protection {
            return;
        }
        let (was, is) = (self.best(&Condition { wall: then.wall, ..now }), self.best(&now));
        let cost = |place: Option<usize>| place.map_or(f64::INFINITY, |place| self.tools[place].cost);
        match cost(is).total_cmp(&cost(was)) {
            std::cmp::Ordering::Greater => self.followed.harder[pages].count(first == is),
            std::cmp::Ordering::Less => self.followed.easier[pages].count(first == is),
            std::cmp::Ordering::Equal => {}
        }
    }

    /// The host is met. From the change of its vendor on, the first time tells whether it counts.
    fn met(&mut self, visit: &Visit, before: Option<i64>) {
        let host = &self.web.hosts[visit.host as usize];
        let Some(shift_ms) = host.wall(self.world, visit.at_ms).and_then(|wall| self.shift_ms(&wall)) else { return };
        let is_back = before.is_some_and(|ms| ms < shift_ms) && visit.at_ms >= shift_ms;
        if is_back {
            self.hosts[visit.host as usize].pages = (visit.at_ms >= shift_ms + AWAY_MS).then_some(0);
        }
    }

    fn shift_ms(&self, wall: &Wall) -> Option<i64> {
        self.world.vendors[usize::from(wall.vendor)].shift.as_ref().map(|shift| shift.at_ms())
    }

    fn best(&mut self, condition: &Condition) -> Option<usize> {
        self.oracle.order(condition).first().copied()
    }
}
