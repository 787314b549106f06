//! Zero-copy view of an attempt in the bytes of its record, which a replay learns from.
//!
//! Invariants: the fields of a view are validated, like those of a decoded attempt.
//!
//! Must not know: how evidence uses them.

use uuid::Uuid;

use super::codes::{
    ERROR_CODES, NONE, OTHER, SchemaError, TAG_KINDS, VERSION, from_code, hint_of, kind,
};
use super::records::{ArchivedAttemptV1, ArchivedTagV1, access, time_of};
use crate::evidence::{Observation, ObservedFields};
use crate::metrics::recorder::outcome_index::{of_kind, outcome_of};
use fetchwise_types::attempt::Hint;
use fetchwise_types::heuristic::{Heuristic, REDIRECTED_BY};
use fetchwise_types::time::Timestamp;

/// Validated attempt that borrows from its record.
#[derive(Clone, Copy)]
pub(crate) struct AttemptView<'p> {
    archived: &'p ArchivedAttemptV1<'p>,
    hint: Option<Hint>,
}

/// Returns a view of an attempt without decoding it, or `None` for a record of another kind.
pub(crate) fn attempt(
    kind: u16,
    schema: u16,
    payload: &[u8],
) -> Result<Option<AttemptView<'_>>, SchemaError> {
    let archived = match (kind, schema) {
        (kind::ATTEMPT, VERSION) => access::<ArchivedAttemptV1<'_>>(payload)?,
        (kind::ATTEMPT, _) => return Err(SchemaError::Newer { kind, schema }),
        _ => return Ok(None),
    };
    for tag in archived.heuristics.iter() {
        if tag.kind != OTHER {
            from_code(&TAG_KINDS, tag.kind, "a heuristic's type")?;
        }
    }
    Ok(Some(AttemptView { archived, hint: hint_of(archived.hint)? }))
}

/// Returns the number of the outcome of an attempt with this error.
pub(super) fn outcome_number(success: bool, error: u8) -> usize {
    match from_code(&ERROR_CODES, error, "an error type") {
        _ if success => outcome_of(true, None),
        Ok(kind) => of_kind(kind),
        Err(_) => outcome_of(false, None),
    }
}

impl AttemptView<'_> {
    pub(crate) fn id(&self) -> Uuid {
        Uuid::from_bytes(self.archived.id)
    }

    pub(crate) fn at(&self) -> Timestamp {
        time_of(self.archived.attempted_at)
    }

    pub(crate) fn is_success(&self) -> bool {
        self.archived.success
    }

    pub(crate) fn is_banned(&self) -> bool {
        self.archived.is_banned
    }

    pub(crate) fn fetcher(&self) -> &str {
        self.archived.fetcher.as_str()
    }

    /// Returns the number of the outcome. An error that this release does not know counts as one of
    /// an import.
    pub(crate) fn outcome(&self) -> usize {
        outcome_number(self.archived.success, self.archived.error)
    }

    pub(crate) fn url(&self) -> &str {
        self.archived.url.as_str()
    }

    pub(crate) fn link(&self) -> &str {
        self.archived.link.as_ref().map_or(self.archived.url.as_str(), |link| link.as_str())
    }

    pub(crate) fn domain(&self) -> Option<&str> {
        let is_domain =
            |tag: &&ArchivedTagV1<'_>| TAG_KINDS.get(usize::from(tag.kind) - 1) == Some(&"domain");
        let tag = self.archived.heuristics.iter().filter(|tag| tag.kind != NONE).find(is_domain)?;
        Some(tag.value.as_str())
    }

    /// Returns whether it is tagged with this heuristic.
    pub(crate) fn has(&self, heuristic: &Heuristic) -> bool {
        let kind = |tag: &ArchivedTagV1<'_>| match tag.kind {
            OTHER => tag.kind_other.as_str() == heuristic.kind,
            code => {
                usize::from(code).checked_sub(1).and_then(|index| TAG_KINDS.get(index))
                    == Some(&&*heuristic.kind)
            }
        };
        self.archived
            .heuristics
            .iter()
            .any(|tag| tag.value.as_str() == heuristic.value && kind(tag))
    }

    /// Returns the domain of the requested URL, if its redirects led to another one.
    pub(crate) fn redirected_by(&self) -> Option<&str> {
        let is_of_redirect = |tag: &&ArchivedTagV1<'_>| {
            tag.kind == OTHER && tag.kind_other.as_str() == REDIRECTED_BY
        };
        Some(self.archived.heuristics.iter().find(is_of_redirect)?.value.as_str())
    }
}

/// Attempt whose time is capped at the current time, because its writer's clock may have been
/// ahead.
pub(crate) struct ClampedAttempt<'p>(pub(crate) AttemptView<'p>, pub(crate) Timestamp);

impl Observation for ClampedAttempt<'_> {
    fn fields(&self) -> ObservedFields<'_> {
        let ClampedAttempt(AttemptView { archived, hint }, now) = self;
        ObservedFields {
            url: archived.url.as_str(),
            kind: None,
            fetcher: archived.fetcher.as_str(),
            at: time_of(archived.attempted_at).min(*now),
            weight: archived.weight.to_native(),
            success: archived.success,
            is_banned: archived.is_banned,
            duration_ms: archived.duration_ms.to_native(),
            hint: *hint,
        }
    }

    fn each_heuristic<'a>(&'a self, f: &mut impl FnMut(&'a str, &'a str)) {
        for tag in self.0.archived.heuristics.iter() {
            match tag.kind {
                OTHER => f(tag.kind_other.as_str(), tag.value.as_str()),
                code => {
                    if let Some(kind) =
                        usize::from(code).checked_sub(1).and_then(|index| TAG_KINDS.get(index))
                    {
                        f(kind, tag.value.as_str());
                    }
                }
            }
        }
    }
}
