//! The crawler's own way to the network: whether it carries anything at all.
//!
//! A route that has gone, or a resource of this machine that is used up, is reported by the system.
//! A line that is dead somewhere behind the router is not: every request of every site ends in
//! silence. One site that falls silent says nothing about it. Several that all answered a moment
//! ago, while nobody answers in between, do.
//!
//! Owns: which sites answered last, which fell silent since, and since when the uplink is lost.
//!
//! Invariants: an answer of any site ends it. A site counts once, and only if the last that was
//! heard of it is a recent answer, so that sites that are dead or refuse never add up to a lost
//! uplink, however many of them a crawl has at its end. While it is lost, one request goes out every
//! few seconds. Answers take no lock while no site is silent, and no decision reads any of this.
//!
//! Must not know: the steps of a visit, fetchers, robots.txt.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use url::{Host, Url};
use xxhash_rust::xxh3::xxh3_64;

use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::heuristic::url::{network_of, registered_domain};
use fetchwise_types::time::Timestamp;

/// Number of sites that fall silent in a row, with no answer from any site in between, from which
/// on it is the uplink that is lost.
const SITES: usize = 5;
/// Time after its last answer for which a site counts as answering.
const RECENT: Duration = Duration::from_secs(600);
/// Time between two requests that try whether the uplink is back.
const TRIAL_INTERVAL: Duration = Duration::from_secs(5);
/// Time after which silence is the sites' again, so that no crawl waits without end.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Time after the last loss within which silence is the sites' own. If a firewall of several sites
/// drops what this crawler sends too fast, its pace has to learn that.
const APART: Duration = Duration::from_secs(900);

/// Number of sites whose last answer is remembered; some share a place.
const PLACES: usize = 4096;
/// The bits of a place that hold the minute of the answer, and the one that says that the site has
/// been silent since. The others are the site's.
const MINUTE: u64 = (1 << 20) - 1;
const SILENT: u64 = MINUTE + 1;
const SITE: u64 = !(MINUTE | SILENT);

/// What is known of the uplink.
#[derive(Debug)]
pub(crate) struct Uplink {
    /// For each place, the site that answered last, with the minute; 0 without one.
    answered: Box<[AtomicU64]>,
    silent: Mutex<SilentSites>,
    /// Whether `silent` names a site, or the uplink is lost.
    is_in_doubt: AtomicBool,
    /// In milliseconds; 0 if it is not lost.
    lost_at: AtomicI64,
    next_trial: AtomicI64,
}

/// The sites that fell silent since the last answer.
#[derive(Debug, Default)]
struct SilentSites {
    sites: Vec<u64>,
    /// The end of the last loss.
    came_back: Option<Timestamp>,
}

/// Whose silence it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    /// This machine's: the uplink is lost. The request says nothing about its site.
    Uplink,
    /// That of a site that answered a moment ago.
    AnsweringSite,
    /// That of a site of which nothing was heard lately.
    OtherSite,
}

/// What the result of a request says about the uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// Something came from the network.
    Answered,
    /// Nothing came, not even the address of the site.
    Silence,
    /// Neither: the answer came from this machine or broke off.
    Neither,
}

impl Sign {
    /// Returns what the result of a page's fetch says.
    pub(crate) fn of(result: &FetchResult) -> Self {
        match (&result.outcome, result.status) {
            _ if result.provenance.is_some() => Self::Neither,
            (outcome, None) => Self::without_answer(outcome),
            (Outcome::Timeout | Outcome::Network | Outcome::Truncated, Some(_)) => Self::Neither,
            (_, Some(_)) => Self::Answered,
        }
    }

    /// Returns what an outcome without a response says.
    pub(crate) fn without_answer(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Timeout | Outcome::Network | Outcome::Dns => Self::Silence,
            _ => Self::Neither,
        }
    }
}

impl Default for Uplink {
    fn default() -> Self {
        Self {
            answered: std::iter::repeat_with(AtomicU64::default).take(PLACES).collect(),
            silent: Mutex::default(),
            is_in_doubt: AtomicBool::new(false),
            lost_at: AtomicI64::new(0),
            next_trial: AtomicI64::new(0),
        }
    }
}

impl Uplink {
    /// Takes the sign of a request of `url`. Returns whose silence it is, if it is one.
    pub(crate) fn take(&self, url: &Url, sign: Sign, now: Timestamp) -> Option<Silence> {
        match sign {
            Sign::Answered => {
                self.answer(site(url), now);
                None
            }
            Sign::Silence => Some(self.silence(site(url), now)),
            Sign::Neither => None,
        }
    }

    /// Returns since when the uplink is lost; `None` if it carries, or was lost for too long to be
    /// waited for.
    pub(crate) fn lost_since(&self, now: Timestamp) -> Option<Timestamp> {
        let lost_at = Timestamp::from_millis(self.lost_at.load(Ordering::Acquire));
        (lost_at.as_millis() != 0 && now.since(lost_at) < LONGEST).then_some(lost_at)
    }

