//! Attribution of attempts to the signals of their hosts, and the choice of a host's signals after
//! an attempt.
//!
//! Attempts carry signals in two heuristics: `host_showed` names those known before the attempt,
//! `host_shows` those of its response. Both are written when the attempt is recorded and read when
//! evidence learns from it, so that a replay learns the same as the live process.
//!
//! Owns: how attempts carry signals.
//!
//! Invariants: the attempt that shows a signal is no observation of it; otherwise every fetcher
//! would appear to fail behind a block.
//!
//! Must not know: the cells of signals, nor how a decision reads them.

use super::{AttemptChange, Entry, Evidence, Guard, Key, Observation};
use crate::evidence::decayed_counts::DecayedCounts;
use crate::evidence::host_signal_counts::{SignalObservation, seconds};
use crate::evidence::host_signal_slots::{SignalId, SignalSide, day_of};
use crate::evidence::host_signals::{ANY_PAGE, HostSignals, SignalChoice};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{Attempt, ErrorType};
use fetchwise_types::heuristic::{HOST_SHOWED, HOST_SHOWS, Heuristic};
use fetchwise_types::registry::{Class, Registry};

/// Seconds of a day. Each fetcher contributes once a day per host: an attempt weighs the fraction
/// of a day since the previous one.
const DAY_S: f32 = 86_400.0;
/// Weight in attempts below which an attempt in the middle of a burst is ignored.
const MIN_OBSERVATION_WEIGHT: f32 = 0.001;
/// Seconds between two attempts from which on they are compared.
const MIN_GAP_S: u32 = 1800;

/// The host signals that an attempt carries.
#[derive(Debug, Default)]
pub(super) struct CarriedSignals {
    showed: [Option<SignalId>; 2],
    shows: [Option<NewSignal>; 2],
}

/// The new content of a host's slot.
#[derive(Clone, Copy, Debug)]
enum NewSignal {
    Empty,
    Signal(SignalId),
}

/// The signals of a host at one time: the signal of each side, and the day it was last shown.
pub(crate) type ShownSignals = [Option<(SignalId, u16)>; 2];

impl CarriedSignals {
    /// Returns whether the host had any signal before the attempt.
    pub(super) fn had_signals(&self) -> bool {
        self.showed != [None; 2]
    }

    /// Returns the attempt's observation, given its fetcher's cell on the host before it.
    pub(super) fn observation(
        &self,
        cell: &DecayedCounts,
        change: &AttemptChange,
    ) -> Option<SignalObservation> {
        let last = cell.last();
        let success = change.what.success;
        cell.mark(success);
        let since = last.map(|(at_s, _)| seconds(change.what.at).saturating_sub(at_s));
        let share = since.map_or(1.0, |since| (since as f32 / DAY_S).min(1.0));
        let weight = change.what.weight as f32 * share;
        (weight >= MIN_OBSERVATION_WEIGHT).then_some(SignalObservation {
            signals: self.showed,
            fetcher: change.fetcher,
            kind: change.kind,
            at: change.what.at,
            weight,
            success,
            last: last.filter(|_| since >= Some(MIN_GAP_S)).map(|(_, success)| success),
            is_first: last.is_none(),
        })
    }
}

impl Evidence {
    /// Returns all signals.
    pub(crate) fn signals(&self) -> &HostSignals {
        &self.signals
    }

    /// Adds an attempt's observation to the signals of its host.
    pub(crate) fn observe_signals(&self, observation: &SignalObservation) {
        self.signals.observe(&self.decay(), observation);
    }

    /// Returns the signals of the host of these entries on a day: its own ones. If it showed no
    /// vendor, its site's last vendor stands in.
    #[inline]
    pub(crate) fn shown_signals(
        domain: Option<&Entry>,
        site: Option<&Entry>,
        today: u16,
    ) -> ShownSignals {
        let own = |side| domain.and_then(|entry| entry.signals.get(side, today));
        let of_site = || site.and_then(|entry| entry.site_signals.get(SignalSide::Blocked, today));
        [own(SignalSide::Blocked).or_else(of_site), own(SignalSide::Served)]
    }

    /// Returns the signals that the attempt carries.
    pub(super) fn carried(&self, attempt: &impl Observation) -> CarriedSignals {
        let mut carried = CarriedSignals::default();
        let place = |side| usize::from(side == SignalSide::Served);
        attempt.each_heuristic(&mut |kind, value| match kind {
            HOST_SHOWED => {
                let id = self.signals.id(value);
                carried.showed[place(HostSignals::side(value))] = Some(id);
            }
            HOST_SHOWS => {
                let shown = if value == ANY_PAGE {
                    NewSignal::Empty
                } else {
                    NewSignal::Signal(self.signals.id(value))
                };
                carried.shows[place(HostSignals::side(value))] = Some(shown);
            }
            _ => {}
        });
        carried
    }

