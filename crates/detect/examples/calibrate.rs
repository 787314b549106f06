//! Fits the confidence of a sum of cues to labelled pages, by cross-validation over sites:
//! `cargo run -p fetchwise-detect --features json --example calibrate -- [--samples]
//! FILE...`. A file is a labelled corpus in JSON lines, or a `.tsv` of samples that `--samples` has
//! printed: what the detector saw of each page.
//!
//! A page takes part if the detector weighs its cues and one of them is a core concept. Its margin
//! is the sum above the threshold, at status 200. Pages of one site (a repository, in the `source`
//! of a line) are in one fold, so a fit is judged on sites that it has not seen. The program prints
//! the losses of the curve that was fixed before, of the shipped one and of two fits, the shares by
//! margin, and the knots for `CONFIDENCE` in `src/cues.rs`.
//!
//! Only confidence and threshold are fitted. The rules and weights are written by hand, and their
//! authors have read the corpora: no fold can undo that. `calibration/first-sight.tsv` therefore
//! has samples of rules that did not know the rewordings yet, and the shipped knots come from it.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};

use fetchwise_detect::response::{Header, Page};
use fetchwise_detect::{CueSum, Detector, Scratch, wilson};

/// Number of folds.
const FOLDS: u64 = 5;
/// Margins at which the fitted curve is printed.
const KNOTS: [i32; 9] = [-60, -40, -20, -1, 0, 10, 20, 40, 60];
/// Pages without a block that one missed block is worth when a threshold is chosen.
const ALARM_COST: usize = 5;

/// A labelled page, as the detector sees it.
struct Sample {
    set: String,
    site: String,
    fold: u64,
    is_block: bool,
    /// The sum above the threshold; none if no core concept is on the page.
    margin: Option<i32>,
    /// A rule decides, whatever the cues say: blocked or not.
    by_rule: bool,
}

/// Returns the fold of a site: the same for all of its pages, in every run.
fn fold_of(site: &str) -> u64 {
    let hash = site.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash >> 20) % FOLDS
}

impl Sample {
    fn new(set: &str, site: &str, is_block: bool, margin: Option<i32>, by_rule: bool) -> Self {
        Self {
            set: set.to_owned(),
            site: site.to_owned(),
            fold: fold_of(site),
            is_block,
            margin,
            by_rule,
        }
    }

    /// Reads a line that [`Sample::print`] has printed.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split('\t');
        let (set, site, is_block) = (fields.next()?, fields.next()?, fields.next()? == "block");
        let margin = fields.next()?;
        let margin = if margin == "-" { None } else { Some(margin.parse().ok()?) };
        Some(Self::new(set, site, is_block, margin, fields.next()? == "rule"))
    }

    fn print(&self) {
        let margin = self.margin.map_or_else(|| "-".to_owned(), |margin| margin.to_string());
        let (label, by) = (
            if self.is_block { "block" } else { "other" },
            if self.by_rule { "rule" } else { "cues" },
        );
        println!("{}\t{}\t{label}\t{margin}\t{by}", self.set, self.site);
    }
}

/// Returns the shipped confidence of a margin.
fn shipped_confidence(margin: i32) -> f64 {
    let mut cues = CueSum::default();
    (cues.core, cues.sum) = (true, margin);
    f64::from(cues.confidence())
}

fn read(path: &Path) -> Result<Vec<Sample>, Box<dyn Error>> {
    let content = std::fs::read_to_string(path)?;
    let lines = content.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    if path.extension().is_some_and(|extension| extension == "tsv") {
        return lines
            .map(|line| Sample::parse(line).ok_or_else(|| format!("invalid sample: {line}").into()))
            .collect();
    }
    let set = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let detector = Detector::new();
    let mut scratch = Scratch::default();
    let mut samples = Vec::new();
    for line in lines {
        let labelled: serde_json::Value = serde_json::from_str(line)?;
        let text = |key: &str| labelled[key].as_str().unwrap_or_default();
        let body = std::fs::read(path.with_file_name(text("body_path")))?;
        let headers: Vec<Header> = labelled["headers"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, value)| Header::new(name.as_str(), value.as_str().unwrap_or_default()))
            .collect();
        let page = Page { status: 200, headers: &headers, body: &body, ..Page::default() };
        let found = detector.explain(&page, &mut scratch);
        let margin = found.cues.filter(|cues| cues.core).map(|cues| cues.sum - cues.threshold);
        let verdict = &found.verdict;
        let by_rule =
            (verdict.is_blocked || verdict.is_queued) && verdict.rule.as_deref() != Some("cues");
        let site = text("source").split(' ').next().unwrap_or_default();
        samples.push(Sample::new(
            &set,
            site,
            matches!(text("label"), "block" | "queue"),
            margin,
            by_rule,
        ));
    }
    Ok(samples)
}

