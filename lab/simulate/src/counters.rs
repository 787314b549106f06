//! The counters of a run: sums over visits, and the number of URLs until a policy follows a change.
//!
//! Owns: the counts; the report computes rates per URL.
//!
//! Must not know: which policy it counts for.

use super::generate::{Visit, Web};
use super::oracle::Oracle;
use super::world::World;
use crate::environment::{Tool, unbanned};
use crate::vendor_change::ShiftCounts;
use crate::visit_result::VisitResult;
use fetchwise::decision::Source;

const DAY_MS: f64 = 86_400_000.0;
/// The number of first visits of a host that are cold.
const COLD_VISITS: u32 = 3;
/// A host with this number of visits before a change was warm.
const WARM_VISITS: u32 = 10;
/// The number of stretches of equal length in a run, for plots over time.
pub(crate) const STRETCHES: usize = 60;

/// The sums of one run.
#[derive(Clone, Debug)]
pub(crate) struct Counters {
    pub(crate) urls: u64,
    pub(crate) utility: f64,
    pub(crate) cost: f64,
    pub(crate) attempts: u64,
    pub(crate) blocked: u64,
    pub(crate) bans: u64,
    pub(crate) successes: u64,
    pub(crate) deceived: u64,
    pub(crate) cold_urls: u64,
    pub(crate) cold_utility: f64,
    /// URLs that meet a vendor's block, and the cold ones among them.
    pub(crate) vendor_blocks: Part,
    pub(crate) vendor_blocks_cold: Part,
    /// URLs for which no request was made.
    pub(crate) unasked: u64,
    pub(crate) followed: ShiftCounts,
    /// First decisions by label, in the order of [`Source::ALL`].
    pub(crate) labels: [u64; Source::ALL.len()],
    pub(crate) stretches: Vec<Stretch>,
    pub(crate) adapted: AdaptationWaits,
    pub(crate) decide_ns: u64,
    pub(crate) decisions: u64,
    stretch_ms: f64,
}

/// The sums of some of the URLs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    pub(crate) urls: u64,
    pub(crate) utility: f64,
}

impl Part {
    fn add(&mut self, utility: f64) {
        self.urls += 1;
        self.utility += utility;
    }
}

/// The sums of one stretch of time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stretch {
    pub(crate) urls: u64,
    pub(crate) utility: f64,
    pub(crate) labels: [u64; Source::ALL.len()],
}

impl Counters {
    pub(crate) fn new(world: &World) -> Self {
        Self {
            urls: 0,
            utility: 0.0,
            cost: 0.0,
            attempts: 0,
            blocked: 0,
            bans: 0,
            successes: 0,
            deceived: 0,
            cold_urls: 0,
            cold_utility: 0.0,
            vendor_blocks: Part::default(),
            vendor_blocks_cold: Part::default(),
            unasked: 0,
            followed: ShiftCounts::default(),
            labels: [0; Source::ALL.len()],
            stretches: vec![Stretch::default(); STRETCHES],
            adapted: AdaptationWaits::default(),
            decide_ns: 0,
            decisions: 0,
            stretch_ms: world.days * DAY_MS / STRETCHES as f64,
        }
    }

    /// Adds the result of one visit to a host with `earlier` previous visits; `has_vendor_block`
    /// says whether the host has a vendor's block.
    pub(crate) fn add(
        &mut self,
        visit: &Visit,
        fetched: &VisitResult,
        earlier: u32,
        has_vendor_block: bool,
    ) {
        self.urls += 1;
        self.utility += fetched.utility;
        self.cost += fetched.cost;
        self.attempts += u64::from(fetched.attempts);
        self.blocked += u64::from(fetched.blocked);
        self.bans += u64::from(fetched.bans);
        self.successes += u64::from(fetched.success);
        self.deceived += u64::from(fetched.deceived);
        if earlier < COLD_VISITS {
            self.cold_urls += 1;
            self.cold_utility += fetched.utility;
        }
        self.unasked += u64::from(fetched.attempts == 0);
        if has_vendor_block {
            self.vendor_blocks.add(fetched.utility);
            if earlier < COLD_VISITS {
                self.vendor_blocks_cold.add(fetched.utility);
            }
        }
        let stretch = ((visit.at_ms as f64 / self.stretch_ms) as usize).min(STRETCHES - 1);
        let stretch = &mut self.stretches[stretch];
        stretch.urls += 1;
        stretch.utility += fetched.utility;
        if let Some(label) =
            fetched.first.and_then(|(_, source)| Source::ALL.iter().position(|s| *s == source))
        {
            self.labels[label] += 1;
            stretch.labels[label] += 1;
        }
    }
}

/// The waits for the new best fetcher after changes: the number of URLs, and whether the wait
/// ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct AdaptationWaits {
    /// After changes to a dearer best fetcher.
    pub(crate) worse: Vec<Wait>,
    /// After changes to a cheaper one.
    pub(crate) better: Vec<Wait>,
}

