//! Past decisions for `explain`: the records that the evidence is rebuilt from, and the recorded
//! attempt.

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::str::FromStr;

use serde::Serialize;
use uuid::Uuid;

use crate::commands::attempts::SHORT_ID;
use crate::setup::decider::ContextArgs;
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::{CHOSEN, DIM, HEADING, Output, Table, note, plain, styled};
use fetchwise::attempt::json::AttemptJson;
use fetchwise::attempt::verdict_reason::VerdictReason;
use fetchwise::attempt::{Attempt, Hint};
use fetchwise::decision::{Rule, Source};
use fetchwise::journal::{self, AsOf, AttemptQuery, JournalError, LoadReport, Order};
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;

/// The source of the rebuilt evidence.
#[derive(Debug, Serialize)]
pub(crate) struct RebuiltJson {
    /// The time of the evidence.
    at: String,
    /// The last record that the first snapshot covers; null if the rebuild began with the first
    /// record.
    snapshot_seq: Option<u64>,
    /// The number of records read after the snapshot.
    records: u64,
    /// Evidence from before this time is missing: its attempts were compacted away, and no snapshot
    /// is old enough.
    missing_before: Option<String>,
}

/// The explained attempt.
#[derive(Debug, Serialize)]
pub(crate) struct HistoricalDecisionJson<'a> {
    /// Its position in the log.
    seq: u64,
    #[serde(flatten)]
    attempt: AttemptJson<'a>,
    /// The reason of the verdict on what came; null for plain content.
    verdict: Option<VerdictReason>,
    /// All attempts of its fetch, in their order.
    fetch: Vec<AttemptJson<'a>>,
}

/// The name of an attempt: its id, or the digits of it that `attempts` shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptId {
    Whole(Uuid),
    /// The last digits, in lower case.
    End(String),
}

impl FromStr for AttemptId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() == SHORT_ID && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(Self::End(text.to_ascii_lowercase()));
        }
        let expected = format!(
            "expected an id, or the last {SHORT_ID} digits of it, as `fetchwise attempts` shows them"
        );
        Uuid::from_str(text).map(Self::Whole).map_err(|_| expected)
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(id) => id.fmt(f),
            Self::End(end) => f.write_str(end),
        }
    }
}

impl AttemptId {
    /// Returns the newest attempt of this name, with its position in the log.
    fn find(&self, dir: &Path) -> Result<Option<(u64, Attempt)>, JournalError> {
        let end = match self {
            Self::Whole(id) => return journal::attempt(dir, *id),
            Self::End(end) => end,
        };
        let mut found = None;
        journal::attempts(
            dir,
            &AttemptQuery::default(),
            Order::NewestFirst,
            None,
            |seq, attempt| {
                if !attempt.id.simple().to_string().ends_with(end.as_str()) {
                    return ControlFlow::Continue(());
                }
                found = Some((seq, attempt));
                ControlFlow::Break(())
            },
        )?;
        Ok(found)
    }
}

/// A recorded attempt, its position in the log, and the attempts of its fetch.
pub(crate) struct HistoricalDecision {
    seq: u64,
    attempt: Attempt,
    fetch: Vec<(u64, Attempt)>,
}

impl HistoricalDecision {
    /// Finds an attempt in the log.
    pub(crate) fn find(settings: &Settings, id: &AttemptId) -> Result<Self, Failure> {
        let dir = settings.existing_dir()?;
        let Some(found) = id.find(&dir)? else {
            let advice = match journal::maintenance::cutoff(&dir)? {
                Some(cutoff) => format!(
                    "attempts before {} were compacted away; `fetchwise attempts` lists the others",
                    rfc3339::format(cutoff)
                ),
                None => "`fetchwise attempts` lists all attempts in the log".to_owned(),
            };
            return Err(
                Failure::failed(format_args!("attempt {id} not found in the log")).advise(advice)
            );
        };
        let fetch = journal::fetch_of(&dir, &found)?;
        Ok(Self { seq: found.0, attempt: found.1, fetch })
    }

    pub(crate) fn url(&self) -> &str {
        &self.attempt.url
    }

    /// Returns the fetcher of the attempt.
    pub(crate) fn fetcher(&self) -> &str {
        &self.attempt.fetcher
    }

    pub(crate) fn link(&self) -> &str {
        &self.attempt.link
    }

    /// Returns the settings with which the decision is repeated.
    pub(crate) fn settings(&self, settings: &Settings) -> Settings {
        settings.as_of(AsOf::Before(self.seq), self.attempt.attempted_at)
    }

