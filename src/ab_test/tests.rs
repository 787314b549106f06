//! Simulated arms with a known truth: the figures about them, the rate of false alarms of the test,
//! and its delay for an arm that is worse.

use super::*;
use crate::ab_test::aggregate::{bucket_of, time_of};
use crate::ab_test::confidence_interval::{SplitMix64, difference, quantile, ratio, share, wilson};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{Arm, Attempt};
use fetchwise_types::time::Timestamp;

const BEGIN: i64 = 1_790_000_000_000;

fn attempt(
    host: &str,
    page: u64,
    arm: Option<Arm>,
    fetcher: &str,
    shadow: Option<&str>,
) -> Attempt {
    let url = url::Url::parse(&format!("https://{host}/{page}")).unwrap();
    let mut attempt =
        Attempt::new(&url, fetcher, Timestamp::from_millis(BEGIN + page as i64)).unwrap();
    attempt.arm = arm;
    attempt.source = Some(if arm == Some(Arm::Legacy) { "hard_coded" } else { "learned" }.into());
    attempt.shadow_fetcher = shadow.map(str::to_owned);
    attempt.duration_ms = 100 + page;
    attempt
}

fn aggregate() -> Aggregate {
    Aggregate::new(Window::default(), [("playwright".to_owned(), 15.0)])
}

#[test]
fn a_visit_is_all_its_attempts_and_shares_add_up_to_one() {
    let mut aggregate = aggregate();
    let both = |n, arm| attempt("a.org", n, Some(arm), "direct_access", Some("playwright"));
    // Blocked, then delivered by another fetcher.
    aggregate.observe(&both(1, Arm::Learning).failed(ErrorKind::BlockedCaptcha));
    let mut second =
        attempt("a.org", 1, Some(Arm::Learning), "playwright", Some("playwright")).delivered();
    second.try_no = 2;
    aggregate.observe(&second);
    aggregate.observe(&both(2, Arm::Learning).failed(ErrorKind::Timeout));
    aggregate.observe(&both(3, Arm::Learning).failed(ErrorKind::Blocked403));
    aggregate.observe(&both(4, Arm::Learning).delivered());
    aggregate.observe(&both(5, Arm::Legacy).delivered());
    let comparison = aggregate.comparison();
    let [learning, legacy] = &comparison.arms;
    assert_eq!(
        (learning.visits, learning.requests, learning.delivered, legacy.visits),
        (4, 5, 2, 1)
    );
    let shares = learning.shares.unwrap();
    assert_eq!((shares.delivered, shares.blocked, shares.failed), (0.5, 0.25, 0.25));
    assert_eq!(
        learning.ban_rate.value,
        Some(0.5),
        "one of the blocked visits delivered its page anyway"
    );
    assert_eq!(learning.cost_per_page.value, Some((4.0 + 15.0) / 2.0));
    assert_eq!(learning.share_of_visits.zip(legacy.share_of_visits), Some((0.8, 0.2)));
    assert!((learning.fetchers.iter().map(|f| f.share).sum::<f64>() - 1.0).abs() < 1e-12);
    assert_eq!(comparison.difference.unwrap().visits, [4, 1]);
}

#[test]
fn visits_that_only_one_arm_could_serve_are_counted_and_not_compared() {
    let mut aggregate = aggregate();
    aggregate.observe(&attempt("a.org", 1, Some(Arm::Learning), "playwright", None).delivered());
    aggregate.observe(
        &attempt("b.org", 1, Some(Arm::Legacy), "playwright", Some("playwright")).delivered(),
    );
    aggregate.observe(&attempt("c.org", 1, None, "playwright", None).delivered());
    let mut named = attempt("d.org", 1, Some(Arm::Learning), "playwright", None).delivered();
    named.source = Some("hinted".into());
    aggregate.observe(&named);
    let mut imported = attempt("e.org", 1, None, "playwright", None).delivered();
    imported.source = None;
    aggregate.observe(&imported);
    let comparison = aggregate.comparison();
    assert_eq!(comparison.arms.each_ref().map(|arm| arm.visits), [2, 1]);
    assert_eq!((comparison.named, comparison.unknown, comparison.difference), (1, 1, None));
}

