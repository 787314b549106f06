//! What others have said of links: which are paused or at risk, and until when.
//!
//! Owns whose word counts: of one link the last one, by time and then by origin. Invariants: whatever order rows come in, the same holds
//! in the end; a pause is never longer than it was meant, whatever its node's clock says, nor than a day; memory is bounded, for one
//! origin and for all, and what has ended goes first. Must not know files, brokers, or who heeds it.

use std::collections::BTreeMap;
use std::time::Duration;

use fetchwise::attempt::Hint;
use fetchwise::backoff::LinkState;
use fetchwise::journal::LinkEntry;
use fetchwise::journal::replication::LinkFact;
use fetchwise::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::codec::{code_of, hint_of};
use crate::model::node_id::Origin;

/// No pause is longer, and what was said of a link is kept for so long after it.
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// Links of one origin at most,
pub(crate) const OF_ONE_MAX: usize = 10_000;
/// and of all together.
const ALL_MAX: usize = 100_000;
/// No domain's name and no egress is longer; a row with one that is says nothing.
const NAME_MAX: usize = 255;

/// Where a row stood, and when the broker had it.
#[derive(Clone, Copy, Debug)]
pub struct Heard {
    /// Whose it is.
    pub origin: Origin,
    /// Its position in the origin's log.
    pub position: u64,
    /// When the broker had it.
    pub at: Timestamp,
}

/// What an origin said of a link last.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    state: LinkState,
    at: Timestamp,
    position: u64,
    domain: Box<str>,
    /// Whom it holds for: those behind the same addresses.
    egress: Box<str>,
}

impl Row {
    /// When it says nothing any more that could matter.
    fn ends(&self) -> Timestamp {
        self.state.paused_until.map_or(self.at, |until| until.max(self.at))
    }
}

/// What others have said of links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Links {
    rows: BTreeMap<(u64, Origin), Row>,
    of: BTreeMap<Origin, usize>,
}

/// A row as snapshots and shares have it: link, domain, egress, at, until, risk, hint, attempts, position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept(u64, Box<str>, Box<str>, i64, Option<i64>, u8, u8, u32, u64);

impl Kept {
    /// What a node says of links in its share: `all` that its log said of each last, of those what may still matter at `now`; no more than is
    /// taken of one node, and then what ends last. By the broker's clock, which the node's own is `ahead` of.
    pub(crate) fn of(
        all: impl Iterator<Item = (u64, LinkEntry)>,
        egress: &str,
        now: Timestamp,
        ahead: Duration,
    ) -> Vec<Self> {
        let back = |at: Timestamp| at.as_millis().saturating_sub(i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX));
        let row = |(position, entry): (u64, LinkEntry)| {
            let LinkFact { link, domain, state, at } = LinkFact::of(&entry);
            let (until, hint) = (state.paused_until.map(back), code_of(state.hint));
            let (risk, attempts) = (state.risk_level, state.attempt_count);
            Self(link, domain.into(), egress.into(), back(at), until, risk, hint, attempts, position)
        };
        let mut rows: Vec<Self> = all.map(row).filter(|row| row.ends().saturating_add(DAY) > now).collect();
        // Links are told apart by their hash, so that whoever folds the same log says the same.
        rows.sort_unstable_by_key(|row| (std::cmp::Reverse(row.ends()), row.0));
        rows.truncate(OF_ONE_MAX);
        rows
    }

    /// As [`Row::ends`].
    fn ends(&self) -> Timestamp {
        Timestamp::from_millis(self.4.map_or(self.3, |until| until.max(self.3)))
    }
}

