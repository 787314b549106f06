//! The simulator's whole loop, for development: a small world is generated, decided, run and
//! recorded.
#![allow(clippy::unwrap_used, missing_docs)]

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fetchwise_simulate::{NamedPolicy, SHIPPED, SimulateOptions, World, simulate};

fn whole_loop(c: &mut Criterion) {
    let (name, text) = SHIPPED[0];
    let world = World { urls: 20_000, ..World::parse(text, name).unwrap() };
    let policies = [NamedPolicy::by_name("default").unwrap()];
    let options = SimulateOptions { threads: 1, ..SimulateOptions::default() };
    let mut group = c.benchmark_group("simulate");
    group
        .throughput(Throughput::Elements(world.urls as u64))
        .measurement_time(Duration::from_secs(5))
        .sample_size(10);
    group.bench_function(format!("default in {name}, URLs"), |b| {
        b.iter(|| simulate(&world, &policies, &[1], &options).unwrap());
    });
    group.finish();
}

criterion_group!(benches, whole_loop);
criterion_main!(benches);