#[test]
fn a_visit_belongs_to_the_window_in_which_it_began() {
    let at = |n| Some(Timestamp::from_millis(BEGIN + n));
    let mut aggregate = Aggregate::new(Window { since: at(2), until: at(4) }, []);
    for page in 1..=5 {
        let first = attempt("a.org", page, Some(Arm::Legacy), "playwright", None);
        aggregate.observe(&first.clone().failed(ErrorKind::Timeout));
        let mut late = first.delivered();
        (late.try_no, late.attempted_at) = (2, Timestamp::from_millis(BEGIN + 1000));
        aggregate.observe(&late);
    }
    let legacy = &aggregate.comparison().arms[1];
    assert_eq!((legacy.visits, legacy.requests, legacy.delivered), (2, 4, 2));
}

#[test]
fn agreement_names_the_hosts_and_what_differs_with_its_price() {
    let mut aggregate = aggregate();
    for page in 0..6 {
        aggregate.observe(
            &attempt("a.org", page, Some(Arm::Legacy), "playwright", Some("direct_access"))
                .delivered(),
        );
        aggregate.observe(
            &attempt("b.org", page, Some(Arm::Legacy), "playwright", Some("playwright"))
                .delivered(),
        );
    }
    // The learning arm's shadow is the table's choice.
    aggregate.observe(
        &attempt("c.org", 0, Some(Arm::Learning), "direct_access", Some("playwright")).delivered(),
    );
    let agreement = aggregate.agreement(1);
    assert_eq!((agreement.asked, agreement.agreed), (13, 6));
    assert!(
        (agreement.agreed_share.unwrap() + agreement.differed_share.unwrap() - 1.0).abs() < 1e-12
    );
    let pair = &agreement.pairs[0];
    assert_eq!((&*pair.table, &*pair.learning, pair.visits), ("playwright", "direct_access", 7));
    assert_eq!(pair.first_cost, -14.0 * 7.0);
    assert_eq!((agreement.hosts.len(), &*agreement.hosts[0].host), (1, "a.org"));
    assert_eq!(agreement.first_cost_table, Some(15.0));
    assert!((agreement.first_cost_learning.unwrap() - (7.0 + 90.0) / 13.0).abs() < 1e-12);
}

/// Arms with hosts from one population: visits follow Zipf's law, half of the hosts nearly always
/// succeed, a tenth nearly never.
struct World {
    dice: SplitMix64,
    hosts: Vec<(Arm, f64)>,
    /// Cumulative traffic, for drawing a host.
    traffic: Vec<f64>,
}

impl World {
    /// Returns a world of `hosts` hosts. Learning has the fraction `learning` of them, where it
    /// delivers less by `worse`.
    fn new(seed: u64, hosts: usize, learning: f64, worse: f64) -> Self {
        let mut dice = SplitMix64::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let (mut all, mut traffic, mut sum) = (Vec::new(), Vec::new(), 0.0);
        for n in 0..hosts {
            let arm = if dice.unit() < learning { Arm::Learning } else { Arm::Legacy };
            let luck = dice.unit();
            let good = match luck {
                luck if luck < 0.1 => 0.05,
                luck if luck < 0.6 => 0.99,
                _ => 0.5 + 0.5 * dice.unit(),
            };
            let good = if arm == Arm::Learning { f64::max(good - worse, 0.0) } else { good };
            all.push((arm, good));
            sum += 1.0 / (n as f64 + 1.0);
            traffic.push(sum);
        }
        Self { dice, hosts: all, traffic }
    }

    fn visit(&mut self, aggregate: &mut Aggregate) {
        let draw = self.dice.unit() * self.traffic.last().unwrap();
        let host = self.traffic.partition_point(|sum| *sum < draw).min(self.hosts.len() - 1);
        let (arm, good) = self.hosts[host];
        let is_good = self.dice.unit() < good;
        aggregate.count_visit(&format!("h{host}"), arm, is_good);
    }
}

impl Aggregate {
    /// Counts a visit of one request that both arms could have served.
    fn count_visit(&mut self, host: &str, arm: Arm, is_good: bool) {
        let number = self.host_number(host);
        let unit = self.hosts[number].arms[arm as usize].get_or_insert_default();
        let good = f64::from(u8::from(is_good));
        let sums = crate::ab_test::aggregate::VisitSums {
            visits: 1.0,
            delivered: good,
            requests: 1.0,
            cost: 1.0,
            ..Default::default()
        };
        unit.all.add(&sums);
        unit.both.add(&sums);
    }
}

