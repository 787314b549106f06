//! Candidates in memory, and mixed load: one thread selects, alone and while another records at
//! full speed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fetchwise::attempt::Attempt;
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::Timestamp;
use url::Url;

use crate::Scale;
use crate::book::{Bound, Section, Unit};
use crate::map_peers::{DashMutex, Locked, Map, Papaya, PapayaBlocking, Peer, Scc};
use crate::measure::{CELLS, Latency, Random};
use crate::text;
use crate::traffic::{self, Shape};

/// The common interface of the candidates.
trait Learner: Sync {
    fn select(&self, url: &Url, now: Timestamp) -> bool;
    fn record(&self, attempt: &Attempt);
}

impl Learner for Selector {
    fn select(&self, url: &Url, now: Timestamp) -> bool {
        self.select(url, &SelectContext::first_attempt(now)).is_ok()
    }

    fn record(&self, attempt: &Attempt) {
        self.observe(attempt);
    }
}

impl<M: Map> Learner for Peer<M> {
    fn select(&self, url: &Url, now: Timestamp) -> bool {
        self.select(url, now).is_some()
    }

    fn record(&self, attempt: &Attempt) {
        self.record(attempt);
    }
}

struct Measured {
    name: &'static str,
    select: Latency,
    record: Latency,
    mixed: Latency,
    /// Attempts per second, alone and while another thread selects.
    rates: (f64, f64),
}

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("The same evidence in other maps, and mixed load");
    let sites = scale.pick(10_000, 1_000_000);
    let now = Timestamp::now();
    let attempts = traffic::pool(scale.pick(20_000, 500_000), sites, now);
    let ours = run(
        "fetchwise",
        &Selector::builder().without_pace().build().unwrap(),
        sites,
        &attempts,
        now,
        scale,
    );
    let peers = [
        run(
            "DashMap with a Mutex each",
            &Peer::<DashMutex>::new(now),
            sites,
            &attempts,
            now,
            scale,
        ),
        run("papaya", &Peer::<Papaya>::new(now), sites, &attempts, now, scale),
        run(
            "papaya, blocking resize",
            &Peer::<PapayaBlocking>::new(now),
            sites,
            &attempts,
            now,
            scale,
        ),
        run("scc::HashMap", &Peer::<Scc>::new(now), sites, &attempts, now, scale),
        run("RwLock of HashMap", &Peer::<Locked>::new(now), sites, &attempts, now, scale),
    ];
    let size = text::size(sites);
    section.text(format!(
        "All candidates have observed the same attempts at {size} sites. They decide about the same URLs, just \
         parsed, in random order. The others are a straightforward first implementation: aggregates by heuristic \
         under hashed keys, one look-up per heuristic, and the published formula over the sums. They do less work. \
         They have no priors, no separate evidence for files and pages, no recent changes, costs, pauses, exploration \
         or reasons. RwLock of HashMap, papaya and scc hold atomics; DashMap holds a mutex per aggregate. Each has \
         its default settings unless its name says otherwise. A guard or lock of the whole map is taken once per \
         operation.",
    ));
    let all = || std::iter::once(&ours).chain(&peers);
    let head: Vec<&str> =
        ["candidate", "operation"].into_iter().chain(CELLS).chain(["attempts recorded"]).collect();
    let mut rows = Vec::new();
    for one in all() {
        let row = |what: &str, latency: &Latency, rate: String| {
            let mut row = latency.row(what);
            row.insert(0, one.name.to_owned());
            row.push(rate);
            row
        };
        rows.push(row("select, alone", &one.select, String::new()));
        rows.push(row("record, alone", &one.record, text::rate(one.rates.0)));
        rows.push(row("select, while another thread records", &one.mixed, text::rate(one.rates.1)));
    }
    section.table(&head, rows);
    for peer in &peers {
        let mut duel = |what: &str, ratio: f64| {
            section.duel(
                &format!("{what}, {size} sites"),
                "fetchwise",
                peer.name,
                ratio,
                "the other does less work",
            );
        };
        duel("select, p50", peer.select.p50() / ours.select.p50());
        duel("record, p50", peer.record.p50() / ours.record.p50());
        duel("select under recording, p99.9", peer.mixed.at(99.9) / ours.mixed.at(99.9));
        duel("select under recording, max", peer.mixed.max() / ours.mixed.max());
    }
    targets(&mut section, &ours, &size);
    section
}

fn targets(section: &mut Section, ours: &Measured, size: &str) {
    let (p50, p999, record) = (ours.mixed.p50(), ours.mixed.at(99.9), ours.record.p50());
    let alone = format!("`select(&Url)` alone, {size} sites, p50");
    section.goal(&alone, Unit::Ns, ours.select.p50(), Bound::AtMost(800.0));
    let under = format!("`select(&Url)` under full recording, {size} sites");
    section.goal(&format!("{under}, p50"), Unit::Ns, p50, Bound::AtMost(900.0));
    section.goal(&format!("{under}, p99.9"), Unit::Ns, p999, Bound::AtMost(2e3));
    let what = format!("recording an attempt in memory, {size} sites, p50");
    section.goal(&what, Unit::Ns, record, Bound::AtMost(650.0));
}

fn run<L: Learner>(
    name: &'static str,
    learner: &L,
    sites: usize,
    attempts: &[Attempt],
    now: Timestamp,
    scale: Scale,
) -> Measured {
    eprintln!("  {name}");
    for site in 0..sites {
        for fetcher in 0..traffic::FETCHERS.len() {
            learner.record(&traffic::attempt(site, site, fetcher, Shape::Plain, now));
        }
    }
    let count = scale.pick(20_000, 1_000_000);
    let mut select = Latency::new();
    selects(learner, sites, now, |n| n == count, &mut select);
    let mut record = Latency::new();
    for attempt in attempts {
        record.time(|| learner.record(attempt));
    }
    let begun = Instant::now();
    attempts.iter().for_each(|attempt| learner.record(attempt));
    let alone = attempts.len() as f64 / begun.elapsed().as_secs_f64();

    let (stop, mut mixed) = (AtomicBool::new(false), Latency::new());
    let time = scale.pick(Duration::from_millis(200), Duration::from_secs(3));
    let busy = std::thread::scope(|scope| {
        let recorder = scope.spawn(|| {
            let (begun, mut recorded) = (Instant::now(), 0usize);
            while !stop.load(Ordering::Relaxed) {
                for _ in 0..1_000 {
                    learner.record(&attempts[recorded % attempts.len()]);
                    recorded += 1;
                }
            }
            recorded as f64 / begun.elapsed().as_secs_f64()
        });
        let begun = Instant::now();
        selects(learner, sites, now, |n| n % 256 == 0 && begun.elapsed() > time, &mut mixed);
        stop.store(true, Ordering::Relaxed);
        recorder.join().unwrap()
    });
    Measured { name, select, record, mixed, rates: (alone, busy) }
}

fn selects<L: Learner>(
    learner: &L,
    sites: usize,
    now: Timestamp,
    is_over: impl Fn(usize) -> bool,
    latency: &mut Latency,
) {
    let (mut random, mut text) = (Random(5), String::new());
    let mut page = 0;
    while !is_over(page) || page == 0 {
        traffic::write_url(&mut text, random.below(sites), page, Shape::Plain);
        let url = Url::parse(&text).unwrap();
        latency.time(|| learner.select(&url, now));
        page += 1;
    }
}
