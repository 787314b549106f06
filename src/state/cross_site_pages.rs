//! Pages with little text that come for several sites: a network that refuses, or the default page
//! of a hoster or of a product. No language and no rule is needed for that.
//!
//! Owns: one table of SimHashes for the process, which counts the sites that showed each, and the
//! sites that turned to such a page lately. The table takes 1 MiB, from the first page with little
//! text on. No decision reads it, it is not kept beyond the process, and nodes of a fleet do not
//! share it.
//!
//! Invariants: no lock and no allocation for a page that a site shows, except where a site turned.
//! Each cell is read and written with relaxed operations. A writer that loses a race leaves its
//! sighting out, which costs one more site until the page is known. A cell whose check does not
//! match its page is empty.
//!
//! Must not know: the consequences for the visit.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use fetchwise_types::time::Timestamp;

/// Rotations of a SimHash. Each has its own table, so that a near pair shares a bucket in one of
/// them.
const ROTATIONS: usize = 4;
/// Buckets of a rotation.
const BUCKETS: usize = 4_096;
/// Cells of a bucket: each is a page and its state, so that a bucket takes 64 bytes.
const CELLS: usize = 4;
/// Words of the whole table.
const WORDS: usize = ROTATIONS * BUCKETS * CELLS * 2;
/// Two SimHashes of the same page differ in at most this number of bits.
const SAME_BITS: u32 = 5;
/// Number of sites from which on a page is one of no site.
const MIN_SITES: u32 = 3;
/// Time within which that many sites have to turn to a page if the network is to blame.
const TURNED_WITHIN: Duration = Duration::from_secs(3_600);
/// Maximum number of sites that turned which are remembered.
const MAX_TURNED: usize = 64;

/// A page with little text that a site showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SiteSighting {
    /// The SimHash of its text.
    pub(crate) simhash: u64,
    /// A hash of the site.
    pub(crate) site: u64,
    /// Whether the site had shown content, and shows this page only.
    pub(crate) turned: bool,
    pub(crate) at: Timestamp,
}

/// A page that is one of no site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CrossSitePage {
    /// Number of sites that showed it, at least: beyond the second, a site may count again.
    pub(crate) sites: u32,
    /// Whether the network is to blame: another fetcher got something else, or sites with content
    /// turned to it.
    pub(crate) is_of_network: bool,
}

/// The pages that sites showed.
#[derive(Debug, Default)]
pub(crate) struct CrossSitePages {
    words: OnceLock<Box<[AtomicU64]>>,
    /// Page, site and time of sites that turned, the oldest first. It is rare, so a lock does.
    turned: Mutex<VecDeque<(u64, u64, Timestamp)>>,
}

/// The state of a page in one word: two sites exactly (16 bits each, 0 for none), the number of
/// sites (8 bits), whether another fetcher got something else (1 bit), and a check of the page (23
/// bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageState(u64);

const SITE_BITS: u32 = 16;
const SITE_MASK: u64 = (1 << SITE_BITS) - 1;
const COUNT_AT: u32 = 2 * SITE_BITS;
const REFUTED: u64 = 1 << (COUNT_AT + 8);
const CHECK_AT: u32 = COUNT_AT + 9;

impl PageState {
    fn new(simhash: u64) -> Self {
        Self(check(simhash) << CHECK_AT)
    }

    fn is_of(self, simhash: u64) -> bool {
        self.0 >> CHECK_AT == check(simhash)
    }

    fn sites(self) -> u32 {
        (self.0 >> COUNT_AT) as u32 & 0xff
    }

    fn is_refuted(self) -> bool {
        self.0 & REFUTED != 0
    }

    /// Counts a site, unless it is one of the first two.
    fn with_site(self, site: u64) -> Self {
        let site = (site & SITE_MASK).max(1);
        let (first, second) = (self.0 & SITE_MASK, self.0 >> SITE_BITS & SITE_MASK);
        let one_more = if self.sites() < 0xff { 1 << COUNT_AT } else { 0 };
        match (first, second) {
            (0, _) => Self((self.0 | site) + one_more),
            (known, _) if known == site => self,
            (_, 0) => Self((self.0 | site << SITE_BITS) + one_more),
            (_, known) if known == site => self,
            _ => Self(self.0 + one_more),
        }
    }

    fn refuted(self) -> Self {
        Self(self.0 | REFUTED)
    }

    /// Returns the state of the page with another check.
    fn for_page(self, simhash: u64) -> Self {
        Self(self.0 & ((1 << CHECK_AT) - 1) | check(simhash) << CHECK_AT)
    }
}

/// Returns bits of a page that its state repeats, so that a state written for another page does not
/// count.
fn check(simhash: u64) -> u64 {
    simhash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> CHECK_AT
}

