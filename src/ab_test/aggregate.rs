//! Aggregation of attempts into visits, by host and arm. It keeps counts only, so memory grows with
//! hosts and not with attempts.
//!
//! A visit consists of a link's attempts 1, 2, .. It counts from its first attempt on, and is
//! delivered once one of them delivers. Fetchers that the caller requested by name were no arm's
//! decision, and are left out.

use std::collections::HashMap;

use xxhash_rust::xxh3::xxh3_64;

use fetchwise_types::attempt::{Arm, Attempt};
use fetchwise_types::decision::Source;
use fetchwise_types::registry::{FetcherSpec, canonical};
use fetchwise_types::time::Timestamp;

/// Unfinished visits are remembered up to twice this number.
const MAX_OPEN: usize = 1 << 16;
/// Ratio of the bounds of adjacent time buckets.
const BUCKET: f64 = 1.02;

/// The window of attempts that count: a visit belongs to the window in which it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Start of the window, inclusive.
    pub since: Option<Timestamp>,
    /// End of the window, exclusive.
    pub until: Option<Timestamp>,
}

impl Window {
    /// Returns whether `at` is in the window.
    pub fn has(&self, at: Timestamp) -> bool {
        self.since.is_none_or(|since| since <= at) && self.until.is_none_or(|until| at < until)
    }
}

/// Sums over some visits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct VisitSums {
    pub(super) visits: f64,
    pub(super) delivered: f64,
    /// Visits with a blocked attempt.
    pub(super) blocked: f64,
    /// Blocked visits that were not delivered.
    pub(super) lost_to_blocks: f64,
    pub(super) requests: f64,
    /// In plain requests.
    pub(super) cost: f64,
}

impl VisitSums {
    pub(super) fn add(&mut self, other: &Self) {
        self.visits += other.visits;
        self.delivered += other.delivered;
        self.blocked += other.blocked;
        self.lost_to_blocks += other.lost_to_blocks;
        self.requests += other.requests;
        self.cost += other.cost;
    }
}

/// One host in one arm.
#[derive(Clone, Debug, Default)]
pub(super) struct ArmHost {
    /// Sums of all its visits.
    pub(super) all: VisitSums,
    /// Sums of the visits that the other arm could have served, too.
    pub(super) both: VisitSums,
    /// Durations of delivered visits: buckets and counts, sorted.
    pub(super) times: Vec<(u16, u32)>,
}

/// Counts of a host.
#[derive(Clone, Debug)]
pub(super) struct HostCounts {
    pub(super) name: Box<str>,
    /// By arm.
    pub(super) arms: [Option<Box<ArmHost>>; 2],
    /// Visits with a decision of both arms.
    pub(super) asked: u64,
    /// Visits in which both chose the same fetcher.
    pub(super) agreed: u64,
    /// These fetchers and their counts.
    pub(super) same: Vec<(u16, u64)>,
    /// The other visits: the table's fetcher, learning's, and their count.
    pub(super) differed: Vec<(u16, u16, u64)>,
}

/// A visit that may have more attempts.
#[derive(Clone, Copy, Debug)]
struct OpenVisit {
    host: u32,
    arm: Arm,
    is_both: bool,
    is_delivered: bool,
    is_blocked: bool,
    ms: u64,
}

/// Collects attempts one by one, oldest first.
///
/// ```
/// use fetchwise::ab_test::{Aggregate, Window};
/// use fetchwise::attempt::{Arm, Attempt};
/// use fetchwise::time::Timestamp;
///
/// let mut aggregate = Aggregate::new(Window::default(), [("playwright".to_owned(), 15.0)]);
/// let url = url::Url::parse("https://example.org/").unwrap();
/// let mut attempt = Attempt::new(&url, "playwright", Timestamp::now()).unwrap().delivered();
/// (attempt.arm, attempt.source) = (Some(Arm::Legacy), Some("hard_coded".into()));
/// aggregate.observe(&attempt);
/// let legacy = &aggregate.comparison().arms[1];
/// assert_eq!((legacy.arm, legacy.visits, legacy.cost_per_page.value), ("legacy", 1, Some(15.0)));
/// ```
#[derive(Clone, Debug)]
pub struct Aggregate {
    window: Window,
    costs: HashMap<String, f64>,
    pub(super) hosts: Vec<HostCounts>,
    numbers: HashMap<Box<str>, u32>,
    open: HashMap<u64, OpenVisit>,
    /// The visits that were unfinished before `open` was started.
    older: HashMap<u64, OpenVisit>,
    pub(super) fetchers: Vec<Box<str>>,
    /// First requests by fetcher, for each arm.
    pub(super) first: [Vec<u64>; 2],
    /// Visits whose fetcher the caller named.
    pub(super) named: u64,
    /// Visits with an unknown decision.
    pub(super) unknown: u64,
}

