//! Events for the marks on the dashboard's charts: the start, pauses of hosts and their early ends,
//! and reloads.
//!
//! Owns: which events are kept.
//!
//! Invariants: the number of events is bounded. Many pauses replace older pauses only, so that the
//! start and the reloads stay.
//!
//! Must not know: how an event is shown.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use fetchwise::journal::TombstoneTarget;
use fetchwise::time::Timestamp;

/// Maximum number of events of pauses.
const MAX_PAUSES: usize = 100;
/// Maximum number of all other events.
const MAX_OTHERS: usize = 50;
/// Maximum length of a text in characters.
const MAX_TEXT: usize = 500;

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum EventKind {
    /// The process started.
    Started,
    /// A host was paused.
    Paused,
    /// Somebody ended the pause of a host or a link early.
    Unpaused,
    /// Settings were reloaded.
    Reloaded,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventMark {
    pub(crate) at: Timestamp,
    pub(crate) kind: EventKind,
    /// The host or link, or what was reloaded; empty if there is nothing to say.
    pub(crate) text: String,
}

/// The newest events.
#[derive(Debug, Default)]
pub(crate) struct EventMarks(Mutex<RecentEvents>);

#[derive(Debug, Default)]
struct RecentEvents {
    pauses: VecDeque<EventMark>,
    others: VecDeque<EventMark>,
}

impl EventMarks {
    /// Adds an event.
    pub(crate) fn add(&self, at: Timestamp, kind: EventKind, text: &str) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (list, most) = match kind {
            EventKind::Paused | EventKind::Unpaused => (&mut kept.pauses, MAX_PAUSES),
            EventKind::Started | EventKind::Reloaded => (&mut kept.others, MAX_OTHERS),
        };
        if list.len() == most {
            list.pop_front();
        }
        list.push_back(EventMark { at, kind, text: text.chars().take(MAX_TEXT).collect() });
    }

    /// Drops the events that name what is to be forgotten: a domain or a link, or everything with a
    /// name.
    pub(crate) fn forget(&self, target: Option<&TombstoneTarget>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(TombstoneTarget::Domain(name)) | Some(TombstoneTarget::Link(name))) = target
        else {
            return kept.pauses.clear();
        };
        kept.pauses.retain(|mark| !mark.text.contains(name));
    }

    /// Returns the events since a time, the oldest first.
    pub(crate) fn since(&self, from: Timestamp) -> Vec<EventMark> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<EventMark> = kept
            .pauses
            .iter()
            .chain(&kept.others)
            .filter(|mark| mark.at >= from)
            .cloned()
            .collect();
        all.sort_by_key(|mark| mark.at);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pauses_replace_only_older_pauses() {
        let marks = EventMarks::default();
        let at = |n: i64| Timestamp::from_millis(n);
        marks.add(at(0), EventKind::Started, "");
        for n in 1..=300 {
            marks.add(at(n), EventKind::Paused, &format!("host{n}.org"));
        }
        marks.add(at(301), EventKind::Reloaded, &"x".repeat(9_000));
        let all = marks.since(at(0));
        assert_eq!(
            (all.len(), all[0].kind, all[1].text.as_str()),
            (102, EventKind::Started, "host201.org")
        );
        assert_eq!((all[101].kind, all[101].text.len()), (EventKind::Reloaded, 500));
        assert_eq!(marks.since(at(300)).len(), 2);
        marks.forget(Some(&TombstoneTarget::Domain("host300.org".to_owned())));
        assert_eq!((marks.since(at(0)).len(), marks.since(at(300)).len()), (101, 1));
        marks.forget(None);
        assert_eq!(marks.since(at(0)).len(), 2);
    }
}
