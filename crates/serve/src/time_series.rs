//! Time series of attempts in buckets of fixed length, for the dashboard's charts.
//!
//! Owns: the buckets.
//!
//! Invariants: an attempt is in one bucket of each resolution, the one of its time, while that
//! bucket is kept. The numbers of buckets, names and hosts are bounded, and a new host costs the
//! same however many there are.
//!
//! Must not know: where attempts come from, how figures are shown. It has no lock; callers lock it.

use std::num::NonZeroUsize;

use lru::LruCache;

use fetchwise::analytics::{Importance, ImportanceFold, Row};
use fetchwise::attempt::Attempt;
use fetchwise::time::Timestamp;
use fetchwise_present::ForeignPages;

use crate::count_ring::CountRing;

/// The rings: number of buckets, and length of a bucket in milliseconds. The first ring serves the
/// last quarter of an hour and the last hour.
const KEPT: [(usize, i64); 3] = [(360, 10_000), (144, 600_000), (168, 3_600_000)];
/// Maximum number of fetchers with separate counts; others are counted together.
const MAX_FETCHERS: usize = 64;
/// Maximum number of heuristic values with separate counts.
const MAX_HEURISTICS: usize = 20_000;
/// Attempts, judged and delivered ones of a host in the last ten minutes.
type Minutes = CountRing<3, 10, 60_000>;
/// Pages of a host that this crawler's network refused in the last 24 hours, and default pages.
type Day = CountRing<2, 24, 3_600_000>;
/// Maximum number of busy hosts. A further one replaces the host whose last attempt was counted
/// first.
const MAX_HOSTS: NonZeroUsize = NonZeroUsize::new(20_000).expect("not zero");
/// Maximum number of hosts with pages that are not their own; as [`MAX_HOSTS`].
const MAX_FOREIGN: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// The smallest number of buckets that a fitted window shows.
const MIN_SHOWN: usize = 12;
/// The name for fetchers beyond [`MAX_FETCHERS`].
const OTHERS: &str = "(others)";

/// The period that the dashboard shows.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantNames,
)]
pub(crate) enum Range {
    /// 90 buckets of ten seconds.
    #[strum(serialize = "15m")]
    Quarter,
    /// 60 buckets of a minute.
    #[default]
    #[strum(serialize = "hour")]
    Hour,
    /// 144 buckets of ten minutes.
    #[strum(serialize = "day")]
    Day,
    /// 168 buckets of an hour.
    #[strum(serialize = "week")]
    Week,
}

impl Range {
    /// All ranges, the shortest first.
    const ALL: [Self; 4] = [Self::Quarter, Self::Hour, Self::Day, Self::Week];

    /// Returns its length in milliseconds.
    pub(crate) const fn length_ms(self) -> i64 {
        let (ring, together, length) = self.layout();
        KEPT[ring].1 * (together * length) as i64
    }

    /// Returns the index of its ring, the number of ring buckets per shown bucket, and the number
    /// of shown buckets.
    const fn layout(self) -> (usize, usize, usize) {
        match self {
            Self::Quarter => (0, 1, 90),
            Self::Hour => (0, 6, 60),
            Self::Day => (1, 1, 144),
            Self::Week => (2, 1, 168),
        }
    }
}

/// The attempts of one period.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Bucket {
    /// Their results and kinds of decisions.
    pub(crate) row: Row,
    /// The number of attempts per fetcher, by its index in [`Series::fetchers`].
    pub(crate) fetchers: Vec<u64>,
}

impl Bucket {
    fn add(&mut self, other: &Self) {
        self.row.add(&other.row);
        for (place, count) in other.fetchers.iter().enumerate() {
            *at(&mut self.fetchers, place) += count;
        }
    }
}

/// Buckets of one length, in the order of time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SeriesWindow {
    /// The start of the first bucket.
    pub(crate) start: Timestamp,
    /// The length of a bucket, in milliseconds.
    pub(crate) step_ms: i64,
    /// The buckets; the last one is still being filled.
    pub(crate) buckets: Vec<Bucket>,
}

