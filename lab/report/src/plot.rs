//! Plots as SVG: lines over a logarithmic x axis, from zero.

use plotters::prelude::*;

use crate::book::Plot;
use crate::text;

const SIZE: (u32, u32) = (720, 400);
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 99, 180),
    RGBColor(214, 96, 24),
    RGBColor(44, 140, 68),
    RGBColor(150, 60, 150),
    RGBColor(120, 120, 120),
    RGBColor(180, 30, 50),
];

pub(crate) fn svg(plot: &Plot) -> String {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw(&area, plot).unwrap();
        area.present().unwrap();
    }
    svg
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(area: &Area<'_>, plot: &Plot) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&WHITE)?;
    let points = || plot.lines.iter().flat_map(|(_, points)| points);
    let least = points().map(|point| point.0).fold(f64::MAX, f64::min);
    let most = points().map(|point| point.0).fold(0.0, f64::max);
    let high = points().map(|point| point.1).fold(0.0, f64::max);
    // Room for the legend.
    let high = high * (1.1 + 0.07 * plot.lines.len() as f64);
    let mut chart = ChartBuilder::on(area)
        .caption(&plot.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d((least..most * 1.2).log_scale(), 0.0..high)?;
    chart
        .configure_mesh()
        .x_desc(&plot.x)
        .y_desc(&plot.y)
        .x_label_formatter(&|x| text::size(*x as usize))
        .y_label_formatter(&|y| text::count(*y))
        .light_line_style(WHITE)
        .draw()?;
    for ((name, points), colour) in plot.lines.iter().zip(COLOURS.iter().cycle()) {
        let colour = *colour;
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}
