//! Link states received from peers: which links are paused or at risk, and until when.
//!
//! Owns: which state of a link counts. The newest one does, by time and then by node id.
//!
//! Invariants: the order of arrival does not change the result. A pause is never longer than its
//! node meant, whatever that node's clock says, and never longer than a day. Memory is bounded per
//! node and in total, and expired states go first. Eviction never brings an older state back.
//!
//! Must not know: files, brokers, or who uses the states.

use std::collections::{BTreeMap, btree_map};
use std::time::Duration;

use fetchwise::attempt::Hint;
use fetchwise::backoff::LinkState;
use fetchwise::journal::LinkEntry;
use fetchwise::journal::replication::RemoteLinkState;
use fetchwise::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::codec::{code_of, hint_of};
use crate::model::node_id::NodeId;

/// The maximum pause, and the time for which a state is kept after its end.
pub(crate) const DAY: Duration = Duration::from_secs(86_400);
/// The maximum number of links of one node.
pub(crate) const MAX_PER_NODE: usize = 10_000;
/// The maximum number of links of all nodes together.
const MAX_TOTAL: usize = 100_000;
/// The first and the last possible id of a node.
const ALL_NODES: [NodeId; 2] = [NodeId::from_bytes([0; 16]), NodeId::from_bytes([0xff; 16])];
/// The maximum length of a domain and of an egress group in bytes. A longer row is ignored.
const MAX_NAME: usize = 255;

/// The origin of a row and its time at the broker.
#[derive(Clone, Copy, Debug)]
pub struct RowSource {
    /// The node that published it.
    pub node_id: NodeId,
    /// The position in that node's log.
    pub position: u64,
    /// The time at which the broker stored it.
    pub at: Timestamp,
}

/// The newest state of a link from one node.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RemoteLink {
    state: LinkState,
    at: Timestamp,
    position: u64,
    domain: Box<str>,
    /// The egress group that the state applies to.
    egress: Box<str>,
}

impl RemoteLink {
    /// Returns the time after which the state no longer matters.
    fn ends(&self) -> Timestamp {
        self.state.paused_until.map_or(self.at, |until| until.max(self.at))
    }
}

/// Link states of all peers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteLinks {
    rows: BTreeMap<(u64, NodeId), RemoteLink>,
    of: BTreeMap<NodeId, usize>,
}

/// A row as stored in snapshots: link, domain, egress group, time, end of the pause, risk, hint,
/// attempts, position.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredLink(u64, Box<str>, Box<str>, i64, Option<i64>, u8, u8, u32, u64);

impl StoredLink {
    /// Returns the rows for a node's evidence snapshot: those of `all` that may still matter at
    /// `now`. No more rows are returned than a reader accepts from one node; those that end last
    /// win. Times are converted to the broker's clock, which the node's own clock is `ahead` of.
    pub(crate) fn of(
        all: impl Iterator<Item = (u64, LinkEntry)>,
        egress: &str,
        now: Timestamp,
        ahead: Duration,
    ) -> Vec<Self> {
        let back = |at: Timestamp| {
            at.as_millis().saturating_sub(i64::try_from(ahead.as_millis()).unwrap_or(i64::MAX))
        };
        let row = |(position, entry): (u64, LinkEntry)| {
            let RemoteLinkState { link, domain, state, at } = RemoteLinkState::of(&entry);
            let (until, hint) = (state.paused_until.map(back), code_of(state.hint));
            let (risk, attempts) = (state.risk_level, state.attempt_count);
            Self(
                link,
                domain.into(),
                egress.into(),
                back(at),
                until,
                risk,
                hint,
                attempts,
                position,
            )
        };
        let mut rows: Vec<Self> =
            all.map(row).filter(|row| row.ends().saturating_add(DAY) > now).collect();
        // Ties are broken by the link's hash, so every fold of the same log returns the same rows.
        rows.sort_unstable_by_key(|row| (std::cmp::Reverse(row.ends()), row.0));
        rows.truncate(MAX_PER_NODE);
        rows
    }

