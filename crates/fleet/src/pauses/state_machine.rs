//! The state machine of a host's cell: the rules of pauses and trials, without a broker.
//!
//! Invariants: a pause is never longer than its writer meant, whatever the clocks say. The level rises once per pause.
//! A trial is only claimed after a pause or a trial has ended.
//!
//! Must not know: how a cell is swapped, or what a crawler does about it.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use fetchwise::backoff::MAX_RISK_LEVEL;
use fetchwise::time::Timestamp;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::model::node_id::NodeId;

/// The maximum length of a pause.
pub const MAX_PAUSE: Duration = Duration::from_secs(24 * 60 * 60);
/// The time after which an unfinished trial is over.
pub const MAX_TRIAL: Duration = Duration::from_secs(600);
/// The minimum length of a shared pause. Shorter ones would be over before all nodes know them.
pub const MIN_SHARED_PAUSE: Duration = Duration::from_secs(60);
/// The window after a pause within which a node that is cut off tries the host.
const OFFLINE_TRIAL_WINDOW: Duration = Duration::from_secs(60);
/// The maximum number of accepted pauses per node and hour.
pub const MAX_PAUSES_PER_HOUR: usize = 100;
const HOUR: Duration = Duration::from_secs(3600);
/// The maximum length of a cell in bytes.
const MAX_CELL: usize = 1024;

/// The state of a host's cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostState {
    /// Whether the host is being tried; it is paused otherwise.
    pub is_trial: bool,
    /// The end of the state, by the clock of its writer.
    pub until: Timestamp,
    /// The time of the write, by the same clock.
    pub at: Timestamp,
    /// The number of consecutive pauses of the host.
    pub level: u8,
    /// The writer.
    pub by: NodeId,
}

/// A cell on the wire.
#[derive(Serialize, Deserialize)]
struct CellJson {
    state: CellKind,
    until: i64,
    at: i64,
    level: u8,
    by: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CellKind {
    Paused,
    Trial,
}

impl HostState {
    /// Encodes the state as JSON, with times in milliseconds.
    pub fn encode(&self) -> Vec<u8> {
        let wire = CellJson {
            state: if self.is_trial { CellKind::Trial } else { CellKind::Paused },
            until: self.until.as_millis(),
            at: self.at.as_millis(),
            level: self.level,
            by: self.by.to_string(),
        };
        serde_json::to_vec(&wire).unwrap_or_default()
    }

    /// Decodes the output of [`HostState::encode`]; none if it is invalid.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_CELL {
            return None;
        }
        let wire: CellJson = serde_json::from_slice(bytes).ok()?;
        Some(Self {
            is_trial: wire.state == CellKind::Trial,
            until: Timestamp::from_millis(wire.until),
            at: Timestamp::from_millis(wire.at),
            level: wire.level.min(MAX_RISK_LEVEL),
            by: wire.by.parse().ok()?,
        })
    }

    /// Returns the end of the state, given that the broker stored it at `stored`. It is never later than its writer
    /// meant, and never beyond the maximum.
    pub fn end(&self, stored: Timestamp) -> Timestamp {
        let longest = if self.is_trial { MAX_TRIAL } else { MAX_PAUSE };
        let meant = self.until.since(self.at).min(longest);
        self.until.min(stored.saturating_add(meant))
    }
}

/// A cell as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellVersion {
    /// Its state.
    pub state: HostState,
    /// The time at which the broker stored it.
    pub stored: Timestamp,
    /// Its revision.
    pub revision: u64,
}

impl CellVersion {
    /// Returns the end of the state.
    pub fn end(&self) -> Timestamp {
        self.state.end(self.stored)
    }
}

/// Returns the new cell when `by` pauses the host at `at` until `until`; none if the current cell lasts long enough.
pub fn paused(seen: Option<&CellVersion>, until: Timestamp, at: Timestamp, by: NodeId) -> Option<HostState> {
    let until = until.min(at.saturating_add(MAX_PAUSE));
    let pause = |level: u8| Some(HostState { is_trial: false, until, at, level: level.min(MAX_RISK_LEVEL), by });
    let Some(seen) = seen else { return pause(1) };
    let (state, is_over) = (&seen.state, seen.end() <= at);
    match (state.is_trial, is_over) {
        // The node that tries the host decides, and its own trial was blocked.
        (true, false) if state.by != by => None,
        (true, _) | (false, true) => pause(state.level + 1),
        // The same pause, extended.
        (false, false) if until > seen.end() => pause(state.level),
        (false, false) => None,
    }
}

