//! Repeated pages: a host that shows many addresses the same few words blocks a fetcher if another
//! fetcher gets something else for one of them. No detection rule is needed for that.
//!
//! Owns: the last pages with little text of each host, as SimHashes: some hundred bytes per host,
//! for a bounded number of hosts. No decision reads them, and they are not kept beyond the process.
//!
//! Must not know: the consequences for the visit.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Maximum number of responses remembered per host.
const MAX_RESPONSES: usize = 16;
/// Maximum number of hosts in each of the two generations.
const MAX_HOSTS: usize = 5_000;
/// Two SimHashes of the same page differ in at most this number of bits.
const SAME_BITS: u32 = 5;
/// SimHashes of different pages differ in at least this number of bits.
const OTHER_BITS: u32 = 16;
/// Number of addresses from which on a page counts as repeated.
const MIN_LINKS: usize = 3;

/// A response with content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageSighting {
    /// A hash of the link.
    pub(crate) link: u64,
    /// The fetcher that got it.
    pub(crate) fetcher: u32,
    /// The SimHash of its text; `None` for a page with much text.
    pub(crate) simhash: Option<u64>,
}

/// A page that the host has shown before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RepeatedPage {
    /// Number of addresses of the host that got the same page, this one included.
    pub(crate) links: usize,
    /// Whether another fetcher got something else for one of them.
    pub(crate) differs: bool,
}

/// What a host has shown before, compared with a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PageHistory {
    /// The page, if several addresses of the host got it.
    pub(crate) repeated: Option<RepeatedPage>,
    /// The pages with little text that other fetchers got for the same address, if this one is
    /// different.
    pub(crate) other_pages: Vec<u64>,
    /// Whether another fetcher got something else for the same address.
    pub(crate) differs: bool,
    /// Number of addresses in a row for which this fetcher got this page, this one included; 0 for
    /// much text.
    pub(crate) run: usize,
}

/// The hosts that showed pages with little text.
#[derive(Debug, Default)]
pub(crate) struct RepeatedPages {
    hosts: Mutex<RecentHosts>,
}

/// The responses of hosts. A host that shows a page joins the new generation; when that is full, it
/// becomes the old one, and the old one goes. So a new host costs the same however many there are.
#[derive(Debug, Default)]
struct RecentHosts {
    new: HashMap<String, VecDeque<PageSighting>>,
    old: HashMap<String, VecDeque<PageSighting>>,
}

impl RepeatedPages {
    /// Remembers a response, and returns what the host has shown before.
    pub(crate) fn record(&self, domain: &str, sighting: PageSighting) -> PageHistory {
        // The hosts are consistent even if a thread panicked with them.
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        // A host is remembered from its first page with little text on.
        let responses = match sighting.simhash {
            Some(_) => hosts.get_or_insert(domain),
            None => match hosts.get_mut(domain) {
                Some(responses) => responses,
                None => return PageHistory::default(),
            },
        };
        remember(responses, sighting);
        let others =
            |of: &&PageSighting| of.link == sighting.link && of.fetcher != sighting.fetcher;
        let is_other = |of: &PageSighting| {
            is_different(of.simhash, sighting.simhash) || is_different(sighting.simhash, of.simhash)
        };
        let others = responses.iter().filter(others).filter(|of| is_other(of));
        PageHistory {
            repeated: repeated(responses, &sighting),
            differs: others.clone().next().is_some(),
            other_pages: others.filter_map(|of| of.simhash).collect(),
            run: run(responses, &sighting),
        }
    }
}

/// Returns the page if several addresses of the host got it.
fn repeated(responses: &VecDeque<PageSighting>, sighting: &PageSighting) -> Option<RepeatedPage> {
    let mut same: Vec<u64> =
        responses.iter().filter(|other| is_same(other, sighting)).map(|other| other.link).collect();
    same.sort_unstable();
    same.dedup();
    let differs = responses.iter().any(|other| {
        other.fetcher != sighting.fetcher
            && is_different(other.simhash, sighting.simhash)
            && same.contains(&other.link)
    });
    (same.len() >= MIN_LINKS).then_some(RepeatedPage { links: same.len(), differs })
}