impl Links {
    /// Takes what an origin's share says, that was taken at `at`. Returns the links whose state may be another one now.
    pub(crate) fn take_kept(
        &mut self,
        (origin, at): (Origin, Timestamp),
        rows: &[Kept],
        forgotten: &BTreeMap<String, Timestamp>,
    ) -> Vec<u64> {
        let mut changed = Vec::new();
        for Kept(link, domain, egress, said, until, risk_level, hint, attempt_count, position) in
            rows.iter().take(OF_ONE_MAX)
        {
            let (paused_until, hint): (_, Option<Hint>) = (until.map(Timestamp::from_millis), hint_of(*hint));
            let (risk_level, attempt_count) = (*risk_level, *attempt_count);
            let state = LinkState { paused_until, risk_level, attempt_count, last_attempt_at: None, hint };
            let fact = LinkFact { link: *link, domain, state, at: Timestamp::from_millis(*said) };
            let heard = Heard { origin, position: *position, at };
            changed.extend(self.take(heard, &fact, egress, forgotten.get(&**domain).copied()));
        }
        changed
    }

    /// How many links something is held of, and how many of them wait at `now` for those behind these addresses.
    pub(crate) fn counts(&self, egress: &str, now: Timestamp) -> (u64, u64) {
        let (mut all, mut waiting, mut last) = (0, 0, None);
        for (link, _) in self.rows.keys() {
            if last.replace(*link) != Some(*link) {
                all += 1;
                let state = self.state(*link, egress);
                waiting += u64::from(state.and_then(|state| state.paused_until).is_some_and(|until| until > now));
            }
        }
        (all, waiting)
    }

    /// Takes a row; `forgotten` is up to when its domain was forgotten. Returns the links whose state may be another one now: its own,
    /// and those that made room for it.
    pub fn take(&mut self, heard: Heard, link: &LinkFact<'_>, egress: &str, forgotten: Option<Timestamp>) -> Vec<u64> {
        let Heard { origin, position, at: heard_at } = heard;
        if link.domain.len() > NAME_MAX || egress.len() > NAME_MAX || forgotten.is_some_and(|until| link.at <= until) {
            return Vec::new();
        }
        // By whatever clock: nobody says anything before the broker has it, and a pause counts from then at the latest.
        let at = link.at.min(heard_at);
        let until = link.state.paused_until.map(|until| {
            let meant = until.since(link.at).min(DAY);
            until.min(heard_at.saturating_add(meant)).min(at.saturating_add(DAY))
        });
        let state = LinkState { paused_until: until, ..link.state };
        let row = Row { state, at, position, domain: link.domain.into(), egress: egress.into() };
        let key = (link.link, origin);
        match self.rows.get_mut(&key) {
            Some(known) if (known.at, known.position) >= (at, position) => return Vec::new(),
            Some(known) => *known = row,
            None => {
                let mut gone = self.make_room(origin);
                self.rows.insert(key, row);
                *self.of.entry(origin).or_default() += 1;
                gone.push(link.link);
                return gone;
            }
        }
        vec![link.link]
    }

    /// Whether a row says something later of its link than is known from its origin.
    pub fn is_news(&self, heard: Heard, link: &LinkFact<'_>) -> bool {
        let known = self.rows.get(&(link.link, heard.origin));
        known.is_none_or(|known| (known.at, known.position) < (link.at.min(heard.at), heard.position))
    }

    /// Makes room for a row more of an origin: a tenth at once, so that the next ones cost nothing.
    fn make_room(&mut self, origin: Origin) -> Vec<u64> {
        if self.of.get(&origin).is_some_and(|count| *count >= OF_ONE_MAX) {
            self.thin(OF_ONE_MAX / 10, |by| by == origin)
        } else if self.rows.len() >= ALL_MAX {
            self.thin(ALL_MAX / 10, |_| true)
        } else {
            Vec::new()
        }
    }

    /// Drops the `count` rows that end first, of those by whom `is_of` says.
    fn thin(&mut self, count: usize, is_of: impl Fn(Origin) -> bool) -> Vec<u64> {
        let mut all: Vec<(Timestamp, (u64, Origin))> =
            self.rows.iter().filter(|((_, by), _)| is_of(*by)).map(|(key, row)| (row.ends(), *key)).collect();
        if count < all.len() {
            all.select_nth_unstable(count);
            all.truncate(count);
        }
        self.drop_all(all.into_iter().map(|(_, key)| key).collect())
    }

