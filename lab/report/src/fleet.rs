//! Learning what other nodes of a fleet have attempted: messages decoded and learned, on one
//! thread.

use std::hint::black_box;
use std::time::Instant;

use fetchwise::attempt::Attempt;
use fetchwise::evidence::RemoteAttempt;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_fleet::model::codec::{Batch, Builder};

use crate::Scale;
use crate::book::{Bound, Section, Unit};
use crate::measure::best;
use crate::text;
use crate::traffic;

/// Remote attempts per message: those of a second of a fast node.
const EACH: usize = 1000;

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("A fleet: learning from other nodes");
    let (count, sites) = scale.pick((10_000, 1_000), (200_000, 1_000_000));
    let now = Timestamp::now();
    let attempts = traffic::pool(count, sites, now);
    let messages: Vec<Vec<u8>> =
        attempts.chunks(EACH).scan(1, |next, attempts| Some(message(next, attempts))).collect();
    let decoded = best(3, || {
        let begun = Instant::now();
        messages
            .iter()
            .for_each(|body| Batch::decode(body).unwrap().each(|seq, _, _| _ = black_box(seq)));
        begun.elapsed().as_secs_f64()
    });
    let learned = best(3, || {
        let selector = Selector::builder().without_pace().around(now).build().unwrap();
        let begun = Instant::now();
        messages.iter().for_each(|body| {
            Batch::decode(body).unwrap().each(|_, fact, _| selector.learned().receive_attempt(fact))
        });
        begun.elapsed().as_secs_f64()
    });
    let bytes: usize = messages.iter().map(Vec::len).sum();
    section.text(format!(
        "One thread reads {} remote attempts at {} sites from messages of {EACH}, {:.1} B each. It decodes {}, and decodes \
         and learns {}. The best of three runs counts. The latency of `select` and `record` in a fleet needs brokers; \
         `cargo test --release -p fetchwise-fleet --test nats bench_hot_path:: -- --ignored --nocapture` measures it.",
        text::size(count),
        text::size(sites),
        bytes as f64 / count as f64,
        text::rate(count as f64 / decoded),
        text::rate(count as f64 / learned),
    ));
    section.goal(
        "fleet, remote attempts decoded and learned",
        Unit::Rate,
        count as f64 / learned,
        Bound::AtLeast(1e6),
    );
    section
}

fn message(next: &mut u64, attempts: &[Attempt]) -> Vec<u8> {
    let mut builder = Builder::new(1, 0, *next);
    for attempt in attempts {
        let heuristics: Vec<(&str, &str)> = attempt
            .heuristics
            .iter()
            .map(|tag| (&*tag.heuristic.kind, &*tag.heuristic.value))
            .collect();
        let remote = RemoteAttempt {
            at: attempt.attempted_at,
            fetcher: &attempt.fetcher,
            weight: attempt.weight,
            success: attempt.success,
            is_banned: attempt.is_banned,
            duration_ms: attempt.duration_ms,
            hint: attempt.hint,
            is_file: false,
            heuristics: &heuristics,
        };
        builder.push(&remote, 7);
    }
    *next = builder.next();
    builder.finish(0).unwrap().1.to_vec()
}
