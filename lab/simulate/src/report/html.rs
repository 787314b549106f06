//! Results as one HTML page with plots, without scripts, fonts or external resources. The template
//! is `templates/report.html`.

use askama::Template;
use plotters::prelude::*;

use super::table::{baseline_wins, find, mean_regret};
use super::{PolicyReport, Wait, distinct};
use crate::plots::{Area, DrawError, Drawn, Plot, TRANSPARENT, axes, legend, line, svg};
use fetchwise::decision::Source;

const SIZE: (u32, u32) = (560, 360);
/// The longest wait in the plots of adaptation.
const MAX_WAIT: u32 = 100;

/// The data of `templates/report.html`.
#[derive(Template)]
#[template(path = "report.html")]
struct Page<'r> {
    overview: Vec<Row<'r>>,
    wins: Vec<String>,
    worlds: Vec<WorldPart<'r>>,
}

/// Regret of one policy in each world, and its mean.
struct Row<'r> {
    policy: &'r str,
    cells: Vec<String>,
}

/// The data of one world on the page.
struct WorldPart<'r> {
    name: &'r str,
    plots: Vec<Plot>,
    reports: Vec<&'r PolicyReport>,
}

/// Policies with decision labels; baselines have none.
const LEARNERS: [&str; 3] = ["default", "index", "confident"];

/// Returns the page: a table of regret, then for each world regret over time, cost against success,
/// adaptation after a change, and the mix of decisions. The same reports give the same bytes.
///
/// # Errors
/// [`DrawError`] when the chart library fails.
pub fn html(reports: &[PolicyReport]) -> Result<String, DrawError> {
    let names = distinct(reports, |report| &*report.world);
    let worlds = names.iter().map(|name| world(reports, name)).collect::<Result<_, _>>()?;
    let policies = distinct(reports, |report| &*report.policy);
    let overview = policies.into_iter().map(|policy| row(reports, &names, policy)).collect();
    let page = Page { overview, wins: baseline_wins(reports), worlds };
    page.render().map_err(|error| DrawError::of_page(&error))
}

fn row<'r>(reports: &'r [PolicyReport], worlds: &[&str], policy: &'r str) -> Row<'r> {
    let regret = |report: &PolicyReport| format!("{:.2} ± {:.2}", report.regret, report.regret_sd);
    let of_world = |world: &&str| find(reports, world, policy).map(regret).unwrap_or_default();
    let mean = mean_regret(reports, worlds, policy).map(|mean| format!("{mean:.2}"));
    Row { policy, cells: worlds.iter().map(of_world).chain([mean.unwrap_or_default()]).collect() }
}

fn world<'r>(reports: &'r [PolicyReport], name: &'r str) -> Result<WorldPart<'r>, DrawError> {
    let of: Vec<&PolicyReport> = reports.iter().filter(|report| report.world == name).collect();
    let mut plots = Vec::new();
    let mut add = |caption: &str, svg| plots.push(Plot { caption: caption.to_owned(), svg });
    add(
        "Regret per URL over time",
        svg("regret over time", SIZE, |area| regret_over_time(area, &of))?,
    );
    add(
        "Success against cost",
        svg("cost against success", SIZE, |area| cost_against_success(area, &of))?,
    );
    add(
        "After a change to a dearer fetcher: share of warm hosts where it is first",
        svg("adaptation", SIZE, |area| adaptation(area, &of, |report| &report.curves.worse))?,
    );
    add(
        "After a change to a cheaper fetcher",
        svg("adaptation", SIZE, |area| adaptation(area, &of, |report| &report.curves.better))?,
    );
    for report in of.iter().filter(|report| LEARNERS.contains(&&*report.policy)) {
        let caption = format!("First decisions of {}", report.policy);
        add(&caption, svg("decision mix", SIZE, |area| decision_mix(area, report))?);
    }
    Ok(WorldPart { name, plots, reports: of })
}

/// Returns the colour of the `place`th line.
fn colour(place: usize) -> RGBColor {
    const COLOURS: [(u8, u8, u8); 10] = [
        (0, 90, 181),
        (220, 50, 32),
        (0, 128, 90),
        (148, 82, 160),
        (215, 130, 0),
        (90, 90, 90),
        (0, 150, 190),
        (190, 40, 120),
        (120, 140, 20),
        (130, 85, 50),
    ];
    let (r, g, b) = COLOURS[place % COLOURS.len()];
    RGBColor(r, g, b)
}