/// Attempts over time.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    rings: [Ring; 3],
    fetchers: Vec<Box<str>>,
    /// The hosts, in the order of their last attempts.
    hosts: LruCache<String, Minutes>,
    /// The hosts with pages that are not their own, in the order of the last ones.
    foreign: LruCache<String, Day>,
    heuristics: ImportanceFold,
}

impl Default for Series {
    fn default() -> Self {
        Self {
            rings: KEPT.map(|(buckets, step_ms)| Ring::new(buckets, step_ms)),
            fetchers: Vec::new(),
            hosts: LruCache::sparse(MAX_HOSTS),
            foreign: LruCache::sparse(MAX_FOREIGN),
            heuristics: ImportanceFold::at_most(MAX_HEURISTICS),
        }
    }
}

impl Series {
    /// Counts an attempt at the time `now`. An attempt with a later time counts as one of now.
    pub(crate) fn observe(&mut self, attempt: &Attempt, now: Timestamp) {
        let when = attempt.attempted_at.min(now);
        self.heuristics.observe(attempt);
        let fetcher = self.place_of(&attempt.fetcher);
        for ring in &mut self.rings {
            if let Some(bucket) = ring.bucket(when, now) {
                bucket.row.observe(attempt);
                *at(&mut bucket.fetchers, fetcher) += 1;
            }
        }
        let (age_ms, host) = (now.since(when).as_millis(), attempt.heuristic("domain"));
        if age_ms < Minutes::LENGTH_MS as u128
            && let Some(host) = host
        {
            self.minutes_of(host).add(when, Recent::of(attempt).counts());
        }
        let foreign = ForeignPages::of(attempt);
        if age_ms < Day::LENGTH_MS as u128
            && foreign != ForeignPages::default()
            && let Some(host) = host
        {
            self.day_of(host).add(when, [foreign.network_blocks, foreign.default_pages]);
        }
    }

    /// Adds the counts of `other`, whose attempts were counted before these. Both must be current.
    pub(crate) fn merge(&mut self, other: Self, now: Timestamp) {
        let places: Vec<usize> = other.fetchers.iter().map(|name| self.place_of(name)).collect();
        for (ring, theirs) in self.rings.iter_mut().zip(other.rings) {
            for (number, bucket) in theirs.numbered() {
                let mut fetchers = Vec::new();
                for (place, count) in places.iter().zip(&bucket.fetchers) {
                    *at(&mut fetchers, *place) += count;
                }
                let start = Timestamp::from_millis(number * ring.step_ms);
                if let Some(own) = ring.bucket(start, now) {
                    own.add(&Bucket { row: bucket.row, fetchers });
                }
            }
        }
        // The hosts that were counted last stay.
        for (host, own) in std::mem::replace(&mut self.hosts, other.hosts) {
            self.minutes_of(&host).merge(&own);
        }
        for (host, own) in std::mem::replace(&mut self.foreign, other.foreign) {
            self.day_of(&host).merge(&own);
        }
        self.heuristics.merge(other.heuristics);
    }

    /// Returns the names of the counted fetchers.
    pub(crate) fn fetchers(&self) -> impl Iterator<Item = &str> {
        self.fetchers.iter().map(|name| &**name)
    }

    /// Returns the buckets of `range` up to `now`.
    pub(crate) fn window(&self, range: Range, now: Timestamp) -> SeriesWindow {
        let (ring, together, length) = range.layout();
        let ring = &self.rings[ring];
        let step_ms = ring.step_ms * together as i64;
        let last = now.as_millis().div_euclid(step_ms);
        let first = last - length as i64 + 1;
        let mut buckets = vec![Bucket::default(); length];
        for (number, bucket) in ring.numbered() {
            let place = number.div_euclid(together as i64) - first;
            if let Some(sum) = usize::try_from(place).ok().and_then(|place| buckets.get_mut(place))
            {
                sum.add(bucket);
            }
        }
        SeriesWindow { start: Timestamp::from_millis(first * step_ms), step_ms, buckets }
    }

