//! The frontier: links that are read and not started, with one queue per host, and the hosts by the
//! time at which they may be asked.
//!
//! Invariants: a host is listed at most once, and only if it has a link to give. Among the ready
//! hosts, the one whose site has the fewest open links goes next, then the one that has the fewest
//! itself, in turns among equals. So hosts and sites that hang cannot take every slot, and a host
//! with few links waits no longer than one with many. A link that is put back goes to the front of
//! its host. A step depends on the number of hosts by its logarithm, and not on the number of
//! links.
//!
//! Must not know: how a link is read or fetched, and how a host's pace is computed.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use fetchwise::time::Timestamp;

pub use host_id::HostId;
use link_queue::LinkQueue;
pub use link_queue::QueuedLink;
pub use site_places::PlaceUse;
use site_places::{SiteId, SitePlaces};

mod host_id;
mod link_queue;
mod site_places;

/// The time for the first link of a host. When it is over, the others no longer wait for it: its
/// URL may hang.
const FIRST_LINK_TIME: Duration = Duration::from_secs(5);
/// After a longer wait than this, a host is probed by a single link.
const LONG_WAIT: Duration = Duration::from_secs(2);

/// The links that wait, by host.
#[derive(Debug)]
pub struct Frontier {
    ids: HashMap<Arc<str>, HostId>,
    hosts: Vec<HostEntry>,
    /// Places in `hosts` that no host uses.
    unused: Vec<HostId>,
    /// Hosts by the time at which they are ready.
    waiting: BTreeSet<(Timestamp, HostId)>,
    /// The sites of the hosts, with those that are ready.
    sites: SitePlaces,
    /// New hosts whose first link is open, by the time at which the others stop waiting for it.
    first_links: BTreeSet<(Timestamp, HostId)>,
    /// The limit of open links per host.
    max_open: u32,
    turns: u64,
    /// The time of the last request for a link.
    time: Timestamp,
    len: usize,
}

#[derive(Debug)]
struct HostEntry {
    name: Arc<str>,
    site: SiteId,
    /// Links that were started and put back; the last one goes next, before the others.
    returned: Option<Box<ReturnedLinks>>,
    links: LinkQueue,
    /// The time before which the host is not asked.
    at: Timestamp,
    position: ListPosition,
    open: u32,
    /// While this is set, one link goes at a time until one has ended. The host is new or had a
    /// long wait, so other links would only take slots and wait for what the first one finds out.
    /// The value is the number of links that were already open: they do not count, because they may
    /// wait for the same answer.
    open_before_probe: Option<u32>,
    /// The time at which the others stop waiting for the first link.
    first_link_until: Option<Timestamp>,
}

/// Links that were put back; most hosts have none.
#[derive(Debug, Default)]
struct ReturnedLinks(Vec<QueuedLink>);

/// The list that a host is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ListPosition {
    Nowhere,
    Waiting(Timestamp),
    Ready(u32, u64),
}

impl Frontier {
    /// Returns an empty frontier that opens at most `per_host` links of a host, and divides
    /// `places` among sites.
    pub fn new(per_host: Option<u8>, places: usize) -> Self {
        Self {
            ids: HashMap::new(),
            hosts: Vec::new(),
            unused: Vec::new(),
            waiting: BTreeSet::new(),
            sites: SitePlaces::new(places),
            first_links: BTreeSet::new(),
            max_open: per_host.map_or(u32::MAX, |per_host| u32::from(per_host.max(1))),
            turns: 0,
            time: Timestamp::default(),
            len: 0,
        }
    }

    /// Returns the number of waiting links.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether no link waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a link of `host`.
    pub fn push(&mut self, host: &str, link: QueuedLink) {
        let id = self.id(host);
        self.hosts[id.index()].links.push(link);
        self.len += 1;
        self.list(id);
    }

    /// Puts back a link that was started and has to wait. It is the next one of its host, which is
    /// not asked before `until`.
    pub fn back(&mut self, host: HostId, link: QueuedLink, until: Timestamp) {
        self.returned(host, until, PlaceUse::Unused).returned.get_or_insert_default().0.push(link);
        self.list(host);
    }

    /// Puts back a link that its host refused: other links of the host go first.
    pub fn refused(&mut self, host: HostId, link: QueuedLink, until: Timestamp) {
        self.returned(host, until, PlaceUse::Prompt).links.push(link);
        self.list(host);
    }