impl CrossSitePages {
    /// Counts a sighting, and returns the page if it is one of no site.
    pub(crate) fn record(&self, sighting: SiteSighting) -> Option<CrossSitePage> {
        let state = self.update(sighting.simhash, |state| state.with_site(sighting.site));
        let has_turned = sighting.turned && self.turn(&sighting);
        let is_of_network = has_turned || state.is_refuted();
        if has_turned && !state.is_refuted() {
            self.update(sighting.simhash, PageState::refuted);
        }
        (state.sites() >= MIN_SITES)
            .then_some(CrossSitePage { sites: state.sites(), is_of_network })
    }

    /// Records that another fetcher got something else for an address that had shown this page.
    pub(crate) fn refute(&self, simhash: u64) {
        self.update(simhash, PageState::refuted);
    }

    /// Returns whether enough sites have turned to this page within the time.
    fn turn(&self, sighting: &SiteSighting) -> bool {
        let SiteSighting { simhash, site, at, .. } = *sighting;
        // The list is consistent even if a thread panicked with it.
        let mut turned = self.turned.lock().unwrap_or_else(PoisonError::into_inner);
        turned.retain(|(_, _, when)| at.since(*when) <= TURNED_WITHIN);
        if turned.iter().all(|(page, of, _)| *of != site || !is_same(*page, simhash)) {
            if turned.len() == MAX_TURNED {
                turned.pop_front();
            }
            turned.push_back((simhash, site, at));
        }
        turned.iter().filter(|(page, ..)| is_same(*page, simhash)).count() >= MIN_SITES as usize
    }

