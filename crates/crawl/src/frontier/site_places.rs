//! The places of a crawl by site: which site gives the next link, and how many places it may hold.
//!
//! A site is all that one party can get: the hosts of one registered name, or the addresses of one
//! network. Names below a site cost nothing, so hosts alone are no measure of a fair share.
//!
//! Invariants: while other sites have links, a site holds at most three quarters of the places, and
//! a quarter as long as it owes: it is new, or its links hung. A site alone in the crawl has no
//! limit. Among sites, the one with the fewest open links goes first; within a site, the host with
//! the fewest. A step depends on the number of hosts by its logarithm.
//!
//! Must not know: links, time, and when a host is ready.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::host_id::HostId;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::heuristic::url::{network_of, registered_domain};
use fetchwise::pipeline::Report;

/// The share of the places that a site holds at most while it owes, and that it leaves to others
/// when it does not.
const SHARE: usize = 4;
/// A link without any response hung if it took as long as this.
const LONG: Duration = Duration::from_secs(5);
/// What a site owes at first: one link that ends in time.
const NEW_DEBT: u32 = 1;
/// How many links that end in time make up for one that hung.
const HUNG_DEBT: u32 = 16;
/// The limit of a debt, so that a site which was down for long is not held back for as long again.
const MAX_DEBT: u32 = 16 * HUNG_DEBT;

/// The sites with waiting or open links.
#[derive(Debug)]
pub(super) struct SitePlaces {
    ids: HashMap<Arc<str>, SiteId>,
    sites: Vec<Site>,
    /// Places in `sites` that no site uses.
    unused: Vec<SiteId>,
    /// Ready hosts of each site by the number of their open links, then by turn.
    hosts: BTreeSet<(SiteId, u32, u64, HostId)>,
    /// Sites that may give a link by the number of their open links, then by the turn of their
    /// first host.
    ready: BTreeSet<(u32, u64, SiteId)>,
    share: u32,
    places: u32,
}

/// A site with waiting or open links. It names another site once the last of these has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SiteId(u32);

/// How a link ended, as far as its place is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceUse {
    /// It gave its place back in time.
    Prompt,
    /// It held its place for long and brought nothing.
    Hung,
    /// It made no request.
    Unused,
}

#[derive(Debug)]
struct Site {
    name: Arc<str>,
    hosts: u32,
    open: u32,
    /// The number of links that have to end in time before the site may hold more than a quarter of
    /// the places.
    debt: u32,
    /// Its key in `ready`.
    listed: Option<(u32, u64)>,
}

impl SitePlaces {
    /// Returns the sites of a crawl with this number of places.
    pub(super) fn new(places: usize) -> Self {
        let number = |places: usize| u32::try_from(places.max(1)).unwrap_or(u32::MAX);
        Self {
            ids: HashMap::new(),
            sites: Vec::new(),
            unused: Vec::new(),
            hosts: BTreeSet::new(),
            ready: BTreeSet::new(),
            share: number(places / SHARE),
            places: number(places),
        }
    }

    /// Adds a host to its site.
    pub(super) fn enter(&mut self, host: &Arc<str>) -> SiteId {
        let network = host
            .trim_matches(['[', ']'])
            .parse()
            .ok()
            .map(|address| network_of(address).to_string());
        let name = network.as_deref().or_else(|| registered_domain(host)).unwrap_or(host);
        if let Some(&id) = self.ids.get(name) {
            self.sites[id.index()].hosts += 1;
            return id;
        }
        let name = if *name == **host { Arc::clone(host) } else { name.into() };
        let site =
            Site { name: Arc::clone(&name), hosts: 1, open: 0, debt: NEW_DEBT, listed: None };
        let id = match self.unused.pop() {
            Some(id) => {
                self.sites[id.index()] = site;
                id
            }
            None => {
                self.sites.push(site);
                SiteId((self.sites.len() - 1) as u32)
            }
        };
        let alone = (self.ids.len() == 1).then(|| self.ids.values().next().copied()).flatten();
        self.ids.insert(name, id);
        // From now on it has a limit.
        if let Some(alone) = alone {
            self.list(alone);
        }
        id
    }

    /// Removes a host that is not ready and has no open link.
    pub(super) fn leave(&mut self, id: SiteId) {
        let site = &mut self.sites[id.index()];
        site.hosts = site.hosts.saturating_sub(1);
        if site.hosts > 0 {
            return;
        }
        debug_assert_eq!(
            (site.open, site.listed),
            (0, None),
            "a site without hosts has a link to give"
        );
        self.ids.remove(&site.name);
        self.unused.push(id);
        if self.ids.len() == 1
            && let Some(&alone) = self.ids.values().next()
        {
            self.list(alone);
        }
    }