    /// Returns the buckets of `range` from the first attempt in it. They are as short as those of
    /// the shortest range that has all of these attempts.
    pub(crate) fn fitted_window(&self, range: Range, now: Timestamp) -> SeriesWindow {
        let whole = self.window(range, now);
        let count = |window: &SeriesWindow| {
            window.buckets.iter().map(|bucket| bucket.row.attempts).sum::<u64>()
        };
        let attempts = count(&whole);
        let shorter = Range::ALL.into_iter().take_while(|shorter| *shorter != range);
        let mut fitted = shorter
            .map(|shorter| self.window(shorter, now))
            .find(|shorter| count(shorter) == attempts);
        if attempts == 0 {
            fitted = None;
        }
        let mut shown = fitted.unwrap_or(whole);
        let first = shown.buckets.iter().position(|bucket| bucket.row.attempts > 0).unwrap_or(0);
        let left_out = first.min(shown.buckets.len().saturating_sub(MIN_SHOWN));
        shown.buckets.drain(..left_out);
        shown.start =
            Timestamp::from_millis(shown.start.as_millis() + left_out as i64 * shown.step_ms);
        shown
    }

    /// Returns the hosts with attempts in the last ten minutes, in no particular order.
    pub(crate) fn recent_hosts(&self, now: Timestamp) -> impl Iterator<Item = (&str, Recent)> {
        self.hosts
            .iter()
            .map(move |(host, minutes)| (host.as_str(), Recent::of_counts(minutes.recent(now))))
            .filter(|(_, of)| of.attempts > 0)
    }

    /// Returns the hosts with pages that were not their own in the last 24 hours, in no particular
    /// order.
    pub(crate) fn foreign_pages(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (&str, ForeignPages)> {
        self.foreign
            .iter()
            .map(move |(host, day)| (host.as_str(), foreign_in(day, now)))
            .filter(|(_, of)| *of != ForeignPages::default())
    }

    /// Returns the pages of a host that were not its own in the last 24 hours.
    pub(crate) fn foreign_pages_of(&self, host: &str, now: Timestamp) -> ForeignPages {
        self.foreign.peek(host).map_or_else(ForeignPages::default, |day| foreign_in(day, now))
    }

    /// Returns the `most` hosts with the most attempts in the last ten minutes, the busiest first.
    pub(crate) fn busy(&self, most: usize, now: Timestamp) -> Vec<(String, u64)> {
        let mut hosts: Vec<(&str, u64)> =
            self.recent_hosts(now).map(|(host, of)| (host, of.attempts)).collect();
        hosts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        hosts.into_iter().take(most).map(|(host, count)| (host.to_owned(), count)).collect()
    }

    /// Returns the number of attempts of a host in the last ten minutes.
    pub(crate) fn recent(&self, host: &str, now: Timestamp) -> u64 {
        self.hosts.peek(host).map_or(0, |minutes| Recent::of_counts(minutes.recent(now)).attempts)
    }

    /// Returns the `most` heuristics that best predict success of those known before the request,
    /// and then as many of those that only the response tells.
    pub(crate) fn heuristics(&self, most: usize) -> Vec<Importance> {
        let mut rows = self.heuristics.rows();
        rows.sort_by(|a, b| b.mutual_information_bits.total_cmp(&a.mutual_information_bits));
        let (mut rows, mut after): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| !row.after);
        rows.truncate(most);
        after.truncate(most);
        rows.append(&mut after);
        rows
    }

    fn place_of(&mut self, fetcher: &str) -> usize {
        if let Some(place) = self.fetchers.iter().position(|known| **known == *fetcher) {
            return place;
        }
        match self.fetchers.len() {
            MAX_FETCHERS => MAX_FETCHERS - 1,
            last if last == MAX_FETCHERS - 1 => {
                self.fetchers.push(OTHERS.into());
                last
            }
            place => {
                self.fetchers.push(fetcher.into());
                place
            }
        }
    }

