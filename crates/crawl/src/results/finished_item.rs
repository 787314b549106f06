//! An item of the input that is finished, and its bytes while it waits for its turn to be printed.
//!
//! Must not know: when it is printed.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::result_order::Stored;
use crate::input::position::InputPosition;
use crate::link_end::LinkEnd;
use crate::totals;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::attempt::verdict_reason::VerdictReason;
use fetchwise::consent::Consent;
use fetchwise::decision::Source;
use fetchwise::pipeline::{Link, Report};
use fetchwise::provenance::Provenance;
use fetchwise::time::Timestamp;

/// A finished item.
#[derive(Debug)]
pub(crate) enum FinishedItem {
    /// A link with its result. A restored link has only the fields that a result names.
    Fetched(InputPosition, Link, Box<Report>),
    /// An invalid line.
    Bad {
        /// Its number in the order of reading.
        number: u64,
        place: InputPosition,
        error: String,
    },
}

/// The error types of reports that are not in the table.
const OTHER_ERRORS: [&str; 7] = [
    Report::PAUSED,
    Report::PACED,
    Report::NO_ROUTE,
    Report::NO_FETCHER,
    Report::NO_VIABLE_FETCHER,
    Report::STORE_ERROR,
    totals::INTERNAL,
];

/// An item as it is stored.
#[derive(Serialize, Deserialize)]
enum StoredItem {
    Fetched(Box<StoredReport>),
    Bad { number: u64, line: u64, error: String },
}

#[derive(Serialize, Deserialize)]
struct StoredReport {
    line: Option<u64>,
    position: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    added: Option<u64>,
    id: Option<String>,
    url: String,
    fetcher: Option<String>,
    source: Option<String>,
    /// Its bits, because a number that is none has no text.
    confidence: u64,
    status: Option<u16>,
    success: bool,
    error_type: Option<String>,
    message: Option<String>,
    is_banned: bool,
    requests: u32,
    bytes: u64,
    served_by: Option<(String, Option<i64>)>,
    duration: Duration,
    file: Option<PathBuf>,
    paused_until: Option<i64>,
    #[serde(default)]
    is_default_page: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verdict: Option<Box<VerdictReason>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    price: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    offers: Vec<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    consent: Option<Box<Consent>>,
    #[serde(default)]
    robots_unread: bool,
    #[serde(default)]
    not_modified: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    record: Option<String>,
    record_offset: Option<u64>,
    final_url: Option<Box<str>>,
    content_type: Option<Box<str>>,
}

impl Stored for FinishedItem {
    fn key(&self) -> Option<u128> {
        match self {
            Self::Fetched(place, link, report) if LinkEnd::of(report).is_done() => {
                Some(place.key_of(link))
            }
            Self::Fetched(..) | Self::Bad { .. } => None,
        }
    }

    fn store(&self) -> Option<Vec<u8>> {
        let item = match self {
            Self::Bad { number, place, error } => {
                StoredItem::Bad { number: *number, line: place.line()?, error: error.clone() }
            }
            Self::Fetched(place, link, report) => {
                StoredItem::Fetched(Box::new(StoredReport::of(*place, link.id.clone(), report)?))
            }
        };
        serde_json::to_vec(&item).ok()
    }

    fn restore(bytes: &[u8]) -> Option<Self> {
        Some(match serde_json::from_slice(bytes).ok()? {
            StoredItem::Bad { number, line, error } => {
                Self::Bad { number, place: InputPosition::Line(line), error }
            }
            StoredItem::Fetched(stored) => stored.into_item()?,
        })
    }
}

impl StoredReport {
    /// Returns the stored form; none for a report with a page, and for one with an unknown error
    /// type.
    fn of(place: InputPosition, id: Option<String>, report: &Report) -> Option<Self> {
        let is_known = report.error_type.is_none_or(|name| error_type(name).is_some());
        let has_note = report.crawl_delay_cut.is_some() || report.signature_rejected_by.is_some();
        if report.response.is_some() || has_note || !is_known {
            return None;
        }
        Some(Self {
            line: place.line(),
            position: place.position(),
            added: place.added(),
            id,
            url: report.url.clone(),
            fetcher: report.fetcher.clone(),
            source: report.source.map(|source| source.name().to_owned()),
            confidence: report.confidence.to_bits(),
            status: report.status,
            success: report.success,
            error_type: report.error_type.map(str::to_owned),
            message: report.message.clone(),
            is_banned: report.is_banned,
            requests: report.requests,
            bytes: report.bytes,
            served_by: report
                .provenance
                .as_ref()
                .map(|from| (from.by.to_string(), from.captured.map(Timestamp::as_millis))),
            duration: report.duration,
            file: report.file.clone(),
            paused_until: report.paused_until.map(Timestamp::as_millis),
            is_default_page: report.is_default_page,
            verdict: report.verdict.clone(),
            price: report.price.clone(),
            offers: report.offers.clone(),
            consent: report.consent.clone(),
            robots_unread: report.robots_unread,
            not_modified: report.not_modified,
            record: report.record.clone(),
            record_offset: report.record_offset,
            final_url: report.final_url.clone(),
            content_type: report.content_type.clone(),
        })
    }