    /// As [`RemoteLink::ends`].
    fn ends(&self) -> Timestamp {
        Timestamp::from_millis(self.4.map_or(self.3, |until| until.max(self.3)))
    }
}

impl RemoteLinks {
    /// Applies the rows of a snapshot that was applied at `at`. Returns the links whose state may
    /// have changed.
    pub(crate) fn apply_stored(
        &mut self,
        (node_id, at): (NodeId, Timestamp),
        rows: &[StoredLink],
        forgotten: &BTreeMap<String, Timestamp>,
    ) -> Vec<u64> {
        let mut changed = Vec::new();
        for StoredLink(
            link,
            domain,
            egress,
            said,
            until,
            risk_level,
            hint,
            attempt_count,
            position,
        ) in rows.iter().take(MAX_PER_NODE)
        {
            let (paused_until, hint): (_, Option<Hint>) =
                (until.map(Timestamp::from_millis), hint_of(*hint));
            let (risk_level, attempt_count) = (*risk_level, *attempt_count);
            let state =
                LinkState { paused_until, risk_level, attempt_count, last_attempt_at: None, hint };
            let fact =
                RemoteLinkState { link: *link, domain, state, at: Timestamp::from_millis(*said) };
            let heard = RowSource { node_id, position: *position, at };
            changed.extend(self.apply(heard, &fact, egress, forgotten.get(&**domain).copied()));
        }
        changed
    }

    /// Returns the number of links with a state, and the number of those that are paused at `now`
    /// for this egress group.
    pub(crate) fn counts(&self, egress: &str, now: Timestamp) -> (u64, u64) {
        let (mut all, mut waiting, mut last) = (0, 0, None);
        for (link, _) in self.rows.keys() {
            if last.replace(*link) != Some(*link) {
                all += 1;
                let state = self.state(*link, egress);
                waiting += u64::from(
                    state.and_then(|state| state.paused_until).is_some_and(|until| until > now),
                );
            }
        }
        (all, waiting)
    }

    /// Applies a row; `forgotten` is the time up to which its domain was forgotten. Returns the
    /// links whose state may have changed: its own, and those that were evicted for it.
    pub fn apply(
        &mut self,
        heard: RowSource,
        link: &RemoteLinkState<'_>,
        egress: &str,
        forgotten: Option<Timestamp>,
    ) -> Vec<u64> {
        let RowSource { node_id, position, at: heard_at } = heard;
        if link.domain.len() > MAX_NAME
            || egress.len() > MAX_NAME
            || forgotten.is_some_and(|until| link.at <= until)
        {
            return Vec::new();
        }
        // No clock is trusted beyond the broker's: a row is not newer than its arrival, and a pause
        // counts from then at the latest.
        let at = link.at.min(heard_at);
        let until = link.state.paused_until.map(|until| {
            let meant = until.since(link.at).min(DAY);
            until.min(heard_at.saturating_add(meant)).min(at.saturating_add(DAY))
        });
        let state = LinkState { paused_until: until, ..link.state };
        let row =
            RemoteLink { state, at, position, domain: link.domain.into(), egress: egress.into() };
        let key = (link.link, node_id);
        match self.rows.get_mut(&key) {
            Some(known) if (known.at, known.position) >= (at, position) => return Vec::new(),
            Some(known) => *known = row,
            None => {
                let mut gone = self.make_room(node_id);
                self.rows.insert(key, row);
                *self.of.entry(node_id).or_default() += 1;
                gone.push(link.link);
                return gone;
            }
        }
        vec![link.link]
    }

    /// Returns whether a row is newer than the known state of its link from the same node.
    pub fn is_newer(&self, heard: RowSource, link: &RemoteLinkState<'_>) -> bool {
        let known = self.rows.get(&(link.link, heard.node_id));
        known.is_none_or(|known| {
            (known.at, known.position) < (link.at.min(heard.at), heard.position)
        })
    }