fn logistic(intercept: f64, slope: f64, margin: i32) -> f64 {
    1.0 / (1.0 + (-(intercept + slope * f64::from(margin))).exp())
}

/// Fits intercept and slope by Newton's method, with a weak prior on the slope so that separable
/// pages have a fit.
fn fit_logistic(pages: &[(i32, bool)]) -> (f64, f64) {
    const PRIOR: f64 = 40.0;
    let (mut intercept, mut slope) = (0.0, 0.05);
    for _ in 0..50 {
        let (mut g0, mut g1, mut h00, mut h01, mut h11) = (0.0, -PRIOR * slope, 1e-6, 0.0, PRIOR);
        for &(margin, is_block) in pages {
            let (p, x) = (logistic(intercept, slope, margin), f64::from(margin));
            let (error, weight) = (f64::from(u8::from(is_block)) - p, p * (1.0 - p));
            g0 += error;
            g1 += error * x;
            h00 += weight;
            h01 += weight * x;
            h11 += weight * x * x;
        }
        let det = h00 * h11 - h01 * h01;
        intercept += (h11 * g0 - h01 * g1) / det;
        slope += (h00 * g1 - h01 * g0) / det;
    }
    (intercept, slope)
}

/// Fits a rising step function by pooling adjacent violators: pairs of the lowest margin of a step
/// and its share, with one page of each kind added to a step.
fn fit_isotonic(pages: &[(i32, bool)]) -> Vec<(i32, f64)> {
    let mut sorted = pages.to_vec();
    sorted.sort_unstable();
    let mut steps: Vec<(i32, f64, f64)> = Vec::new();
    for (margin, is_block) in sorted {
        let hit = f64::from(u8::from(is_block));
        match steps.last_mut().filter(|(from, ..)| *from == margin) {
            Some((_, hits, pages)) => (*hits, *pages) = (*hits + hit, *pages + 1.0),
            None => steps.push((margin, hit, 1.0)),
        }
        while let [.., (_, a, n), (_, b, m)] = steps[..]
            && a / n >= b / m
        {
            steps.pop();
            if let Some(last) = steps.last_mut() {
                (last.1, last.2) = (a + b, n + m);
            }
        }
    }
    steps.into_iter().map(|(from, hits, pages)| (from, (hits + 1.0) / (pages + 2.0))).collect()
}

fn isotonic(steps: &[(i32, f64)], margin: i32) -> f64 {
    let step = steps.partition_point(|(from, _)| *from <= margin).max(1) - 1;
    steps.get(step).map_or(0.5, |(_, share)| *share)
}

/// Returns the mean log loss and the Brier score of predictions.
fn losses(predictions: &[(f64, bool)]) -> (f64, f64) {
    let (mut log, mut brier) = (0.0, 0.0);
    for &(p, is_block) in predictions {
        let p = p.clamp(0.01, 0.99);
        log -= if is_block { p.ln() } else { (1.0 - p).ln() };
        brier += (p - f64::from(u8::from(is_block))).powi(2);
    }
    let count = predictions.len().max(1) as f64;
    (log / count, brier / count)
}

/// Returns missed blocks and false alarms if cues decide from `least` on.
fn mistakes<'s>(samples: impl Iterator<Item = &'s Sample>, least: i32) -> (usize, usize) {
    let (mut misses, mut alarms) = (0, 0);
    for sample in samples {
        let found = sample.by_rule || sample.margin.is_some_and(|margin| margin >= least);
        misses += usize::from(sample.is_block && !found);
        alarms += usize::from(!sample.is_block && found);
    }
    (misses, alarms)
}

/// Returns the margin with the least cost on some pages, the one next to the shipped one of
/// several.
fn best_threshold<'s>(samples: impl Iterator<Item = &'s Sample> + Clone) -> i32 {
    let cost = |least: i32| {
        let (misses, alarms) = mistakes(samples.clone(), least);
        (misses + ALARM_COST * alarms, least.abs())
    };
    (-40..=40).step_by(5).min_by_key(|least| cost(*least)).unwrap_or_default()
}

