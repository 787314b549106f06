//! `explain` at an earlier time: what of the log it is made from, and the attempt that it is about.

use serde::Serialize;
use uuid::Uuid;

use crate::setup::decider::SituationArgs;
use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::{CHOSEN, DIM, ERROR, HEADING, Out, Table, note, plain, styled};
use fetchwise::attempt::json::AttemptJson;
use fetchwise::attempt::{Attempt, Hint};
use fetchwise::decision::{Rule, Source};
use fetchwise::journal::{self, LoadReport, AsOf};
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;

/// What the evidence of an earlier time was rebuilt from.
#[derive(Debug, Serialize)]
pub(crate) struct RebuiltJson {
    /// As of when.
    at: String,
    /// It began with the snapshot that covers the records up to here; null where it began with the first record there is.
    snapshot_seq: Option<u64>,
    /// So many records were read behind that.
    records: u64,
    /// What attempts before this taught is missing: they were compacted away, and no snapshot is that old.
    missing_before: Option<String>,
}

/// The attempt that is explained.
#[derive(Debug, Serialize)]
pub(crate) struct ThenJson<'a> {
    /// Its place in the log.
    seq: u64,
    #[serde(flatten)]
    attempt: AttemptJson<'a>,
    /// All attempts of its fetch, itself among them, in their order.
    fetch: Vec<AttemptJson<'a>>,
}

/// An attempt, its place in the log, and the fetch that it was made in.
pub(crate) struct Then {
    seq: u64,
    attempt: Attempt,
    fetch: Vec<(u64, Attempt)>,
}

impl Then {
    /// Finds it.
    pub(crate) fn find(settings: &Settings, id: Uuid) -> Result<Self, Failure> {
        let dir = settings.existing_dir()?;
        let Some(found) = journal::attempt(&dir, id)? else {
            let advice = match journal::maintenance::cutoff(&dir)? {
                Some(cutoff) => format!(
                    "attempts before {} were compacted away; `fetchwise attempts` lists those that are there",
                    rfc3339::format(cutoff)
                ),
                None => "`fetchwise attempts` lists those that are there".to_owned(),
            };
            return Err(Failure::failed(format_args!("there is no attempt {id} in the log")).advise(advice));
        };
        let fetch = journal::fetch_of(&dir, &found)?;
        Ok(Self { seq: found.0, attempt: found.1, fetch })
    }

    pub(crate) fn url(&self) -> &str {
        &self.attempt.url
    }

    pub(crate) fn link(&self) -> &str {
        &self.attempt.link
    }

    /// The settings with which the decision is made once more.
    pub(crate) fn settings(&self, settings: &Settings) -> Settings {
        settings.at(AsOf::Before(self.seq), self.attempt.attempted_at)
    }

    /// What the decision depended on beside evidence.
    pub(crate) fn situation(&self, args: &SituationArgs) -> SituationArgs {
        let before = self.fetch.iter().take_while(|(seq, _)| *seq < self.seq);
        let mut tried: Vec<String> = before.map(|(_, attempt)| attempt.fetcher.clone()).collect();
        // A retry is made by the fetcher that failed.
        tried.retain(|name| *name != self.attempt.fetcher);
        tried.dedup();
        let was_wished = self.attempt.source.as_deref() == Some(Source::Requested.name());
        SituationArgs {
            fetcher: was_wished.then(|| self.attempt.fetcher.clone()),
            last_failure: self.attempt.hint.map(Hint::into),
            tried,
            all_fetchers: true,
            ..args.clone()
        }
    }

    pub(crate) fn json(&self) -> ThenJson<'_> {
        let fetch = self.fetch.iter().map(|(_, attempt)| AttemptJson(attempt)).collect();
        ThenJson { seq: self.seq, attempt: AttemptJson(&self.attempt), fetch }
    }

    /// The decision as it was recorded.
    pub(crate) fn show(&self, out: &mut Out) -> Result<(), Failure> {
        let of = &self.attempt;
        out.line(styled(HEADING, plain(&of.url)))?;
        out.line(format_args!("attempt {}, made at {}, record {}", of.id, rfc3339::format(of.attempted_at), self.seq))?;
        let number =
            |value: Option<f64>| value.map_or_else(|| "not recorded".to_owned(), |value| format!("{value:.2}"));
        out.line(format_args!(
            "\nrecorded decision: {}  {} (confidence {}, propensity {})",
            styled(CHOSEN, plain(&of.fetcher)),
            of.source.as_deref().map_or_else(|| "by nobody's decision".to_owned(), plain),
            number(of.confidence),
            number(of.propensity),
        ))?;
        if let Some(name) = of.rule.as_deref() {
            let text = name.parse::<Rule>().map_or_else(|_| plain(name), |rule| rule.describe().to_owned());
            out.line(format_args!("rule {}: {text}", plain(name)))?;
        }
        if let Some(arm) = of.arm {
            let shadow = of.shadow_fetcher.as_deref();
            let shadow =
                shadow.map_or_else(String::new, |name| format!(", the other would have taken {}", plain(name)));
            out.line(format_args!("arm {}{shadow}", arm.name()))?;
        }
        let mut table = Table::new(&["", ">try", "fetcher", "outcome", ">status", ">took", "decision"]);
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

    /// Whether the rebuilt evidence decides as it was decided, and why it may not.
    pub(crate) fn compare(&self, taken: Option<&str>, out: &mut Out) -> Result<(), Failure> {
        let text = match taken {
            Some(taken) if taken == self.attempt.fetcher => {
                "the evidence of then decides as it was recorded".to_owned()
            }
            taken => format!(
                "the evidence of then decides for {}, by today's settings: it was an exploration, settings or available fetchers were others, or \
                 other attempts were under way at that moment",
                taken.map_or_else(|| "nobody".to_owned(), plain)
            ),
        };
        out.line(styled(DIM, text))
    }
}

/// What evidence of an earlier time came from.
pub(crate) fn rebuilt_json(loaded: &LoadReport, at: Timestamp) -> RebuiltJson {
    RebuiltJson {
        at: rfc3339::format(at),
        snapshot_seq: loaded.snapshot.as_ref().map(|started| started.covers_seq),
        records: loaded.replayed.entries,
        missing_before: loaded.missing_before.map(rfc3339::format),
    }
}

/// The same in words.
pub(crate) fn show_rebuilt(loaded: &LoadReport, at: Timestamp, out: &mut Out) -> Result<(), Failure> {
    let records = loaded.replayed.entries;
    let from = match &loaded.snapshot {
        Some(started) => {
            format!("the snapshot of the records up to {} and {records} records behind it", started.covers_seq)
        }
        None => format!("{records} records"),
    };
    out.line(styled(
        DIM,
        format_args!("evidence as of {}, rebuilt from {from}; settings are today's", rfc3339::format(at)),
    ))?;
    if let Some(before) = loaded.missing_before {
        let label = styled(ERROR, "incomplete");
        out.flush()?;
        note(format_args!(
            "{label}: attempts before {} were compacted away, and the snapshots that hold what they taught are of a later time: what follows \
             is from attempts after that only",
            rfc3339::format(before)
        ));
    }
    Ok(())
}
