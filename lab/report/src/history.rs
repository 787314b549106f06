//! The history of the report: one line of JSON for each run, and plots of each figure over the
//! runs.
//!
//! Owns: the file `benchmarks/history.jsonl`, its format and its plots.
//!
//! Invariant: a line is added and never changed, so that a figure that got worse stays visible.
//!
//! Must not know: how a figure is measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

use crate::book::{Figure, Section, Unit};
use crate::host::Host;

/// The name of the history within the directory of plots.
const FILE: &str = "history.jsonl";
/// How many of the last runs the table shows.
const SHOWN: usize = 6;
const PANEL: (u32, u32) = (330, 170);
const COLUMNS: usize = 3;

/// One run of the report.
#[derive(Debug, Serialize, Deserialize)]
struct Run {
    date: String,
    commit: String,
    /// Load of the machine at the start and at the end.
    load: String,
    processor: String,
    /// By name; in the unit of the figure.
    figures: BTreeMap<String, f64>,
}

/// Adds this run to the committed history, and writes it with its plot below `plots`. Returns the
/// section about it.
pub(crate) fn write(plots: &Path, host: &Host, sections: &[Section]) -> String {
    let committed =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reports/benchmarks").join(FILE);
    let mut lines = std::fs::read_to_string(committed).unwrap_or_default();
    let figures: Vec<&Figure> = sections.iter().flat_map(|section| &section.figures).collect();
    let own = Run {
        date: host.fact("date"),
        commit: host.fact("commit"),
        load: format!("{}; {}", host.fact("load at the start"), crate::host::load()),
        processor: host.fact("processor"),
        figures: figures.iter().map(|figure| (figure.what.clone(), figure.value)).collect(),
    };
    lines.push_str(&serde_json::to_string(&own).unwrap());
    lines.push('\n');
    std::fs::write(plots.join(FILE), &lines).unwrap();
    let runs: Vec<Run> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    std::fs::write(plots.join("history.svg"), svg(&figures, &runs)).unwrap();
    page(&figures, &runs)
}

fn page(figures: &[&Figure], runs: &[Run]) -> String {
    let last = &runs[runs.len().saturating_sub(SHOWN)..];
    let mut page = String::from("\n## History\n\n");
    let _ = writeln!(
        page,
        "Each run adds a line to [`benchmarks/{FILE}`](benchmarks/{FILE}). The table has the last runs. Runs on different machines\n\
         or under different load are not comparable.\n"
    );
    let mut row = |cells: Vec<String>| page.push_str(&format!("| {} |\n", cells.join(" | ")));
    let of = |name: &str, f: &dyn Fn(&Run) -> String| {
        std::iter::once(name.to_owned()).chain(last.iter().map(f)).collect()
    };
    row(of("figure", &|run| run.date.chars().take(10).collect()));
    row(std::iter::once("---").chain(last.iter().map(|_| "---:")).map(str::to_owned).collect());
    row(of("commit", &|run| run.commit.chars().take(12).collect()));
    row(of("load at the start; at the end", &|run| run.load.clone()));
    for figure in figures {
        row(of(&figure.what, &|run| {
            run.figures.get(&figure.what).map_or(String::new(), |value| figure.unit.text(*value))
        }));
    }
    page.push_str("\n![Each figure over the runs of the report](benchmarks/history.svg)\n");
    page
}

/// Draws a small plot of each figure, from zero, with its target as a grey line.
fn svg(figures: &[&Figure], runs: &[Run]) -> String {
    let rows = figures.len().div_ceil(COLUMNS).max(1);
    let mut svg = String::new();
    {
        let area =
            SVGBackend::with_string(&mut svg, (PANEL.0 * COLUMNS as u32, PANEL.1 * rows as u32))
                .into_drawing_area();
        area.fill(&WHITE).unwrap();
        for (panel, figure) in area.split_evenly((rows, COLUMNS)).iter().zip(figures) {
            draw(panel, figure, runs).unwrap();
        }
        area.present().unwrap();
    }
    svg
}

fn draw(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    figure: &Figure,
    runs: &[Run],
) -> Result<(), Box<dyn std::error::Error>> {
    let points: Vec<(f64, f64)> = (1..)
        .zip(runs)
        .filter_map(|(n, run)| Some((f64::from(n), *run.figures.get(&figure.what)?)))
        .collect();
    let limit = figure.limit.unwrap_or(0.0);
    let high = points.iter().map(|point| point.1).fold(limit, f64::max) * 1.15;
    let plain: String = figure.what.chars().filter(|c| *c != '`').collect();
    let unit: Unit = figure.unit;
    let mut chart = ChartBuilder::on(area)
        .caption(plain, ("sans-serif", 11))
        .margin(6)
        .x_label_area_size(16)
        .y_label_area_size(62)
        .build_cartesian_2d(0.5..runs.len() as f64 + 0.5, 0.0..high.max(f64::MIN_POSITIVE))?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(runs.len().min(8))
        .y_labels(4)
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| unit.text(*y))
        .light_line_style(WHITE)
        .draw()?;
    if let Some(limit) = figure.limit {
        let ends = [(0.5, limit), (runs.len() as f64 + 0.5, limit)];
        chart.draw_series(LineSeries::new(ends, RGBColor(150, 150, 150).stroke_width(1)))?;
    }
    let colour = RGBColor(31, 99, 180);
    chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
    chart.draw_series(points.iter().map(|&point| Circle::new(point, 2, colour.filled())))?;
    Ok(())
}
