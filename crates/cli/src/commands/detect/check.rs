//! `detect check`: the verdicts of the current rules on labelled pages, against the labels and
//! against a baseline.
//!
//! Invariants: pages come in the order of their names. The same pages, rules and baseline give the
//! same output.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use super::baseline::{Baseline, KeptVerdict};
use super::labelled_pages::{self, LabelledPage, PageKind};
use crate::parse::input::unreadable;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{CHOSEN, ERROR, Output, Table, counted, plain, styled};
use fetchwise::detect::{Detector, Scratch};
use fetchwise::response::Page;

/// The number of bytes of a body that the detector reads.
const MAX_BODY_BYTES: u64 = 1 << 20;

/// Check the current rules on labelled pages: what is wrong, and what changed since a baseline
///
/// A folder has pages in folders that are named for their label (block, network, queue, shell,
/// failure, login, empty, content), or a file of JSON lines.
#[derive(Debug, Args)]
#[command(
    after_help = "A line of labelled pages is {\"label\", \"status\", \"headers\", \"url\", \"body_path\"}; a relative \
    body_path is relative to the file.\n\nExit code: without a baseline 1 if a verdict is wrong; with one 1 if a \
    verdict changed, or if a page that it does not\nknow is wrong. --save accepts all verdicts.\n\n\
    Examples:\n  \
    fetchwise detect check pages\n  \
    fetchwise detect check pages --rules mine.toml --baseline verdicts.json\n  \
    fetchwise detect check pages --baseline verdicts.json --save"
)]
pub(crate) struct CheckArgs {
    /// Check these pages: folders, files of JSON lines, or single files in a folder that is named
    /// for a label
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// Compare the verdicts with those in this file
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Write the verdicts to the baseline
    #[arg(long, requires = "baseline")]
    save: bool,
    /// Judge each page by its body alone, as if its status were 200
    #[arg(long)]
    by_body: bool,
}

/// A page that is wrong, or whose verdict changed.
#[derive(Debug, Serialize)]
struct PageJson {
    page: String,
    label: PageKind,
    found: PageKind,
    rule: Option<String>,
    is_right: bool,
    /// The verdict of the baseline, if it is another one.
    before: Option<KeptVerdict>,
    /// Whether the baseline has the page; null without a baseline.
    is_known: Option<bool>,
    reason: String,
}

/// The sum of a check.
#[derive(Debug, Default, Serialize)]
struct SummaryJson {
    pages: usize,
    wrong: usize,
    /// Pages whose kind is another one than in the baseline; null without a baseline.
    changed: Option<usize>,
    /// Wrong pages that the baseline does not have.
    new_wrong: Option<usize>,
    /// Pages of the baseline that were not checked.
    missing: Option<usize>,
    saved: bool,
}

/// Runs the command.
pub(crate) fn run(
    args: &CheckArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let pages = labelled_pages::find(&args.paths)?;
    let options = settings.detector_options().with_max_bytes(MAX_BODY_BYTES as usize);
    let detector = settings.detector()?.with_options(options);
    // A first --save has no baseline to compare with.
    let is_first = args.save && args.baseline.as_ref().is_some_and(|path| !path.exists());
    let baseline =
        args.baseline.as_deref().filter(|_| !is_first).map(Baseline::read).transpose()?;
    let (mut checked, mut scratch) = (Vec::with_capacity(pages.len()), Scratch::default());
    for page in &pages {
        checked.push(check(&detector, (page, args.by_body), baseline.as_ref(), &mut scratch)?);
    }
    let mut summary = summary(&checked, baseline.as_ref());
    if let Some(path) = args.baseline.as_deref().filter(|_| args.save) {
        let kept = |page: &PageJson| {
            (page.page.clone(), KeptVerdict { found: page.found, rule: page.rule.clone() })
        };
        Baseline { pages: checked.iter().map(kept).collect::<BTreeMap<_, _>>() }.write(path)?;
        summary.saved = true;
    }
    let is_worth_showing = |page: &&PageJson| !page.is_right || page.before.is_some();
    let shown: Vec<&PageJson> = checked.iter().filter(is_worth_showing).collect();
    match out.json {
        true => {
            shown.iter().try_for_each(|page| out.object(page))?;
            out.object(&serde_json::json!({ "summary": summary }))?;
        }
        false => text(&shown, &summary, out)?,
    }
    let fails = match (summary.changed, summary.new_wrong) {
        (Some(changed), Some(new_wrong)) => changed + new_wrong > 0,
        _ => summary.wrong > 0,
    };
    Ok(if fails && !args.save { Exit::Failed } else { Exit::Done })
}