    /// Stores the signals of the attempt's response. `change` has its time.
    pub(super) fn store_shown_signals(
        &self,
        attempt: &impl Observation,
        carried: &CarriedSignals,
        change: &AttemptChange,
        registry: &Registry,
    ) {
        let mut shows = carried.shows;
        if !carried.had_signals() && shows.iter().all(Option::is_none) {
            // The attempt was recorded by a release without host signals, or by another program.
            shows = self.signals_in_heuristics(attempt, change, registry);
        }
        if shows.iter().all(Option::is_none) {
            return;
        }
        let (mut domain, mut site) = (None, None);
        attempt.each_heuristic(&mut |kind, value| match kind {
            "domain" => domain = domain.or(Some(value)),
            "site" => site = Some(value),
            _ => {}
        });
        let Some(domain) = domain else { return };
        let (guard, at) = (self.guard(), change.what.at);
        let entry = self.entry_or_new(Key::domain(domain), at, &guard);
        let site = site.map(|site| self.entry_or_new(Key::domain(site), at, &guard));
        let day = day_of(at);
        for (side, shown) in SignalSide::BOTH.into_iter().zip(shows) {
            let id = match shown {
                None => continue,
                Some(NewSignal::Empty) => None,
                Some(NewSignal::Signal(id)) => Some(id),
            };
            entry.signals.set(side, id, day);
            if let Some(site) = &site {
                site.site_signals.set(side, id, day);
            }
            if side == SignalSide::Blocked && id != carried.showed[0] {
                entry.unmark();
            }
        }
    }

    /// Returns the vendor or framework in the attempt's own heuristics.
    fn signals_in_heuristics(
        &self,
        attempt: &impl Observation,
        change: &AttemptChange,
        registry: &Registry,
    ) -> [Option<NewSignal>; 2] {
        let mut shows = [None; 2];
        if registry.spec(change.fetcher).is_some_and(|spec| spec.class == Class::Archive) {
            return shows;
        }
        let side = if change.what.blocked { SignalSide::Blocked } else { SignalSide::Served };
        attempt.each_heuristic(&mut |kind, value| {
            let is_primary = if change.what.blocked {
                kind.starts_with("block_")
            } else {
                kind == "spa_framework"
            };
            if is_primary && let Some(name) = HostSignals::name(side, kind, value) {
                shows[usize::from(side == SignalSide::Served)] =
                    Some(NewSignal::Signal(self.signals.id(&name)));
            }
        });
        shows
    }

    /// Returns the heuristics that an attempt has to carry about its host, before evidence learns
    /// from it.
    ///
    /// They are the signals that the host showed until now, and its new signal, if that changes or
    /// was last shown on another day. `is_of_url` says which of the attempt's heuristics were known
    /// before the response.
    pub(crate) fn signal_heuristics(
        &self,
        attempt: &Attempt,
        registry: &Registry,
        is_of_url: impl Fn(&Heuristic) -> bool,
    ) -> Vec<Heuristic> {
        let Some(domain) = attempt.heuristic("domain").filter(|_| attempt.weight > 0.0) else {
            return Vec::new();
        };
        let (guard, today) = (self.guard(), day_of(attempt.attempted_at));
        let host = Key::domain(domain);
        let entry = self.known(host, &guard);
        let site = self.site_of(attempt, domain, entry, &guard);
        let mut carried = Vec::new();
        for (id, _) in Self::shown_signals(entry, site, today).into_iter().flatten() {
            if let Some(name) = self.signals.name_of(id) {
                carried.push(Heuristic::new(HOST_SHOWED, String::from(name)));
            }
        }
        let is_archive =
            registry.find(&attempt.fetcher).and_then(|id| registry.spec(id)).map(|spec| spec.class);
        let Some(side) = side_of(attempt).filter(|_| is_archive != Some(Class::Archive)) else {
            return carried;
        };
        let shown = attempt
            .heuristics
            .iter()
            .map(|tag| &tag.heuristic)
            .filter(|heuristic| !is_of_url(heuristic));
        let shown = shown.map(|heuristic| (&*heuristic.kind, &*heuristic.value));
        let name = match self.signals.choose(side, shown, host.bits()) {
            SignalChoice::Unchanged => return carried,
            SignalChoice::Empty => ANY_PAGE.to_owned(),
            SignalChoice::Name(name) => name,
        };
        let own = entry.and_then(|entry| entry.signals.get(side, today));
        let is_known =
            own.is_some_and(|(id, day)| day == today && self.signals.find(&name) == Some(id));
        if !is_known {
            carried.push(Heuristic::new(HOST_SHOWS, name));
        }
        carried
    }

    fn site_of<'g>(
        &'g self,
        attempt: &Attempt,
        domain: &str,
        entry: Option<&'g Entry>,
        guard: &'g Guard<'_>,
    ) -> Option<&'g Entry> {
        match attempt.heuristic("site") {
            Some(site) if site != domain => self.known(Key::domain(site), guard),
            _ => entry,
        }
    }
}

/// Returns the side that the attempt's response belongs to: blocks or pages. Other failures show
/// nothing.
fn side_of(attempt: &Attempt) -> Option<SignalSide> {
    let is_empty = matches!(
        attempt.error_type,
        Some(ErrorType::Known(ErrorKind::WrongTool | ErrorKind::EmptyContent))
    );
    match () {
        () if attempt.is_banned => Some(SignalSide::Blocked),
        () if attempt.success || is_empty => Some(SignalSide::Served),
        () => None,
    }
}
