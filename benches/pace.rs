//! A permit and its answer, among a million hosts that were asked before, in an order that no prefetcher guesses.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use fetchwise::Selector;
use fetchwise::pace::{Admit, Answer, Cost, Heard, Pace, PaceSettings, Scope};
use fetchwise::time::Timestamp;

const BEGIN: i64 = 1_790_000_000_000;

fn admit_and_done(c: &mut Criterion) {
    let selector = Selector::builder().build().unwrap();
    let (fetcher, _) = selector.candidates().next().unwrap();
    let answer = Answer { latency: Some(Duration::from_millis(200)), ..Answer::new(Heard::Content, fetcher) };
    let mut group = c.benchmark_group("pace, admit and done");
    for count in [1_000, 100_000, 1_000_000] {
        let names: Vec<String> = (0..count).map(|number| format!("site{number}.org")).collect();
        let pace = Pace::new(PaceSettings::default());
        let ask = |number: usize, at: i64| {
            // The registrable domain is known to whoever has parsed the URL.
            let scope = Scope { host: &names[number], site: &names[number], address: None };
            match pace.admit(black_box(scope), Cost::Plain, Timestamp::from_millis(at)) {
                Admit::Go(permit) => {
                    let _ = black_box(pace.done(permit, &answer, Timestamp::from_millis(at)));
                    true
                }
                _ => false,
            }
        };
        (0..count).for_each(|number| assert!(ask(number, BEGIN)));
        let (mut next, mut now) = (0, BEGIN);
        group.bench_function(BenchmarkId::from_parameter(count), |b| {
            b.iter(|| {
                next += 7919;
                if next >= count {
                    // Once around, everybody may be asked again.
                    (next, now) = (next % count, now + 3000);
                }
                ask(next, now)
            });
        });
    }
    group.finish();
}

criterion_group!(benches, admit_and_done);
criterion_main!(benches);