fn check(
    detector: &Detector,
    (page, by_body): (&LabelledPage, bool),
    baseline: Option<&Baseline>,
    scratch: &mut Scratch,
) -> Result<PageJson, Failure> {
    let mut body = Vec::new();
    let read =
        File::open(&page.body).and_then(|file| file.take(MAX_BODY_BYTES).read_to_end(&mut body));
    read.map_err(|error| unreadable(&page.body, &error))?;
    let status = if by_body { 200 } else { page.status };
    let response = Page {
        url: page.url.as_deref(),
        final_url: None,
        status,
        headers: &page.headers,
        body: &body,
    };
    let verdict = detector.inspect(&response, scratch);
    let (found, rule) = (PageKind::found(&verdict), verdict.rule.as_deref().map(str::to_owned));
    let before = baseline.map(|baseline| baseline.pages.get(&page.name));
    Ok(PageJson {
        page: page.name.clone(),
        label: page.label,
        found,
        is_right: page.label.accepts(found),
        before: before
            .flatten()
            .filter(|before| before.found != found || before.rule != rule)
            .cloned(),
        is_known: before.map(|before| before.is_some()),
        rule,
        reason: verdict.reason(),
    })
}

fn summary(checked: &[PageJson], baseline: Option<&Baseline>) -> SummaryJson {
    let count = |is: &dyn Fn(&PageJson) -> bool| checked.iter().filter(|page| is(page)).count();
    let changed =
        |page: &PageJson| page.before.as_ref().is_some_and(|before| before.found != page.found);
    let known = count(&|page| page.is_known == Some(true));
    SummaryJson {
        pages: checked.len(),
        wrong: count(&|page| !page.is_right),
        changed: baseline.map(|_| count(&changed)),
        new_wrong: baseline.map(|_| count(&|page| !page.is_right && page.is_known == Some(false))),
        missing: baseline.map(|baseline| baseline.pages.len().saturating_sub(known)),
        saved: false,
    }
}

fn text(pages: &[&PageJson], summary: &SummaryJson, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&["", "label", "before", "now", "page", "reason"]);
    for page in pages {
        let before = page.before.as_ref().map(|before| match before.found == page.found {
            true => format!("{} ({})", before.found, before.rule.as_deref().unwrap_or("no rule")),
            false => before.found.to_string(),
        });
        let is_right = if page.is_right { styled(CHOSEN, "right") } else { styled(ERROR, "wrong") };
        let reason = plain(&page.reason);
        table.row([
            is_right,
            page.label.to_string(),
            before.unwrap_or_default(),
            page.found.to_string(),
            page.page.clone(),
            reason,
        ]);
    }
    if !table.is_empty() {
        out.line(table)?;
    }
    let mut sum = format!("{}: {} wrong", counted(summary.pages, "page", "pages"), summary.wrong);
    if let (Some(changed), Some(new), Some(missing)) =
        (summary.changed, summary.new_wrong, summary.missing)
    {
        sum.push_str(&format!(" ({new} of them new), {changed} changed"));
        if missing > 0 {
            sum.push_str(&format!(", {missing} of the baseline not checked"));
        }
    }
    if summary.saved {
        sum.push_str("; baseline saved");
    }
    out.line(sum)
}