    fn drop_all(&mut self, keys: Vec<(u64, Origin)>) -> Vec<u64> {
        for key in &keys {
            if self.rows.remove(key).is_some()
                && let Some(count) = self.of.get_mut(&key.1)
            {
                *count -= 1;
            }
        }
        self.of.retain(|_, count| *count > 0);
        keys.into_iter().map(|(link, _)| link).collect()
    }

    fn drop_where(&mut self, goes: impl Fn(Origin, &Row) -> bool) -> Vec<u64> {
        let keys = self.rows.iter().filter(|((_, by), row)| goes(*by, row)).map(|(key, _)| *key).collect();
        self.drop_all(keys)
    }

    /// Drops what an origin has said. Returns the links whose state may be another one now, as all of these do.
    pub fn drop_origin(&mut self, origin: Origin) -> Vec<u64> {
        if self.of.contains_key(&origin) { self.drop_where(|by, _| by == origin) } else { Vec::new() }
    }

    /// Drops what was said of links of a domain up to a time.
    pub fn forget(&mut self, domain: &str, until: Timestamp) -> Vec<u64> {
        self.drop_where(|_, row| &*row.domain == domain && row.at <= until)
    }

    /// Drops what ended more than a day ago.
    pub fn sweep(&mut self, now: Timestamp) -> Vec<u64> {
        self.drop_where(|_, row| row.ends().saturating_add(DAY) <= now)
    }

    /// What holds of a link for those behind these addresses; none where nobody has said anything, or that it is fine.
    pub fn state(&self, link: u64, egress: &str) -> Option<LinkState> {
        let all = self.rows.range((link, Origin::from_bytes([0; 16]))..=(link, Origin::from_bytes([0xff; 16])));
        let last = all.filter(|(_, row)| &*row.egress == egress).max_by_key(|((_, by), row)| (row.at, *by))?;
        let state = last.1.state;
        let is_at_risk = state.risk_level > 0 || state.paused_until.is_some() || state.hint.is_some();
        is_at_risk.then_some(state)
    }

