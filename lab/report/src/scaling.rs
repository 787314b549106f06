//! Scaling: one and two threads, on separate and on shared cells; the cost of handing over a cache
//! line; a model of more cores.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fetchwise::attempt::Attempt;
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::Timestamp;
use url::Url;

use crate::Scale;
use crate::book::Section;
use crate::measure::Random;
use crate::text;
use crate::traffic::{self, Shape};

/// Operations between checks of the end.
const TURN: usize = 256;

/// The number of windows, of which the best counts: other programs on the machine only slow them
/// down.
const WINDOWS: u32 = 8;

/// Returns the operations per second of `threads` threads together, each doing `work(thread, n)`,
/// in the best of several windows.
fn throughput(threads: usize, time: Duration, work: impl Fn(usize, usize) + Sync) -> f64 {
    (0..WINDOWS).map(|_| window(threads, time / WINDOWS, &work)).fold(0.0, f64::max)
}

fn window(threads: usize, time: Duration, work: &(impl Fn(usize, usize) + Sync)) -> f64 {
    let (stop, barrier) = (AtomicBool::new(false), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (stop, barrier) = (&stop, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let (begun, mut n) = (Instant::now(), 0);
                    while !stop.load(Ordering::Relaxed) {
                        (0..TURN).for_each(|k| work(thread, n + k));
                        n += TURN;
                    }
                    n as f64 / begun.elapsed().as_secs_f64()
                })
            })
            .collect();
        barrier.wait();
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    })
}

struct Case {
    what: &'static str,
    one: f64,
    two: f64,
}

impl Case {
    fn speedup(&self) -> f64 {
        self.two / self.one
    }
}

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("Scaling");
    let (sites, time) =
        (scale.pick(2_000, 200_000), scale.pick(Duration::from_millis(50), Duration::from_secs(2)));
    let cases = cases(sites, time);
    let handover = ping_pong(time);
    let alone = throughput_of_updates(1, time);
    let shared = throughput_of_updates(2, time);
    section.text(format!(
        "The selector knows {} sites. *Spread*: the threads have different sites, with sections of different depth, \
         so they share only the cells that every attempt changes. *One hot site*: both threads record attempts at the \
         same page. *Paths of one depth only*: the threads have different sites, but share all cells that domains \
         have in common. The figures are operations per second of all threads together, in the best of {WINDOWS} \
         windows of {} s.",
        text::size(sites),
        (time / WINDOWS).as_secs_f64()
    ));
    let row = |case: &Case| {
        let (one, two) = (text::rate(case.one), text::rate(case.two));
        vec![case.what.to_owned(), one, two, format!("{:.2}", case.speedup())]
    };
    section.table(&["what", "1 thread", "2 threads", "times"], cases.iter().map(row).collect());
    section.text("The cost of cache coherence on this machine:");
    section.table(
        &["what", ""],
        vec![
            vec![
                "handing a cache line from core to core, half of a round trip".to_owned(),
                text::ns(handover),
            ],
            vec![
                "adding to an `f64` by compare-and-swap, one thread".to_owned(),
                text::ns(1e9 / alone),
            ],
            vec![
                "the same on one cell by two threads, per addition".to_owned(),
                text::ns(1e9 / shared),
            ],
        ],
    );
    model(&mut section, &cases, handover);
    section
}

fn cases(sites: usize, time: Duration) -> Vec<Case> {
    let now = Timestamp::now();
    let shared = traffic::warm(sites, now);
    let apart: Vec<Selector> = (0..THREADS).map(|_| traffic::warm(sites, now)).collect();
    let urls: Vec<Vec<Url>> = each_thread(|thread| {
        own_sites(sites, thread).map(|n| traffic::url(n, n, Shape::Plain)).collect()
    });
    let of_depths = |depth: &dyn Fn(usize, usize) -> usize| -> Vec<Vec<Attempt>> {
        each_thread(|thread| {
            own_sites(sites, thread).map(|n| deep(n, depth(thread, n), now)).collect()
        })
    };
    let (spread, flat) = (of_depths(&|thread, n| 2 + thread * 4 + n % 4), of_depths(&|_, _| 2));
    let hot = deep(1, 2, now);
    let situation = SelectContext::first_attempt(now);
    let observe = |selector: &Selector, attempts: &[Attempt], n: usize| {
        selector.observe(&attempts[n % attempts.len()])
    };
    let twice = |what, work: &(dyn Fn(usize, usize) + Sync)| {
        eprintln!("  {what}");
        Case { what, one: throughput(1, time, work), two: throughput(THREADS, time, work) }
    };
    vec![
        twice("select, spread", &|thread, n| {
            let urls = &urls[thread];
            let _ = black_box(shared.select(&urls[n % urls.len()], &situation));
        }),
        twice("record, spread", &|thread, n| observe(&shared, &spread[thread], n)),
        twice("record, spread, paths of one depth only", &|thread, n| {
            observe(&shared, &flat[thread], n)
        }),
        twice("record, one hot site", &|_, _| shared.observe(&hot)),
        twice("record, one selector per thread", &|thread, n| {
            observe(&apart[thread], &flat[thread], n)
        }),
    ]
}

const THREADS: usize = 2;

fn each_thread<T>(f: impl Fn(usize) -> T) -> Vec<T> {
    (0..THREADS).map(f).collect()
}