/// Returns the number of responses in a row, up to the last one, with the same page.
fn run(responses: &VecDeque<PageSighting>, sighting: &PageSighting) -> usize {
    let of_fetcher = responses.iter().rev().filter(|other| other.fetcher == sighting.fetcher);
    of_fetcher.take_while(|other| is_same(other, sighting)).count()
}

impl RecentHosts {
    fn get_mut(&mut self, domain: &str) -> Option<&mut VecDeque<PageSighting>> {
        if let Some((name, responses)) = self.old.remove_entry(domain) {
            self.insert(name, responses);
        }
        self.new.get_mut(domain)
    }

    fn get_or_insert(&mut self, domain: &str) -> &mut VecDeque<PageSighting> {
        if self.get_mut(domain).is_none() {
            self.insert(domain.to_owned(), VecDeque::new());
        }
        self.new.entry(domain.to_owned()).or_default()
    }

    fn insert(&mut self, name: String, responses: VecDeque<PageSighting>) {
        if self.new.len() >= MAX_HOSTS {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(name, responses);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.new.len() + self.old.len()
    }
}

/// Remembers a response, in place of the one that the same fetcher got for the same link before.
fn remember(responses: &mut VecDeque<PageSighting>, sighting: PageSighting) {
    responses.retain(|old| (old.link, old.fetcher) != (sighting.link, sighting.fetcher));
    if responses.len() == MAX_RESPONSES {
        responses.pop_front();
    }
    responses.push_back(sighting);
}

/// Returns whether two responses of one fetcher are the same page.
fn is_same(one: &PageSighting, two: &PageSighting) -> bool {
    one.fetcher == two.fetcher
        && matches!((one.simhash, two.simhash), (Some(a), Some(b)) if (a ^ b).count_ones() <= SAME_BITS)
}

/// Returns whether a page has other text, or much more.
fn is_different(simhash: Option<u64>, than: Option<u64>) -> bool {
    match (simhash, than) {
        (Some(a), Some(b)) => (a ^ b).count_ones() >= OTHER_BITS,
        (None, Some(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK_PAGE: u64 = 0x0123_4567_89ab_cdef;

    fn sighting(link: u64, fetcher: u32, simhash: Option<u64>) -> PageSighting {
        PageSighting { link, fetcher, simhash }
    }

    fn record(pages: &RepeatedPages, host: &str, sighting: PageSighting) -> Option<RepeatedPage> {
        pages.record(host, sighting).repeated
    }

    #[test]
    fn another_fetcher_that_gets_something_else_for_an_address_is_known_from_both_sides() {
        let pages = RepeatedPages::default();
        assert_eq!(pages.record("a.example", sighting(1, 0, Some(BLOCK_PAGE))).run, 1);
        assert_eq!(pages.record("a.example", sighting(2, 0, Some(BLOCK_PAGE ^ 1))).run, 2);
        let much = pages.record("a.example", sighting(1, 1, None));
        assert_eq!((much.differs, much.run, &much.other_pages[..]), (true, 0, &[BLOCK_PAGE][..]));
        let again = pages.record("a.example", sighting(1, 0, Some(BLOCK_PAGE)));
        assert!(again.differs && again.other_pages.is_empty(), "{again:?}");
        let other = pages.record("a.example", sighting(3, 1, None));
        assert_eq!(other, PageHistory::default(), "another address");
    }

    #[test]
    fn a_page_is_repeated_from_the_third_address_on_despite_noise() {
        let pages = RepeatedPages::default();
        assert_eq!(record(&pages, "a.example", sighting(1, 0, Some(BLOCK_PAGE))), None);
        assert_eq!(record(&pages, "a.example", sighting(1, 0, Some(BLOCK_PAGE))), None);
        assert_eq!(record(&pages, "a.example", sighting(2, 0, Some(BLOCK_PAGE ^ 0b11))), None);
        let again = record(&pages, "a.example", sighting(3, 0, Some(BLOCK_PAGE ^ 0b101)));
        assert_eq!(again, Some(RepeatedPage { links: 3, differs: false }));
        assert_eq!(
            record(&pages, "b.example", sighting(4, 0, Some(BLOCK_PAGE))),
            None,
            "another host"
        );
        assert_eq!(
            record(&pages, "a.example", sighting(5, 0, Some(!BLOCK_PAGE))),
            None,
            "another page"
        );
    }

    #[test]
    fn a_different_page_from_another_fetcher_reveals_a_block() {
        for other in [None, Some(!BLOCK_PAGE)] {
            let pages = RepeatedPages::default();
            for link in 1..=3 {
                record(&pages, "a.example", sighting(link, 0, Some(BLOCK_PAGE)));
            }
            record(&pages, "a.example", sighting(2, 1, other));
            assert_eq!(
                record(&pages, "a.example", sighting(4, 0, Some(BLOCK_PAGE))),
                Some(RepeatedPage { links: 4, differs: true })
            );
        }
    }

    #[test]
    fn a_stub_that_every_fetcher_gets_is_not_a_difference() {
        let pages = RepeatedPages::default();
        for link in 1..=5 {
            record(&pages, "a.example", sighting(link, 0, Some(BLOCK_PAGE)));
            record(&pages, "a.example", sighting(link, 1, Some(BLOCK_PAGE)));
        }
        assert_eq!(
            record(&pages, "a.example", sighting(6, 0, Some(BLOCK_PAGE))),
            Some(RepeatedPage { links: 6, differs: false })
        );
        // Much text for an address that never got the stub proves nothing.
        record(&pages, "a.example", sighting(99, 1, None));
        assert!(
            record(&pages, "a.example", sighting(7, 0, Some(BLOCK_PAGE)))
                .is_some_and(|again| !again.differs)
        );
    }

    #[test]
    fn memory_is_bounded_per_host_and_in_total() {
        let pages = RepeatedPages::default();
        for link in 0..1_000 {
            record(&pages, "a.example", sighting(link, 0, Some(BLOCK_PAGE.wrapping_mul(link | 1))));
        }
        let kept =
            |host: &str| pages.hosts.lock().unwrap().get_mut(host).map(|responses| responses.len());
        assert_eq!(kept("a.example"), Some(MAX_RESPONSES));
        for host in 0..4 * MAX_HOSTS {
            record(&pages, &format!("{host}.example"), sighting(1, 0, Some(BLOCK_PAGE)));
            assert!(pages.hosts.lock().unwrap().len() <= 2 * MAX_HOSTS);
        }
        record(&pages, "full.example", sighting(1, 0, None));
        assert_eq!(kept("full.example"), None, "a host without little text takes no memory");
    }

    /// With 10,000 hosts, each further one looked at all of them, and then all were forgotten.
    #[test]
    fn new_hosts_replace_those_that_were_idle_for_longest() {
        let pages = RepeatedPages::default();
        let record = |host: usize, link| {
            record(&pages, &format!("{host}.example"), sighting(link, 0, Some(BLOCK_PAGE)))
        };
        for link in 1..=3 {
            record(0, link);
        }
        for host in 1..20 * MAX_HOSTS {
            assert_eq!(record(host, 1), None);
            if host % MAX_HOSTS == 0 {
                assert_eq!(
                    record(0, 3),
                    Some(RepeatedPage { links: 3, differs: false }),
                    "after {host} hosts"
                );
            }
        }
        assert!(pages.hosts.lock().unwrap().len() > MAX_HOSTS, "the newest hosts are kept");
    }
}