    fn returned(&mut self, host: HostId, until: Timestamp, used: PlaceUse) -> &mut HostEntry {
        self.len += 1;
        let is_long = until.since(self.time) > LONG_WAIT;
        self.sites.closed(self.hosts[host.index()].site, used);
        let entry = &mut self.hosts[host.index()];
        entry.open = entry.open.saturating_sub(1);
        entry.at = until;
        if is_long || entry.open_before_probe.is_some() {
            let before = entry.open_before_probe.unwrap_or(u32::MAX);
            entry.open_before_probe = Some(before.min(entry.open));
        }
        entry
    }

    /// Returns the next link whose host is ready at `now`. It counts as open until
    /// [`ended`](Self::ended), [`back`](Self::back) or [`refused`](Self::refused).
    pub fn pop(&mut self, now: Timestamp) -> Option<(HostId, QueuedLink)> {
        self.time = now;
        self.stop_waiting_for_first_links(now);
        while let Some(&(at, host)) = self.waiting.first()
            && at <= now
        {
            self.waiting.pop_first();
            let entry = &mut self.hosts[host.index()];
            entry.position = ListPosition::Ready(entry.open, self.turns);
            self.sites.add(entry.site, entry.open, self.turns, host);
            self.turns += 1;
        }
        let host = self.sites.pop()?;
        let entry = &mut self.hosts[host.index()];
        entry.position = ListPosition::Nowhere;
        let link =
            entry.returned.as_mut().and_then(|links| links.0.pop()).or_else(|| entry.links.pop());
        if link.is_some() {
            entry.open += 1;
            self.sites.opened(entry.site);
        }
        if entry.open_before_probe.is_some()
            && entry.at == Timestamp::default()
            && entry.first_link_until.is_none()
        {
            let until = now.saturating_add(FIRST_LINK_TIME);
            entry.first_link_until = Some(until);
            self.first_links.insert((until, host));
        }
        self.list(host);
        self.len -= usize::from(link.is_some());
        Some((host, link?))
    }

    /// Returns when the next link can start; none if an open one has to end first.
    pub fn next_at(&self) -> Option<Timestamp> {
        if self.sites.is_ready() {
            return Some(Timestamp::default());
        }
        let first_links = self.first_links.first().map(|(at, _)| *at);
        self.waiting.first().map(|(at, _)| *at).into_iter().chain(first_links).min()
    }

    /// Lets the other links of hosts go whose first link takes too long.
    fn stop_waiting_for_first_links(&mut self, now: Timestamp) {
        while let Some(&(at, host)) = self.first_links.first()
            && at <= now
        {
            self.first_links.pop_first();
            let entry = &mut self.hosts[host.index()];
            entry.first_link_until = None;
            // A host that has to wait since then is tried out by a single link.
            if entry.at == Timestamp::default() {
                entry.open_before_probe = None;
                self.list(host);
            }
        }
    }

    /// Records that a link of `host` has ended.
    pub fn ended(&mut self, host: HostId, used: PlaceUse) {
        let entry = &mut self.hosts[host.index()];
        self.sites.closed(entry.site, used);
        entry.open = entry.open.saturating_sub(1);
        if entry.at.since(self.time) <= LONG_WAIT {
            // The others may have waited for its slot: let them ask again.
            (entry.open_before_probe, entry.at) = (None, Timestamp::default());
        }
        match entry.open == 0 && entry.len() == 0 {
            // The next link of the host gets a new time to wait. Without links the host is in no
            // list.
            true => self.remove(host),
            false => self.list(host),
        }
    }

    /// Ends the wait of a host at `now`, because its pause was ended early. If the wait was long, a
    /// single link still probes it.
    pub fn release(&mut self, host: &str, now: Timestamp) {
        if let Some(id) = self.ids.get(host).copied() {
            self.end_wait(id, now);
        }
    }

    /// Asks the waiting links of every host again. The cost is linear in the number of hosts.
    pub fn release_all(&mut self, now: Timestamp) {
        let ids: Vec<HostId> = self.ids.values().copied().collect();
        ids.into_iter().for_each(|id| self.end_wait(id, now));
    }

    fn end_wait(&mut self, id: HostId, now: Timestamp) {
        self.time = self.time.max(now);
        let entry = &mut self.hosts[id.index()];
        entry.at = entry.at.min(now);
        self.list(id);
    }