/// Returns the number of visits after which learning is rolled back, if it is.
fn fall(world: &mut World, visits: u64, settings: &GuardSettings) -> Option<u64> {
    let (mut aggregate, mut looks) = (aggregate(), InterimLooks::default());
    for n in 1..=visits {
        world.visit(&mut aggregate);
        // InterimLooks are periodic, not at each visit.
        if n % 20 == 0 && looks.look(&aggregate, settings).is_some_and(|look| look.is_worse) {
            return Some(n);
        }
    }
    None
}

fn settings() -> GuardSettings {
    // Without a margin, equal arms are exactly equal, which is the hardest case.
    GuardSettings { margin: Some(0.0), ..GuardSettings::default() }
}

fn falls(
    runs: u64,
    hosts: usize,
    share: f64,
    worse: f64,
    visits: u64,
    settings: &GuardSettings,
) -> Vec<u64> {
    (0..runs)
        .filter_map(|run| fall(&mut World::new(run + 1, hosts, share, worse), visits, settings))
        .collect()
}

/// Returns the largest number of false alarms that is plausible at a rate of 5 %: more would have a
/// probability below one in a thousand.
fn most(runs: f64) -> usize {
    (0.05 * runs + 3.3 * (0.05 * 0.95 * runs).sqrt()) as usize
}

#[test]
fn repeated_looks_keep_the_promised_rate_of_false_alarms() {
    for share in [0.05, 0.5, 0.95] {
        let falls = falls(50, 300, share, 0.0, 6000, &settings()).len();
        assert!(falls <= most(50.0), "{falls} of 50 at a share of {share}");
    }
}

#[test]
fn an_arm_that_is_much_worse_is_found() {
    let at_half = falls(20, 300, 0.5, 0.4, 6000, &settings());
    assert!(at_half.len() >= 19, "{at_half:?}");
    assert!(
        falls(20, 300, 0.5, -0.2, 6000, &settings()).is_empty(),
        "a better arm is not found worse"
    );
}

#[test]
fn an_arm_worse_within_the_margin_is_tolerated() {
    let tolerant = GuardSettings { margin: Some(0.3), ..GuardSettings::default() };
    assert!(falls(20, 300, 0.5, 0.2, 6000, &tolerant).len() <= 2);
}

#[test]
#[ignore = "takes minutes: prints the tables of docs/reports/rollout.md"]
fn the_table_of_false_alarms_and_delays() {
    const RUNS: u64 = 400;
    println!("| share of learning | false alarms of {RUNS} | each look by itself |\n|---|---|---|");
    for share in [0.05, 0.5, 0.95] {
        let honest = falls(RUNS, 1000, share, 0.0, VISITS, &settings()).len();
        let naive: usize = (0..RUNS).filter(|run| looks_by_themselves(*run, share)).count();
        println!("| {:.0} % | {honest} | {naive} |", 100.0 * share);
        assert!(honest <= most(RUNS as f64), "{honest}");
    }
    println!(
        "\n| share of learning | worse by | found of 100 | after visits, half within | 90 % within |\n\
         |---|---|---|---|---|"
    );
    for (share, worse) in
        [0.05, 0.5, 0.95].into_iter().flat_map(|s| [0.05, 0.1, 0.2, 0.4].map(|w| (s, w)))
    {
        let mut delays = falls(100, 1000, share, worse, VISITS, &GuardSettings::default());
        delays.sort_unstable();
        let at = |q: f64| {
            delays
                .get(((delays.len() as f64 - 1.0) * q) as usize)
                .map_or("-".to_owned(), u64::to_string)
        };
        println!(
            "| {:.0} % | {:.0} points | {} | {} | {} |",
            100.0 * share,
            100.0 * worse,
            delays.len(),
            at(0.5),
            at(0.9)
        );
    }
}

/// Visits of both arms together, for the tables.
const VISITS: u64 = 20_000;

