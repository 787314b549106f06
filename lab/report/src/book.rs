//! The result of a subject: text, tables, plots, figures, targets and comparisons, as data.
//! Must not know: how they are written.

use serde::{Deserialize, Serialize};

use crate::text;

/// One subject's part of the report.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
    /// What the history follows.
    pub(crate) figures: Vec<Figure>,
    pub(crate) targets: Vec<Target>,
    pub(crate) duels: Vec<Duel>,
    /// The points that `growth` draws: series, number of domains or attempts, value.
    pub(crate) points: Vec<(String, f64, f64)>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Block {
    Text(String),
    Table { head: Vec<String>, rows: Vec<Vec<String>> },
    Plot(Plot),
}

/// Lines over a logarithmic x axis.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plot {
    /// The file name without the extension.
    pub(crate) file: String,
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Unit {
    /// Nanoseconds.
    Ns,
    Bytes,
    /// Operations per second.
    Rate,
    /// Bytes per second.
    Speed,
    /// A part of one.
    Fraction,
    /// A factor.
    Times,
}

impl Unit {
    pub(crate) fn text(self, value: f64) -> String {
        match self {
            Self::Ns => text::ns(value),
            Self::Bytes => text::bytes(value),
            Self::Rate => text::rate(value),
            Self::Speed => text::speed(value),
            Self::Fraction => format!("{:.0} %", 100.0 * value),
            Self::Times => format!("{} times", text::times(value)),
        }
    }
}

/// The limit of a target.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn limit(self) -> f64 {
        let (Self::AtMost(limit) | Self::AtLeast(limit)) = self;
        limit
    }

    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }

    fn text(self, unit: Unit) -> String {
        let limit = unit.text(self.limit());
        match self {
            Self::AtMost(_) => format!("at most {limit}"),
            Self::AtLeast(_) => format!("at least {limit}"),
        }
    }
}

/// A number that the history follows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figure {
    /// Its name, the same in every run.
    pub(crate) what: String,
    pub(crate) unit: Unit,
    pub(crate) value: f64,
    /// Its target, if it has one.
    pub(crate) limit: Option<f64>,
}

/// A target of the project.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) limit: String,
    pub(crate) measured: String,
    pub(crate) met: bool,
    /// The measured value as a factor of the limit.
    pub(crate) factor: f64,
}

/// A comparison of two candidates for the same work. One of them loses.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Duel {
    pub(crate) what: String,
    pub(crate) us: String,
    pub(crate) them: String,
    /// The factor by which fetchwise is faster (or smaller).
    pub(crate) ratio: f64,
    /// The part of the work that the other does not do, or does in addition.
    pub(crate) note: String,
    /// Whether the other is a part of the work, or the hardware, so that the whole work cannot be
    /// faster.
    pub(crate) is_limit: bool,
}

impl Section {
    pub(crate) fn new(title: &str) -> Self {
        Self { title: title.to_owned(), ..Self::default() }
    }

    pub(crate) fn text(&mut self, text: impl Into<String>) {
        self.blocks.push(Block::Text(text.into()));
    }

    pub(crate) fn table(&mut self, head: &[&str], rows: Vec<Vec<String>>) {
        let head = head.iter().map(|&cell| cell.to_owned()).collect();
        self.blocks.push(Block::Table { head, rows });
    }

    /// Adds a figure without a target.
    pub(crate) fn figure(&mut self, what: &str, unit: Unit, value: f64) {
        self.figures.push(Figure { what: what.to_owned(), unit, value, limit: None });
    }

    /// Adds a figure with its target.
    pub(crate) fn goal(&mut self, what: &str, unit: Unit, value: f64, bound: Bound) {
        let (limit, what) = (bound.limit(), what.to_owned());
        self.figures.push(Figure { what: what.clone(), unit, value, limit: Some(limit) });
        let (measured, met, factor) = (unit.text(value), bound.is_met(value), value / limit);
        self.targets.push(Target { what, limit: bound.text(unit), measured, met, factor });
    }

    pub(crate) fn duel(&mut self, what: &str, us: &str, them: &str, ratio: f64, note: &str) {
        let [what, us, them, note] = [what, us, them, note].map(str::to_owned);
        self.duels.push(Duel { what, us, them, ratio, note, is_limit: false });
    }

    /// Adds a comparison with a limit.
    pub(crate) fn limit(&mut self, what: &str, us: &str, limit: &str, ratio: f64, note: &str) {
        self.duel(what, us, limit, ratio, note);
        if let Some(duel) = self.duels.last_mut() {
            duel.is_limit = true;
        }
    }

    pub(crate) fn point(&mut self, series: &str, x: f64, y: f64) {
        self.points.push((series.to_owned(), x, y));
    }
}
