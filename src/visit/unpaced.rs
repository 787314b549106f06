//! A visit without the feature `pace`: every request may go out at once.

use std::borrow::Borrow;
use std::ops::Deref;
use std::time::Duration;

use url::Url;

use super::Visit;
use super::place::Place;
use super::step::{Step, Wait};
use crate::answer::Answer;
use crate::decision::Take;
use crate::registry::FetcherSpec;
use crate::selector::Selector;
use crate::time::Timestamp;

/// What an answer means to the host's pace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "without a pace there is only one of them")]
pub(super) enum Word {
    Nothing,
    Doubt,
    Held(Timestamp),
}

#[allow(clippy::unused_self, clippy::unnecessary_wraps, reason = "the same calls as with a pace")]
impl<S: Deref<Target = Selector> + Clone, U: Borrow<Url>> Visit<S, U> {
    pub(super) fn take_place(&self, _: Take, _: Timestamp) -> Result<Option<Place<S>>, Wait> {
        Ok(None)
    }

    pub(super) fn tell_pace(
        &mut self,
        _: Option<Place<S>>,
        _: Take,
        _: &FetcherSpec,
        _: &Answer,
        _: Option<Duration>,
        _: Timestamp,
    ) -> Word {
        Word::Nothing
    }

    pub(super) fn pace_holds_until(&self, _: Timestamp, _: Timestamp) -> Option<Wait> {
        None
    }

    pub(super) fn was_let_through(&self, _: Option<Take>, _: Timestamp) -> bool {
        false
    }

    pub(super) fn is_later_trial(&self) -> bool {
        false
    }

    pub(super) fn in_doubt(&mut self, _: Timestamp) -> Option<Step<S>> {
        None
    }
}