    /// Returns the time before which no request goes out, because the uplink is lost.
    pub(crate) fn wait(&self, now: Timestamp) -> Option<Timestamp> {
        self.lost_since(now)?;
        let next = Timestamp::from_millis(self.next_trial.load(Ordering::Acquire));
        (next > now).then_some(next)
    }

    /// A request goes out. While the uplink is lost, the next one waits.
    pub(crate) fn sends(&self, now: Timestamp) {
        if self.lost_since(now).is_some() {
            let next = now.saturating_add(TRIAL_INTERVAL);
            self.next_trial.store(next.as_millis(), Ordering::Release);
        }
    }

    fn answer(&self, site: u64, now: Timestamp) {
        self.answered[place(site)].store(answer_at(site, now), Ordering::Relaxed);
        if !self.is_in_doubt.load(Ordering::Acquire) {
            return;
        }
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        silent.sites.clear();
        if self.lost_at.swap(0, Ordering::AcqRel) != 0 {
            silent.came_back = Some(now);
        }
        self.is_in_doubt.store(false, Ordering::Release);
    }

    fn silence(&self, site: u64, now: Timestamp) -> Silence {
        if self.lost_since(now).is_some() {
            return Silence::Uplink;
        }
        let answered = &self.answered[place(site)];
        let last = answered.load(Ordering::Relaxed);
        if !is_recent_answer(last, site, now) {
            return Silence::OtherSite;
        }
        let is_news = last & SILENT == 0;
        if !is_news || !self.is_last_of_many(site, now) {
            answered.store(last | SILENT, Ordering::Relaxed);
            return Silence::AnsweringSite;
        }
        Silence::Uplink
    }

    /// Adds a site that has fallen silent, and returns whether it is one too many.
    fn is_last_of_many(&self, site: u64, now: Timestamp) -> bool {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let is_soon = silent.came_back.is_some_and(|back| now.since(back) < APART);
        // One that nobody waits for any more ends with an answer.
        let is_lost = self.lost_at.load(Ordering::Acquire) != 0;
        if is_soon || is_lost || silent.sites.contains(&site) {
            return self.lost_since(now).is_some();
        }
        silent.sites.push(site);
        self.is_in_doubt.store(true, Ordering::Release);
        if silent.sites.len() < SITES {
            return false;
        }
        let next = now.saturating_add(TRIAL_INTERVAL);
        self.next_trial.store(next.as_millis(), Ordering::Release);
        self.lost_at.store(now.as_millis(), Ordering::Release);
        true
    }
}

/// Returns the hash of the site of `url`: its registered domain, or the network of its address.
fn site(url: &Url) -> u64 {
    let host = url.host_str().unwrap_or_default();
    match url.host() {
        Some(Host::Ipv4(address)) => xxh3_64(network_of(address.into()).as_bytes()),
        Some(Host::Ipv6(address)) => xxh3_64(network_of(address.into()).as_bytes()),
        _ => xxh3_64(registered_domain(host).unwrap_or(host).as_bytes()),
    }
}

fn place(site: u64) -> usize {
    (site % PLACES as u64) as usize
}

fn minute(at: Timestamp) -> u64 {
    (at.as_millis() / 60_000) as u64 & MINUTE
}

fn answer_at(site: u64, now: Timestamp) -> u64 {
    site & SITE | minute(now)
}