    fn minutes_of(&mut self, host: &str) -> &mut Minutes {
        self.hosts.get_or_insert_mut_ref(host, Minutes::default)
    }

    fn day_of(&mut self, host: &str) -> &mut Day {
        self.foreign.get_or_insert_mut_ref(host, Day::default)
    }
}

fn foreign_in(day: &Day, now: Timestamp) -> ForeignPages {
    let [network_blocks, default_pages] = day.recent(now);
    ForeignPages { network_blocks, default_pages }
}

fn at(counts: &mut Vec<u64>, place: usize) -> &mut u64 {
    if counts.len() <= place {
        counts.resize(place + 1, 0);
    }
    &mut counts[place]
}

/// A ring of the last buckets of one length; a bucket's number determines its slot.
#[derive(Clone, Debug)]
struct Ring {
    step_ms: i64,
    /// Number of the bucket (its time divided by its length) and bucket. An unused slot has the
    /// lowest number.
    places: Vec<(i64, Bucket)>,
}

impl Ring {
    fn new(buckets: usize, step_ms: i64) -> Self {
        Self { step_ms, places: vec![(i64::MIN, Bucket::default()); buckets] }
    }

    /// Returns the bucket of `when`; none for a time that the ring no longer keeps at `now`.
    fn bucket(&mut self, when: Timestamp, now: Timestamp) -> Option<&mut Bucket> {
        let number = when.as_millis().div_euclid(self.step_ms);
        let length = self.places.len() as i64;
        if number <= now.as_millis().div_euclid(self.step_ms) - length {
            return None;
        }
        let place = usize::try_from(number.rem_euclid(length)).ok()?;
        let (held, bucket) = self.places.get_mut(place)?;
        if *held > number {
            return None;
        }
        if *held < number {
            (*held, *bucket) = (number, Bucket::default());
        }
        Some(bucket)
    }

    fn numbered(&self) -> impl Iterator<Item = (i64, &Bucket)> {
        self.places
            .iter()
            .filter(|(number, _)| *number > i64::MIN)
            .map(|(number, bucket)| (*number, bucket))
    }
}

/// The attempts of a host within a short time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Recent {
    /// All attempts.
    pub(crate) attempts: u64,
    /// Those that count for or against their fetcher, as [`Row::judged`].
    pub(crate) judged: u64,
    /// Those that delivered.
    pub(crate) delivered: u64,
}

impl Recent {
    fn of(attempt: &Attempt) -> Self {
        let mut row = Row::default();
        row.observe(attempt);
        Self { attempts: row.attempts, judged: row.judged, delivered: row.delivered }
    }

    fn counts(self) -> [u64; 3] {
        [self.attempts, self.judged, self.delivered]
    }

