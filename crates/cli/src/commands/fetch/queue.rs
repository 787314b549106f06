//! Links that are read and not started: one queue per host, and the hosts ordered by the time at which they may be
//! asked.
//!
//! Invariants: a host is listed at most once, and only if it has a link to give. Among the ready hosts, the one with
//! the fewest open links goes next, in turns among equals, so hosts that hang cannot take every slot. A link that is
//! put back goes to the front of its host.
//!
//! Must not know: how a link is fetched, how a host's pace is computed, and how many links the owner allows.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use fetchwise::heuristic::url::{domain_of, parse};
use fetchwise::time::Timestamp;

/// The time for the first link of a host. When it is over, the others no longer wait for it: its URL may hang.
const FIRST_LINK_TIME: Duration = Duration::from_secs(5);
/// After a longer wait than this, a host is probed by a single link.
const LONG_WAIT: Duration = Duration::from_secs(2);

/// A queue of links by host.
#[derive(Debug)]
pub(super) struct HostQueue<T> {
    hosts: HashMap<Arc<str>, HostEntry<T>>,
    /// Hosts by the time at which they are ready.
    waiting: BTreeSet<(Timestamp, Arc<str>)>,
    /// Ready hosts by the number of their open links, then by turn.
    ready: BTreeSet<(usize, u64, Arc<str>)>,
    /// New hosts whose first link is open, by the time at which the others stop waiting for it.
    first_links: BTreeSet<(Timestamp, Arc<str>)>,
    turns: u64,
    /// The time of the last request for a link.
    time: Timestamp,
    len: usize,
}

#[derive(Debug)]
struct HostEntry<T> {
    links: VecDeque<T>,
    /// The time before which the host is not asked.
    at: Timestamp,
    position: ListPosition,
    open: usize,
    /// The limit of open links.
    max_open: usize,
    /// While this is set, one link goes at a time until one has ended. The host is new or had a long wait, so other
    /// links would only take slots and wait for what the first one finds out. The value is the number of links that
    /// were already open: they do not count, because they may wait for the same answer.
    open_before_probe: Option<usize>,
}

/// The list that a host is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListPosition {
    Nowhere,
    Waiting(Timestamp),
    Ready(usize, u64),
}

/// Returns the host of a URL in the form of pauses and paces; an empty one for an invalid URL.
pub(super) fn host_of(url: &str) -> Arc<str> {
    parse(url).ok().and_then(|url| url.host_str().map(|host| domain_of(host).into())).unwrap_or_default()
}

impl<T> Default for HostQueue<T> {
    fn default() -> Self {
        Self {
            hosts: HashMap::new(),
            waiting: BTreeSet::new(),
            ready: BTreeSet::new(),
            first_links: BTreeSet::new(),
            turns: 0,
            time: Timestamp::default(),
            len: 0,
        }
    }
}

impl<T> HostQueue<T> {
    /// Returns the number of waiting links.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Appends a link of `host`.
    pub(super) fn push(&mut self, host: &Arc<str>, link: T) {
        self.host(host).links.push_back(link);
        self.len += 1;
        self.list(host);
    }

    /// Puts back a link that was started and has to wait. It is the next one of its host, which is not asked before
    /// `until`.
    pub(super) fn back(&mut self, host: &Arc<str>, link: T, until: Timestamp) {
        self.returned(host, until).links.push_front(link);
        self.list(host);
    }

    /// Puts back a link that its host refused: other links of the host go first.
    pub(super) fn refused(&mut self, host: &Arc<str>, link: T, until: Timestamp) {
        self.returned(host, until).links.push_back(link);
        self.list(host);
    }

    fn returned(&mut self, host: &Arc<str>, until: Timestamp) -> &mut HostEntry<T> {
        self.len += 1;
        let is_long = until.since(self.time) > LONG_WAIT;
        let entry = self.host(host);
        entry.open = entry.open.saturating_sub(1);
        entry.at = until;
        if is_long || entry.open_before_probe.is_some() {
            let before = entry.open_before_probe.unwrap_or(usize::MAX);
            entry.open_before_probe = Some(before.min(entry.open));
        }
        entry
    }

    /// Returns the next link whose host is ready at `now`. It counts as open until [`ended`](Self::ended) or
    /// [`back`](Self::back).
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<(Arc<str>, T)> {
        self.time = now;
        self.stop_waiting_for_first_links(now);
        while let Some((at, _)) = self.waiting.first()
            && *at <= now
        {
            let Some((_, host)) = self.waiting.pop_first() else { break };
            if let Some(entry) = self.hosts.get_mut(&host) {
                entry.position = ListPosition::Ready(entry.open, self.turns);
                self.ready.insert((entry.open, self.turns, host));
                self.turns += 1;
            }
        }
        let (_, _, host) = self.ready.pop_first()?;
        let entry = self.hosts.get_mut(&host)?;
        entry.position = ListPosition::Nowhere;
        let link = entry.links.pop_front();
        entry.open += usize::from(link.is_some());
        if entry.open_before_probe.is_some() && entry.at == Timestamp::default() {
            self.first_links.insert((now.saturating_add(FIRST_LINK_TIME), Arc::clone(&host)));
        }
        self.list(&host);
        self.len -= usize::from(link.is_some());
        Some((host, link?))
    }