/// The right to try a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The caller has it already.
    Mine,
    /// No node may try it before then.
    NotBefore(Timestamp),
    /// The node that swaps in this state.
    Swap(HostState),
}

/// Returns what a node has to do to try the host at `now`.
pub fn claim(seen: &CellVersion, now: Timestamp, by: NodeId) -> Claim {
    let end = seen.end();
    if end > now {
        let is_mine = seen.state.is_trial && seen.state.by == by;
        return if is_mine { Claim::Mine } else { Claim::NotBefore(end) };
    }
    let until = now.saturating_add(MAX_TRIAL);
    Claim::Swap(HostState { is_trial: true, until, at: now, level: seen.state.level, by })
}

/// Returns the time at which a node that is cut off may try the host once. It is different for each node, within the
/// minute after the pause.
pub fn offline_trial_time(own: NodeId, domain: &str, ended: Timestamp) -> Timestamp {
    let mut bytes = own.as_bytes().to_vec();
    bytes.extend_from_slice(&ended.as_millis().to_le_bytes());
    bytes.extend_from_slice(domain.as_bytes());
    let within = u64::try_from(OFFLINE_TRIAL_WINDOW.as_millis()).unwrap_or(u64::MAX);
    ended.saturating_add(Duration::from_millis(xxh3_64(&bytes) % within))
}

/// The quota of accepted pauses per node.
#[derive(Debug, Default)]
pub struct PauseQuota {
    by: HashMap<NodeId, VecDeque<Timestamp>>,
}

impl PauseQuota {
    /// Returns whether another pause of that node is accepted, which was stored at `at`.
    pub fn spend(&mut self, by: NodeId, at: Timestamp) -> bool {
        let spent = self.by.entry(by).or_default();
        while spent.front().is_some_and(|first| at.since(*first) >= HOUR) {
            spent.pop_front();
        }
        if spent.len() >= MAX_PAUSES_PER_HOUR {
            return false;
        }
        spent.push_back(at);
        true
    }
}

/// Returns the key of a host's cell for an egress group.
pub fn key(egress: &str, domain: &str) -> String {
    if egress.is_empty() { domain.to_owned() } else { format!("{egress}/{domain}") }
}