    /// Evicts a tenth of a node's rows at once, so that the next rows cost nothing.
    fn make_room(&mut self, node_id: NodeId) -> Vec<u64> {
        if self.of.get(&node_id).is_some_and(|count| *count >= MAX_PER_NODE) {
            self.evict(MAX_PER_NODE / 10, |by| by == node_id)
        } else if self.rows.len() >= MAX_TOTAL {
            self.evict(MAX_TOTAL / 10, |_| true)
        } else {
            Vec::new()
        }
    }

    /// Drops the `count` rows that end first, among the nodes that `is_of` selects, and the older
    /// rows of the same links: one that says that a link is fine ends at once, and without it an
    /// older pause of another node would count again.
    fn evict(&mut self, count: usize, is_of: impl Fn(NodeId) -> bool) -> Vec<u64> {
        let mut all: Vec<(Timestamp, (u64, NodeId))> = self
            .rows
            .iter()
            .filter(|((_, by), _)| is_of(*by))
            .map(|(key, row)| (row.ends(), *key))
            .collect();
        if count < all.len() {
            all.select_nth_unstable(count);
            all.truncate(count);
        }
        let mut keys: Vec<(u64, NodeId)> = all.into_iter().map(|(_, key)| key).collect();
        let older: Vec<_> = keys.iter().flat_map(|key| self.older_rows(*key)).collect();
        keys.extend(older);
        self.drop_all(keys)
    }

    /// Returns the rows of the same link and egress group that count only without this one.
    fn older_rows(&self, key: (u64, NodeId)) -> impl Iterator<Item = (u64, NodeId)> {
        let of_link = self.of_link(key.0);
        let newest = self.rows.get(&key);
        of_link.filter_map(move |(other, row)| {
            let newest = newest?;
            let is_older = (row.at, other.1) < (newest.at, key.1);
            (is_older && row.egress == newest.egress).then_some(*other)
        })
    }

    fn drop_all(&mut self, keys: Vec<(u64, NodeId)>) -> Vec<u64> {
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

    fn drop_where(&mut self, goes: impl Fn(NodeId, &RemoteLink) -> bool) -> Vec<u64> {
        let keys =
            self.rows.iter().filter(|((_, by), row)| goes(*by, row)).map(|(key, _)| *key).collect();
        self.drop_all(keys)
    }

    /// Drops all rows of a node. Returns the links whose state may have changed, which is all of
    /// them.
    pub fn drop_node(&mut self, node_id: NodeId) -> Vec<u64> {
        if self.of.contains_key(&node_id) {
            self.drop_where(|by, _| by == node_id)
        } else {
            Vec::new()
        }
    }

    /// Drops the rows of a domain up to a time.
    pub fn forget(&mut self, domain: &str, until: Timestamp) -> Vec<u64> {
        self.drop_where(|_, row| &*row.domain == domain && row.at <= until)
    }

    /// Drops rows that ended more than a day ago.
    pub fn drop_expired(&mut self, now: Timestamp) -> Vec<u64> {
        self.drop_where(|_, row| row.ends().saturating_add(DAY) <= now)
    }

    /// Returns the state of a link for an egress group; none if no node has reported it, or if it
    /// is fine.
    pub fn state(&self, link: u64, egress: &str) -> Option<LinkState> {
        let last = self
            .of_link(link)
            .filter(|(_, row)| &*row.egress == egress)
            .max_by_key(|((_, by), row)| (row.at, *by))?;
        let state = last.1.state;
        let is_at_risk =
            state.risk_level > 0 || state.paused_until.is_some() || state.hint.is_some();
        is_at_risk.then_some(state)
    }

    /// Returns the rows of a link.
    fn of_link(&self, link: u64) -> btree_map::Range<'_, (u64, NodeId), RemoteLink> {
        let [first, last] = ALL_NODES;
        self.rows.range((link, first)..=(link, last))
    }