    /// Returns the inputs of the decision besides evidence.
    pub(crate) fn context(&self, args: &ContextArgs) -> ContextArgs {
        let before = self.fetch.iter().take_while(|(seq, _)| *seq < self.seq);
        let mut tried: Vec<String> = before.map(|(_, attempt)| attempt.fetcher.clone()).collect();
        // The fetcher that failed makes the retry.
        tried.retain(|name| *name != self.attempt.fetcher);
        tried.dedup();
        let was_wished = self.attempt.source.as_deref() == Some(Source::Requested.name());
        ContextArgs {
            prefer: was_wished.then(|| self.attempt.fetcher.clone()),
            last_failure: self.attempt.hint.map(Hint::into),
            tried,
            all_fetchers: true,
            ..args.clone()
        }
    }

    pub(crate) fn json(&self) -> HistoricalDecisionJson<'_> {
        let fetch = self.fetch.iter().map(|(_, attempt)| AttemptJson(attempt)).collect();
        HistoricalDecisionJson {
            seq: self.seq,
            attempt: AttemptJson(&self.attempt),
            verdict: self.attempt.verdict(),
            fetch,
        }
    }

    /// Prints the decision as recorded.
    pub(crate) fn show(&self, out: &mut Output) -> Result<(), Failure> {
        let of = &self.attempt;
        out.line(styled(HEADING, plain(&of.url)))?;
        let number = |value: Option<f64>| {
            value.map_or_else(|| "not recorded".to_owned(), |value| format!("{value:.2}"))
        };
        out.line(format_args!(
            "\nrecorded decision: {}  {} (confidence {}, propensity {})",
            styled(CHOSEN, plain(&of.fetcher)),
            of.source.as_deref().map_or_else(|| "without a decision".to_owned(), plain),
            number(of.confidence),
            number(of.propensity),
        ))?;
        if let Some(name) = of.rule.as_deref() {
            let text = name
                .parse::<Rule>()
                .map_or_else(|_| plain(name), |rule| rule.describe().to_owned());
            out.line(format_args!("rule {}: {text}", plain(name)))?;
        }
        out.line(format_args!(
            "attempt {}, made at {}, record {}",
            of.id,
            rfc3339::format(of.attempted_at),
            self.seq
        ))?;
        if let Some(reason) = of.verdict() {
            out.line(format_args!("verdict: {}", plain(&reason.to_string())))?;
        }
        if let Some(arm) = of.arm {
            let shadow = of.shadow_fetcher.as_deref();
            let shadow = shadow.map_or_else(String::new, |name| {
                format!(", the other arm would have selected {}", plain(name))
            });
            out.line(format_args!("arm {}{shadow}", arm.name()))?;
        }
        let mut table =
            Table::new(&["", ">try", "fetcher", "outcome", ">status", ">took", "decision"]);
        for (seq, of) in &self.fetch {
            let is_own = *seq == self.seq;
            let outcome = match (&of.error_type, of.success) {
                (_, true) => "content".to_owned(),
                (Some(error), _) => error.name().to_owned(),
                (None, false) => "failed".to_owned(),
            };
            let style = if is_own { HEADING } else { anstyle::Style::new() };
            table.styled_row(
                style,
                [
                    if is_own { ">" } else { "" }.to_owned(),
                    of.try_no.to_string(),
                    of.fetcher.clone(),
                    outcome,
                    of.http_status.map_or_else(|| "-".to_owned(), |status| status.to_string()),
                    format!("{:.2} s", of.duration_ms as f64 / 1000.0),
                    of.source.as_deref().unwrap_or("-").to_owned(),
                ],
            );
        }
        out.line(format_args!("\n{table}"))?;
        Ok(())
    }
}

/// Returns the source of the rebuilt evidence as JSON.
pub(crate) fn rebuilt_json(loaded: &LoadReport, at: Timestamp) -> RebuiltJson {
    RebuiltJson {
        at: rfc3339::format(at),
        snapshot_seq: loaded.snapshot.as_ref().map(|started| started.covers_seq),
        records: loaded.replayed.entries,
        missing_before: loaded.missing_before.map(rfc3339::format),
    }
}

/// Prints the source of the rebuilt evidence.
pub(crate) fn show_rebuilt(
    loaded: &LoadReport,
    at: Timestamp,
    out: &mut Output,
) -> Result<(), Failure> {
    let records = loaded.replayed.entries;
    let from = match &loaded.snapshot {
        Some(started) => {
            format!(
                "the snapshot of records up to {} and the {records} records after it",
                started.covers_seq
            )
        }
        None => format!("{records} records"),
    };
    out.line(styled(
        DIM,
        format_args!(
            "evidence as of {}, rebuilt from {from}; with today's settings",
            rfc3339::format(at)
        ),
    ))?;
    if let Some(before) = loaded.missing_before {
        out.flush()?;
        note(format_args!(
            "incomplete: attempts before {} were compacted away, and no snapshot is old enough: the evidence below is \
             from later attempts only",
            rfc3339::format(before)
        ));
    }
    Ok(())
}
