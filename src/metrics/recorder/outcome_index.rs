//! Numbering of the outcomes of attempts: content, each error kind, and one for the error names of
//! imports.
//!
//! Invariants: the numbers belong to this process only. Files store names.

use fetchwise_types::attempt::ErrorType;
use fetchwise_types::attempt::error_kind::ErrorKind;

/// Number of outcomes.
pub(crate) const OUTCOMES: usize = ErrorKind::ALL.len() + 2;

/// Returns the number of an outcome.
pub(crate) fn outcome_of(success: bool, error: Option<&ErrorType>) -> usize {
    match error.and_then(ErrorType::kind) {
        _ if success => 0,
        Some(kind) => of_kind(kind),
        None => OUTCOMES - 1,
    }
}

/// Returns the number of a failure of this kind.
pub(crate) const fn of_kind(kind: ErrorKind) -> usize {
    // Kinds are numbered in the order of the table.
    kind as usize + 1
}

/// Returns the name of an outcome.
pub(crate) fn outcome_name(outcome: usize) -> &'static str {
    match outcome {
        0 => "content",
        _ => ErrorKind::ALL.get(outcome - 1).map_or("other", |kind| kind.name()),
    }
}

/// Returns the number of the outcome called `name`.
#[cfg(feature = "journal")]
pub(crate) fn outcome_named(name: &str) -> usize {
    match name {
        "content" => 0,
        _ => ErrorKind::from_name(name).map_or(OUTCOMES - 1, of_kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_numbered_as_they_are_named() {
        for kind in ErrorKind::ALL {
            assert_eq!(
                outcome_name(outcome_of(false, Some(&ErrorType::Known(*kind)))),
                kind.name()
            );
        }
        assert_eq!(outcome_name(outcome_of(true, None)), "content");
        assert_eq!(
            outcome_name(outcome_of(false, Some(&ErrorType::from_name("gremlins")))),
            "other"
        );
    }
}