/// Returns the sites of one thread, in random order; no two threads share one.
fn own_sites(sites: usize, thread: usize) -> impl Iterator<Item = usize> {
    let mut random = Random(thread as u64 + 11);
    (0..50_000.min(sites)).map(move |_| random.below(sites / 2) * 2 + thread)
}

/// Returns an attempt at a page of the site's section at this depth.
fn deep(site: usize, depth: usize, now: Timestamp) -> Attempt {
    let path = "part/".repeat(depth - 2);
    let url =
        Url::parse(&format!("https://www.site{site}.org/section{}/{path}page-{site}", site % 7))
            .unwrap();
    Attempt::new(&url, traffic::FETCHERS[0], now).unwrap().delivered()
}

/// Returns the nanoseconds for a line to move from one core to the other: two threads alternate in
/// counting on it.
fn ping_pong(time: Duration) -> f64 {
    let (ball, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                // Acquire and Release: each thread waits for the other's last store.
                let now = ball.load(Ordering::Acquire);
                if now % 2 == 1 {
                    ball.store(now + 1, Ordering::Release);
                }
            }
        });
        const EXCHANGES: u64 = 2_000;
        let (begun, mut now, mut least) = (Instant::now(), 0, f64::MAX);
        while begun.elapsed() < time {
            let round = Instant::now();
            for _ in 0..EXCHANGES {
                ball.store(now + 1, Ordering::Release);
                while ball.load(Ordering::Acquire) != now + 2 {
                    std::hint::spin_loop();
                }
                now += 2;
            }
            least = least.min(round.elapsed().as_nanos() as f64 / (2 * EXCHANGES) as f64);
        }
        stop.store(true, Ordering::Relaxed);
        other.join().unwrap();
        least
    })
}

fn throughput_of_updates(threads: usize, time: Duration) -> f64 {
    let cell = AtomicU64::new(0);
    throughput(threads, time, |_, _| {
        let add = |bits| Some((f64::from_bits(bits) + 1.0).to_bits());
        let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    })
}

const CORES: [f64; 6] = [2.0, 4.0, 8.0, 16.0, 32.0, 64.0];

/// Returns the time in seconds that an attempt of `case` keeps others from a line, if an attempt
/// without contention costs `own`. None if two threads lose nothing.
fn held(case: &Case, own: f64) -> Option<f64> {
    let lost = 2.0 / case.two - own;
    (lost > 1e-9).then_some(lost)
}

/// Returns the attempts per second that `cores` record: n times one core, until a line is always in
/// transit.
fn bound(cores: f64, own: f64, held: Option<f64>) -> f64 {
    held.map_or(cores / own, |held| (cores / own).min(1.0 / held))
}

/// Adds the model of more cores, from the measurements of two.
fn model(section: &mut Section, cases: &[Case], handover: f64) {
    let [select, spread, flat, hot, apart] = cases else { return };
    let own = 2.0 / apart.two;
    // One hot site is in the cache, so nothing waits for memory.
    let own_hot = 1.0 / hot.one;
    let limit = |case: &Case, own: f64| match held(case, own) {
        Some(held) => format!(
            "{} are lost to that, so all cores together record at most {}",
            text::ns(held * 1e9),
            text::rate(1.0 / held)
        ),
        None => "nothing was lost to that here, so no limit shows".to_owned(),
    };
    let handovers = held(flat, own).map_or_else(String::new, |held| {
        format!(
            " (as much as {:.1} hand-overs of {} each)",
            held * 1e9 / handover,
            text::ns(handover)
        )
    });
    section.text(format!(
        "*A model of 64 cores.* An attempt costs {own} of one core if the threads share nothing (one selector per \
         thread). Two threads on one selector take longer, because a line that both write is at the other core for a \
         part of the time. With all common cells shared, {flat}{handovers}. A line is at one core at a time, so this \
         limit holds for any number of cores. Below it, n cores record n times as much as one. One hot site costs \
         {own_hot} if one thread has it alone: {hot}. `select` writes nothing. Its lines are copied, not handed over, \
         so n cores decide n times as often until attempts at the same site force another copy. The column *across \
         sockets* assumes that a hand-over takes three times as long there.",
        own = text::ns(own * 1e9),
        own_hot = text::ns(own_hot * 1e9),
        flat = limit(flat, own),
        hot = limit(hot, own_hot),
    ));
    let rows = CORES.iter().map(|&cores| {
        let of = |case: &Case, own: f64, longer: f64| {
            text::rate(bound(cores, own, held(case, own).map(|held| held * longer)))
        };
        let select = text::rate(cores * select.two / 2.0);
        vec![
            format!("{cores:.0}"),
            select,
            of(spread, own, 1.0),
            of(flat, own, 1.0),
            of(flat, own, 3.0),
            of(hot, own_hot, 1.0),
        ]
    });
    let head = [
        "cores",
        "select, spread",
        "record, spread",
        "record, one depth only",
        "the same, across sockets",
        "record, one hot site",
    ];
    section.table(&head, rows.collect());
    section.text(
        "*Remedies.* The evidence of a site is in the site's entry, and only the threads that crawl the site write \
         it. All threads write the cells that all sites share (the global one, and those of depth, suffix and flags). \
         Each of these has separate cache lines, so additions to different fetchers do not wait for each other. A \
         replay gives each thread private common cells and adds them up at the end. A crawler that has to record more \
         from one process can keep one selector per socket. Evidence is sums, so both stay right; each only knows \
         less.",
    );
}