impl Aggregate {
    /// Returns an aggregate without attempts. `costs` are those of fetchers, in plain requests;
    /// other fetchers have the cost of their name.
    pub fn new(window: Window, costs: impl IntoIterator<Item = (String, f64)>) -> Self {
        Self {
            window,
            costs: costs.into_iter().collect(),
            hosts: Vec::new(),
            numbers: HashMap::new(),
            open: HashMap::new(),
            older: HashMap::new(),
            fetchers: Vec::new(),
            first: [Vec::new(), Vec::new()],
            named: 0,
            unknown: 0,
        }
    }

    /// Returns an aggregate with the same costs and without attempts, for another window.
    #[must_use]
    pub fn with_window(&self, window: Window) -> Self {
        Self::new(window, self.costs.clone())
    }

    /// Returns the window of attempts that count.
    pub fn window(&self) -> Window {
        self.window
    }

    /// Counts an attempt.
    pub fn observe(&mut self, attempt: &Attempt) {
        let link = xxh3_64(attempt.link.as_bytes());
        let open = match attempt.try_no {
            0 | 1 => self.begin(attempt),
            _ => self.open.remove(&link).or_else(|| self.older.remove(&link)),
        };
        let Some(open) = open else {
            self.open.remove(&link);
            self.older.remove(&link);
            return;
        };
        let cost = self.cost(&attempt.fetcher);
        let open = self.count(open, attempt, cost);
        if !open.is_delivered {
            self.keep(link, open);
        } else {
            self.open.remove(&link);
            self.older.remove(&link);
        }
    }

    /// Returns the cost of a request by `fetcher`, in plain requests.
    pub(super) fn cost(&self, fetcher: &str) -> f64 {
        let known = self.costs.get(canonical(fetcher)).copied();
        known.unwrap_or_else(|| FetcherSpec::by_name(fetcher).cost)
    }

    fn keep(&mut self, link: u64, open: OpenVisit) {
        if self.open.len() >= MAX_OPEN {
            self.older = std::mem::take(&mut self.open);
        }
        self.open.insert(link, open);
    }

    /// Returns the visit that a first attempt begins, if it counts.
    fn begin(&mut self, attempt: &Attempt) -> Option<OpenVisit> {
        if !self.window.has(attempt.attempted_at) {
            return None;
        }
        let source = attempt.source.as_deref().and_then(Source::from_name);
        let arm = match (attempt.arm, source) {
            (_, Some(Source::Requested)) => {
                self.named += 1;
                return None;
            }
            (Some(arm), _) => arm,
            (None, Some(Source::HardCoded)) => Arm::Legacy,
            // In mode learning no other arm could have served.
            (None, Some(_)) => Arm::Learning,
            (None, None) => {
                self.unknown += 1;
                return None;
            }
        };
        let shadow = attempt.shadow_fetcher.as_deref();
        let host = self.host(attempt.heuristic("domain").unwrap_or("(none)"));
        let taken = self.fetcher(&attempt.fetcher);
        let counts = &mut self.first[arm as usize];
        if counts.len() <= usize::from(taken) {
            counts.resize(usize::from(taken) + 1, 0);
        }
        counts[usize::from(taken)] += 1;
        let is_both = shadow.is_some() && attempt.arm.is_some();
        if let Some(shadow) = shadow.filter(|_| is_both) {
            let other = self.fetcher(shadow);
            let pair = if arm == Arm::Legacy { (taken, other) } else { (other, taken) };
            self.hosts[host as usize].asked(pair);
        }
        let unit = self.hosts[host as usize].arms[arm as usize].get_or_insert_default();
        unit.all.visits += 1.0;
        unit.both.visits += f64::from(u8::from(is_both));
        Some(OpenVisit { host, arm, is_both, is_delivered: false, is_blocked: false, ms: 0 })
    }