    fn of_counts([attempts, judged, delivered]: [u64; 3]) -> Self {
        Self { attempts, judged, delivered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::attempt::error_kind::ErrorKind;
    use fetchwise::heuristic::{DEFAULT_PAGE, Heuristic, SAME_PAGE_OTHER_SITES};

    /// 2026-03-01T12:00:00Z.
    const NOON: i64 = 1_772_366_400_000;

    fn at_ms(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn attempt(host: usize, fetcher: &str, at: i64) -> Attempt {
        let url = url::Url::parse(&format!("https://h{host}.example/a/b.html")).unwrap();
        let attempt = Attempt::new(&url, fetcher, at_ms(at)).unwrap();
        if host.is_multiple_of(3) {
            attempt.failed(ErrorKind::BlockedCaptcha)
        } else {
            attempt.delivered()
        }
    }

    fn filled(attempts: &[Attempt], now: i64) -> Series {
        let mut series = Series::default();
        attempts.iter().for_each(|attempt| series.observe(attempt, at_ms(now)));
        series
    }

    fn sum(shown: &SeriesWindow) -> (u64, u64, Vec<u64>) {
        let mut all = Bucket::default();
        shown.buckets.iter().for_each(|bucket| all.add(bucket));
        (all.row.attempts, all.row.banned, all.fetchers)
    }

    #[test]
    fn an_attempt_counts_in_the_bucket_of_its_time() {
        let series = filled(&[attempt(1, "f", NOON - 95_000), attempt(3, "g", NOON)], NOON);
        let shown = series.window(Range::Quarter, at_ms(NOON));
        assert_eq!((shown.buckets.len(), shown.step_ms), (90, 10_000));
        let places: Vec<usize> =
            (0..90).filter(|place| shown.buckets[*place].row.attempts > 0).collect();
        assert_eq!(places, [79, 89]);
        assert_eq!(shown.start.as_millis() + 79 * 10_000, NOON - 100_000);
        let hour = series.window(Range::Hour, at_ms(NOON));
        assert_eq!(
            (hour.step_ms, hour.buckets[59].row.banned, hour.buckets[57].row.delivered),
            (60_000, 1, 1)
        );
        assert_eq!(sum(&hour), (2, 1, vec![1, 1]));
    }

    #[test]
    fn a_range_excludes_older_attempts_and_includes_late_ones() {
        let hour = 3_600_000;
        let mut series = filled(&[attempt(1, "f", NOON), attempt(1, "f", NOON - 2 * hour)], NOON);
        series.observe(&attempt(1, "f", NOON - 3 * hour), at_ms(NOON));
        let count = |range, now| sum(&series.window(range, at_ms(now))).0;
        assert_eq!(
            [Range::Hour, Range::Day, Range::Week].map(|range| count(range, NOON)),
            [1, 3, 3]
        );
        assert_eq!(count(Range::Week, NOON + 167 * hour), 1);
        assert_eq!([Range::Hour, Range::Week].map(|range| count(range, NOON + 400 * hour)), [0, 0]);
    }

    #[test]
    fn an_attempt_with_a_future_time_counts_as_of_now() {
        let series =
            filled(&[attempt(1, "f", NOON - 50_000), attempt(1, "f", NOON + 86_400_000)], NOON);
        let shown = series.window(Range::Hour, at_ms(NOON));
        assert_eq!((sum(&shown).0, shown.buckets[59].row.attempts), (2, 1));
    }

    #[test]
    fn merged_halves_equal_the_whole() {
        let names = ["direct_access", "playwright", "x", "y"];
        let attempts: Vec<Attempt> = (0..5000)
            .map(|n| attempt(n % 7, names[n * n % 4], NOON - (n as i64 * 7919) % 900_000_000))
            .collect();
        let whole = filled(&attempts, NOON);
        let mut halves = filled(&attempts[3000..], NOON);
        halves.merge(filled(&attempts[..3000], NOON), at_ms(NOON));
        for range in [Range::Quarter, Range::Hour, Range::Day, Range::Week] {
            let (a, b) = (whole.window(range, at_ms(NOON)), halves.window(range, at_ms(NOON)));
            let by_name = |series: &Series, shown: &SeriesWindow| {
                let sums = sum(shown).2;
                series
                    .fetchers()
                    .map(str::to_owned)
                    .zip(sums)
                    .collect::<std::collections::BTreeMap<_, _>>()
            };
            let rows = |shown: &SeriesWindow| {
                shown.buckets.iter().map(|bucket| bucket.row).collect::<Vec<_>>()
            };
            assert_eq!(rows(&a), rows(&b));
            assert_eq!(by_name(&whole, &a), by_name(&halves, &b));
        }
        assert_eq!(whole.busy(9, at_ms(NOON)), halves.busy(9, at_ms(NOON)));
        assert_eq!(whole.heuristics(9), halves.heuristics(9));
    }

    #[test]
    fn busy_hosts_have_attempts_in_the_last_ten_minutes() {
        let mut attempts: Vec<Attempt> =
            (0..30).map(|n| attempt(1, "f", NOON - n * 60_000)).collect();
        attempts.extend((0..3).map(|_| attempt(2, "f", NOON - 100_000)));
        attempts.push(attempt(4, "f", NOON - 3_600_000));
        let series = filled(&attempts, NOON);
        assert_eq!(
            series.busy(9, at_ms(NOON)),
            [("h1.example".to_owned(), 10), ("h2.example".to_owned(), 3)]
        );
        assert_eq!(series.busy(1, at_ms(NOON)).len(), 1);
        assert_eq!(
            (
                series.recent("h1.example", at_ms(NOON + 300_000)),
                series.recent("h9.example", at_ms(NOON))
            ),
            (5, 0)
        );
        assert!(series.busy(9, at_ms(NOON + 3_600_000)).is_empty());
    }

    #[test]
    fn pages_that_are_not_a_hosts_own_count_for_a_day() {
        const HOUR: i64 = 3_600_000;
        let refused = |at| attempt(1, "f", at).failed(ErrorKind::NetworkBlock);
        let parked = |host, at| {
            let mut page = attempt(host, "f", at).delivered();
            page.heuristics.push(Heuristic::new(SAME_PAGE_OTHER_SITES, DEFAULT_PAGE).into());
            page
        };
        let attempts = [
            refused(NOON),
            refused(NOON - 23 * HOUR),
            refused(NOON - 25 * HOUR),
            parked(1, NOON - 1),
            parked(2, NOON - 5 * HOUR),
            attempt(3, "f", NOON),
        ];
        let whole = filled(&attempts, NOON);
        let mut halves = filled(&attempts[3..], NOON);
        halves.merge(filled(&attempts[..3], NOON), at_ms(NOON));
        for series in [whole, halves] {
            let at = |now| {
                let mut found: Vec<_> = series
                    .foreign_pages(at_ms(now))
                    .map(|(host, of)| (host.to_owned(), of.network_blocks, of.default_pages))
                    .collect();
                found.sort();
                found
            };
            let of = |host: &str, refused, default| (host.to_owned(), refused, default);
            assert_eq!(at(NOON), [of("h1.example", 2, 1), of("h2.example", 0, 1)]);
            assert_eq!(at(NOON + 2 * HOUR)[0], of("h1.example", 1, 1));
            assert!(at(NOON + 24 * HOUR).is_empty());
            assert_eq!(series.foreign_pages_of("h2.example", at_ms(NOON)).default_pages, 1);
            assert_eq!(series.foreign_pages_of("h3.example", at_ms(NOON)), ForeignPages::default());
        }
    }

    #[test]
    fn a_fitted_window_starts_at_the_first_attempt_with_the_shortest_buckets() {
        let fitted = |ago: &[i64], range| {
            let attempts: Vec<Attempt> =
                ago.iter().map(|ago| attempt(1, "f", NOON - ago)).collect();
            let shown = filled(&attempts, NOON).fitted_window(range, at_ms(NOON));
            assert_eq!(sum(&shown).0, ago.len() as u64, "{ago:?}");
            let end = shown.start.as_millis() + shown.buckets.len() as i64 * shown.step_ms;
            assert!(
                end > NOON && end - shown.step_ms <= NOON,
                "the last bucket is the present one"
            );
            (shown.step_ms / 1000, shown.buckets.len(), shown.buckets[0].row.attempts)
        };
        for range in Range::ALL {
            assert_eq!(fitted(&[300_000, 0], range), (10, 31, 1), "{range:?}");
            assert_eq!(
                fitted(&[0], range),
                (10, MIN_SHOWN, 0),
                "a few buckets stay before a young log: {range:?}"
            );
        }
        assert_eq!(fitted(&[2_700_000, 0], Range::Week), (60, 46, 1));
        assert_eq!(fitted(&[36_000_000, 0], Range::Week), (600, 61, 1));
        assert_eq!(fitted(&[360_000_000, 0], Range::Week), (3600, 101, 1));
        assert_eq!(fitted(&[], Range::Day), (600, 144, 0), "without attempts the whole range");
    }

    #[test]
    fn heuristics_of_the_response_do_not_displace_those_known_before() {
        let attempts: Vec<Attempt> = (0..40)
            .map(|n| {
                let mut of = attempt(n % 4, "f", NOON);
                let outcome = if of.success { "status_200" } else { "status_403" };
                of.heuristics.push(Heuristic::flag(outcome).into());
                of
            })
            .collect();
        let listed = filled(&attempts, NOON).heuristics(2);
        let of_response: Vec<bool> = listed.iter().map(|row| row.after).collect();
        assert_eq!(of_response, [false, false, true, true], "{listed:?}");
    }

    #[test]
    fn recent_results_of_a_host_are_counted() {
        let series = filled(
            &[attempt(3, "f", NOON), attempt(3, "f", NOON - 60_000), attempt(1, "f", NOON)],
            NOON,
        );
        let mut hosts: Vec<_> = series.recent_hosts(at_ms(NOON)).collect();
        hosts.sort_by_key(|(host, _)| *host);
        let of = |attempts, delivered| Recent { attempts, judged: attempts, delivered };
        assert_eq!(hosts, [("h1.example", of(1, 1)), ("h3.example", of(2, 0))]);
        assert_eq!(series.recent_hosts(at_ms(NOON + 3_600_000)).count(), 0);
    }

    #[test]
    fn numbers_of_names_and_hosts_are_bounded() {
        let mut series = Series::default();
        let most = MAX_HOSTS.get();
        for n in 0..(most + 50) {
            series.observe(&attempt(n, &format!("f{}", n % 200), NOON), at_ms(NOON));
        }
        assert_eq!((series.fetchers().count(), series.hosts.len()), (MAX_FETCHERS, most));
        assert_eq!(series.fetchers().last(), Some(OTHERS));
        let shown = series.window(Range::Hour, at_ms(NOON));
        let (attempts, _, fetchers) = sum(&shown);
        assert_eq!((attempts, fetchers.iter().sum::<u64>()), (most as u64 + 50, most as u64 + 50));
    }

    /// With 20,000 busy hosts, each attempt at a further one looked at all of them, and was not
    /// counted after all.
    #[test]
    fn the_host_that_was_idle_for_longest_makes_room_for_a_new_one() {
        let (mut series, most, now) = (Series::default(), MAX_HOSTS.get(), at_ms(NOON));
        for n in 0..10 * most {
            series.minutes_of(&format!("h{n}.example")).add(now, [1; 3]);
            if n % (most / 2) == 0 {
                series.observe(&attempt(1, "f", NOON), now);
            }
        }
        let recent = |n: usize| series.recent(&format!("h{n}.example"), now);
        assert_eq!(series.hosts.len(), most);
        assert_eq!((recent(10 * most - 1), recent(9 * most + 1), recent(9 * most - 1)), (1, 1, 0));
        assert_eq!(recent(1), 21, "a host with new attempts stays");
        assert_eq!(series.busy(1, now), [("h1.example".to_owned(), 21)]);
    }

    #[test]
    fn a_merge_keeps_the_hosts_in_the_order_of_their_last_attempts() {
        let (most, now) = (MAX_HOSTS.get(), at_ms(NOON));
        let [old, new] = [0..most, most..most + 10].map(|hosts| {
            let mut series = Series::default();
            hosts.for_each(|n| series.minutes_of(&format!("h{n}.example")).add(now, [1, 0, 0]));
            series
        });
        let mut merged = new;
        merged.merge(old, now);
        let recent = |n: usize| merged.recent(&format!("h{n}.example"), now);
        assert_eq!((merged.hosts.len(), recent(9), recent(10), recent(most + 9)), (most, 0, 1, 1));
    }
}