    /// Returns when the next link can start; none if an open one has to end first.
    pub(super) fn next_at(&self) -> Option<Timestamp> {
        match self.ready.is_empty() {
            true => self.waiting.first().into_iter().chain(self.first_links.first()).map(|(at, _)| *at).min(),
            false => Some(Timestamp::default()),
        }
    }

    /// Lets the other links of hosts go whose first link takes too long.
    fn stop_waiting_for_first_links(&mut self, now: Timestamp) {
        while let Some((at, _)) = self.first_links.first()
            && *at <= now
        {
            let Some((_, host)) = self.first_links.pop_first() else { break };
            // A host that has to wait since then is tried out by a single link.
            if let Some(entry) = self.hosts.get_mut(&host)
                && entry.at == Timestamp::default()
            {
                entry.open_before_probe = None;
                self.list(&host);
            }
        }
    }

    /// Records that a link of `host` has ended.
    pub(super) fn ended(&mut self, host: &Arc<str>) {
        let Some(entry) = self.hosts.get_mut(host) else { return };
        entry.open = entry.open.saturating_sub(1);
        if entry.at.since(self.time) <= LONG_WAIT {
            // The others may have waited for its slot: let them ask again.
            (entry.open_before_probe, entry.at) = (None, Timestamp::default());
        }
        if entry.open == 0 && entry.links.is_empty() {
            // The next link of the host gets a new time to wait. Without links the host is in no list.
            self.hosts.remove(host);
        } else {
            self.list(host);
        }
    }

    /// Limits the open links of `host`.
    pub(super) fn set_max_open(&mut self, host: &Arc<str>, max_open: usize) {
        self.host(host).max_open = max_open.max(1);
        self.list(host);
    }

    /// Drops all waiting links.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Returns the hosts with waiting links, with the number of these.
    pub(super) fn hosts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.hosts.iter().filter(|(_, host)| !host.links.is_empty()).map(|(name, host)| (&**name, host.links.len()))
    }

    /// Returns the number of hosts with waiting or open links.
    pub(super) fn host_count(&self) -> usize {
        self.hosts.len()
    }

    fn host(&mut self, host: &Arc<str>) -> &mut HostEntry<T> {
        self.hosts.entry(Arc::clone(host)).or_insert_with(|| HostEntry {
            links: VecDeque::new(),
            at: Timestamp::default(),
            position: ListPosition::Nowhere,
            open: 0,
            max_open: usize::MAX,
            open_before_probe: Some(0),
        })
    }

    /// Moves the host to the right list; to none if it has nothing to give.
    fn list(&mut self, host: &Arc<str>) {
        let Some(entry) = self.hosts.get_mut(host) else { return };
        let may_go = !entry.links.is_empty() && entry.open < entry.limit();
        let wanted = match entry.position {
            _ if !may_go => ListPosition::Nowhere,
            // It keeps its turn.
            ListPosition::Ready(_, turn) if entry.at <= self.time => ListPosition::Ready(entry.open, turn),
            _ if entry.at <= self.time => {
                self.turns += 1;
                ListPosition::Ready(entry.open, self.turns)
            }
            _ => ListPosition::Waiting(entry.at),
        };
        if entry.position == wanted {
            return;
        }
        match std::mem::replace(&mut entry.position, wanted) {
            ListPosition::Waiting(at) => drop(self.waiting.remove(&(at, Arc::clone(host)))),
            ListPosition::Ready(open, turn) => drop(self.ready.remove(&(open, turn, Arc::clone(host)))),
            ListPosition::Nowhere => {}
        }
        match wanted {
            ListPosition::Waiting(at) => drop(self.waiting.insert((at, Arc::clone(host)))),
            ListPosition::Ready(open, turn) => drop(self.ready.insert((open, turn, Arc::clone(host)))),
            ListPosition::Nowhere => {}
        }
    }
}