    /// Adds a ready host.
    pub(super) fn add(&mut self, id: SiteId, open: u32, turn: u64, host: HostId) {
        let is_new = self.hosts.insert((id, open, turn, host));
        debug_assert!(is_new, "a ready host is listed twice");
        self.list(id);
    }

    /// Removes a host that is not ready any longer.
    pub(super) fn remove(&mut self, id: SiteId, open: u32, turn: u64, host: HostId) {
        let was_there = self.hosts.remove(&(id, open, turn, host));
        debug_assert!(was_there, "a ready host is not listed");
        self.list(id);
    }

    /// Removes and returns the host whose turn it is.
    pub(super) fn pop(&mut self) -> Option<HostId> {
        let &(_, _, id) = self.ready.first()?;
        let first = self.first(id)?;
        self.hosts.remove(&first);
        self.list(id);
        Some(first.3)
    }

    /// Records that a link of a site is open.
    pub(super) fn opened(&mut self, id: SiteId) {
        self.sites[id.index()].open += 1;
        self.list(id);
    }

    /// Returns whether a host may give a link.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Records that a link of a site is no longer open.
    pub(super) fn closed(&mut self, id: SiteId, used: PlaceUse) {
        let site = &mut self.sites[id.index()];
        site.open = site.open.saturating_sub(1);
        site.debt = match used {
            PlaceUse::Prompt => site.debt.saturating_sub(1),
            PlaceUse::Hung => (site.debt + HUNG_DEBT).min(MAX_DEBT),
            PlaceUse::Unused => site.debt,
        };
        self.list(id);
    }

    /// Drops all ready hosts.
    pub(super) fn clear(&mut self) {
        self.hosts.clear();
        self.ready.clear();
        self.sites.iter_mut().for_each(|site| site.listed = None);
    }

    /// Returns how many links of a site may be open.
    fn limit(&self, site: &Site) -> u32 {
        match (self.ids.len(), site.debt) {
            (..=1, _) => u32::MAX,
            (_, 0) => self.places.saturating_sub(self.share).max(1),
            _ => self.share,
        }
    }

    fn first(&self, id: SiteId) -> Option<(SiteId, u32, u64, HostId)> {
        let next = SiteId(id.0 + 1);
        self.hosts
            .range((id, 0, 0, HostId::default())..(next, 0, 0, HostId::default()))
            .next()
            .copied()
    }

    /// Lists a site under its present key, if it may give a link.
    fn list(&mut self, id: SiteId) {
        let site = &self.sites[id.index()];
        let may_go = site.open < self.limit(site);
        let wanted =
            if may_go { self.first(id).map(|(_, _, turn, _)| (site.open, turn)) } else { None };
        let site = &mut self.sites[id.index()];
        let listed = std::mem::replace(&mut site.listed, wanted);
        if listed == wanted {
            return;
        }
        if let Some((open, turn)) = listed {
            let was_there = self.ready.remove(&(open, turn, id));
            debug_assert!(was_there, "a site is not listed under its key");
        }
        if let Some((open, turn)) = wanted {
            let is_new = self.ready.insert((open, turn, id));
            debug_assert!(is_new, "a site is listed twice");
        }
    }
}

impl PlaceUse {
    /// Returns how a link with this report used its place.
    pub fn of(report: &Report) -> Self {
        let is_silent = report.status.is_none() && report.duration >= LONG;
        match report.success {
            false if report.requests == 0 => Self::Unused,
            false if is_silent || report.error_type == Some(ErrorKind::Timeout.name()) => {
                Self::Hung
            }
            _ => Self::Prompt,
        }
    }
}

