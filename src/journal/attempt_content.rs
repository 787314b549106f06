//! What an attempt says, in eight bytes: enough to notice that two attempts with one id are not the
//! same.
//!
//! Invariants: an attempt that is sent again says the same as its record in the log, whatever the
//! log has made of its heuristics and of a time in the future.
//!
//! Must not know: which ids are known.

use std::borrow::Cow;
use std::path::Path;

use uuid::Uuid;
use xxhash_rust::xxh3::Xxh3Default;

use super::JournalError;
use super::read::pass;
use super::schema;
use crate::attempt::Attempt;
use crate::attempt::bounds::Unrecordable;

/// The seconds by which the times of one attempt may differ. A time in the future becomes the time
/// of reading, so the clocks of the sender and of the log decide what is recorded.
const MAX_SKEW_S: u32 = 600;

/// What an attempt says, without its id and its heuristics.
///
/// ```
/// use fetchwise::attempt::Attempt;
/// use fetchwise::journal::AttemptContent;
/// use fetchwise::time::Timestamp;
///
/// let url = url::Url::parse("https://example.org/").unwrap();
/// let attempt = Attempt::new(&url, "playwright", Timestamp::date()).unwrap();
/// let delivered = AttemptContent::of(&attempt.clone().delivered()).unwrap();
/// assert!(delivered.is_same(AttemptContent::of(&attempt.clone().delivered()).unwrap()));
/// assert!(!delivered.is_same(AttemptContent::of(&attempt).unwrap()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptContent {
    hash: u32,
    at_s: u32,
}

impl AttemptContent {
    /// Returns what an attempt says once it is within the bounds of the log.
    ///
    /// # Errors
    /// If the log cannot record it.
    pub fn of(attempt: &Attempt) -> Result<Self, Unrecordable> {
        Ok(Self::of_recorded(attempt.bounded()?.as_ref()))
    }

    /// Returns whether two attempts with the same id are the same one.
    pub fn is_same(self, other: Self) -> bool {
        let apart = self.at_s.wrapping_sub(other.at_s);
        self.hash == other.hash && apart.min(apart.wrapping_neg()) <= MAX_SKEW_S
    }

    /// As [`is_same`](Self::is_same), for an attempt whose time says nothing: it lay in the future,
    /// or the id is one of the content, time included.
    pub fn is_same_at_any_time(self, other: Self) -> bool {
        self.hash == other.hash
    }

    fn of_recorded(attempt: &Attempt) -> Self {
        // Whole, so that a new field is not forgotten here.
        let Attempt {
            id: _,
            link,
            url,
            fetcher,
            success,
            is_banned,
            error_type,
            http_status,
            response_headers,
            duration_ms,
            attempted_at,
            source,
            propensity,
            hint,
            weight,
            try_no,
            shadow_fetcher,
            // The log adds those that it knows of the host.
            heuristics: _,
            rule,
            confidence,
            arm,
        } = attempt;
        let mut content = ContentHash::default();
        for text in [link, url, fetcher] {
            content.text(Some(text));
        }
        content.text(error_type.as_ref().map(|error| error.name()));
        for text in [source, rule] {
            content.text(text.as_ref().map(Cow::as_ref));
        }
        content.text(shadow_fetcher.as_deref());
        let mut headers: Vec<_> =
            response_headers.iter().map(|header| (&*header.name, &*header.value)).collect();
        headers.sort_unstable();
        for (name, value) in headers {
            content.text(Some(name));
            content.text(Some(value));
        }
        let flags = [*success, *is_banned].map(u64::from);
        let choices =
            [hint.map(|hint| hint as u64), arm.map(|arm| arm as u64), http_status.map(u64::from)];
        let shares = [*propensity, *confidence, Some(*weight)].map(|share| share.map(f64::to_bits));
        let counts = [*duration_ms, u64::from(*try_no)];
        let numbers = flags.into_iter().chain(counts).map(Some).chain(choices).chain(shares);
        numbers.for_each(|number| content.number(number));
        Self {
            hash: content.0.digest() as u32,
            at_s: attempted_at.as_millis().div_euclid(1000) as u32,
        }
    }
}

/// A hash of texts and numbers in which none runs into the next.
#[derive(Default)]
struct ContentHash(Xxh3Default);

impl ContentHash {
    fn text(&mut self, text: Option<&str>) {
        self.number(text.map(|text| text.len() as u64));
        self.0.update(text.unwrap_or_default().as_bytes());
    }

    fn number(&mut self, number: Option<u64>) {
        self.0.update(&[u8::from(number.is_some())]);
        self.0.update(&number.unwrap_or_default().to_le_bytes());
    }
}

/// Calls `f` with the id and the content of every attempt in `dir`, in order.
///
/// # Errors
/// As [`replay`](super::replay).
pub fn attempt_contents(
    dir: &Path,
    mut f: impl FnMut(Uuid, AttemptContent),
) -> Result<(), JournalError> {
    pass(dir, |_, record| {
        if record.kind == schema::kind::ATTEMPT
            && let super::Entry::Attempt(attempt) =
                schema::decode(record.kind, record.schema, record.payload)?
        {
            f(attempt.id, AttemptContent::of_recorded(&attempt));
        }
        Ok(())
    })
    .map(|_| ())
}

#[cfg(feature = "json")]
#[cfg(test)]
mod tests {

