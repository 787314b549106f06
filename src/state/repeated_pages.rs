//! Pages that come again: a host that answers many addresses with the same few words, while another fetcher brings something else for
//! one of them, shows that fetcher a wall that no rule knows.
//!
//! Owns the last answers of each host that showed pages with little text, as sketches: a few hundred bytes a host, and of a bounded
//! number of hosts. Nothing of it is read by a decision, and nothing of it is kept beyond the process. Must not know what follows.

use std::collections::VecDeque;

use dashmap::DashMap;

/// Answers that are remembered of a host.
const ANSWERS_MAX: usize = 16;
/// Hosts that are remembered. With more, those are dropped that no page came again of.
const HOSTS_MAX: usize = 10_000;
/// Bits in which two sketches of the same page differ at most.
const SAME_BITS: u32 = 5;
/// Bits in which sketches of different pages differ at least.
const OTHER_BITS: u32 = 16;
/// From so many addresses on a page comes again.
const LINKS_MIN: usize = 3;

/// An answer with content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// A hash of the link.
    pub(crate) link: u64,
    /// Who brought it.
    pub(crate) fetcher: u32,
    /// What it said; none of a page with much text.
    pub(crate) sketch: Option<u64>,
}

/// What is known of a page that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Again {
    /// Addresses of the host that the same page came for, this one included.
    pub(crate) links: usize,
    /// Another fetcher brought something else for one of them.
    pub(crate) differs: bool,
}

/// The hosts that showed pages with little text.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    hosts: DashMap<String, VecDeque<Seen>>,
}

impl Pages {
    /// Remembers an answer, and says whether it is one that comes again.
    pub(crate) fn came(&self, domain: &str, seen: Seen) -> Option<Again> {
        // A host is remembered from its first page with little text on.
        if seen.sketch.is_none() {
            if let Some(mut answers) = self.hosts.get_mut(domain) {
                remember(&mut answers, seen);
            }
            return None;
        }
        self.sweep();
        let mut answers = self.hosts.entry(domain.to_owned()).or_default();
        remember(&mut answers, seen);
        let same: Vec<u64> = {
            let mut links: Vec<u64> =
                answers.iter().filter(|other| is_same(other, &seen)).map(|other| other.link).collect();
            links.sort_unstable();
            links.dedup();
            links
        };
        let differs = answers.iter().any(|other| {
            other.fetcher != seen.fetcher && is_other(other.sketch, seen.sketch) && same.contains(&other.link)
        });
        (same.len() >= LINKS_MIN).then_some(Again { links: same.len(), differs })
    }

    fn sweep(&self) {
        if self.hosts.len() <= HOSTS_MAX {
            return;
        }
        self.hosts.retain(|_, answers| answers.iter().any(|one| answers.iter().any(|two| comes_again(one, two))));
        if self.hosts.len() > HOSTS_MAX {
            self.hosts.clear();
        }
    }
}

/// Keeps an answer, in place of what the same fetcher brought for the same link before.
fn remember(answers: &mut VecDeque<Seen>, seen: Seen) {
    answers.retain(|old| (old.link, old.fetcher) != (seen.link, seen.fetcher));
    if answers.len() == ANSWERS_MAX {
        answers.pop_front();
    }
    answers.push_back(seen);
}

/// Whether two answers of one fetcher are the same page.
fn is_same(one: &Seen, two: &Seen) -> bool {
    one.fetcher == two.fetcher
        && matches!((one.sketch, two.sketch), (Some(a), Some(b)) if (a ^ b).count_ones() <= SAME_BITS)
}

fn comes_again(one: &Seen, two: &Seen) -> bool {
    one.link != two.link && is_same(one, two)
}

/// Whether a page says something else, or much more.
fn is_other(sketch: Option<u64>, than: Option<u64>) -> bool {
    match (sketch, than) {
        (Some(a), Some(b)) => (a ^ b).count_ones() >= OTHER_BITS,
        (None, Some(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: u64 = 0x0123_4567_89ab_cdef;

    fn seen(link: u64, fetcher: u32, sketch: Option<u64>) -> Seen {
        Seen { link, fetcher, sketch }
    }

    #[test]
    fn a_page_comes_again_with_the_third_address_and_a_little_noise() {
        let pages = Pages::default();
        assert_eq!(pages.came("a.example", seen(1, 0, Some(WALL))), None);
        assert_eq!(pages.came("a.example", seen(1, 0, Some(WALL))), None);
        assert_eq!(pages.came("a.example", seen(2, 0, Some(WALL ^ 0b11))), None);
        let again = pages.came("a.example", seen(3, 0, Some(WALL ^ 0b101)));
        assert_eq!(again, Some(Again { links: 3, differs: false }));
        assert_eq!(pages.came("b.example", seen(4, 0, Some(WALL))), None, "another host");
        assert_eq!(pages.came("a.example", seen(5, 0, Some(!WALL))), None, "another page");
    }

    #[test]
    fn what_another_fetcher_brought_for_one_of_them_tells_a_wall() {
        for other in [None, Some(!WALL)] {
            let pages = Pages::default();
            for link in 1..=3 {
                pages.came("a.example", seen(link, 0, Some(WALL)));
            }
            pages.came("a.example", seen(2, 1, other));
            assert_eq!(pages.came("a.example", seen(4, 0, Some(WALL))), Some(Again { links: 4, differs: true }));
        }
    }

    #[test]
    fn a_stub_that_every_fetcher_brings_alike_is_no_disagreement() {
        let pages = Pages::default();
        for link in 1..=5 {
            pages.came("a.example", seen(link, 0, Some(WALL)));
            pages.came("a.example", seen(link, 1, Some(WALL)));
        }
        assert_eq!(pages.came("a.example", seen(6, 0, Some(WALL))), Some(Again { links: 6, differs: false }));
        // Much text for an address that the stub never came for says nothing.
        pages.came("a.example", seen(99, 1, None));
        assert!(pages.came("a.example", seen(7, 0, Some(WALL))).is_some_and(|again| !again.differs));
    }

    #[test]
    fn memory_is_bounded_by_host_and_in_all() {
        let pages = Pages::default();
        for link in 0..1_000 {
            pages.came("a.example", seen(link, 0, Some(WALL.wrapping_mul(link | 1))));
        }
        assert_eq!(pages.hosts.get("a.example").map(|answers| answers.len()), Some(ANSWERS_MAX));
        for host in 0..HOSTS_MAX + 10 {
            pages.came(&format!("{host}.example"), seen(1, 0, Some(WALL)));
        }
        assert!(pages.hosts.len() <= HOSTS_MAX + 1);
        pages.came("full.example", seen(1, 0, None));
        assert!(!pages.hosts.contains_key("full.example"), "a host without little text takes no memory");
    }
}
