//! The simulator: decisions per second of the whole loop: select, random outcome and record.

use std::time::Instant;

use fetchwise_simulate::{NamedPolicy, SHIPPED, SimulateOptions, World, simulate};

use crate::Scale;
use crate::book::Section;
use crate::text;

pub(crate) fn measure(scale: Scale) -> Section {
    let mut section = Section::new("The simulator");
    section.text(
        "The policy `default` runs in shipped worlds, with one seed and one thread. *Per decision* is `select` as the \
         simulator times it, including the clock. *The whole loop* generates the world, runs the oracle alongside, \
         draws the outcomes and records them.",
    );
    let mut rows = Vec::new();
    for &(name, text) in SHIPPED.iter().take(scale.pick(1, 3)) {
        eprintln!("  {name}");
        let shipped = World::parse(text, name).unwrap();
        let world = World { urls: scale.pick(5_000, shipped.urls), ..shipped };
        let policies = [NamedPolicy::by_name("default").unwrap()];
        let run = |timing: bool| {
            let begun = Instant::now();
            let options = SimulateOptions { threads: 1, timing, progress: None };
            let report = simulate(&world, &policies, &[1], &options).unwrap().remove(0);
            (report, begun.elapsed().as_secs_f64())
        };
        let (report, _) = run(true);
        let (_, seconds) = run(false);
        let decide = report.decide_ns.unwrap_or(f64::NAN);
        let decisions = world.urls as f64 * report.attempts_per_url;
        rows.push(vec![
            name.to_owned(),
            text::count(decisions),
            text::ns(decide),
            text::rate(1e9 / decide),
            text::rate(decisions / seconds),
        ]);
    }
    section
        .table(&["world", "decisions", "per decision", "decisions alone", "the whole loop"], rows);
    section
}