/// Returns the host of a cell, if it belongs to that egress group.
pub fn domain_of<'k>(egress: &str, key: &'k str) -> Option<&'k str> {
    match key.rsplit_once('/') {
        None => egress.is_empty().then_some(key),
        Some((label, domain)) => (label == egress && !egress.is_empty()).then_some(domain),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn after(seconds: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_secs(seconds))
    }

    fn nobody(n: u8) -> NodeId {
        NodeId::from_bytes([n; 16])
    }

    #[test]
    fn a_level_rises_only_after_a_blocked_trial() {
        let (a, b) = (nobody(1), nobody(2));
        let first = paused(None, after(600), NOW, a).unwrap();
        let seen = |state, revision| CellVersion { state, stored: NOW, revision };
        assert_eq!(paused(Some(&seen(first, 1)), after(600), NOW, b), None, "the same pause by another node");
        assert_eq!(
            paused(Some(&seen(first, 1)), after(900), NOW, b).unwrap().level,
            1,
            "a longer pause of the same event"
        );
        assert_eq!(claim(&seen(first, 1), after(599), b), Claim::NotBefore(after(600)));
        let Claim::Swap(trial) = claim(&seen(first, 1), after(600), b) else { panic!("it is over") };
        let trial = CellVersion { state: trial, stored: after(600), revision: 2 };
        assert_eq!(claim(&trial, after(601), b), Claim::Mine);
        assert_eq!(claim(&trial, after(601), a), Claim::NotBefore(after(1200)));
        assert_eq!(paused(Some(&trial), after(1800), after(602), a), None, "the node that tries it decides");
        assert_eq!(paused(Some(&trial), after(1800), after(602), b).unwrap().level, 2);
        assert!(matches!(claim(&trial, after(1200), a), Claim::Swap(_)), "a trial without a result");
    }

    #[test]
    fn a_node_may_add_100_pauses_per_hour() {
        let mut quota = PauseQuota::default();
        let believed = (0..1000).filter(|second| quota.spend(nobody(1), after(*second))).count();
        assert_eq!(believed, MAX_PAUSES_PER_HOUR);
        assert!(quota.spend(nobody(2), after(1000)), "each node has a separate quota");
        assert!(!quota.spend(nobody(1), after(3599)));
        assert!(quota.spend(nobody(1), after(3600)));
    }

    #[test]
    fn egress_groups_have_separate_cells() {
        for (egress, domain) in [("", "e.org"), ("eu", "e.org"), ("a/b", "e.org")] {
            let key = key(egress, domain);
            assert_eq!(domain_of(egress, &key), Some(domain));
            assert_eq!(domain_of("other", &key), None);
            assert_eq!(domain_of("", &key), egress.is_empty().then_some(domain));
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Does {
        Pause(u8, u64),
        Try(u8),
        Delivered(u8),
        Wait(u64),
    }

    fn does() -> impl Strategy<Value = Does> {
        prop_oneof![
            3 => (0..4u8, 61..4000u64).prop_map(|(who, time)| Does::Pause(who, time)),
            4 => (0..4u8).prop_map(Does::Try),
            1 => (0..4u8).prop_map(Does::Delivered),
            3 => (1..2000u64).prop_map(Does::Wait),
        ]
    }

    proptest! {
        #[test]
        fn one_node_makes_the_trial_of_a_pause(acts in prop::collection::vec(does(), 1..80)) {
            let (mut cell, mut revision, mut now): (Option<CellVersion>, u64, u64) = (None, 0, 0);
            let mut trial_until: Option<(u8, u64)> = None;
            for act in acts {
                let put = match act {
                    Does::Wait(seconds) => {
                        now += seconds;
                        continue;
                    }
                    Does::Pause(who, time) => {
                        let state = paused(cell.as_ref(), after(now + time), after(now), nobody(who));
                        if let (Some(state), Some(was)) = (&state, &cell) {
                            prop_assert!(state.level == was.state.level || state.level == (was.state.level + 1).min(MAX_RISK_LEVEL));
                            let is_new = was.end() <= after(now) || was.state.is_trial;
                            prop_assert_eq!(state.level > was.state.level, is_new && was.state.level < MAX_RISK_LEVEL);
                        }
                        if let Some((tries, until)) = trial_until && until > now {
                            prop_assert!(state.is_none() || tries == who, "another node decided about a trial");
                        }
                        if state.is_some() {
                            trial_until = None;
                        }
                        state
                    }
                    Does::Try(who) => match cell.as_ref().map(|seen| claim(seen, after(now), nobody(who))) {
                        Some(Claim::Swap(state)) => {
                            prop_assert!(trial_until.is_none_or(|(_, until)| until <= now), "two trials at once");
                            trial_until = Some((who, now + MAX_TRIAL.as_secs()));
                            Some(state)
                        }
                        Some(Claim::Mine) => {
                            prop_assert!(trial_until.is_some_and(|(tries, until)| tries == who && until > now));
                            None
                        }
                        _ => None,
                    },
                    Does::Delivered(who) => {
                        if trial_until.is_some_and(|(tries, _)| tries == who) {
                            (cell, trial_until) = (None, None);
                        }
                        None
                    }
                };
                if let Some(state) = put {
                    revision += 1;
                    cell = Some(CellVersion { state, stored: after(now), revision });
                }
            }
        }

        #[test]
        fn no_clock_makes_a_pause_longer_than_meant(
            at in any::<i64>(), meant in 0..10_000_000u64, stored in any::<i64>(), is_trial in any::<bool>(),
        ) {
            let at = Timestamp::from_millis(at);
            let (until, stored) = (at.saturating_add(Duration::from_secs(meant)), Timestamp::from_millis(stored));
            let state = HostState { is_trial, until, at, level: 1, by: nobody(1) };
            let end = state.end(stored);
            prop_assert!(end <= until);
            prop_assert!(end <= stored.saturating_add(Duration::from_secs(meant).min(MAX_PAUSE)));
            prop_assert_eq!(HostState::decode(&state.encode()), Some(state));
        }

        #[test]
        fn any_bytes_decode_or_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            HostState::decode(&bytes);
        }

        #[test]
        fn a_node_that_is_cut_off_tries_within_a_minute(own in any::<[u8; 16]>(), domain in ".{0,20}") {
            let moment = offline_trial_time(NodeId::from_bytes(own), &domain, NOW);
            prop_assert!(moment >= NOW && moment < after(60));
        }
    }
}