    /// All links that something was said of, each at least once.
    pub fn all(&self) -> Vec<u64> {
        self.rows.keys().map(|(link, _)| *link).collect()
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What a snapshot keeps.
    pub(crate) fn kept(&self) -> BTreeMap<String, Vec<Kept>> {
        let mut all = BTreeMap::<String, Vec<Kept>>::new();
        for ((link, origin), row) in &self.rows {
            let Row { state, at, position, domain, egress } = row;
            let until = state.paused_until.map(Timestamp::as_millis);
            let (risk, hint, attempts) = (state.risk_level, code_of(state.hint), state.attempt_count);
            let kept =
                Kept(*link, domain.clone(), egress.clone(), at.as_millis(), until, risk, hint, attempts, *position);
            all.entry(origin.to_string()).or_default().push(kept);
        }
        all
    }

    /// Adds what a snapshot has kept of an origin.
    pub(crate) fn restore(&mut self, origin: Origin, all: Vec<Kept>) {
        for Kept(link, domain, egress, at, until, risk_level, hint, attempt_count, position) in all {
            let (paused_until, hint): (_, Option<Hint>) = (until.map(Timestamp::from_millis), hint_of(hint));
            let state = LinkState { paused_until, risk_level, attempt_count, last_attempt_at: None, hint };
            let row = Row { state, at: Timestamp::from_millis(at), position, domain, egress };
            if self.rows.insert((link, origin), row).is_none() {
                *self.of.entry(origin).or_default() += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: i64 = 1_800_000_000_000;
    const MINUTE: i64 = 60_000;

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_millis(NOW + minutes * MINUTE)
    }

    fn origin(n: u8) -> Origin {
        Origin::from_bytes([n; 16])
    }

    fn fact(link: u64, said: i64, until: Option<i64>) -> LinkFact<'static> {
        let risk_level = u8::from(until.is_some());
        let state = LinkState { paused_until: until.map(at), risk_level, ..LinkState::default() };
        LinkFact { link, domain: "e.org", state, at: at(said) }
    }

    fn heard(n: u8, minutes: i64) -> Heard {
        Heard { origin: origin(n), position: 1, at: at(minutes) }
    }

    fn pause(links: &Links, link: u64) -> Option<i64> {
        let until = links.state(link, "").and_then(|state| state.paused_until)?;
        Some((until.as_millis() - NOW) / MINUTE)
    }

    #[test]
    fn the_last_word_counts_and_goes_with_its_node() {
        let mut links = Links::default();
        assert_eq!(links.take(heard(1, 0), &fact(7, 0, Some(10)), "", None), [7]);
        assert_eq!(links.take(heard(2, 2), &fact(7, 1, Some(21)), "", None), [7]);
        assert!(links.take(heard(2, 3), &fact(7, 0, Some(99)), "", None).is_empty(), "it comes late");
        assert_eq!(pause(&links, 7), Some(21));
        assert_eq!(links.state(7, "eu"), None, "it holds for those behind the same addresses");
        assert_eq!(links.drop_origin(origin(2)), [7]);
        assert_eq!(pause(&links, 7), Some(10));
        assert!(links.is_news(heard(3, 5), &fact(7, 5, None)));
        links.take(heard(3, 5), &fact(7, 5, None), "", None);
        assert!(!links.is_news(heard(3, 5), &fact(7, 5, None)) && !links.is_news(heard(3, 9), &fact(7, 4, Some(40))));
        assert_eq!(links.state(7, ""), None, "it is fine");
    }

    #[test]
    fn no_pause_is_longer_than_it_was_meant() {
        let mut links = Links::default();
        // The node's clock is an hour ahead, an hour behind, and the pause of years.
        links.take(heard(1, 0), &fact(1, 60, Some(70)), "", None);
        links.take(heard(1, 0), &fact(2, -60, Some(-50)), "", None);
        links.take(heard(1, 0), &fact(3, 0, Some(10_000_000)), "", None);
        assert_eq!([1, 2, 3].map(|link| pause(&links, link)), [Some(10), Some(-50), Some(1440)]);
        // Who is ahead does not have the last word for that.
        links.take(heard(2, 1), &fact(1, 1, Some(30)), "", None);
        assert_eq!(pause(&links, 1), Some(30));
    }

    #[test]
    fn what_is_forgotten_goes_and_does_not_come_back() {
        let mut links = Links::default();
        links.take(heard(1, 0), &fact(1, 0, Some(10)), "", None);
        let other = LinkFact { domain: "f.org", ..fact(2, 0, Some(10)) };
        links.take(heard(1, 0), &other, "", None);
        assert_eq!(links.forget("e.org", at(1)), [1]);
        assert!(links.take(heard(1, 2), &fact(1, 1, Some(10)), "", Some(at(1))).is_empty());
        assert_eq!((pause(&links, 1), pause(&links, 2)), (None, Some(10)));
        assert_eq!(links.take(heard(1, 3), &fact(1, 3, Some(12)), "", Some(at(1))), [1]);
        assert!(links.sweep(at(1440)).is_empty());
        assert_eq!(links.sweep(at(1450)), [2], "a day after its end");
    }

    #[test]
    fn memory_is_bounded_and_what_ended_goes_first() {
        let mut links = Links::default();
        for link in 0..OF_ONE_MAX as u64 {
            links.take(heard(1, 0), &fact(link, 0, Some(if link % 2 == 0 { 5 } else { 50 })), "", None);
        }
        links.take(heard(2, 0), &fact(1 << 40, 0, Some(1)), "", None);
        let gone = links.take(heard(1, 6), &fact(1 << 41, 6, Some(60)), "", None);
        assert_eq!(gone.len(), OF_ONE_MAX / 10 + 1);
        assert!(gone[..OF_ONE_MAX / 10].iter().all(|link| link % 2 == 0), "what had ended");
        assert_eq!(pause(&links, 1 << 40), Some(1), "one node does not take another's room");
        for n in 3..30 {
            (0..OF_ONE_MAX as u64).for_each(|link| drop(links.take(heard(n, 6), &fact(link, 6, Some(9)), "", None)));
        }
        assert!(links.len() <= ALL_MAX, "{}", links.len());
        assert_eq!(links.of.values().sum::<usize>(), links.len());
        let long = "x".repeat(256);
        assert!(links.take(heard(1, 9), &LinkFact { domain: &long, ..fact(3, 9, None) }, "", None).is_empty());
    }

    #[test]
    fn a_share_tells_of_links_that_may_still_matter_by_the_brokers_clock() {
        let entry = |n: i64, until: Option<i64>| {
            let state = LinkState { paused_until: until.map(at), risk_level: 1, ..LinkState::default() };
            LinkEntry { link: format!("https://e.org/{n}"), domain: "e.org".into(), state, at: at(n) }
        };
        let all = [entry(0, Some(30)), entry(-3000, Some(-1500)), entry(-3000, Some(-1400)), entry(5, None)];
        // Its clock is five minutes ahead.
        let rows = Kept::of((1..).zip(all), "eu", at(0), Duration::from_secs(300));
        assert_eq!(rows.iter().map(|row| row.8).collect::<Vec<_>>(), [1, 4, 3], "what ends last comes first");
        let mut links = Links::default();
        let changed = links.take_kept((origin(1), at(0)), &rows, &BTreeMap::new());
        assert_eq!((changed.len(), links.counts("eu", at(0)), links.counts("", at(0))), (3, (3, 1), (3, 0)));
        assert_eq!(links.state(changed[0], "eu").and_then(|state| state.paused_until), Some(at(25)));
        assert_eq!(links.counts("eu", at(25)), (3, 0));
        assert!(links.take_kept((origin(1), at(9)), &rows, &BTreeMap::new()).is_empty(), "it is known");
        let forgotten = BTreeMap::from([("e.org".to_owned(), at(-10))]);
        assert_eq!(Links::default().take_kept((origin(1), at(0)), &rows, &forgotten).len(), 2);
        let many = (0..12_000).map(|n| (1, entry(n, Some(n + 5))));
        let rows = Kept::of(many, "", at(0), Duration::ZERO);
        assert!(rows.len() == OF_ONE_MAX && rows.iter().all(|row| row.ends() >= at(2005)));
    }

    #[test]
    fn what_is_kept_comes_back() {
        let mut links = Links::default();
        let state = LinkState { hint: Some(Hint::Empty), attempt_count: 9, ..fact(1, 0, Some(10)).state };
        links.take(heard(1, 0), &LinkFact { state, ..fact(1, 0, None) }, "eu", None);
        links.take(heard(2, 0), &fact(u64::MAX, 0, None), "", None);
        let json = serde_json::to_vec(&links.kept()).unwrap();
        let kept: BTreeMap<String, Vec<Kept>> = serde_json::from_slice(&json).unwrap();
        let mut again = Links::default();
        kept.into_iter().for_each(|(origin, rows)| again.restore(origin.parse().unwrap(), rows));
        assert_eq!(again, links);
    }

    /// Of a link, a node, when it was said, for how long it is paused, when the broker had it, and its position.
    type Row = (u64, u8, i64, Option<i64>, i64, u64);

    proptest! {
        #[test]
        fn the_order_of_rows_does_not_matter(
            rows in prop::collection::vec((0u64..3, 0u8..3, -20i64..20, prop::option::of(0i64..60), -5i64..30, any::<u64>()), 0..20)
        ) {
            let fold = |rows: &[Row]| {
                let mut links = Links::default();
                for (link, by, said, pause, broker, position) in rows {
                    let heard = Heard { position: *position, ..heard(*by, *broker) };
                    let fact = fact(*link, *said, pause.map(|pause| said + pause));
                    links.take(heard, &fact, "", None);
                }
                [0, 1, 2].map(|link| links.state(link, ""))
            };
            let mut other = rows.clone();
            other.sort_by_key(|row| row.5.reverse_bits());
            // Two rows of one position are one row.
            other.dedup_by_key(|row| row.5);
            let all: Vec<_> = rows.iter().filter(|row| other.contains(row)).copied().collect();
            prop_assert_eq!(fold(&all), fold(&other));
        }
    }
}