fn regret_over_time(area: &Area<'_>, of: &[&PolicyReport]) -> Drawn {
    let shown: Vec<&&PolicyReport> = of.iter().filter(|report| report.policy != "oracle").collect();
    let all = || shown.iter().flat_map(|report| report.curves.regret.iter().flatten().copied());
    let (low, high) = (all().fold(0.0, f64::min), all().fold(1.0, f64::max));
    let stretches = shown.first().map_or(1, |report| report.curves.regret.len().max(1));
    let mut chart = axes(area, 0.0..100.0, low..high * 1.05)?;
    chart
        .configure_mesh()
        .x_desc("share of the days, %")
        .y_desc("regret per URL")
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (place, report) in shown.iter().enumerate() {
        let points = report.curves.regret.iter().enumerate().filter_map(|(stretch, regret)| {
            regret.map(|regret| (100.0 * (stretch as f64 + 0.5) / stretches as f64, regret))
        });
        line(&mut chart, points, &report.policy, colour(place))?;
    }
    legend(&mut chart, SeriesLabelPosition::MiddleRight)
}

fn cost_against_success(area: &Area<'_>, of: &[&PolicyReport]) -> Drawn {
    let most = of.iter().map(|report| report.cost_per_url).fold(1.0, f64::max);
    let least = of.iter().map(|report| report.success_rate).fold(1.0, f64::min);
    let mut chart = axes(area, 0.0..most * 1.25, (least - 0.05).max(0.0)..1.0)?;
    chart
        .configure_mesh()
        .x_desc("cost of requests per URL")
        .y_desc("share of URLs with content")
        .light_line_style(TRANSPARENT)
        .draw()?;
    chart.draw_series(of.iter().enumerate().map(|(place, report)| {
        EmptyElement::at((report.cost_per_url, report.success_rate))
            + Circle::new((0, 0), 4, colour(place).filled())
            + Text::new(report.policy.clone(), (6, -5), ("sans-serif", 11))
    }))?;
    Ok(())
}

/// Returns the share of waits that have ended after a number of URLs, as steps (Kaplan-Meier).
fn ended(waits: &[Wait]) -> Vec<(f64, f64)> {
    let mut waits = waits.to_vec();
    waits.sort_unstable();
    let mut lasting = 1.0;
    let mut points = vec![(0.0, 0.0)];
    for (place, wait) in
        waits.iter().enumerate().filter(|(_, wait)| !wait.cut_short && wait.urls <= MAX_WAIT)
    {
        points.push((f64::from(wait.urls), 1.0 - lasting));
        lasting *= 1.0 - 1.0 / (waits.len() - place) as f64;
        points.push((f64::from(wait.urls), 1.0 - lasting));
    }
    points.push((f64::from(MAX_WAIT), 1.0 - lasting));
    points.dedup();
    points
}

fn adaptation(
    area: &Area<'_>,
    of: &[&PolicyReport],
    waits: impl Fn(&PolicyReport) -> &Vec<Wait>,
) -> Drawn {
    let mut chart = axes(area, 0.0..f64::from(MAX_WAIT), 0.0..1.0)?;
    chart
        .configure_mesh()
        .x_desc("URLs since the change")
        .y_desc("share of hosts")
        .light_line_style(TRANSPARENT)
        .draw()?;
    let shown = of.iter().filter(|report| report.policy != "oracle" && !waits(report).is_empty());
    for (place, report) in shown.enumerate() {
        line(&mut chart, ended(waits(report)), &report.policy, colour(place))?;
    }
    legend(&mut chart, SeriesLabelPosition::LowerRight)
}

/// Labels are stacked.
fn decision_mix(area: &Area<'_>, report: &PolicyReport) -> Drawn {
    let stretches = report.curves.labels.len().max(1);
    let mut chart = axes(area, 0.0..100.0, 0.0..1.0)?;
    chart
        .configure_mesh()
        .x_desc("share of the days, %")
        .y_desc("share of URLs")
        .light_line_style(TRANSPARENT)
        .draw()?;
    let mut below = vec![0.0; stretches];
    for (place, source) in Source::ALL.iter().copied().enumerate() {
        if report.curves.labels.iter().all(|labels| labels[place] == 0.0) {
            continue;
        }
        let width = 100.0 / stretches as f64;
        let bars: Vec<Rectangle<(f64, f64)>> = report
            .curves
            .labels
            .iter()
            .zip(&mut below)
            .enumerate()
            .map(|(stretch, (labels, below))| {
                let (left, low) = (stretch as f64 * width, *below);
                *below += labels[place];
                Rectangle::new(
                    [(left, low), (left + width, *below)],
                    colour(place).mix(0.75).filled(),
                )
            })
            .collect();
        chart.draw_series(bars)?.label(source.name()).legend(move |(x, y)| {
            Rectangle::new([(x, y - 4), (x + 10, y + 4)], colour(place).mix(0.75).filled())
        });
    }
    legend(&mut chart, SeriesLabelPosition::LowerRight)
}
