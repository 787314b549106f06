//! The common parts of all plots: the picture, its axes, its lines and its legend.
//!
//! Invariants: the same points give the same bytes.
//!
//! Must not know: the meaning of a plot.

use std::error::Error;
use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

/// The area of a plot.
pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The axes of a plot and the space between them.
pub(crate) type Chart<'a> =
    ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
/// The result of drawing.
pub(crate) type Drawn<T = ()> = Result<T, Box<dyn Error>>;

/// Invisible lines.
pub(crate) const TRANSPARENT: RGBAColor = RGBAColor(255, 255, 255, 0.0);

/// The reason why a page could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw {plot}: {reason}")]
pub struct DrawError {
    /// The plot.
    plot: &'static str,
    /// The error of the chart library.
    reason: String,
}

impl DrawError {
    /// Returns the error of a page that could not be rendered.
    pub(crate) fn of_page(reason: &askama::Error) -> Self {
        Self { plot: "the page", reason: reason.to_string() }
    }
}

/// A plot and its caption.
pub(crate) struct Plot {
    pub(crate) caption: String,
    pub(crate) svg: String,
}

/// Draws one plot as SVG, on white; `plot` names it in errors.
pub(crate) fn svg(
    plot: &'static str,
    size: (u32, u32),
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<String, DrawError> {
    let mut svg = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&WHITE)
            .map_err(Into::into)
            .and_then(|()| draw(&area))
            .and_then(|()| Ok(area.present()?))
    };
    drawn.map_err(|error| DrawError { plot, reason: error.to_string() })?;
    Ok(svg)
}

/// Returns axes with room for their labels.
pub(crate) fn axes<'a>(area: &Area<'a>, x: Range<f64>, y: Range<f64>) -> Drawn<Chart<'a>> {
    let chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(24)
        .x_label_area_size(34)
        .y_label_area_size(46)
        .build_cartesian_2d(x, y)?;
    Ok(chart)
}

/// Draws a line with a legend entry.
pub(crate) fn line(
    chart: &mut Chart<'_>,
    points: impl IntoIterator<Item = (f64, f64)>,
    name: &str,
    colour: RGBColor,
) -> Drawn {
    chart
        .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
        .label(name)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 14, y)], colour.stroke_width(2)));
    Ok(())
}

/// Draws dots with a legend entry.
pub(crate) fn dots(
    chart: &mut Chart<'_>,
    points: impl IntoIterator<Item = (f64, f64)>,
    name: &str,
    colour: RGBColor,
) -> Drawn {
    chart
        .draw_series(points.into_iter().map(|point| Circle::new(point, 3, colour.filled())))?
        .label(name)
        .legend(move |(x, y)| Circle::new((x + 7, y), 3, colour.filled()));
    Ok(())
}

/// Draws the legend at the position that hides the least.
pub(crate) fn legend(chart: &mut Chart<'_>, position: SeriesLabelPosition) -> Drawn {
    chart
        .configure_series_labels()
        .position(position)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.2))
        .draw()?;
    Ok(())
}