    use super::*;
    use crate::attempt::error_kind::ErrorKind;
    use crate::attempt::json::{from_json_line, to_json_line};
    use crate::attempt::{Arm, ErrorType, Hint};
    use crate::journal::{Import, ImportLineError, Journal, JournalOptions};
    use crate::selector::Selector;
    use fetchwise_types::response::Header;
    use fetchwise_types::time::Timestamp;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn attempt() -> Attempt {
        let url = url::Url::parse("https://example.org/a?b=c").unwrap();
        let mut attempt =
            Attempt::new(&url, "playwright", NOW).unwrap().failed(ErrorKind::Blocked403);
        attempt.id = Uuid::from_u128(7 << 64);
        attempt.http_status = Some(403);
        attempt.response_headers = vec![Header::new("server", "b"), Header::new("server", "a")];
        attempt.propensity = Some(0.1);
        attempt
    }

    /// Attempts with the id of [`attempt`], each with one field of another value.
    fn others() -> Vec<(&'static str, Attempt)> {
        let of = |name, change: fn(&mut Attempt)| {
            let mut other = attempt();
            change(&mut other);
            (name, other)
        };
        vec![
            of("link", |a| a.link = "b".into()),
            of("url", |a| a.url = "https://example.org/b".into()),
            of("fetcher", |a| a.fetcher = "direct_access".into()),
            of("success", |a| {
                *a = Attempt { success: true, is_banned: false, error_type: None, ..a.clone() }
            }),
            of("error_type", |a| a.error_type = Some(ErrorType::Known(ErrorKind::BlockedCaptcha))),
            of("http_status", |a| a.http_status = Some(429)),
            of("headers", |a| a.response_headers.truncate(1)),
            of("duration_ms", |a| a.duration_ms += 1),
            of("attempted_at", |a| {
                a.attempted_at = Timestamp::from_millis(NOW.as_millis() - 700_000)
            }),
            of("source", |a| a.source = Some("learned".into())),
            of("propensity", |a| a.propensity = Some(0.2)),
            of("hint", |a| a.hint = Some(Hint::Empty)),
            of("weight", |a| a.weight = 0.5),
            of("try_no", |a| a.try_no = 2),
            of("shadow_fetcher", |a| a.shadow_fetcher = Some("direct_access".into())),
            of("rule", |a| a.rule = Some("index".into())),
            of("confidence", |a| a.confidence = Some(0.5)),
            of("arm", |a| a.arm = Some(Arm::Legacy)),
        ]
    }

    fn import(dir: &Path) -> Import<Selector> {
        Import::begin(dir, Selector::builder().build().unwrap()).unwrap()
    }

    #[test]
    fn another_attempt_with_a_known_id_is_refused_and_the_same_one_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
        let mut first = import(dir.path());
        assert!(first.take_line(&to_json_line(&attempt()), &journal, NOW).unwrap().new.is_some());
        journal.flush().wait().unwrap();
        for mut import in [first, import(dir.path())] {
            for (what, other) in others() {
                let taken = import.take_line(&to_json_line(&other), &journal, NOW);
                assert!(
                    matches!(taken, Err(ImportLineError::IdTaken { id }) if id == attempt().id),
                    "{what}: {taken:?}"
                );
                let taken = import.take(other, &journal);
                assert!(matches!(taken, Err(ImportLineError::IdTaken { .. })), "{what}: {taken:?}");
            }
            assert!(
                import.take_line(&to_json_line(&attempt()), &journal, NOW).unwrap().new.is_none()
            );
            assert!(import.take(attempt(), &journal).unwrap().is_none());
        }
    }

    /// The log keeps the time at which it read a time in the future.
    #[test]
    fn a_line_with_a_time_in_the_future_is_known_later_too() {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
        let later = |ms: i64| Timestamp::from_millis(NOW.as_millis() + ms);
        let with_id = to_json_line(&Attempt { attempted_at: later(5_000), ..attempt() });
        let mut without: serde_json::Value = serde_json::from_str(&with_id).unwrap();
        without.as_object_mut().unwrap().remove("id");
        without["attempted_at"] = later(90_000_000).as_millis().into();
        let mut import = import(dir.path());
        for line in [with_id, without.to_string()] {
            assert!(import.take_line(&line, &journal, NOW).unwrap().new.is_some());
            for ms in [0, 1, 4_999, 10_000, 80_000_000, 100_000_000] {
                assert!(
                    import.take_line(&line, &journal, later(ms)).unwrap().new.is_none(),
                    "{ms} {line}"
                );
            }
        }
    }

    #[test]
    fn the_log_returns_what_was_said() {
        for (what, attempt) in others() {
            let (read, _) = from_json_line(&to_json_line(&attempt), NOW).unwrap();
            let said = AttemptContent::of(&attempt).unwrap();
            assert!(said.is_same(AttemptContent::of(&read).unwrap()), "{what}");
            let dir = tempfile::tempdir().unwrap();
            let (journal, _) = Journal::open(dir.path(), JournalOptions::default()).unwrap();
            journal.append_attempt(&attempt).unwrap();
            journal.flush().wait().unwrap();
            let mut found = Vec::new();
            attempt_contents(dir.path(), |id, content| found.push((id, content))).unwrap();
            assert_eq!(found, [(attempt.id, said)], "{what}");
        }
    }
}