    fn into_item(self) -> Option<FinishedItem> {
        let place = match (self.line, self.added) {
            (Some(line), _) => InputPosition::Line(line),
            (None, Some(added)) => InputPosition::Added(added),
            (None, None) => InputPosition::Position(self.position?),
        };
        let report = Report {
            url: self.url,
            fetcher: self.fetcher,
            source: self.source.and_then(|name| name.parse::<Source>().ok()),
            confidence: f64::from_bits(self.confidence),
            status: self.status,
            success: self.success,
            error_type: self.error_type.as_deref().and_then(error_type),
            message: self.message,
            is_banned: self.is_banned,
            requests: self.requests,
            bytes: self.bytes,
            provenance: self.served_by.map(|(by, captured)| Provenance {
                by: by.into(),
                captured: captured.map(Timestamp::from_millis),
            }),
            duration: self.duration,
            file: self.file,
            paused_until: self.paused_until.map(Timestamp::from_millis),
            is_default_page: self.is_default_page,
            verdict: self.verdict,
            price: self.price,
            offers: self.offers,
            consent: self.consent,
            robots_unread: self.robots_unread,
            not_modified: self.not_modified,
            record: self.record,
            record_offset: self.record_offset,
            final_url: self.final_url,
            content_type: self.content_type,
            response: None,
            crawl_delay_cut: None,
            signature_rejected_by: None,
            // What ended is not asked for again.
            was_trial: false,
        };
        let link = Link { url: report.url.clone(), id: self.id, ..Link::default() };
        Some(FinishedItem::Fetched(place, link, Box::new(report)))
    }
}

/// Returns the static text of an error type.
fn error_type(name: &str) -> Option<&'static str> {
    let other = || OTHER_ERRORS.into_iter().find(|other| *other == name);
    ErrorKind::from_name(name).map(ErrorKind::name).or_else(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::consent::{ConsentSettings, Purpose, Term, TermPlace, Vocabulary};

    #[test]
    fn an_item_reads_back_as_it_was() {
        let mut report = Report {
            url: "http://e.org/a".to_owned(),
            fetcher: Some("direct_access".to_owned()),
            source: Some(Source::Requested),
            confidence: 0.1 + 0.2,
            status: Some(200),
            success: true,
            requests: 2,
            bytes: 9,
            provenance: Some(Provenance::copy("web.archive.org", Timestamp::from_millis(5))),
            duration: Duration::from_micros(1_500),
            file: Some("pages/a.html".into()),
            paused_until: Some(Timestamp::from_millis(7)),
            price: Some("USD 0.01".into()),
            offers: vec!["rsl https://e.org/l.xml".into()],
            not_modified: true,
            record: Some("urn:uuid:0".to_owned()),
            record_offset: Some(4096),
            final_url: Some("https://e.org/b".into()),
            content_type: Some("text/html; charset=utf-8".into()),
            consent: ConsentSettings::default()
                .judge(vec![
                    Term::new(
                        Vocabulary::ContentUsage,
                        TermPlace::RobotsTxt,
                        Purpose::TrainAi,
                        false,
                    ),
                    Term::license(TermPlace::Header, "https://e.org/l.xml"),
                ])
                .map(Box::new),
            ..Report::default()
        };
        for error in [None, Some("timeout"), Some(Report::PAUSED), Some(totals::INTERNAL)] {
            report.error_type = error;
            let text = format!("{report:?}");
            let link = Link { id: Some("7".to_owned()), ..Link::new(&report.url) };
            let item = FinishedItem::Fetched(
                InputPosition::Line(3),
                link,
                Box::new(std::mem::take(&mut report)),
            );
            let restored = FinishedItem::restore(&item.store().unwrap()).unwrap();
            assert_eq!(format!("{restored:?}"), format!("{item:?}"));
            let FinishedItem::Fetched(_, _, again) = restored else { panic!("it was fetched") };
            assert_eq!(format!("{again:?}"), text);
            report = *again;
        }
        let bad = FinishedItem::Bad {
            number: 3,
            place: InputPosition::Line(4),
            error: "no URL".to_owned(),
        };
        assert_eq!(
            format!("{:?}", FinishedItem::restore(&bad.store().unwrap()).unwrap()),
            format!("{bad:?}")
        );
        let unknown = Report { error_type: Some("from elsewhere"), ..Report::default() };
        let item =
            FinishedItem::Fetched(InputPosition::Position(1), Link::default(), Box::new(unknown));
        assert!(item.store().is_none(), "it stays in memory");
    }
}