/// Returns whether a test that treats each look as the only one would have rolled back.
fn looks_by_themselves(run: u64, share: f64) -> bool {
    let mut world = World::new(run + 1, 1000, share, 0.0);
    let (mut aggregate, mut looks) = (aggregate(), InterimLooks::default());
    for n in 1..=VISITS {
        world.visit(&mut aggregate);
        if n % 20 == 0 {
            let mut one = InterimLooks { made: 0, next_at: looks.next_at };
            // Half of 10 % is the part of the first look.
            let settings = GuardSettings { confidence: 0.9, ..settings() };
            let found = one.look(&aggregate, &settings);
            looks.next_at = one.next_at;
            if found.is_some_and(|look| look.is_worse) {
                return true;
            }
        }
    }
    false
}

#[test]
fn looks_spend_their_error_and_come_as_the_smaller_arm_grows() {
    let (mut aggregate, mut looks) = (aggregate(), InterimLooks::default());
    let settings = GuardSettings { visits_min: 40, hosts_min: 5, ..GuardSettings::default() };
    let (mut found, mut spent): (Vec<Look>, f64) = (Vec::new(), 0.0);
    for n in 0..400u64 {
        aggregate.count_visit(&format!("a{}", n % 10), Arm::Legacy, true);
        aggregate.count_visit(&format!("b{}", n % 10), Arm::Learning, true);
        found.extend(looks.look(&aggregate, &settings));
    }
    found.iter().for_each(|look| spent += look.alpha);
    assert!(found.len() > 8 && spent < 0.05, "{} looks, {spent}", found.len());
    assert_eq!((found[0].visits, found[1].visits), ([40, 40], [50, 50]));
    assert!(found.iter().all(|look| !look.is_worse && look.p_value > 0.9), "the arms are equal");
}

#[test]
fn intervals_cover_the_truth_where_hosts_differ() {
    let (runs, mut shares, mut ratios, mut naive) = (200, 0, 0, 0);
    for run in 0..runs {
        let mut dice = SplitMix64::new(run + 7);
        let hosts: Vec<(f64, f64)> = (0..60)
            .map(|_| {
                // Hosts that always or never succeed, with one to forty visits.
                let visits = 1 + dice.below(40);
                let is_good = dice.unit() < 0.7;
                (if is_good { visits as f64 } else { 0.0 }, visits as f64)
            })
            .collect();
        let covers = |low: f64, high: f64| u32::from(low <= 0.7 && 0.7 <= high);
        let (by_host, drawn) = (share(&hosts).unwrap(), ratio(&hosts, 3).unwrap());
        shares += covers(by_host.low, by_host.high);
        ratios += covers(drawn.low, drawn.high);
        let all: f64 = hosts.iter().map(|(_, n)| n).sum();
        let alone = wilson(by_host.value, all);
        naive += covers(alone.low, alone.high);
    }
    let all = runs as u32;
    assert!(shares * 100 >= all * 90 && ratios * 100 >= all * 88, "{shares} and {ratios} of {all}");
    assert!(naive * 100 <= all * 60, "{naive} of {all}: visits of a host are not independent");
}

#[test]
fn the_interval_of_a_full_share_depends_on_the_number_of_hosts() {
    let one = share(&[(500.0, 500.0)]).unwrap();
    assert!(one.low < 0.3, "{one:?}");
    let many = share(&[(5.0, 5.0); 100]).unwrap();
    assert!(many.low > 0.95 && many.high == 1.0, "{many:?}");
    assert_eq!(share(&[]), None);
    let apart = difference(many, one);
    assert!(apart.value == 0.0 && apart.low < 0.0 && apart.high > 0.5, "{apart:?}");
}

#[test]
fn quantiles_are_close_to_the_measured_times() {
    let times: Vec<Vec<(u16, u32)>> = (0..50u64)
        .map(|host| (1..=20u64).map(|n| (bucket_of(n * 50 + host), 1)).collect())
        .collect();
    let times: Vec<&[(u16, u32)]> = times.iter().map(|times| &**times).collect();
    let (low, middle, high) = quantile(&times, 0.5).unwrap();
    assert!((540.0..560.0).contains(&time_of(middle)), "{}", time_of(middle));
    assert!(low <= middle && middle <= high && time_of(high) < 700.0);
    assert_eq!(quantile(&[], 0.5), None);
    for ms in [0, 1, 99, 12_345, 86_400_000, u64::MAX] {
        let near = time_of(bucket_of(ms));
        assert!((near - ms as f64).abs() <= 0.011 * (ms as f64 + 1.0), "{ms}: {near}");
    }
}
