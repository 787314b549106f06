//! The result of a subject: text, tables, plots, targets and comparisons, as data.
//! Must not know: how they are written.

use serde::{Deserialize, Serialize};

/// One subject's part of the report.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
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

/// A target of the project.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) limit: String,
    pub(crate) measured: String,
    pub(crate) met: bool,
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
    /// Whether the other is a part of the work, or the hardware, so that the whole work cannot be faster.
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

    pub(crate) fn target(&mut self, what: &str, limit: &str, measured: String, met: bool) {
        self.targets.push(Target { what: what.to_owned(), limit: limit.to_owned(), measured, met });
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