    /// Removes and returns the waiting links of a host. Those that are open may still end.
    pub fn withdraw(&mut self, host: &str) -> Vec<QueuedLink> {
        let Some(id) = self.ids.get(host).copied() else { return Vec::new() };
        let entry = &mut self.hosts[id.index()];
        let mut links = entry.returned.take().map(|links| links.0).unwrap_or_default();
        links.extend(std::iter::from_fn(|| entry.links.pop()));
        self.len -= links.len();
        let is_open = entry.open > 0;
        self.list(id);
        if !is_open {
            self.remove(id);
        }
        links
    }

    /// Drops all waiting links. Those that are open may still end.
    pub fn clear(&mut self) {
        self.len = 0;
        self.waiting.clear();
        self.sites.clear();
        for entry in &mut self.hosts {
            (entry.returned, entry.links) = (None, LinkQueue::default());
            entry.position = ListPosition::Nowhere;
        }
    }

    /// Returns the name of a host.
    pub fn name(&self, host: HostId) -> &Arc<str> {
        &self.hosts[host.index()].name
    }

    /// Returns the hosts with waiting links, with the number of these.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.hosts.iter().filter(|host| host.len() > 0).map(|host| (&*host.name, host.len()))
    }

    /// Returns the number of hosts with waiting or open links.
    pub fn host_count(&self) -> usize {
        self.ids.len()
    }

    fn id(&mut self, name: &str) -> HostId {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let name: Arc<str> = name.into();
        let entry = HostEntry {
            name: Arc::clone(&name),
            site: self.sites.enter(&name),
            returned: None,
            links: LinkQueue::default(),
            at: Timestamp::default(),
            position: ListPosition::Nowhere,
            open: 0,
            open_before_probe: Some(0),
            first_link_until: None,
        };
        let id = match self.unused.pop() {
            Some(id) => {
                self.hosts[id.index()] = entry;
                id
            }
            None => {
                self.hosts.push(entry);
                HostId::at(self.hosts.len() - 1)
            }
        };
        self.ids.insert(name, id);
        id
    }

    /// Forgets a host without links.
    fn remove(&mut self, host: HostId) {
        let entry = &mut self.hosts[host.index()];
        debug_assert_eq!((entry.open, entry.len()), (0, 0), "a host with links is forgotten");
        debug_assert_eq!(
            entry.position,
            ListPosition::Nowhere,
            "a host without links is in a list"
        );
        if let Some(until) = entry.first_link_until.take() {
            self.first_links.remove(&(until, host));
        }
        self.ids.remove(&entry.name);
        self.unused.push(host);
        self.sites.leave(entry.site);
    }

    /// Moves the host to the right list; to none if it has nothing to give.
    fn list(&mut self, host: HostId) {
        let entry = &mut self.hosts[host.index()];
        let limit = entry.open_before_probe.map_or(self.max_open, |before| before + 1);
        let may_go = entry.len() > 0 && entry.open < limit;
        let wanted = match entry.position {
            _ if !may_go => ListPosition::Nowhere,
            // It keeps its turn.
            ListPosition::Ready(_, turn) if entry.at <= self.time => {
                ListPosition::Ready(entry.open, turn)
            }
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
            ListPosition::Waiting(at) => {
                let was_there = self.waiting.remove(&(at, host));
                debug_assert!(was_there, "a waiting host is not in its list");
            }
            ListPosition::Ready(open, turn) => self.sites.remove(entry.site, open, turn, host),
            ListPosition::Nowhere => {}
        }
        match wanted {
            ListPosition::Waiting(at) => {
                let is_new = self.waiting.insert((at, host));
                debug_assert!(is_new, "a host is in the list of waiting hosts before it waits");
            }
            ListPosition::Ready(open, turn) => self.sites.add(entry.site, open, turn, host),
            ListPosition::Nowhere => {}
        }
    }
}

impl HostEntry {
    /// Returns the number of waiting links.
    fn len(&self) -> usize {
        self.returned.as_ref().map_or(0, |links| links.0.len()) + self.links.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn after(ms: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_millis(ms))
    }

    fn link(number: u64) -> QueuedLink {
        QueuedLink { offset: number * 50, line: number + 1, number, refused: 0 }
    }

    /// Records the end of a link of a host that is not new: others do not wait for its first link.
    fn known(frontier: &mut Frontier, host: &str) {
        let id = frontier.ids[host];
        frontier.ended(id, PlaceUse::Prompt);
    }

    fn frontier(links: &[(&str, u64)]) -> Frontier {
        let mut frontier = Frontier::new(None, 16);
        for (host, number) in links {
            frontier.push(host, link(*number));
            known(&mut frontier, host);
        }
        frontier
    }

