//! Results of pace worlds as one HTML page with plots, without scripts, fonts or external
//! resources. The template is `templates/pace.html`.

use askama::Template;
use plotters::prelude::*;

use super::report::{PaceReport, mean};
use crate::plots::{Area, DrawError, Drawn, Plot, axes, dots, legend, line, svg};
use crate::report::distinct;

const SIZE: (u32, u32) = (560, 300);

/// The data of `templates/pace.html`.
#[derive(Template)]
#[template(path = "pace.html")]
struct Page<'r> {
    worlds: Vec<WorldPart<'r>>,
}

/// The data of one world on the page.
struct WorldPart<'r> {
    name: &'r str,
    pacers: Vec<Row<'r>>,
    plots: Vec<Plot>,
    reports: Vec<&'r PaceReport>,
}

/// The means of one pacer.
struct Row<'r> {
    pacer: &'r str,
    share: f64,
    blocked: f64,
    trips: f64,
    converged: f64,
    slower: f64,
}

/// Returns the page: means, then for each class the pace of one host over time against the best,
/// with its blocks, and a table. The same reports give the same bytes.
///
/// # Errors
/// [`DrawError`] when the chart library fails.
pub fn pace_html(reports: &[PaceReport]) -> Result<String, DrawError> {
    let names = distinct(reports, |report| &*report.world);
    let worlds = names.iter().map(|name| world(reports, name)).collect::<Result<_, _>>()?;
    Page { worlds }.render().map_err(|error| DrawError::of_page(&error))
}

fn world<'r>(reports: &'r [PaceReport], name: &'r str) -> Result<WorldPart<'r>, DrawError> {
    let pacers = distinct(reports, |report| &*report.pacer);
    let row = |pacer: &&'r str| {
        let mean = |of: fn(&PaceReport) -> f64| mean(reports, name, pacer, of);
        Row {
            pacer,
            share: mean(|report| report.share),
            blocked: mean(|report| report.blocked_per_1k),
            trips: mean(|report| report.limit_hits_per_h),
            converged: mean(|report| report.converged_min),
            slower: mean(|report| report.slower),
        }
    };
    let of: Vec<&PaceReport> = reports.iter().filter(|report| report.world == name).collect();
    // The plots show the first pacer; the table has the others.
    let first = pacers.first().copied().unwrap_or_default();
    let plots = of.iter().filter(|report| report.pacer == first && !report.minutes.is_empty()).map(
        |report| {
            Ok(Plot {
                caption: format!("{}: a host crawled by {first}", report.class),
                svg: svg("the pace over time", SIZE, |area| rate_over_time(area, report))?,
            })
        },
    );
    let plots = plots.collect::<Result<_, _>>()?;
    Ok(WorldPart { name, pacers: pacers.iter().map(row).collect(), plots, reports: of })
}

/// Draws good pages per second, minute by minute, against the best pace; below, the minutes with
/// blocks.
fn rate_over_time(area: &Area<'_>, report: &PaceReport) -> Drawn {
    const PACE: RGBColor = RGBColor(0, 90, 181);
    const BEST: RGBColor = RGBColor(90, 90, 90);
    const BLOCK: RGBColor = RGBColor(220, 50, 32);
    let most =
        report.minutes.iter().flat_map(|minute| [minute[0], minute[1]]).fold(0.1_f32, f32::max);
    let high = f64::from(most) / 60.0 * 1.15;
    let mut chart = axes(area, 0.0..report.minutes.len() as f64, 0.0..high)?;
    chart
        .configure_mesh()
        .x_desc("minutes")
        .y_desc("requests a second")
        .light_line_style(WHITE)
        .draw()?;
    let mut add = |place: usize, name: &str, colour: RGBColor| {
        let a_second = |counts: &[f32; 3]| f64::from(counts[place]) / 60.0;
        let points = report.minutes.iter().enumerate();
        line(
            &mut chart,
            points.map(|(minute, counts)| (minute as f64 + 0.5, a_second(counts))),
            name,
            colour,
        )
    };
    add(1, "best constant pace", BEST)?;
    add(0, "good pages", PACE)?;
    let blocked = report.minutes.iter().enumerate().filter(|(_, counts)| counts[2] > 0.0);
    dots(
        &mut chart,
        blocked.map(|(minute, _)| (minute as f64 + 0.5, high * 0.02)),
        "blocked",
        BLOCK,
    )?;
    legend(&mut chart, SeriesLabelPosition::LowerRight)
}