    fn count(&mut self, mut open: OpenVisit, attempt: &Attempt, cost: f64) -> OpenVisit {
        open.ms = open.ms.saturating_add(attempt.duration_ms);
        let unit = self.hosts[open.host as usize].arms[open.arm as usize].get_or_insert_default();
        let newly_blocked = attempt.is_banned && !open.is_blocked;
        let mut more = VisitSums { requests: 1.0, cost, ..VisitSums::default() };
        more.delivered = f64::from(u8::from(attempt.success));
        more.blocked = f64::from(u8::from(newly_blocked));
        open.is_blocked |= attempt.is_banned;
        more.lost_to_blocks = match attempt.success {
            true if open.is_blocked && !newly_blocked => -1.0,
            false if newly_blocked => 1.0,
            _ => 0.0,
        };
        unit.all.add(&more);
        if open.is_both {
            unit.both.add(&more);
        }
        if attempt.success {
            open.is_delivered = true;
            unit.took(open.ms);
        }
        open
    }

    fn host(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.hosts.len()).unwrap_or(u32::MAX);
        self.numbers.insert(name.into(), number);
        self.hosts.push(HostCounts {
            name: name.into(),
            arms: [None, None],
            asked: 0,
            agreed: 0,
            same: Vec::new(),
            differed: Vec::new(),
        });
        number
    }

    #[cfg(test)]
    pub(super) fn host_number(&mut self, name: &str) -> usize {
        self.host(name) as usize
    }

    fn fetcher(&mut self, name: &str) -> u16 {
        let name = canonical(name);
        let known = self.fetchers.iter().position(|known| **known == *name);
        let number = known.unwrap_or_else(|| {
            self.fetchers.push(name.into());
            self.fetchers.len() - 1
        });
        u16::try_from(number).unwrap_or(u16::MAX)
    }

    /// Returns the hosts of an arm.
    pub(super) fn units(&self, arm: Arm) -> impl Iterator<Item = &ArmHost> {
        self.hosts.iter().filter_map(move |host| host.arms[arm as usize].as_deref())
    }

    /// Returns the visits and hosts of an arm that the other one could have served, too.
    pub fn comparable(&self, arm: Arm) -> (u64, u64) {
        let both = self.units(arm).filter(|unit| unit.both.visits > 0.0);
        both.fold((0, 0), |(visits, hosts), unit| (visits + unit.both.visits as u64, hosts + 1))
    }
}

impl HostCounts {
    fn asked(&mut self, pair: (u16, u16)) {
        self.asked += 1;
        if pair.0 == pair.1 {
            self.agreed += 1;
            match self.same.iter_mut().find(|(fetcher, _)| *fetcher == pair.0) {
                Some((_, count)) => *count += 1,
                None => self.same.push((pair.0, 1)),
            }
            return;
        }
        match self.differed.iter_mut().find(|(table, learning, _)| (*table, *learning) == pair) {
            Some((_, _, count)) => *count += 1,
            None => self.differed.push((pair.0, pair.1, 1)),
        }
    }
}

impl ArmHost {
    fn took(&mut self, ms: u64) {
        let bucket = bucket_of(ms);
        match self.times.binary_search_by_key(&bucket, |(bucket, _)| *bucket) {
            Ok(at) => self.times[at].1 = self.times[at].1.saturating_add(1),
            Err(at) => self.times.insert(at, (bucket, 1)),
        }
    }
}

/// Returns the bucket of a time.
pub(super) fn bucket_of(ms: u64) -> u16 {
    ((ms as f64 + 1.0).ln() / BUCKET.ln()).round() as u16
}

/// Returns the time of a bucket in milliseconds, accurate to one per cent.
pub(super) fn time_of(bucket: u16) -> f64 {
    BUCKET.powi(i32::from(bucket)) - 1.0
}