impl SiteId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontier::{Frontier, QueuedLink};
    use fetchwise::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);
    const PLACES: usize = 16;

    /// Starts links until all places are taken or no host may go.
    fn fill(frontier: &mut Frontier, open: &mut Vec<HostId>) {
        while open.len() < PLACES
            && let Some((host, _)) = frontier.pop(NOW)
        {
            open.push(host);
        }
    }

    fn push(frontier: &mut Frontier, host: &str, links: u64) {
        (0..links)
            .for_each(|number| frontier.push(host, QueuedLink { number, ..QueuedLink::default() }));
    }

    fn of(frontier: &Frontier, open: &[HostId], suffix: &str) -> usize {
        open.iter().filter(|host| frontier.name(**host).contains(suffix)).count()
    }

    /// Ends all open links of hosts whose name has `part`.
    fn end(frontier: &mut Frontier, open: &mut Vec<HostId>, part: &str, used: PlaceUse) {
        let (ended, others) = open.drain(..).partition(|host| frontier.name(*host).contains(part));
        *open = others;
        let ended: Vec<HostId> = ended;
        ended.into_iter().for_each(|host| frontier.ended(host, used));
    }

    /// A crawl in which every host of one party hangs: it held all places until the timeouts.
    #[test]
    fn a_site_whose_first_links_hang_holds_a_quarter_of_the_places() {
        for hosts in ["h{}.evil.example", "a.{}.b.evil.co.uk", "evil{}.github.io", "203.0.113.{}"] {
            let mut frontier = Frontier::new(None, PLACES);
            let evil = hosts.split("{}").max_by_key(|part| part.len()).unwrap().to_owned();
            (0..200).for_each(|n| push(&mut frontier, &hosts.replace("{}", &n.to_string()), 3));
            (0..10).for_each(|n| push(&mut frontier, &format!("www.good{n}.example"), 40));
            let (mut open, mut ended, mut rounds) = (Vec::new(), 0, 0);
            while ended < 400 {
                fill(&mut frontier, &mut open);
                assert!(of(&frontier, &open, &evil) <= PLACES / 4, "{hosts}");
                ended += of(&frontier, &open, "good");
                end(&mut frontier, &mut open, "good", PlaceUse::Prompt);
                rounds += 1;
            }
            assert!(rounds <= 50, "{hosts}: {rounds}");
        }
    }

    #[test]
    fn a_site_that_hangs_after_it_was_quick_leaves_a_quarter_and_then_gets_one() {
        let mut frontier = Frontier::new(None, PLACES);
        (0..100).for_each(|n| push(&mut frontier, &format!("h{n}.turns.example"), 9));
        push(&mut frontier, "good.example", 1);
        let mut open = Vec::new();
        fill(&mut frontier, &mut open);
        assert_eq!((open.len(), of(&frontier, &open, "turns")), (5, 4));
        end(&mut frontier, &mut open, "turns", PlaceUse::Prompt);
        fill(&mut frontier, &mut open);
        assert_eq!(of(&frontier, &open, "turns"), 12, "the other site's link is open");
        end(&mut frontier, &mut open, "turns", PlaceUse::Hung);
        fill(&mut frontier, &mut open);
        assert_eq!(of(&frontier, &open, "turns"), 4);
        for _ in 0..12 * HUNG_DEBT / 4 {
            assert_eq!(of(&frontier, &open, "turns"), 4);
            end(&mut frontier, &mut open, "turns", PlaceUse::Prompt);
            fill(&mut frontier, &mut open);
        }
        assert_eq!(of(&frontier, &open, "turns"), 12, "it has made up for what hung");
    }

    #[test]
    fn a_site_alone_in_the_crawl_gets_every_place() {
        let mut frontier = Frontier::new(None, PLACES);
        (0..40).for_each(|n| push(&mut frontier, &format!("h{n}.only.example"), 2));
        push(&mut frontier, "good.example", 1);
        let mut open = Vec::new();
        fill(&mut frontier, &mut open);
        assert_eq!(open.len(), 5);
        end(&mut frontier, &mut open, "good", PlaceUse::Prompt);
        fill(&mut frontier, &mut open);
        assert_eq!(open.len(), PLACES, "nobody else waits");
        push(&mut frontier, "late.example", 1);
        end(&mut frontier, &mut open, "h0.only", PlaceUse::Hung);
        fill(&mut frontier, &mut open);
        assert_eq!(of(&frontier, &open, "late"), 1);
    }

    #[test]
    fn sites_share_the_places_however_many_hosts_they_have() {
        let mut frontier = Frontier::new(None, PLACES);
        (0..50).for_each(|n| push(&mut frontier, &format!("h{n}.large.example"), 9));
        ["small.example", "other.example", "third.example"]
            .iter()
            .for_each(|host| push(&mut frontier, host, 90));
        let mut open = Vec::new();
        for _ in 0..3 {
            fill(&mut frontier, &mut open);
            end(&mut frontier, &mut open, "example", PlaceUse::Prompt);
        }
        fill(&mut frontier, &mut open);
        let shares = ["large", "small", "other", "third"].map(|site| of(&frontier, &open, site));
        assert_eq!(shares, [4, 4, 4, 4]);
    }

    #[test]
    fn a_crawl_with_few_places_still_moves() {
        for places in 1..4 {
            let mut frontier = Frontier::new(None, places);
            ["a.example", "b.example"].iter().for_each(|host| push(&mut frontier, host, 5));
            let mut ended = 0;
            while let Some((host, _)) = frontier.pop(NOW) {
                frontier.ended(host, PlaceUse::Hung);
                ended += 1;
            }
            assert_eq!(ended, 10);
        }
    }
}