impl<T> HostEntry<T> {
    fn limit(&self) -> usize {
        self.open_before_probe.map_or(self.max_open, |beside| beside + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn after(ms: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_millis(ms))
    }

    fn queue(links: &[(&str, u32)]) -> HostQueue<u32> {
        let mut queue = HostQueue::default();
        for (host, link) in links {
            let host = Arc::from(*host);
            queue.push(&host, *link);
            queue.ended(&host);
        }
        queue
    }

    fn all(queue: &mut HostQueue<u32>, now: Timestamp) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop(now).map(|(_, link)| link)).collect()
    }

    #[test]
    fn hosts_take_turns_and_each_keeps_the_order_of_its_links() {
        let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)]);
        assert_eq!((all(&mut queue, NOW), queue.len()), (vec![1, 4, 5, 2, 6, 3], 0));
    }

    #[test]
    fn a_hanging_host_takes_only_its_share_of_slots() {
        let mut queue = HostQueue::default();
        for n in 0..100 {
            queue.push(&Arc::from("hangs"), 0);
            queue.push(&Arc::from("quick"), n + 1);
        }
        queue.ended(&Arc::from("hangs"));
        queue.ended(&Arc::from("quick"));
        let mut open: Vec<(Arc<str>, u32)> = Vec::new();
        for _ in 0..80 {
            while open.len() < 16 {
                open.push(queue.pop(NOW).unwrap());
            }
            let quick = open.iter().position(|(_, link)| *link > 0).unwrap();
            queue.ended(&open.remove(quick).0);
        }
        assert_eq!(open.iter().filter(|(_, link)| *link == 0).count(), 8);
    }

    #[test]
    fn a_waiting_host_delays_no_other_host() {
        let mut queue = queue(&[("slow", 1), ("slow", 2), ("b", 3), ("b", 4)]);
        let (slow, link) = queue.pop(NOW).unwrap();
        queue.back(&slow, link, after(500));
        assert_eq!(all(&mut queue, NOW), [3, 4]);
        assert_eq!(queue.next_at(), Some(after(500)));
        assert_eq!(queue.pop(after(499)), None);
        queue.ended(&Arc::from("b"));
        assert_eq!(all(&mut queue, after(500)), [1, 2], "a link that was put back goes first");
    }

    #[test]
    fn a_host_that_becomes_ready_gets_its_turn() {
        let mut queue = queue(&[("slow", 1), ("free", 2), ("free", 3), ("free", 4)]);
        let (slow, link) = queue.pop(NOW).unwrap();
        queue.back(&slow, link, after(10));
        assert_eq!(queue.pop(NOW).unwrap().1, 2);
        assert_eq!(queue.pop(after(10)).unwrap().1, 1);
    }

    #[test]
    fn open_links_of_a_host_stay_within_the_limit() {
        let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3), ("b", 4)]);
        let a = Arc::from("a");
        queue.set_max_open(&a, 1);
        assert_eq!(all(&mut queue, NOW), [1, 4]);
        assert_eq!(queue.next_at(), None, "an open link has to end first");
        queue.ended(&a);
        assert_eq!(all(&mut queue, NOW), [2]);
        queue.set_max_open(&a, 2);
        assert_eq!(all(&mut queue, NOW), [3]);
    }

    #[test]
    fn a_new_or_paused_host_is_probed_by_one_link() {
        let mut queue = HostQueue::default();
        let a = Arc::from("a");
        (1..=4).for_each(|link| queue.push(&a, link));
        assert_eq!(all(&mut queue, NOW), [1]);
        queue.refused(&a, 1, after(60_000));
        assert_eq!((all(&mut queue, after(59_999)), all(&mut queue, after(60_000))), (vec![], vec![2]));
        queue.ended(&a);
        assert_eq!(all(&mut queue, after(60_000)), [3, 4, 1], "a refused link goes last");
    }

    #[test]
    fn a_first_link_that_hangs_holds_back_no_other_for_long() {
        let mut queue = HostQueue::default();
        let a = Arc::from("a");
        (1..=3).for_each(|link| queue.push(&a, link));
        assert_eq!((all(&mut queue, NOW), queue.next_at()), (vec![1], Some(after(5_000))));
        assert_eq!((all(&mut queue, after(4_999)), all(&mut queue, after(5_000))), (vec![], vec![2, 3]));
        assert_eq!(queue.next_at(), None);
    }

    #[test]
    fn a_waiting_link_does_not_block_the_probe_that_it_waits_for() {
        let mut queue = queue(&[("a", 1), ("a", 2), ("a", 3), ("a", 4)]);
        let a = Arc::from("a");
        assert_eq!((queue.pop(NOW).unwrap().1, queue.pop(NOW).unwrap().1), (1, 2));
        // The first link was blocked and waits for another one to confirm the block; the second one has to wait.
        queue.back(&a, 2, after(3_000));
        assert_eq!((all(&mut queue, after(2_999)), all(&mut queue, after(3_000))), (vec![], vec![2]));
        queue.refused(&a, 2, after(20_000));
        queue.refused(&a, 1, after(20_000));
        assert_eq!(all(&mut queue, after(20_000)), [3], "no other link is open now");
    }

    #[test]
    fn a_host_without_links_takes_no_memory() {
        let mut queue = queue(&[("a", 1)]);
        let (a, link) = queue.pop(NOW).unwrap();
        queue.back(&a, link, after(100));
        assert_eq!((queue.len(), queue.hosts().collect::<Vec<_>>()), (1, vec![("a", 1)]));
        queue.pop(after(100)).unwrap();
        queue.ended(&a);
        assert!(queue.hosts.is_empty() && queue.waiting.is_empty() && queue.pop(after(100)).is_none());
    }
}
