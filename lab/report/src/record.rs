//! Recording: an attempt observed and passed to the journal, by durability.

use std::time::{Duration, Instant};

use fetchwise::attempt::Attempt;
use fetchwise::journal::{Durability, Journal, JournalOptions, OnFull, OpenCheck};
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;

use crate::Scale;
use crate::book::{Bound, Section, Unit};
use crate::measure::{CELLS, Latency};
use crate::text;
use crate::traffic;

pub(crate) const INTERVAL: Durability = Durability::Interval(Duration::from_millis(100));

pub(crate) fn options(durability: Durability) -> JournalOptions {
    JournalOptions::default().durability(durability).on_full(OnFull::Block).check(OpenCheck::Tail)
}

fn name(durability: Option<Durability>) -> String {
    match durability {
        None => "memory only, no journal".to_owned(),
        Some(Durability::Interval(time)) => format!("`Interval({} ms)`", time.as_millis()),
        Some(durability) => format!("`{durability:?}`"),
    }
}

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("`record`: observing and keeping an attempt");
    let (count, sites) = scale.pick((20_000, 1_000), (2_000_000, 100_000));
    let now = Timestamp::now();
    let attempts = traffic::pool(count.min(200_000), sites, now);
    section.text(format!(
        "`Selector::record` takes an attempt of the caller, first into memory and then into the journal. One thread \
         records {} attempts at {} sites. One rate counts until the last attempt is acknowledged at its level, the \
         other until everything is synced. Latency is the time that the caller waits. `record` waits for no disk at \
         any level, unless the queue is full.",
        text::size(count),
        text::size(sites)
    ));
    let levels = [
        None,
        Some(Durability::Memory),
        Some(Durability::Os),
        Some(INTERVAL),
        Some(Durability::Sync),
    ];
    let mut rows = Vec::new();
    for durability in levels {
        let measured = run(&attempts, count, durability);
        let mut row = measured.latency.row(name(durability));
        row.extend([text::rate(measured.acknowledged), text::rate(measured.synced)]);
        rows.push(row);
        if durability == Some(INTERVAL) {
            let what = "durable attempts per second at `Interval(100 ms)`, until all are synced";
            section.goal(what, Unit::Rate, measured.synced, Bound::AtLeast(500e3));
        }
    }
    let head: Vec<&str> = std::iter::once("level")
        .chain(CELLS)
        .chain(["until acknowledged", "until synced"])
        .collect();
    section.table(&head, rows);
    acknowledged(&mut section, &attempts, scale);
    section
}

struct Measured {
    latency: Latency,
    acknowledged: f64,
    synced: f64,
}

/// Records like `Selector::record`, but by reference, without the time to free the attempt.
fn run(attempts: &[Attempt], count: usize, durability: Option<Durability>) -> Measured {
    let (selector, tmp) =
        (Selector::builder().without_pace().build().unwrap(), tempfile::tempdir().unwrap());
    attempts.iter().for_each(|attempt| selector.observe(attempt));
    let journal =
        durability.map(|durability| Journal::open(tmp.path(), options(durability)).unwrap().0);
    let mut latency = Latency::new();
    let begun = Instant::now();
    for attempt in attempts.iter().cycle().take(count) {
        latency.time(|| {
            selector.observe(attempt);
            if let Some(journal) = &journal {
                journal.append_attempt(attempt).unwrap();
            }
        });
    }
    let seconds = || begun.elapsed().as_secs_f64();
    if let Some(journal) = &journal {
        journal.settled().wait().unwrap();
    }
    let acknowledged = count as f64 / seconds();
    if let Some(journal) = &journal {
        journal.flush().wait().unwrap();
    }
    let synced = count as f64 / seconds();
    if let Some(journal) = journal {
        journal.close().unwrap();
    }
    Measured { latency, acknowledged, synced }
}

/// Measures the wait of a caller that needs each attempt to be safe before it continues.
fn acknowledged(section: &mut Section, attempts: &[Attempt], scale: Scale) {
    let time = scale.pick(Duration::from_millis(100), Duration::from_secs(2));
    let mut rows = Vec::new();
    for durability in [Durability::Os, INTERVAL, Durability::Sync] {
        for together in [1, 64] {
            let tmp = tempfile::tempdir().unwrap();
            let (journal, _) = Journal::open(tmp.path(), options(durability)).unwrap();
            let (mut latency, begun, mut done) = (Latency::new(), Instant::now(), 0);
            while begun.elapsed() < time {
                let asked = Instant::now();
                for _ in 0..together {
                    journal.append_attempt(&attempts[done % attempts.len()]).unwrap();
                    done += 1;
                }
                journal.settled().wait().unwrap();
                latency.add(asked.elapsed());
            }
            let seconds = begun.elapsed().as_secs_f64();
            let mut row = latency.row(name(Some(durability)));
            row.insert(1, together.to_string());
            row.push(text::rate(done as f64 / seconds));
            rows.push(row);
            journal.close().unwrap();
        }
    }
    section.text(
        "The next table includes the wait for the acknowledgement, by the number of attempts in flight \
                  (*Sync* waits for the disk each time):",
    );
    let head: Vec<&str> = ["level", "in flight"].into_iter().chain(CELLS).chain(["rate"]).collect();
    section.table(&head, rows);
}