/// Returns whether the content of a place is an answer of `site` of the last ten minutes.
fn is_recent_answer(answered: u64, site: u64, now: Timestamp) -> bool {
    let minutes = minute(now).wrapping_sub(answered) & MINUTE;
    answered != 0 && answered & SITE == site & SITE && minutes <= RECENT.as_secs() / 60
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn after(seconds: u64) -> Timestamp {
        START.saturating_add(Duration::from_secs(seconds))
    }

    fn page(site: usize) -> Url {
        Url::parse(&format!("https://www.site{site}.example/")).unwrap()
    }

    /// Lets sites answer at `at`.
    fn answers(uplink: &Uplink, sites: std::ops::Range<usize>, at: Timestamp) {
        sites.for_each(|site| assert_eq!(uplink.take(&page(site), Sign::Answered, at), None));
    }

    /// Lets sites fall silent at `at`, and returns how many of these failures are the uplink's.
    fn silent(uplink: &Uplink, sites: std::ops::Range<usize>, at: Timestamp) -> usize {
        sites
            .filter(|site| uplink.take(&page(*site), Sign::Silence, at) == Some(Silence::Uplink))
            .count()
    }

    #[test]
    fn sites_that_fall_silent_in_a_row_are_a_lost_uplink_until_one_answers() {
        let uplink = Uplink::default();
        answers(&uplink, 0..9, after(0));
        assert_eq!(silent(&uplink, 0..4, after(30)), 0);
        assert_eq!((uplink.lost_since(after(30)), uplink.wait(after(30))), (None, None));
        assert_eq!(silent(&uplink, 4..9, after(31)), 5);
        assert_eq!(uplink.lost_since(after(40)), Some(after(31)));
        // One request every few seconds.
        assert_eq!(uplink.wait(after(32)), Some(after(36)));
        assert_eq!(uplink.wait(after(36)), None);
        uplink.sends(after(36));
        assert_eq!(uplink.wait(after(36)), Some(after(41)));
        // Whatever site it is that answers nothing.
        assert_eq!(silent(&uplink, 20..21, after(60)), 1);
        answers(&uplink, 3..4, after(61));
        assert_eq!((uplink.lost_since(after(61)), uplink.wait(after(61))), (None, None));
        assert_eq!(silent(&uplink, 3..4, after(62)), 0);
    }

    #[test]
    fn an_answer_in_between_shows_that_it_is_the_sites() {
        let uplink = Uplink::default();
        answers(&uplink, 0..20, after(0));
        for site in 0..20 {
            assert_eq!(silent(&uplink, site..site + 1, after(30)), 0);
            answers(&uplink, 30..31, after(30));
        }
        assert_eq!(uplink.lost_since(after(31)), None);
    }

    #[test]
    fn sites_that_were_silent_before_never_add_up() {
        let uplink = Uplink::default();
        // Dead from the start, as many as a list may have at its end.
        assert_eq!(silent(&uplink, 100..200, after(0)), 0);
        answers(&uplink, 0..9, after(0));
        // One after the other, each with an answer of the next ones in between; then all are asked
        // again and again.
        for site in 0..8 {
            assert_eq!(silent(&uplink, site..site + 1, after(30)), 0);
            answers(&uplink, 8..9, after(30));
        }
        for round in 0..20 {
            assert_eq!(silent(&uplink, 0..9, after(60 * round)), 0);
        }
        // Parts of one site are one site.
        let part = |n| Url::parse(&format!("https://part{n}.site.example/")).unwrap();
        (0..20).for_each(|n| _ = uplink.take(&part(n), Sign::Answered, after(0)));
        for n in 0..20 {
            let whose = uplink.take(&part(n), Sign::Silence, after(9));
            assert_eq!(whose, Some(Silence::AnsweringSite));
        }
        // An answer of an hour ago says little.
        answers(&uplink, 40..60, after(0));
        assert_eq!(silent(&uplink, 40..60, after(3_600)), 0);
    }

    #[test]
    fn a_line_that_stays_dead_is_not_waited_for_for_ever() {
        let uplink = Uplink::default();
        answers(&uplink, 0..9, after(0));
        assert_eq!(silent(&uplink, 0..9, after(30)), 5);
        let end = 30 + LONGEST.as_secs();
        assert!(uplink.lost_since(after(end - 1)).is_some());
        assert_eq!((uplink.lost_since(after(end)), uplink.wait(after(end))), (None, None));
        assert_eq!(silent(&uplink, 5..9, after(end)), 0);
    }

    /// A firewall that drops everything of a crawler that is too fast has to teach its pace.
    #[test]
    fn a_second_loss_soon_after_the_first_is_the_sites_own() {
        let uplink = Uplink::default();
        for (at, lost) in [(0, 5), (300, 0), (2_000, 5)] {
            answers(&uplink, 0..9, after(at));
            assert_eq!(silent(&uplink, 0..9, after(at + 30)), lost, "{at}");
            answers(&uplink, 0..9, after(at + 60));
        }
    }

    #[test]
    fn a_site_that_answered_a_moment_ago_is_known_to_have_done_so() {
        let uplink = Uplink::default();
        answers(&uplink, 0..1, after(0));
        let whose = |site, at| uplink.take(&page(site), Sign::Silence, after(at));
        assert_eq!(whose(1, 1), Some(Silence::OtherSite));
        assert!((1..9).all(|minute| whose(0, 60 * minute) == Some(Silence::AnsweringSite)));
        assert_eq!(whose(0, 700), Some(Silence::OtherSite));
    }

    #[test]
    fn a_response_is_an_answer_and_a_broken_one_is_neither() {
        let of = |outcome, status: Option<u16>| {
            let mut result = FetchResult::from(outcome);
            result.status = status;
            Sign::of(&result)
        };
        for outcome in [Outcome::Timeout, Outcome::Network] {
            assert_eq!(of(outcome.clone(), None), Sign::Silence);
            assert_eq!(of(outcome, Some(200)), Sign::Neither);
        }
        assert_eq!(of(Outcome::Dns, None), Sign::Silence);
        assert_eq!(of(Outcome::Truncated, Some(200)), Sign::Neither);
        assert_eq!(of(Outcome::ServerError, Some(503)), Sign::Answered);
        assert_eq!(of(Outcome::Local, None), Sign::Neither);
    }
}
