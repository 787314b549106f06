//! The change of a vendor's settings on one day, for all of its hosts: how soon a policy follows it
//! at hosts that it has not visited since.
//!
//! Owns: the observation of one run. It counts whether the first fetcher of a page is the oracle's
//! first choice: at known hosts before the change, and at the first and second page of hosts that
//! are visited again two days after it or later.
//!
//! Must not know: which policy it observes.

use super::generate::{Visit, Web};
use super::oracle::Oracle;
use super::vendor::VendorBlock;
use super::world::World;
use crate::environment::{Condition, Tool, unbanned};

/// A host with this number of visits is known.
const KNOWN_VISITS: u32 = 10;
/// A host counts if it has no visit within this time after the change.
const AWAY_MS: i64 = 2 * 86_400_000;

/// The number of right choices and of all choices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RightCount {
    pub(crate) right: u64,
    pub(crate) of: u64,
}

impl RightCount {
    fn count(&mut self, right: bool) {
        self.right += u64::from(right);
        self.of += 1;
    }
}

/// The counters of one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShiftCounts {
    /// Pages of known hosts before the change of their vendor.
    pub(crate) known: RightCount,
    /// The first and the second page after the change, if a dearer fetcher, or none, is best now.
    pub(crate) harder: [RightCount; 2],
    /// The same, if a cheaper fetcher is best now.
    pub(crate) easier: [RightCount; 2],
}

/// The state of one host.
#[derive(Clone, Copy, Debug, Default)]
struct HostState {
    last_ms: Option<i64>,
    /// Pages since the change; none before the host is visited again, or when it does not count.
    pages: Option<usize>,
}

/// Observes all hosts of a web.
pub(crate) struct ShiftWatch<'w> {
    world: &'w World,
    web: &'w Web,
    tools: &'w [Tool],
    oracle: Oracle<'w>,
    hosts: Vec<HostState>,
    pub(crate) followed: ShiftCounts,
}

impl<'w> ShiftWatch<'w> {
    pub(crate) fn new(world: &'w World, web: &'w Web, tools: &'w [Tool]) -> Self {
        let hosts = vec![HostState::default(); web.hosts.len()];
        Self {
            world,
            web,
            tools,
            oracle: Oracle::new(world, tools),
            hosts,
            followed: ShiftCounts::default(),
        }
    }

    /// Records the first fetcher of a visit to a host with `earlier` previous visits.
    pub(crate) fn see(&mut self, visit: &Visit, earlier: u32, first: Option<usize>) {
        let before = self.hosts[visit.host as usize].last_ms.replace(visit.at_ms);
        let now = unbanned(self.world, self.web, visit, visit.at_ms);
        let Some(vendor_block) = now.vendor_block.filter(|_| !visit.file) else {
            return self.met(visit, before);
        };
        let Some(shift_ms) = self.shift_ms(&vendor_block) else { return };
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
        if then.vendor_block.is_none_or(|was| was.vendor != vendor_block.vendor)
            || then.protection != now.protection
        {
            return;
        }
        let (was, is) =
            (self.best(&Condition { vendor_block: then.vendor_block, ..now }), self.best(&now));
        let cost =
            |place: Option<usize>| place.map_or(f64::INFINITY, |place| self.tools[place].cost);
        match cost(is).total_cmp(&cost(was)) {
            std::cmp::Ordering::Greater => self.followed.harder[pages].count(first == is),
            std::cmp::Ordering::Less => self.followed.easier[pages].count(first == is),
            std::cmp::Ordering::Equal => {}
        }
    }

    /// Records a visit to the host. The first visit after its vendor's change decides whether it
    /// counts.
    fn met(&mut self, visit: &Visit, before: Option<i64>) {
        let host = &self.web.hosts[visit.host as usize];
        let Some(shift_ms) = host
            .vendor_block(self.world, visit.at_ms)
            .and_then(|vendor_block| self.shift_ms(&vendor_block))
        else {
            return;
        };
        let is_back = before.is_some_and(|ms| ms < shift_ms) && visit.at_ms >= shift_ms;
        if is_back {
            self.hosts[visit.host as usize].pages =
                (visit.at_ms >= shift_ms + AWAY_MS).then_some(0);
        }
    }

    fn shift_ms(&self, vendor_block: &VendorBlock) -> Option<i64> {
        self.world.vendors[usize::from(vendor_block.vendor)]
            .shift
            .as_ref()
            .map(|shift| shift.at_ms())
    }

    fn best(&mut self, condition: &Condition) -> Option<usize> {
        self.oracle.order(condition).first().copied()
    }
}