/// Prints shares of blocks by margin, with the mean of predictions.
fn print_reliability(name: &str, predictions: &[(f64, bool)]) {
    let mut bands: BTreeMap<usize, (usize, usize, f64)> = BTreeMap::new();
    let lower = [0.0, 0.2, 0.5, 0.8, 0.9];
    for &(p, is_block) in predictions {
        let band = lower.iter().rposition(|from| p >= *from).unwrap_or(0);
        let entry = bands.entry(band).or_default();
        *entry = (entry.0 + usize::from(is_block), entry.1 + 1, entry.2 + p);
    }
    for (band, (blocks, pages, sum)) in bands {
        let (low, high) = wilson(blocks, pages).unwrap_or_default();
        println!(
            "| {name} | {:.2} | {:.2} | {blocks} of {pages} ({:.0} to {:.0} %) |",
            lower[band],
            sum / pages as f64,
            100.0 * low,
            100.0 * high
        );
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let files: Vec<PathBuf> =
        arguments.iter().filter(|of| *of != "--samples").map(PathBuf::from).collect();
    if files.is_empty() {
        return Err("no pages: name one or more CORPUS.jsonl or SAMPLES.tsv".into());
    }
    let read = files.iter().map(|path| read(path)).collect::<Result<Vec<_>, _>>()?;
    let samples: Vec<Sample> = read.into_iter().flatten().collect();
    if files.len() < arguments.len() {
        samples.iter().for_each(Sample::print);
        return Ok(());
    }
    let weighed: Vec<(&Sample, i32)> =
        samples.iter().filter_map(|s| Some((s, s.margin?))).collect();
    println!("{} pages, {} of them with a core concept", samples.len(), weighed.len());

    let (mut fixed, mut shipped, mut by_logistic, mut by_isotonic) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for fold in 0..FOLDS {
        let rest: Vec<(i32, bool)> = weighed
            .iter()
            .filter(|(s, _)| s.fold != fold)
            .map(|(s, margin)| (*margin, s.is_block))
            .collect();
        let ((intercept, slope), steps) = (fit_logistic(&rest), fit_isotonic(&rest));
        for (s, margin) in weighed.iter().filter(|(s, _)| s.fold == fold) {
            fixed.push((logistic(0.0, 1.0 / 15.0, *margin).min(0.97), s.is_block));
            shipped.push((shipped_confidence(*margin), s.is_block));
            by_logistic.push((logistic(intercept, slope, *margin), s.is_block));
            by_isotonic.push((isotonic(&steps, *margin), s.is_block));
        }
    }
    println!("\n| curve | log loss | Brier score |\n|---|---|---|");
    let curves = [
        ("fixed", &fixed),
        ("shipped", &shipped),
        ("logistic", &by_logistic),
        ("isotonic", &by_isotonic),
    ];
    for (name, predictions) in curves {
        let (log, brier) = losses(predictions);
        println!("| {name} | {log:.3} | {brier:.3} |");
    }
    println!("\n| curve | confidence from | mean | blocks |\n|---|---|---|---|");
    curves.iter().for_each(|(name, predictions)| print_reliability(name, predictions));

    println!(
        "\n| corpus | blocks | missed, shipped | alarms | missed, other folds' threshold | alarms | thresholds |"
    );
    println!("|---|---|---|---|---|---|---|");
    let threshold = |fold: u64| best_threshold(samples.iter().filter(move |s| s.fold != fold));
    let thresholds: Vec<i32> = (0..FOLDS).map(threshold).collect();
    let mut names: Vec<&str> = samples.iter().map(|s| &*s.set).collect();
    names.dedup();
    for name in names {
        let set = || samples.iter().filter(|s| s.set == name);
        let held_out = thresholds
            .iter()
            .zip(0..FOLDS)
            .map(|(least, fold)| mistakes(set().filter(|s| s.fold == fold), *least));
        let (misses, alarms) = held_out.fold((0, 0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let (shipped_misses, shipped_alarms) = mistakes(set(), 0);
        let (blocks, pages) = (set().filter(|s| s.is_block).count(), set().count());
        println!(
            "| {name} | {blocks} of {pages} | {shipped_misses} | {shipped_alarms} | {misses} | {alarms} | {thresholds:?} |"
        );
    }

    let all: Vec<(i32, bool)> = weighed.iter().map(|(s, margin)| (*margin, s.is_block)).collect();
    let (intercept, slope) = fit_logistic(&all);
    println!("\nlogistic: intercept {intercept:.3}, slope {slope:.4}");
    let knot = |margin: i32| {
        // A sum below the threshold is no block, and no evidence is certain.
        let most = if margin < 0 { 0.49 } else { 0.97 };
        format!("({margin}, {:.2})", logistic(intercept, slope, margin).min(most))
    };
    let knots: Vec<String> = KNOTS.iter().map(|margin| knot(*margin)).collect();
    println!("const CONFIDENCE: [(i32, f32); {}] = [{}];", KNOTS.len(), knots.join(", "));
    Ok(())
}
