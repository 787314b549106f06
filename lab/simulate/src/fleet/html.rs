//! Results of fleets as plots, and as one HTML page with them, without scripts, fonts or external
//! resources. The template is `templates/fleet.html`.

use askama::Template;
use plotters::prelude::*;

use super::report::{FleetReport, missed, over_worlds, span};
use crate::plots::{Area, DrawError, Drawn, axes, legend, line, svg};
use crate::report::distinct;

const SIZE: (u32, u32) = (560, 340);
const COLOURS: [RGBColor; 4] =
    [RGBColor(220, 50, 32), RGBColor(0, 128, 90), RGBColor(0, 90, 181), RGBColor(148, 82, 160)];

/// The data of `templates/fleet.html`.
#[derive(Template)]
#[template(path = "fleet.html")]
struct Page<'r> {
    policy: &'r str,
    plots: Vec<(&'static str, String)>,
    missed: Vec<String>,
    reports: Vec<Row<'r>>,
}

struct Row<'r> {
    label: String,
    bans_ratio: String,
    of: &'r FleetReport,
}

/// Returns the page: the plots, the missed targets, and every figure. The same reports give the
/// same bytes.
///
/// # Errors
/// [`DrawError`] when the chart library fails.
pub fn fleet_html(reports: &[FleetReport]) -> Result<String, DrawError> {
    let plots = fleet_plots(reports)?.into_iter().map(|(name, svg)| (caption(name), svg)).collect();
    let row = |of| Row { label: FleetReport::label(of), bans_ratio: times(of.bans_ratio), of };
    let policy = reports.first().map_or("", |report| &report.policy);
    let page =
        Page { policy, plots, missed: missed(reports), reports: reports.iter().map(row).collect() };
    page.render().map_err(|error| DrawError::of_page(&error))
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn caption(name: &str) -> &'static str {
    match name {
        "regret-by-nodes" => "Regret against one node's, by nodes",
        "bans-by-nodes" => "Bans against one node's, by nodes",
        "regret-by-delay" => "Regret against one node's, by delay of remote attempts",
        _ => "Bans against one node's, by delay of remote attempts",
    }
}

/// A line of a plot: its name and its points.
type Line = (String, Vec<(f64, f64)>);
type Measure = fn(&FleetReport) -> Option<f64>;

/// Returns the plots by name, as SVG: means over worlds, by nodes and by delay. A plot with a
/// single point on its axis is left out.
///
/// # Errors
/// The same as for [`fleet_html`].
pub fn fleet_plots(reports: &[FleetReport]) -> Result<Vec<(&'static str, String)>, DrawError> {
    let mut plots = Vec::new();
    let measures: [(&'static str, &'static str, &'static str, Measure); 2] = [
        ("regret-by-nodes", "regret-by-delay", "regret, times one node's", |report| {
            Some(report.regret_ratio)
        }),
        ("bans-by-nodes", "bans-by-delay", "bans, times one node's", |report| report.bans_ratio),
    ];
    for (by_nodes_name, by_delay_name, what, measure) in measures {
        let lines = by_nodes(reports, measure);
        if lines.iter().any(|line| line.1.len() > 2) {
            plots.push((by_nodes_name, draw(&lines, "nodes", what, &|x| format!("{x}"))?));
        }
        let lines = by_delay(reports, measure);
        if lines.iter().any(|line| line.1.len() > 1) {
            plots.push((by_delay_name, draw(&lines, "others learn after", what, &span)?));
        }
    }
    Ok(plots)
}

fn by_nodes(reports: &[FleetReport], measure: Measure) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let shortest = reports.iter().filter_map(|report| report.delay_s).fold(f64::INFINITY, f64::min);
    for label in distinct(reports, FleetReport::label) {
        let Some(report) = reports.iter().find(|report| report.label() == label) else { continue };
        if report.topology == "one" || report.delay_s.is_some_and(|delay| delay > shortest) {
            continue;
        }
        let Some(value) = over_worlds(reports, &label, measure) else { continue };
        let name = match report.topology {
            "sites" => "divided by site".to_owned(),
            "own" => "scope own".to_owned(),
            "sharing" => format!("sharing after {}", span(shortest)),
            way => way.to_owned(),
        };
        // All lines begin with one node.
        let at = lines.iter().position(|line| line.0 == name).unwrap_or_else(|| {
            lines.push((name, vec![(1.0, 1.0)]));
            lines.len() - 1
        });
        lines[at].1.push((report.nodes as f64, value));
    }
    lines
}

fn by_delay(reports: &[FleetReport], measure: Measure) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for nodes in distinct(reports, |report| report.nodes) {
        let mut points = Vec::new();
        for label in distinct(reports, FleetReport::label) {
            let of = reports.iter().find(|report| report.label() == label && report.nodes == nodes);
            let Some(delay) = of.and_then(|report| report.delay_s) else { continue };
            points.extend(over_worlds(reports, &label, measure).map(|value| (delay, value)));
        }
        if !points.is_empty() {
            lines.push((format!("{nodes} sharing"), points));
        }
    }
    lines
}

/// Draws lines over a logarithmic axis with ticks at the points.
fn draw(
    lines: &[Line],
    x: &str,
    y: &str,
    name: &dyn Fn(f64) -> String,
) -> Result<String, DrawError> {
    svg("a fleet's plot", SIZE, |area| chart(area, lines, (x, y), name))
}

fn chart(
    area: &Area<'_>,
    lines: &[Line],
    (x, y): (&str, &str),
    name: &dyn Fn(f64) -> String,
) -> Drawn {
    let mut places: Vec<f64> =
        lines.iter().flat_map(|line| line.1.iter().map(|point| point.0)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    // Ticks are spaced by their logarithms.
    let at = |x: f64| x.max(1e-3).log10();
    let (low, high) =
        (at(places.first().copied().unwrap_or(1.0)), at(places.last().copied().unwrap_or(10.0)));
    let most = lines.iter().flat_map(|line| line.1.iter().map(|point| point.1)).fold(1.5, f64::max);
    let mut chart = axes(area, low..high, 0.0..most * 1.08)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .y_desc(y)
        .x_desc(x)
        .light_line_style(WHITE)
        .draw()?;
    chart.draw_series(LineSeries::new(
        [(low, 1.0), (high, 1.0)],
        RGBColor(150, 150, 150).stroke_width(1),
    ))?;
    let style = ("sans-serif", 11).into_font().color(&RGBColor(90, 90, 90));
    chart.draw_series(places.iter().map(|place| {
        EmptyElement::at((at(*place), 0.0)) + Text::new(name(*place), (-8, -14), style.clone())
    }))?;
    for (place, (label, points)) in lines.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        let points: Vec<(f64, f64)> = points.iter().map(|(x, y)| (at(*x), *y)).collect();
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
        line(&mut chart, points, label, colour)?;
    }
    legend(&mut chart, SeriesLabelPosition::UpperLeft)
}
