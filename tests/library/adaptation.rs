//! A busy site that changes: the time until the better fetcher is used, through the calls that a
//! crawler makes.

use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::{Attempt, Hint};
use fetchwise::registry::FetcherSpec;
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::Timestamp;
use url::Url;

const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
const DAY_MS: u64 = 86_400_000;
const A_DAY: u64 = 100_000;
const DAYS: u64 = 60;
/// A debug build learns every 200th of those attempts. That fills the memory of the recent past,
/// and saturates the decayed weights by every measure that a decision uses.
const EVERY: u64 = if cfg!(debug_assertions) { 200 } else { 1 };

struct Site {
    selector: Selector,
    n: u64,
}

impl Site {
    /// Returns a site after 60 days of 100 000 attempts. Plain requests served all of them; at
    /// times the browser was used, too.
    fn warm() -> Self {
        let names = ["direct_access", "playwright", "playwright_stealth"];
        let builder =
            names.iter().fold(Selector::builder(), |b, name| b.fetcher(FetcherSpec::by_name(name)));
        let mut site = Self { selector: builder.around(BEGIN).build().unwrap(), n: 0 };
        while site.n < DAYS * A_DAY {
            let fetcher =
                if site.n.is_multiple_of(A_DAY * 5) { "playwright" } else { "direct_access" };
            site.record(fetcher, None, None, 0);
            site.n += EVERY;
        }
        site
    }

    fn now(&self) -> Timestamp {
        BEGIN.saturating_add(Duration::from_millis(self.n * (DAY_MS / A_DAY)))
    }

    fn url(&self) -> Url {
        Url::parse(&format!("https://www.busy.org/news/article-{}.html", self.n)).unwrap()
    }

    fn record(&self, fetcher: &str, end: Option<ErrorKind>, hint: Option<Hint>, tries: u32) {
        let mut attempt = Attempt::new(&self.url(), fetcher, self.now()).unwrap();
        attempt = end.map_or(attempt.clone().delivered(), |kind| attempt.failed(kind));
        (attempt.hint, attempt.try_no) = (hint, tries + 1);
        self.selector.record(attempt, self.now()).unwrap();
    }

    /// Fetches the next URL. Plain requests end as `direct` says, all others deliver. Returns the
    /// first fetcher's name.
    fn fetch(&mut self, direct: Option<ErrorKind>) -> String {
        self.n += 1;
        let mut situation = SelectContext::first_attempt(self.now());
        let mut first = None;
        while let Some(take) = self.selector.select(&self.url(), &situation).unwrap().selected() {
            let name = self.selector.fetcher_name(take.fetcher).to_owned();
            let end = direct.filter(|_| name == "direct_access");
            self.record(&name, end, situation.hint, situation.attempts);
            first.get_or_insert(name);
            let Some(kind) = end else { break };
            situation.hint = Some(Hint::after(kind));
            situation.excluded.insert(take.fetcher);
            situation.attempts += 1;
        }
        first.unwrap_or_default()
    }
}

/// Returns the number of attempts until the browser goes first for good: five URLs in a row.
fn attempts_until_moved(kind: ErrorKind) -> u64 {
    let mut site = Site::warm();
    assert_eq!(site.fetch(None), "direct_access");
    let (mut attempts, mut in_a_row) = (0, 0);
    while in_a_row < 5 && attempts < 1000 {
        let fails = !site.n.is_multiple_of(20);
        let first = site.fetch(fails.then_some(kind));
        let is_direct = first == "direct_access";
        in_a_row = if is_direct { 0 } else { in_a_row + 1 };
        attempts += 1 + u64::from(is_direct && fails);
    }
    attempts
}

#[test]
fn a_busy_site_whose_plain_requests_fail_19_times_in_20_moves_within_110_attempts() {
    for kind in [ErrorKind::WrongTool, ErrorKind::BlockedCaptcha] {
        let attempts = attempts_until_moved(kind);
        assert!(attempts <= 110, "{}: {attempts}", kind.name());
    }
}

#[test]
fn a_busy_site_whose_plain_requests_fail_half_the_time_stays_with_them() {
    let mut site = Site::warm();
    let mut direct = 0;
    for n in 0..1000u64 {
        // Two of four fail, not in a pattern that a policy could wait for.
        let fails = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 1;
        direct += u64::from(site.fetch(fails.then_some(ErrorKind::WrongTool)) == "direct_access");
    }
    assert!(direct >= 900, "two cheap tries cost less than one render: {direct} of 1000");
}

#[test]
fn a_site_served_by_the_browser_is_explored_and_moves_back_when_plain_requests_work() {
    let mut site = Site::warm();
    for _ in 0..2000 {
        site.fetch(Some(ErrorKind::WrongTool));
    }
    assert_eq!(site.fetch(Some(ErrorKind::WrongTool)), "playwright");
    let mut waited = 0;
    while site.fetch(None) != "direct_access" {
        waited += 1;
        assert!(waited < 400, "no exploration");
    }
    let after: Vec<String> = (0..10).map(|_| site.fetch(None)).collect();
    assert!(after.iter().filter(|name| *name == "direct_access").count() >= 9, "{after:?}");
}
