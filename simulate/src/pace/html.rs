//! Results of pace worlds as one HTML page with plots: no script, no font, nothing from elsewhere. The page is
//! `templates/pace.html`; what stands in it is drawn and put together here.

use askama::Template;
use plotters::prelude::*;

use super::report::{PaceReport, distinct, mean};
use crate::report::DrawError;

const SIZE: (u32, u32) = (560, 300);

/// The page as `templates/pace.html` has it.
#[derive(Template)]
#[template(path = "pace.html")]
struct Page<'r> {
    worlds: Vec<WorldPart<'r>>,
}

/// What the page shows of one world.
struct WorldPart<'r> {
    name: &'r str,
    players: Vec<Row<'r>>,
    plots: Vec<Plot>,
    reports: Vec<&'r PaceReport>,
}

/// The means of one player.
struct Row<'r> {
    player: &'r str,
    share: f64,
    blocked: f64,
    trips: f64,
    converged: f64,
    slower: f64,
}

struct Plot {
    caption: String,
    svg: String,
}

/// The page: means, then for each class the pace of one host over time against the best, with its blocks, and a table. Same reports,
/// same bytes.
///
/// # Errors
/// [`DrawError`] when the chart library cannot draw what it is given.
pub fn pace_html(reports: &[PaceReport]) -> Result<String, DrawError> {
    let names = distinct(reports, |report| &report.world);
    let worlds = names.iter().map(|name| world(reports, name)).collect::<Result<_, _>>()?;
    Page { worlds }.render().map_err(|error| DrawError::new("the page", error.to_string()))
}

fn world<'r>(reports: &'r [PaceReport], name: &'r str) -> Result<WorldPart<'r>, DrawError> {
    let players = distinct(reports, |report| &report.player);
    let row = |player: &&'r str| {
        let mean = |of: fn(&PaceReport) -> f64| mean(reports, name, player, of);
        Row {
            player,
            share: mean(|report| report.share),
            blocked: mean(|report| report.blocked_per_1k),
            trips: mean(|report| report.trips_per_h),
            converged: mean(|report| report.converged_min),
            slower: mean(|report| report.slower),
        }
    };
    let of: Vec<&PaceReport> = reports.iter().filter(|report| report.world == name).collect();
    // The first player is the one that is looked at; the others stand in the table.
    let first = players.first().copied().unwrap_or_default();
    let plots = of
        .iter()
        .filter(|report| report.player == first && !report.minutes.is_empty())
        .map(|report| Ok(Plot { caption: format!("{}: a host crawled by {first}", report.class), svg: draw(report)? }));
    let plots = plots.collect::<Result<_, _>>()?;
    Ok(WorldPart { name, players: players.iter().map(row).collect(), plots, reports: of })
}

/// Good pages a second, minute by minute, against the best pace; below, the minutes in which something was blocked.
fn draw(report: &PaceReport) -> Result<String, DrawError> {
    let mut svg = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        rate_over_time(&area, report)
            .and_then(|()| area.present().map_err(|error| Box::new(error) as Box<dyn std::error::Error>))
    };
    drawn.map_err(|error| DrawError::new("the pace over time", error.to_string()))?;
    Ok(svg)
}

fn rate_over_time(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    report: &PaceReport,
) -> Result<(), Box<dyn std::error::Error>> {
    const PACE: RGBColor = RGBColor(0, 90, 181);
    const BEST: RGBColor = RGBColor(90, 90, 90);
    const BLOCK: RGBColor = RGBColor(220, 50, 32);
    area.fill(&WHITE)?;
    let most = report.minutes.iter().flat_map(|minute| [minute[0], minute[1]]).fold(0.1_f32, f32::max);
    let high = f64::from(most) / 60.0 * 1.15;
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(20)
        .x_label_area_size(34)
        .y_label_area_size(46)
        .build_cartesian_2d(0.0..report.minutes.len() as f64, 0.0..high)?;
    chart.configure_mesh().x_desc("minutes").y_desc("requests a second").light_line_style(WHITE).draw()?;
    let line = |place: usize| {
        report
            .minutes
            .iter()
            .enumerate()
            .map(move |(minute, counts)| (minute as f64 + 0.5, f64::from(counts[place]) / 60.0))
    };
    let mut add = |place: usize, name: &str, colour: RGBColor| -> Result<(), Box<dyn std::error::Error>> {
        chart
            .draw_series(LineSeries::new(line(place), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
        Ok(())
    };
    add(1, "best constant pace", BEST)?;
    add(0, "good pages", PACE)?;
    let blocked = report.minutes.iter().enumerate().filter(|(_, counts)| counts[2] > 0.0);
    chart
        .draw_series(blocked.map(|(minute, _)| Circle::new((minute as f64 + 0.5, high * 0.02), 3, BLOCK.filled())))?
        .label("blocked")
        .legend(|(x, y)| Circle::new((x + 7, y), 3, BLOCK.filled()));
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .draw()?;
    Ok(())
}
