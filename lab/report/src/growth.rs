//! Cost by the amount of work: the measurements of the other subjects at several sizes, drawn and
//! fitted. Measures nothing itself.

use std::collections::BTreeMap;

use crate::book::{Block, Plot, Section};
use crate::text;

/// A plot: its file, title, axes, and series.
type Drawing = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

const DRAWINGS: &[Drawing] = &[
    (
        "select-by-sites",
        "A decision, by sites known",
        "sites",
        "ns",
        &[
            "select p50",
            "select at once p50",
            "select p99",
            "select p99.9",
            "url parse p50",
            "random read",
        ],
    ),
    (
        "record-by-sites",
        "Observing an attempt, by sites known",
        "sites",
        "ns",
        &["record p50", "record p99"],
    ),
    (
        "memory-by-sites",
        "Memory per site, by sites known",
        "sites",
        "bytes",
        &["bytes per site", "resident bytes per site"],
    ),
    (
        "replay-by-sites",
        "Replay of an attempt, by sites in the log",
        "sites",
        "ns per attempt",
        &[
            "replay, ns per attempt",
            "replay of records, ns per attempt",
            "checksums only, ns per attempt",
        ],
    ),
    (
        "replay-by-attempts",
        "Replay of an attempt, by length of the log",
        "attempts",
        "ns per attempt",
        &["replay by length, ns per attempt", "append by length, ns per attempt"],
    ),
];

/// Returns none if nothing was measured at two sizes.
pub(crate) fn section(sections: &[Section]) -> Option<Section> {
    let mut series: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for (name, x, y) in sections.iter().flat_map(|section| &section.points) {
        series.entry(name).or_default().push((*x, *y));
    }
    series.retain(|_, points| points.len() > 1);
    if series.is_empty() {
        return None;
    }
    let mut section = Section::new("Cost as work grows");
    section.text(
        "This table has the measurements at several sizes, from the smallest to the largest. *Per doubling* is the \
         average factor of the cost each time the work doubles. 1.00 is flat, and a cost that grows with the \
         logarithm of the size comes close to it. The growth here comes from reads that miss a cache: the random read \
         grows alike.",
    );
    let mut rows = Vec::new();
    for (name, points) in &series {
        let (first, last) = (points[0], points[points.len() - 1]);
        let doublings = (last.0 / first.0).log2().max(1e-9);
        rows.push(vec![
            (*name).to_owned(),
            format!("{} at {}", text::count(first.1), text::size(first.0 as usize)),
            format!("{} at {}", text::count(last.1), text::size(last.0 as usize)),
            format!("{:.2}", last.1 / first.1),
            format!("{:.2}", (last.1 / first.1).powf(1.0 / doublings)),
        ]);
    }
    section.table(&["series", "smallest", "largest", "ratio", "per doubling"], rows);
    for (file, title, x, y, names) in DRAWINGS {
        let lines: Vec<(String, Vec<(f64, f64)>)> = names
            .iter()
            .filter_map(|name| series.get(name).map(|points| ((*name).to_owned(), points.clone())))
            .collect();
        if !lines.is_empty() {
            let [file, title, x, y] = [file, title, x, y].map(|text| (*text).to_owned());
            section.blocks.push(Block::Plot(Plot { file, title, x, y, lines }));
        }
    }
    Some(section)
}