    /// Returns all links with rows, each at least once.
    pub fn all(&self) -> Vec<u64> {
        self.rows.keys().map(|(link, _)| *link).collect()
    }

    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the rows for a snapshot.
    pub(crate) fn stored(&self) -> BTreeMap<String, Vec<StoredLink>> {
        let mut all = BTreeMap::<String, Vec<StoredLink>>::new();
        for ((link, node_id), row) in &self.rows {
            let RemoteLink { state, at, position, domain, egress } = row;
            let until = state.paused_until.map(Timestamp::as_millis);
            let (risk, hint, attempts) =
                (state.risk_level, code_of(state.hint), state.attempt_count);
            let kept = StoredLink(
                *link,
                domain.clone(),
                egress.clone(),
                at.as_millis(),
                until,
                risk,
                hint,
                attempts,
                *position,
            );
            all.entry(node_id.to_string()).or_default().push(kept);
        }
        all
    }

    /// Restores the rows of a node from a snapshot.
    pub(crate) fn restore(&mut self, node_id: NodeId, all: Vec<StoredLink>) {
        for StoredLink(
            link,
            domain,
            egress,
            at,
            until,
            risk_level,
            hint,
            attempt_count,
            position,
        ) in all
        {
            let (paused_until, hint): (_, Option<Hint>) =
                (until.map(Timestamp::from_millis), hint_of(hint));
            let state =
                LinkState { paused_until, risk_level, attempt_count, last_attempt_at: None, hint };
            let row =
                RemoteLink { state, at: Timestamp::from_millis(at), position, domain, egress };
            if self.rows.insert((link, node_id), row).is_none() {
                *self.of.entry(node_id).or_default() += 1;
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

    fn node_id(n: u8) -> NodeId {
        NodeId::from_bytes([n; 16])
    }

    fn fact(link: u64, said: i64, until: Option<i64>) -> RemoteLinkState<'static> {
        let risk_level = u8::from(until.is_some());
        let state = LinkState { paused_until: until.map(at), risk_level, ..LinkState::default() };
        RemoteLinkState { link, domain: "e.org", state, at: at(said) }
    }

    fn heard(n: u8, minutes: i64) -> RowSource {
        RowSource { node_id: node_id(n), position: 1, at: at(minutes) }
    }

    fn pause(links: &RemoteLinks, link: u64) -> Option<i64> {
        let until = links.state(link, "").and_then(|state| state.paused_until)?;
        Some((until.as_millis() - NOW) / MINUTE)
    }

    #[test]
    fn the_newest_state_counts_until_its_node_is_dropped() {
        let mut links = RemoteLinks::default();
        assert_eq!(links.apply(heard(1, 0), &fact(7, 0, Some(10)), "", None), [7]);
        assert_eq!(links.apply(heard(2, 2), &fact(7, 1, Some(21)), "", None), [7]);
        assert!(
            links.apply(heard(2, 3), &fact(7, 0, Some(99)), "", None).is_empty(),
            "it comes late"
        );
        assert_eq!(pause(&links, 7), Some(21));
        assert_eq!(links.state(7, "eu"), None, "it applies to its egress group");
        assert_eq!(links.drop_node(node_id(2)), [7]);
        assert_eq!(pause(&links, 7), Some(10));
        assert!(links.is_newer(heard(3, 5), &fact(7, 5, None)));
        links.apply(heard(3, 5), &fact(7, 5, None), "", None);
        assert!(
            !links.is_newer(heard(3, 5), &fact(7, 5, None))
                && !links.is_newer(heard(3, 9), &fact(7, 4, Some(40)))
        );
        assert_eq!(links.state(7, ""), None, "it is fine");
    }

    #[test]
    fn no_pause_is_longer_than_meant() {
        let mut links = RemoteLinks::default();
        // One node's clock is an hour ahead, another one's an hour behind, and one pause lasts for
        // years.
        links.apply(heard(1, 0), &fact(1, 60, Some(70)), "", None);
        links.apply(heard(1, 0), &fact(2, -60, Some(-50)), "", None);
        links.apply(heard(1, 0), &fact(3, 0, Some(10_000_000)), "", None);
        assert_eq!([1, 2, 3].map(|link| pause(&links, link)), [Some(10), Some(-50), Some(1440)]);
        // A clock that is ahead does not win by that.
        links.apply(heard(2, 1), &fact(1, 1, Some(30)), "", None);
        assert_eq!(pause(&links, 1), Some(30));
    }

    #[test]
    fn forgotten_rows_do_not_come_back() {
        let mut links = RemoteLinks::default();
        links.apply(heard(1, 0), &fact(1, 0, Some(10)), "", None);
        let other = RemoteLinkState { domain: "f.org", ..fact(2, 0, Some(10)) };
        links.apply(heard(1, 0), &other, "", None);
        assert_eq!(links.forget("e.org", at(1)), [1]);
        assert!(links.apply(heard(1, 2), &fact(1, 1, Some(10)), "", Some(at(1))).is_empty());
        assert_eq!((pause(&links, 1), pause(&links, 2)), (None, Some(10)));
        assert_eq!(links.apply(heard(1, 3), &fact(1, 3, Some(12)), "", Some(at(1))), [1]);
        assert!(links.drop_expired(at(1440)).is_empty());
        assert_eq!(links.drop_expired(at(1450)), [2], "a day after its end");
    }

    #[test]
    fn memory_is_bounded_and_expired_rows_go_first() {
        let mut links = RemoteLinks::default();
        for link in 0..MAX_PER_NODE as u64 {
            links.apply(
                heard(1, 0),
                &fact(link, 0, Some(if link % 2 == 0 { 5 } else { 50 })),
                "",
                None,
            );
        }
        links.apply(heard(2, 0), &fact(1 << 40, 0, Some(1)), "", None);
        let gone = links.apply(heard(1, 6), &fact(1 << 41, 6, Some(60)), "", None);
        assert_eq!(gone.len(), MAX_PER_NODE / 10 + 1);
        assert!(gone[..MAX_PER_NODE / 10].iter().all(|link| link % 2 == 0), "what had ended");
        assert_eq!(pause(&links, 1 << 40), Some(1), "one node does not evict rows of another");
        for n in 3..30 {
            (0..MAX_PER_NODE as u64)
                .for_each(|link| drop(links.apply(heard(n, 6), &fact(link, 6, Some(9)), "", None)));
        }
        assert!(links.len() <= MAX_TOTAL, "{}", links.len());
        assert_eq!(links.of.values().sum::<usize>(), links.len());
        let long = "x".repeat(256);
        assert!(
            links
                .apply(
                    heard(1, 9),
                    &RemoteLinkState { domain: &long, ..fact(3, 9, None) },
                    "",
                    None
                )
                .is_empty()
        );
    }

    /// The bug: the row that says that a link is fine ends at once, so it was evicted first, and an
    /// older pause of another node counted again.
    #[test]
    fn an_evicted_row_brings_no_older_pause_back() {
        let mut links = RemoteLinks::default();
        links.apply(heard(1, 0), &fact(7, 0, Some(60)), "", None);
        links.apply(heard(3, 0), &fact(7, 0, Some(60)), "eu", None);
        links.apply(heard(2, 1), &fact(7, 1, None), "", None);
        assert_eq!((pause(&links, 7), links.state(7, "eu").is_some()), (None, true));
        let mut gone = Vec::new();
        for link in 100..100 + MAX_PER_NODE as u64 {
            gone.extend(links.apply(heard(2, 2), &fact(link, 2, Some(50)), "", None));
        }
        assert!(gone.contains(&7) && !links.rows.contains_key(&(7, node_id(2))), "it is evicted");
        assert_eq!(pause(&links, 7), None);
        assert!(links.state(7, "eu").is_some(), "another group has its own");
        assert_eq!(links.of.values().sum::<usize>(), links.len());
    }

    #[test]
    fn a_snapshot_has_links_that_matter_by_the_brokers_clock() {
        let entry = |n: i64, until: Option<i64>| {
            let state =
                LinkState { paused_until: until.map(at), risk_level: 1, ..LinkState::default() };
            LinkEntry {
                link: format!("https://e.org/{n}"),
                domain: "e.org".into(),
                state,
                at: at(n),
            }
        };
        let all = [
            entry(0, Some(30)),
            entry(-3000, Some(-1500)),
            entry(-3000, Some(-1400)),
            entry(5, None),
        ];
        // The node's clock is five minutes ahead.
        let rows = StoredLink::of((1..).zip(all), "eu", at(0), Duration::from_secs(300));
        assert_eq!(
            rows.iter().map(|row| row.8).collect::<Vec<_>>(),
            [1, 4, 3],
            "what ends last comes first"
        );
        let mut links = RemoteLinks::default();
        let changed = links.apply_stored((node_id(1), at(0)), &rows, &BTreeMap::new());
        assert_eq!(
            (changed.len(), links.counts("eu", at(0)), links.counts("", at(0))),
            (3, (3, 1), (3, 0))
        );
        assert_eq!(
            links.state(changed[0], "eu").and_then(|state| state.paused_until),
            Some(at(25))
        );
        assert_eq!(links.counts("eu", at(25)), (3, 0));
        assert!(
            links.apply_stored((node_id(1), at(9)), &rows, &BTreeMap::new()).is_empty(),
            "it is known"
        );
        let forgotten = BTreeMap::from([("e.org".to_owned(), at(-10))]);
        assert_eq!(
            RemoteLinks::default().apply_stored((node_id(1), at(0)), &rows, &forgotten).len(),
            2
        );
        let many = (0..12_000).map(|n| (1, entry(n, Some(n + 5))));
        let rows = StoredLink::of(many, "", at(0), Duration::ZERO);
        assert!(rows.len() == MAX_PER_NODE && rows.iter().all(|row| row.ends() >= at(2005)));
    }

    #[test]
    fn stored_rows_are_restored() {
        let mut links = RemoteLinks::default();
        let state =
            LinkState { hint: Some(Hint::Empty), attempt_count: 9, ..fact(1, 0, Some(10)).state };
        links.apply(heard(1, 0), &RemoteLinkState { state, ..fact(1, 0, None) }, "eu", None);
        links.apply(heard(2, 0), &fact(u64::MAX, 0, None), "", None);
        let json = serde_json::to_vec(&links.stored()).unwrap();
        let kept: BTreeMap<String, Vec<StoredLink>> = serde_json::from_slice(&json).unwrap();
        let mut again = RemoteLinks::default();
        kept.into_iter().for_each(|(node_id, rows)| again.restore(node_id.parse().unwrap(), rows));
        assert_eq!(again, links);
    }

    /// A link, a node, the time of the row, the length of the pause, the time at the broker, and
    /// the position.
    type RemoteLink = (u64, u8, i64, Option<i64>, i64, u64);

    proptest! {
        #[test]
        fn the_order_of_rows_does_not_matter(
            rows in prop::collection::vec((0u64..3, 0u8..3, -20i64..20, prop::option::of(0i64..60), -5i64..30, any::<u64>()), 0..20)
        ) {
            let fold = |rows: &[RemoteLink]| {
                let mut links = RemoteLinks::default();
                for (link, by, said, pause, broker, position) in rows {
                    let heard = RowSource { position: *position, ..heard(*by, *broker) };
                    let fact = fact(*link, *said, pause.map(|pause| said + pause));
                    links.apply(heard, &fact, "", None);
                }
                [0, 1, 2].map(|link| links.state(link, ""))
            };
            let mut other = rows.clone();
            other.sort_by_key(|row| row.5.reverse_bits());
            // Two rows of one position are the same row.
            other.dedup_by_key(|row| row.5);
            let all: Vec<_> = rows.iter().filter(|row| other.contains(row)).copied().collect();
            prop_assert_eq!(fold(&all), fold(&other));
        }
    }
}