    /// Changes the state of a page in every bucket that it belongs to, and returns the new one.
    fn update(&self, simhash: u64, change: impl Fn(PageState) -> PageState) -> PageState {
        // Zero is an empty cell.
        let simhash = simhash.max(1);
        let words = self.words.get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
        let buckets = std::array::from_fn::<&[AtomicU64], ROTATIONS, _>(|rotation| {
            bucket(words, simhash, rotation)
        });
        // The cells may differ after a lost race, or because one of them was replaced: the one that
        // knows most counts.
        let known =
            buckets.iter().filter_map(|cells| find(cells, simhash)).map(|(_, _, state)| state);
        let is_refuted = known.clone().any(PageState::is_refuted);
        let most =
            known.max_by_key(|state| state.sites()).unwrap_or_else(|| PageState::new(simhash));
        let new = change(if is_refuted { most.refuted() } else { most });
        for cells in buckets {
            match find(cells, simhash) {
                Some((at, page, old)) => {
                    let new = new.for_page(page);
                    let _ = cells[at + 1].compare_exchange(
                        old.0,
                        new.0,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                }
                None => insert(cells, simhash, new.for_page(simhash)),
            }
        }
        new
    }
}

fn is_same(one: u64, two: u64) -> bool {
    (one ^ two).count_ones() <= SAME_BITS
}

/// Returns the words of the bucket of a page in one rotation.
fn bucket(words: &[AtomicU64], simhash: u64, rotation: usize) -> &[AtomicU64] {
    let place = simhash.rotate_left(16 * rotation as u32) >> 52;
    let from = (rotation * BUCKETS + place as usize) * CELLS * 2;
    &words[from..from + CELLS * 2]
}

/// Returns the place of a page in a bucket, the page as it is there, and its state.
fn find(cells: &[AtomicU64], simhash: u64) -> Option<(usize, u64, PageState)> {
    (0..CELLS * 2).step_by(2).find_map(|at| {
        let page = cells[at].load(Ordering::Relaxed);
        let state = PageState(cells[at + 1].load(Ordering::Relaxed));
        (page != 0 && is_same(page, simhash) && state.is_of(page)).then_some((at, page, state))
    })
}

/// Puts a page in place of the one that the fewest sites have shown. Among those, the page decides,
/// so that not every new one takes the same place.
fn insert(cells: &[AtomicU64], simhash: u64, state: PageState) {
    let start = simhash as usize % CELLS;
    let places = (0..CELLS).map(|n| (start + n) % CELLS * 2);
    let sites = |at: &usize| {
        let (page, state) =
            (cells[*at].load(Ordering::Relaxed), PageState(cells[*at + 1].load(Ordering::Relaxed)));
        if page != 0 && state.is_of(page) { state.sites() + 1 } else { 0 }
    };
    let Some(at) = places.min_by_key(sites) else { return };
    let old = cells[at].load(Ordering::Relaxed);
    // Until the state follows, the check says that the cell is empty.
    if cells[at].compare_exchange(old, simhash, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        cells[at + 1].store(state.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_64;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn hash(n: u64) -> u64 {
        xxh3_64(&n.to_le_bytes())
    }

    fn seen(pages: &CrossSitePages, simhash: u64, site: u64) -> Option<CrossSitePage> {
        pages.record(SiteSighting { simhash, site: hash(site), turned: false, at: NOW })
    }

    fn turned(
        pages: &CrossSitePages,
        simhash: u64,
        site: u64,
        at: Timestamp,
    ) -> Option<CrossSitePage> {
        pages.record(SiteSighting { simhash, site: hash(site), turned: true, at })
    }

    #[test]
    fn a_page_is_of_no_site_from_the_third_site_on_whatever_bits_differ() {
        let pages = CrossSitePages::default();
        let page = hash(1);
        for _ in 0..5 {
            assert_eq!(
                (seen(&pages, page, 1), seen(&pages, page ^ 1, 2)),
                (None, None),
                "two sites, however often"
            );
        }
        // An echoed address changes some bits in any place.
        let third = seen(&pages, page ^ (1 << 40) ^ (1 << 3), 3);
        assert_eq!(third, Some(CrossSitePage { sites: 3, is_of_network: false }));
        assert_eq!(seen(&pages, hash(2), 3), None, "another page");
    }

    #[test]
    fn pages_that_differ_in_few_bits_meet_in_nearly_every_case() {
        let mut met = 0;
        for n in 0..1_000 {
            let (pages, page) = (CrossSitePages::default(), hash(n));
            let near = |k: u64| {
                (0..2).fold(page, |page, bit| page ^ 1 << (hash(n ^ k << 32 ^ bit << 48) % 64))
            };
            seen(&pages, page, 1);
            seen(&pages, near(1), 2);
            met += u32::from(seen(&pages, near(2), 3).is_some());
        }
        assert!(met >= 950, "{met} of 1000");
    }

    #[test]
    fn two_hundred_parked_domains_are_no_network() {
        let pages = CrossSitePages::default();
        let marked =
            (0..200).filter(|site| seen(&pages, hash(7) ^ (site & 3), *site).is_some()).count();
        assert_eq!(marked, 198);
        assert!(!seen(&pages, hash(7), 999).unwrap().is_of_network);
    }

    #[test]
    fn what_another_fetcher_got_instead_blames_the_network_at_every_site() {
        let pages = CrossSitePages::default();
        for site in 0..5 {
            seen(&pages, hash(7), site);
        }
        pages.refute(hash(7) ^ 1);
        assert!(seen(&pages, hash(7), 77).unwrap().is_of_network);
        assert!(
            !(0..9).filter_map(|site| seen(&pages, hash(8), site)).last().unwrap().is_of_network,
            "another page"
        );
    }

    #[test]
    fn three_sites_that_turn_within_an_hour_blame_the_network_and_three_in_three_days_do_not() {
        let (soon, slow) = (CrossSitePages::default(), CrossSitePages::default());
        let at = |hours: u64| NOW.saturating_add(Duration::from_secs(hours * 3_000));
        let fast: Vec<_> = (0..3)
            .map(|n| turned(&soon, hash(7), n, at(0).saturating_add(Duration::from_secs(n))))
            .collect();
        assert_eq!(fast[..2], [None, None]);
        assert_eq!(fast[2], Some(CrossSitePage { sites: 3, is_of_network: true }));
        assert!(seen(&soon, hash(7), 9).unwrap().is_of_network, "and so for all that follow");
        let late: Vec<_> = (0..9).filter_map(|n| turned(&slow, hash(7), n, at(n * 24))).collect();
        assert!(late.len() == 7 && late.iter().all(|page| !page.is_of_network), "{late:?}");
        let again = (0..9).filter_map(|_| turned(&slow, hash(8), 1, NOW)).count();
        assert_eq!(again, 0, "one site is one, however often it turns");
    }

    /// Nothing but the share of the sites differs: a page of one site in twenty is found as well.
    #[test]
    fn a_page_of_few_sites_is_found_among_many_others() {
        let pages = CrossSitePages::default();
        let mut found = 0;
        for site in 0..2_000 {
            for address in 0..3 {
                assert_eq!(
                    seen(&pages, hash(1_000_000 + site * 10 + address), site),
                    None,
                    "one page each"
                );
            }
            if site % 20 == 0 {
                found += u32::from(seen(&pages, hash(7), site).is_some());
            }
        }
        assert!(found >= 90, "{found} of 100 sites");
    }

    #[test]
    fn memory_is_bounded_and_threads_lose_at_most_sightings() {
        assert_eq!(WORDS * size_of::<AtomicU64>(), 1 << 20);
        let pages = CrossSitePages::default();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let pages = &pages;
                scope.spawn(move || {
                    for n in 0..20_000 {
                        let own = seen(pages, hash(1 << 40 | thread << 32 | n), thread);
                        assert!(own.is_none(), "a page of one site is never one of none");
                        seen(pages, hash(7), thread * 20_000 + n);
                    }
                });
            }
        });
        assert!(seen(&pages, hash(7), 1).is_some());
    }
}