    fn pop(frontier: &mut Frontier, now: Timestamp) -> Option<u64> {
        frontier.pop(now).map(|(_, link)| link.number)
    }

    fn all(frontier: &mut Frontier, now: Timestamp) -> Vec<u64> {
        std::iter::from_fn(|| pop(frontier, now)).collect()
    }

    #[test]
    fn hosts_take_turns_and_each_keeps_the_order_of_its_links() {
        let mut frontier = frontier(&[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)]);
        assert_eq!((all(&mut frontier, NOW), frontier.len()), (vec![1, 4, 5, 2, 6, 3], 0));
    }

    #[test]
    fn a_hanging_host_takes_only_its_share_of_slots() {
        let mut frontier = Frontier::new(None, 16);
        for n in 0..100 {
            frontier.push("hangs", link(0));
            frontier.push("quick", link(n + 1));
        }
        known(&mut frontier, "hangs");
        known(&mut frontier, "quick");
        let mut open: Vec<(HostId, QueuedLink)> = Vec::new();
        for _ in 0..80 {
            while open.len() < 16 {
                open.push(frontier.pop(NOW).unwrap());
            }
            let quick = open.iter().position(|(_, link)| link.number > 0).unwrap();
            frontier.ended(open.remove(quick).0, PlaceUse::Prompt);
        }
        assert_eq!(open.iter().filter(|(_, link)| link.number == 0).count(), 8);
    }

    #[test]
    fn a_waiting_host_delays_no_other_host() {
        let mut frontier = frontier(&[("slow", 1), ("slow", 2), ("b", 3), ("b", 4)]);
        let (slow, link) = frontier.pop(NOW).unwrap();
        frontier.back(slow, link, after(500));
        assert_eq!(all(&mut frontier, NOW), [3, 4]);
        assert_eq!(frontier.next_at(), Some(after(500)));
        assert_eq!(frontier.pop(after(499)), None);
        known(&mut frontier, "b");
        assert_eq!(all(&mut frontier, after(500)), [1, 2], "a link that was put back goes first");
    }

    #[test]
    fn a_withdrawn_host_gives_its_links_back() {
        let mut frontier = frontier(&[("a", 1), ("b", 2), ("a", 3), ("a", 4)]);
        let (a, first) = frontier.pop(NOW).unwrap();
        frontier.back(a, first, after(500));
        let (b, _) = frontier.pop(NOW).unwrap();
        assert_eq!(
            frontier.withdraw("a").iter().map(|link| link.number).collect::<Vec<_>>(),
            [1, 3, 4]
        );
        assert!(frontier.withdraw("b").is_empty() && frontier.withdraw("c").is_empty());
        assert_eq!(
            (frontier.len(), frontier.host_count(), frontier.next_at()),
            (0, 1, None),
            "one of b is open"
        );
        frontier.ended(b, PlaceUse::Prompt);
        frontier.push("a", link(5));
        assert_eq!((frontier.host_count(), pop(&mut frontier, NOW)), (1, Some(5)));
    }

    #[test]
    fn a_host_that_becomes_ready_gets_its_turn() {
        let mut frontier = frontier(&[("slow", 1), ("free", 2), ("free", 3), ("free", 4)]);
        let (slow, link) = frontier.pop(NOW).unwrap();
        frontier.back(slow, link, after(10));
        assert_eq!(pop(&mut frontier, NOW), Some(2));
        assert_eq!(pop(&mut frontier, after(10)), Some(1));
    }

    #[test]
    fn a_host_with_one_link_waits_for_one_turn_of_the_others() {
        let mut frontier = Frontier::new(None, 16);
        for host in 0..1_000 {
            for n in 0..50 {
                frontier.push(&format!("long{host}"), link(n));
            }
            known(&mut frontier, &format!("long{host}"));
        }
        frontier.push("nearly-done", link(7_000));
        // One place only: each link ends before the next one starts.
        let turns = (0..).take_while(|_| {
            let (host, link) = frontier.pop(NOW).unwrap();
            frontier.ended(host, PlaceUse::Prompt);
            link.number != 7_000
        });
        assert_eq!(turns.count(), 1_000);
    }

    #[test]
    fn open_links_of_a_host_stay_within_the_limit() {
        let mut frontier = Frontier::new(Some(1), 16);
        for (host, number) in [("a", 1), ("a", 2), ("b", 3)] {
            frontier.push(host, link(number));
            known(&mut frontier, host);
        }
        assert_eq!(all(&mut frontier, NOW), [1, 3]);
        assert_eq!(frontier.next_at(), None, "an open link has to end first");
        known(&mut frontier, "a");
        assert_eq!(all(&mut frontier, NOW), [2]);
    }

    #[test]
    fn a_new_or_paused_host_is_probed_by_one_link() {
        let mut frontier = Frontier::new(None, 16);
        (1..=4).for_each(|number| frontier.push("a", link(number)));
        let a = frontier.ids["a"];
        assert_eq!(all(&mut frontier, NOW), [1]);
        frontier.refused(a, QueuedLink { refused: 1, ..link(1) }, after(60_000));
        assert_eq!(
            (all(&mut frontier, after(59_999)), all(&mut frontier, after(60_000))),
            (vec![], vec![2])
        );
        frontier.ended(a, PlaceUse::Prompt);
        assert_eq!(all(&mut frontier, after(60_000)), [3, 4, 1], "a refused link goes last");
    }

    #[test]
    fn a_first_link_that_hangs_holds_back_no_other_for_long() {
        let mut frontier = Frontier::new(None, 16);
        (1..=3).for_each(|number| frontier.push("a", link(number)));
        assert_eq!((all(&mut frontier, NOW), frontier.next_at()), (vec![1], Some(after(5_000))));
        assert_eq!(
            (all(&mut frontier, after(4_999)), all(&mut frontier, after(5_000))),
            (vec![], vec![2, 3])
        );
        assert_eq!(frontier.next_at(), None);
    }

    #[test]
    fn a_released_host_is_asked_at_once_by_a_single_link() {
        let mut frontier = frontier(&[("a", 1), ("a", 2), ("b", 3)]);
        let (a, first) = frontier.pop(NOW).unwrap();
        frontier.back(a, first, after(600_000));
        assert_eq!(all(&mut frontier, after(10)), [3]);
        frontier.release("a", after(20));
        frontier.release("unknown", after(20));
        assert_eq!(
            (frontier.next_at(), all(&mut frontier, after(20))),
            (Some(Timestamp::default()), vec![1])
        );
        frontier.ended(a, PlaceUse::Prompt);
        assert_eq!(all(&mut frontier, after(20)), [2]);
    }

    #[test]
    fn a_waiting_link_does_not_block_the_probe_that_it_waits_for() {
        let mut frontier = frontier(&[("a", 1), ("a", 2), ("a", 3), ("a", 4)]);
        let a = frontier.ids["a"];
        assert_eq!([(); 2].map(|()| pop(&mut frontier, NOW)), [Some(1), Some(2)]);
        // The first link was blocked and waits for another one to confirm the block; the second one
        // has to wait.
        frontier.back(a, link(2), after(3_000));
        assert_eq!(
            (all(&mut frontier, after(2_999)), all(&mut frontier, after(3_000))),
            (vec![], vec![2])
        );
        frontier.refused(a, link(2), after(20_000));
        frontier.refused(a, link(1), after(20_000));
        assert_eq!(all(&mut frontier, after(20_000)), [3], "no other link is open now");
    }

    #[test]
    fn a_host_without_links_takes_no_memory() {
        let mut frontier = frontier(&[("a", 1)]);
        let (a, link) = frontier.pop(NOW).unwrap();
        frontier.back(a, link, after(100));
        assert_eq!((frontier.len(), frontier.hosts().collect::<Vec<_>>()), (1, vec![("a", 1)]));
        frontier.pop(after(100)).unwrap();
        frontier.ended(a, PlaceUse::Prompt);
        assert!(
            frontier.ids.is_empty()
                && frontier.waiting.is_empty()
                && frontier.pop(after(100)).is_none()
        );
        frontier.push("b", link);
        assert_eq!(
            (frontier.hosts.len(), frontier.host_count()),
            (1, 1),
            "its place is used again"
        );
    }

    #[test]
    fn a_cleared_frontier_gives_no_link_and_takes_ends() {
        let mut frontier = frontier(&[("a", 1), ("a", 2), ("b", 3)]);
        let (a, _) = frontier.pop(NOW).unwrap();
        frontier.clear();
        assert_eq!(
            (frontier.len(), frontier.pop(after(10_000)), frontier.next_at()),
            (0, None, None)
        );
        frontier.ended(a, PlaceUse::Prompt);
        assert_eq!(frontier.hosts().count(), 0);
    }

    /// Something that happens to a frontier.
    #[derive(Clone, Debug)]
    enum Event {
        Push(usize),
        Pop,
        /// The open link at this place ends, has to wait for some milliseconds, or is refused.
        End(usize),
        Back(usize, u64),
        Refuse(usize, u64),
        Release(usize),
        ReleaseAll,
        Pass(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => (0..5_usize).prop_map(Event::Push),
            4 => Just(Event::Pop),
            2 => (0..8_usize).prop_map(Event::End),
            1 => (0..8_usize, 1..5_000_u64).prop_map(|(place, wait)| Event::Back(place, wait)),
            1 => (0..8_usize, 1..5_000_u64).prop_map(|(place, wait)| Event::Refuse(place, wait)),
            1 => (0..5_usize).prop_map(Event::Release),
            1 => Just(Event::ReleaseAll),
            1 => (0..6_000_u64).prop_map(Event::Pass),
        ]
    }

    proptest! {
        /// A plain model holds the links of each host in one list and knows until when a host
        /// waits.
        #[test]
        fn every_link_leaves_once_in_order_and_not_before_its_host_is_ready(
            events in prop::collection::vec(event(), 0..300), per_host in prop::option::of(1..4_u8),
        ) {
            let mut frontier = Frontier::new(per_host, 16);
            let mut model: [VecDeque<u64>; 5] = Default::default();
            let mut not_before = [Timestamp::default(); 5];
            let mut open: Vec<(usize, HostId, QueuedLink)> = Vec::new();
            let (mut now, mut next, mut done) = (NOW, 0, Vec::new());
            let host_of = |frontier: &Frontier, id| frontier.name(id)[4..].parse::<usize>().unwrap();
            for event in events {
                match event {
                    Event::Push(host) => {
                        frontier.push(&format!("host{host}"), link(next));
                        model[host].push_back(next);
                        next += 1;
                    }
                    Event::Pop => {
                        if let Some((id, link)) = frontier.pop(now) {
                            let host = host_of(&frontier, id);
                            prop_assert_eq!(model[host].pop_front(), Some(link.number));
                            prop_assert!(not_before[host] <= now);
                            open.push((host, id, link));
                            let of_host = open.iter().filter(|(of, ..)| *of == host).count();
                            prop_assert!(per_host.is_none_or(|max| of_host <= usize::from(max)));
                        }
                    }
                    Event::End(place) if place < open.len() => {
                        let (host, id, link) = open.remove(place);
                        frontier.ended(id, PlaceUse::Prompt);
                        if not_before[host].since(now) <= LONG_WAIT {
                            not_before[host] = Timestamp::default();
                        }
                        done.push(link.number);
                    }
                    Event::Back(place, wait) if place < open.len() => {
                        let (host, id, link) = open.remove(place);
                        not_before[host] = now.saturating_add(Duration::from_millis(wait));
                        frontier.back(id, link, not_before[host]);
                        model[host].push_front(link.number);
                    }
                    Event::Refuse(place, wait) if place < open.len() => {
                        let (host, id, link) = open.remove(place);
                        not_before[host] = now.saturating_add(Duration::from_millis(wait));
                        frontier.refused(id, link, not_before[host]);
                        model[host].push_back(link.number);
                    }
                    Event::Release(host) => {
                        frontier.release(&format!("host{host}"), now);
                        not_before[host] = not_before[host].min(now);
                    }
                    Event::ReleaseAll => {
                        frontier.release_all(now);
                        not_before = not_before.map(|at| at.min(now));
                    }
                    Event::Pass(time) => now = now.saturating_add(Duration::from_millis(time)),
                    _ => {}
                }
                prop_assert_eq!(frontier.len(), model.iter().map(VecDeque::len).sum::<usize>());
            }
            // All that waits or is open can be finished, each link once.
            loop {
                now = now.saturating_add(Duration::from_secs(10));
                while let Some((id, link)) = frontier.pop(now) {
                    let host = host_of(&frontier, id);
                    prop_assert_eq!(model[host].pop_front(), Some(link.number));
                    open.push((host, id, link));
                }
                if open.is_empty() {
                    break;
                }
                for (_, id, link) in open.drain(..) {
                    frontier.ended(id, PlaceUse::Prompt);
                    done.push(link.number);
                }
            }
            done.sort_unstable();
            prop_assert_eq!(done, (0..next).collect::<Vec<_>>());
            prop_assert_eq!(frontier.host_count(), 0, "nothing is left over");
        }
    }
}