/// One wait: the number of URLs of the host that went to another fetcher first. A wait that was cut
/// short (by the next change, or the end) is known only to be longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    pub(crate) urls: u32,
    pub(crate) cut_short: bool,
}

/// Returns the wait that is not exceeded by a share `q` of all waits, by the Kaplan-Meier estimate,
/// which also uses waits that were cut short. None when the share that ended is too small.
pub(crate) fn quantile(waits: &[Wait], q: f64) -> Option<u32> {
    let mut waits = waits.to_vec();
    waits.sort_unstable();
    let mut lasting = 1.0;
    for (place, wait) in waits.iter().enumerate() {
        if !wait.cut_short {
            lasting *= 1.0 - 1.0 / (waits.len() - place) as f64;
            if 1.0 - lasting >= q - 1e-12 {
                return Some(wait.urls);
            }
        }
    }
    None
}

/// Observes changes of the best fetcher of hosts, and the policy's reaction.
pub(crate) struct Adaptation<'w> {
    world: &'w World,
    web: &'w Web,
    tools: &'w [Tool],
    oracle: Oracle<'w>,
    hosts: Vec<Watch>,
}

/// The observed state of one host.
#[derive(Clone, Copy, Debug, Default)]
struct Watch {
    /// The time of the last observed change.
    change_ms: i64,
    waiting: Option<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    urls: u32,
    /// Whether the new best fetcher is dearer than the one before.
    dearer: Option<bool>,
}

impl<'w> Adaptation<'w> {
    pub(crate) fn new(world: &'w World, web: &'w Web, tools: &'w [Tool]) -> Self {
        Self {
            world,
            web,
            tools,
            oracle: Oracle::new(world, tools),
            hosts: vec![Watch::default(); web.hosts.len()],
        }
    }

    /// Records the first fetcher of a visit.
    pub(crate) fn see(
        &mut self,
        visit: &Visit,
        earlier: u32,
        first: Option<usize>,
        out: &mut AdaptationWaits,
    ) {
        if visit.file {
            return;
        }
        let host = &self.web.hosts[visit.host as usize];
        let Some(change_ms) = host.last_change(self.world, visit.at_ms) else { return };
        if self.hosts[visit.host as usize].change_ms != change_ms {
            self.cut(visit.host as usize, out);
            let waiting = (earlier >= WARM_VISITS).then_some(Waiting { urls: 0, dearer: None });
            self.hosts[visit.host as usize] = Watch { change_ms, waiting };
        }
        let Some(mut waiting) = self.hosts[visit.host as usize].waiting else { return };
        let (Some(before), Some(now)) =
            (self.best(visit, change_ms - 1), self.best(visit, visit.at_ms))
        else {
            return;
        };
        if before == now {
            return;
        }
        waiting.urls += 1;
        let dearer = *waiting.dearer.get_or_insert(self.tools[now].cost > self.tools[before].cost);
        let done = first == Some(now);
        if done {
            let wait = Wait { urls: waiting.urls - 1, cut_short: false };
            if dearer { out.worse.push(wait) } else { out.better.push(wait) }
        }
        self.hosts[visit.host as usize].waiting = (!done).then_some(waiting);
    }

    /// Ends all open waits.
    pub(crate) fn finish(&mut self, out: &mut AdaptationWaits) {
        for host in 0..self.hosts.len() {
            self.cut(host, out);
        }
    }

    fn cut(&mut self, host: usize, out: &mut AdaptationWaits) {
        if let Some(Waiting { urls, dearer: Some(dearer) }) = self.hosts[host].waiting.take() {
            let wait = Wait { urls, cut_short: true };
            if dearer { out.worse.push(wait) } else { out.better.push(wait) }
        }
    }

    /// Returns the oracle's first fetcher at `at_ms` if no ban existed.
    fn best(&mut self, visit: &Visit, at_ms: i64) -> Option<usize> {
        let condition = unbanned(self.world, self.web, visit, at_ms);
        self.oracle.order(&condition).first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(list: &[(u32, bool)]) -> Vec<Wait> {
        list.iter().map(|&(urls, cut_short)| Wait { urls, cut_short }).collect()
    }

    #[test]
    fn quantiles_of_whole_waits_are_those_of_the_list() {
        let list = waits(&[(1, false), (2, false), (3, false), (4, false), (50, false)]);
        assert_eq!([quantile(&list, 0.5), quantile(&list, 0.8)], [Some(3), Some(4)]);
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn waits_cut_short_raise_a_quantile_instead_of_lowering_it() {
        let list = waits(&[(1, true), (1, true), (2, true), (3, false), (9, false)]);
        assert_eq!([quantile(&list, 0.5), quantile(&list, 0.8)], [Some(3), Some(9)]);
        assert_eq!(quantile(&waits(&[(3, false), (4, true), (4, true)]), 0.8), None);
    }
}
