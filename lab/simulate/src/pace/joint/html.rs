//! Results of joint worlds as one HTML page with plots, without scripts, fonts or external
//! resources. The template is `templates/joint.html`.

use askama::Template;
use plotters::prelude::*;

use super::report::{JointReport, mean};
use crate::plots::{Area, DrawError, Drawn, Plot, axes, dots, legend, line, svg};
use crate::report::distinct;

const SIZE: (u32, u32) = (560, 300);
/// A ceiling above this multiple of the previous minute's is a ceiling probe.
const LOOK: f32 = 1.04;

/// The data of `templates/joint.html`.
#[derive(Template)]
#[template(path = "joint.html")]
struct Page<'r> {
    worlds: Vec<WorldPart<'r>>,
}

/// The data of one world on the page.
struct WorldPart<'r> {
    name: &'r str,
    crawlers: Vec<Row<'r>>,
    plots: Vec<Plot>,
    reports: Vec<&'r JointReport>,
}

/// The means of one crawler.
struct Row<'r> {
    crawler: &'r str,
    share: f64,
    blocked: f64,
    trips: f64,
    cost: f64,
    renders: f64,
}

/// Returns the page: means, then for each class one host over time (pages against the best, the
/// rate, blocks and ceiling probes), and a table. The same reports give the same bytes.
///
/// # Errors
/// [`DrawError`] when the chart library fails.
pub fn joint_html(reports: &[JointReport]) -> Result<String, DrawError> {
    let names = distinct(reports, |report| &*report.world);
    let worlds = names.iter().map(|name| world(reports, name)).collect::<Result<_, _>>()?;
    Page { worlds }.render().map_err(|error| DrawError::of_page(&error))
}

fn world<'r>(reports: &'r [JointReport], name: &'r str) -> Result<WorldPart<'r>, DrawError> {
    let crawlers = distinct(reports, |report| &*report.crawler);
    let row = |crawler: &&'r str| {
        let mean = |of: fn(&JointReport) -> f64| mean(reports, name, crawler, of);
        Row {
            crawler,
            share: mean(|report| report.share),
            blocked: mean(|report| report.blocked_per_1k),
            trips: mean(|report| report.limit_hits_per_h),
            cost: mean(|report| report.cost_per_page),
            renders: mean(|report| report.renders_per_page),
        }
    };
    let of: Vec<&JointReport> = reports.iter().filter(|report| report.world == name).collect();
    // The plots show the first crawler; the table has the others.
    let first = crawlers.first().copied().unwrap_or_default();
    let plots = of.iter().filter(|report| report.crawler == first && !report.minutes.is_empty());
    let plots = plots.map(|report| {
        Ok(Plot {
            caption: format!("{}: a host crawled by {first}", report.class),
            svg: svg("the crawl over time", SIZE, |area| over_time(area, report))?,
        })
    });
    let plots = plots.collect::<Result<_, _>>()?;
    Ok(WorldPart { name, crawlers: crawlers.iter().map(row).collect(), plots, reports: of })
}

fn over_time(area: &Area<'_>, report: &JointReport) -> Drawn {
    const GOOD: RGBColor = RGBColor(0, 90, 181);
    const BEST: RGBColor = RGBColor(90, 90, 90);
    const ASKED: RGBColor = RGBColor(230, 159, 0);
    const BLOCK: RGBColor = RGBColor(220, 50, 32);
    const LOOKED: RGBColor = RGBColor(0, 140, 90);
    let minutes = &report.minutes;
    let most = minutes
        .iter()
        .flat_map(|minute| [minute.good, minute.best, minute.requests])
        .fold(0.1_f32, f32::max);
    let high = f64::from(most) / 60.0 * 1.15;
    let mut chart = axes(area, 0.0..minutes.len() as f64, 0.0..high)?;
    chart.configure_mesh().x_desc("minutes").y_desc("a second").light_line_style(WHITE).draw()?;
    let mut add =
        |of: &dyn Fn(&super::crawl::Minute) -> f32, name: &str, colour: RGBColor| -> Drawn {
            let points = minutes.iter().enumerate();
            let points = points.map(|(at, minute)| (at as f64 + 0.5, f64::from(of(minute)) / 60.0));
            line(&mut chart, points, name, colour)
        };
    add(&|minute| minute.best, "pages at the best constant pace", BEST)?;
    add(&|minute| minute.requests, "requests to the host", ASKED)?;
    add(&|minute| minute.good, "good pages", GOOD)?;
    let mut mark = |places: Vec<usize>, at: f64, name: &str, colour: RGBColor| -> Drawn {
        dots(
            &mut chart,
            places.into_iter().map(|minute| (minute as f64 + 0.5, high * at)),
            name,
            colour,
        )
    };
    let blocked = (0..minutes.len()).filter(|minute| minutes[*minute].blocked > 0.0).collect();
    mark(blocked, 0.02, "blocked", BLOCK)?;
    let ceiling = |minute: usize| minutes[minute].held_to.map_or(f32::NAN, |held| held[1]);
    let looked: Vec<usize> = (1..minutes.len())
        .filter(|minute| ceiling(*minute) > LOOK * ceiling(*minute - 1))
        .collect();
    if minutes.iter().any(|minute| minute.held_to.is_some()) {
        mark(looked, 0.06, "a higher ceiling", LOOKED)?;
    }
    legend(&mut chart, SeriesLabelPosition::UpperRight)
}
