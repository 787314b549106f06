//! The report as Markdown, with its plots.
//! Owns: the frame; every figure comes from the sections.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::Scale;
use crate::book::{Block, Duel, Section};
use crate::host::Host;
use crate::{history, host, measure, plot, text};

const FRAME: &str = "<!-- Written by `make bench-report`. Do not edit: the next run overwrites it. -->

# \
                     Benchmarks

This report measures speed and memory against alternatives, side by side in one run. `make bench-report` writes it. Numbers
from a shared or virtual machine differ from run to run. Ratios within a run are more reliable than the numbers.

* Latencies are percentiles of single operations in a histogram of three digits, never of averages. Operations that are too
  short for that are timed in batches, and marked.
* Each comparison names the loser, also if that is fetchwise.
* All figures come from one run. Some are the best of several rounds, because other programs on the machine can only slow a
  round down. They are marked.
";

/// Writes `benchmarks.md` and its plots into `out`.
pub(crate) fn write(out: &Path, host: &Host, scale: Scale, sections: &[Section], took: Duration) {
    let mut page = FRAME.to_owned();
    if scale == Scale::Quick {
        page.push_str(
            "\n**A quick run: it shows that the program runs, and nothing about speed.**\n",
        );
    }
    let _ = writeln!(page, "\nThe run took {:.0} s.\n", took.as_secs_f64());
    let at_end = ("load at the end", host::load());
    let facts = host.facts.iter().chain(std::iter::once(&at_end));
    let facts =
        facts.map(|(name, value)| vec![(*name).to_owned(), value.clone()]).collect::<Vec<_>>();
    table(&mut page, &["the machine", ""].map(str::to_owned), &facts);
    let (one, readings) = measure::clock();
    let _ = writeln!(
        page,
        "\nReading the clock takes {}. An empty operation shows p50 {}, p99.9 {} and max {}. Each latency contains \
         this overhead of the clock and such interruptions by the machine.",
        text::ns(one),
        text::ns(readings.p50()),
        text::ns(readings.at(99.9)),
        text::ns(readings.max())
    );
    targets(&mut page, sections);
    duels(&mut page, sections);
    let plots = out.join("benchmarks");
    std::fs::create_dir_all(&plots).unwrap();
    for section in sections {
        let _ = writeln!(page, "\n## {}", section.title);
        for block in &section.blocks {
            page.push('\n');
            match block {
                Block::Text(text) => page.push_str(&wrap(text)),
                Block::Table { head, rows } => table(&mut page, head, rows),
                Block::Plot(drawn) => {
                    std::fs::write(plots.join(format!("{}.svg", drawn.file)), plot::svg(drawn))
                        .unwrap();
                    let _ = writeln!(page, "![{}](benchmarks/{}.svg)", drawn.title, drawn.file);
                }
            }
        }
    }
    page.push_str(&history::write(&plots, host, sections));
    std::fs::write(out.join("benchmarks.md"), page).unwrap();
}

fn targets(page: &mut String, sections: &[Section]) {
    let all: Vec<_> = sections.iter().flat_map(|section| &section.targets).collect();
    let met = all.iter().filter(|target| target.met).count();
    let _ = writeln!(page, "\n## Targets\n\n{met} of {} targets are met.\n", all.len());
    let row = |target: &&crate::book::Target| {
        let verdict = if target.met { "met" } else { "**missed**" };
        vec![target.what.clone(), target.limit.clone(), target.measured.clone(), verdict.to_owned()]
    };
    table(
        page,
        &["what", "target", "measured", ""].map(str::to_owned),
        &all.iter().map(row).collect::<Vec<_>>(),
    );
    let missed: Vec<_> = all.iter().filter(|target| !target.met).collect();
    if !missed.is_empty() {
        page.push_str("\nMissed targets, and the measured value as a multiple of the target:\n\n");
        for target in missed {
            let _ = writeln!(
                page,
                "* {}: {} times ({})",
                target.what,
                text::times(target.factor),
                target.measured
            );
        }
    }
}

fn duels(page: &mut String, sections: &[Section]) {
    let all = || sections.iter().flat_map(|section| &section.duels);
    let (limits, peers): (Vec<&Duel>, Vec<&Duel>) = all().partition(|duel| duel.is_limit);
    let lost = peers.iter().filter(|duel| duel.ratio < 1.0).count();
    let _ = writeln!(
        page,
        "\n## Comparisons\n\nfetchwise loses {lost} of {} comparisons.\n",
        peers.len()
    );
    let head = ["what", "comparison", "ratio", "loser"].map(str::to_owned);
    table(page, &head, &peers.iter().map(|duel| verdict(duel)).collect::<Vec<_>>());
    page.push_str(
        "\n## Distance from the limits\n\nThese comparisons are with a part of the work, or with the hardware. The \
         whole work cannot be faster than its part, unless the part waits and the whole does not.\n\n",
    );
    table(page, &head, &limits.iter().map(|duel| verdict(duel)).collect::<Vec<_>>());
}

fn verdict(duel: &Duel) -> Vec<String> {
    let (loser, ratio) = match duel.ratio < 1.0 {
        true => ("**fetchwise loses**".to_owned(), 1.0 / duel.ratio),
        false => (format!("{} loses", duel.them), duel.ratio),
    };
    let note = if duel.note.is_empty() { String::new() } else { format!("; {}", duel.note) };
    let against = format!("{} against {}", duel.us, duel.them);
    vec![duel.what.clone(), against, text::times(ratio), format!("{loser}{note}")]
}

fn table(page: &mut String, head: &[String], rows: &[Vec<String>]) {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    page.push_str(&line(head));
    let align: Vec<&str> = (0..head.len()).map(|n| if n == 0 { "---" } else { "---:" }).collect();
    let _ = writeln!(page, "| {} |", align.join(" | "));
    rows.iter().for_each(|row| page.push_str(&line(row)));
}

/// Wraps lines at 125 characters.
fn wrap(text: &str) -> String {
    let (mut page, mut length) = (String::new(), 0);
    for word in text.split_whitespace() {
        let chars = word.chars().count();
        if length > 0 && length + 1 + chars > 125 {
            page.push('\n');
            length = 0;
        } else if length > 0 {
            page.push(' ');
            length += 1;
        }
        page.push_str(word);
        length += chars;
    }
    page.push('\n');
    page
}
