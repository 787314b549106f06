//! The state machine of a paused host: what each node says about it, and the rules of pauses and
//! trials, without a broker.
//!
//! Each node writes statements under its own name only. All nodes apply the same statements in the
//! broker's order, so they agree on what holds: the first claim in that order gets the trial.
//!
//! Invariants: a pause is never longer than its writer meant, whatever the clocks say. A node ends
//! no running pause and no running trial of another node. A trial counts only if everything before
//! it has ended.
//!
//! Must not know: how a statement is stored, or what a crawler does about it.

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
/// The maximum number of accepted pauses of new hosts per node and hour.
pub const MAX_PAUSES_PER_HOUR: usize = 100;
/// The maximum number of accepted pauses of new hosts per hour, from all peers together.
pub const MAX_TOTAL_PAUSES_PER_HOUR: usize = 5_000;
/// The maximum number of accepted trials and longer pauses of hosts that are known already, per
/// node and hour.
pub const MAX_CHANGES_PER_HOUR: usize = 1_000;
/// The maximum number of hosts about which one node's statements hold.
pub const MAX_HOSTS_PER_NODE: usize = 1_000;
/// The maximum number of nodes whose statements about one host hold.
const MAX_STATEMENTS: usize = 4;
/// The time by which a claim may be early: nodes' clocks differ from the broker's by as much.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(2);
/// The window after a pause within which a node that is cut off tries the host.
const OFFLINE_TRIAL_WINDOW: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// The maximum length of a cell in bytes.
const MAX_CELL: usize = 1024;

/// What a node says about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The host is paused.
    Paused,
    /// The node tries the host.
    Trial,
    /// The host is fine, as far as this node is concerned.
    Fine,
}

/// The content of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostState {
    /// What the node says.
    pub phase: Phase,
    /// The end of the state, by the clock of its writer.
    pub until: Timestamp,
    /// The time of the write, by the same clock.
    pub at: Timestamp,
    /// The number of consecutive pauses of the host.
    pub level: u8,
}

/// A cell on the wire. The key of the cell has its writer.
#[derive(Serialize, Deserialize)]
struct CellJson {
    state: Phase,
    until: i64,
    at: i64,
    level: u8,
}

impl HostState {
    /// Returns the statement that a host is fine.
    pub fn fine(at: Timestamp) -> Self {
        Self { phase: Phase::Fine, until: at.saturating_add(MAX_TRIAL), at, level: 0 }
    }

    /// Returns the state with its times moved by `ms`: statements have dates, and a node has times.
    #[must_use]
    pub fn moved_by(self, ms: i64) -> Self {
        Self { until: self.until.moved_by(ms), at: self.at.moved_by(ms), ..self }
    }

    /// Encodes the state as JSON, with times in milliseconds.
    pub fn encode(&self) -> Vec<u8> {
        let wire = CellJson {
            state: self.phase,
            until: self.until.as_millis(),
            at: self.at.as_millis(),
            level: self.level,
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
            phase: wire.state,
            until: Timestamp::from_millis(wire.until),
            at: Timestamp::from_millis(wire.at),
            level: wire.level.min(MAX_RISK_LEVEL),
        })
    }

    /// Returns the end of the state, given that the broker stored it at `stored`. It is never later
    /// than its writer meant, and never beyond the maximum.
    pub fn end(&self, stored: Timestamp) -> Timestamp {
        let longest = if self.phase == Phase::Trial { MAX_TRIAL } else { MAX_PAUSE };
        let meant = self.until.since(self.at).min(longest);
        self.until.min(stored.saturating_add(meant))
    }
}

/// A statement as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statement {
    /// The writer, as the broker authenticates it.
    pub by: NodeId,
    /// Whether this process wrote it. The node's name alone does not show that.
    pub is_ours: bool,
    /// What it says.
    pub state: HostState,
    /// The time at which the broker stored it.
    pub stored: Timestamp,
    /// Its revision.
    pub revision: u64,
}

impl Statement {
    /// Returns the end of the state.
    pub fn end(&self) -> Timestamp {
        self.state.end(self.stored)
    }

    fn is_trial(&self) -> bool {
        self.state.phase == Phase::Trial
    }

    /// Returns whether the statement still held when the broker stored another one at `at`.
    fn held_at(&self, at: Timestamp) -> bool {
        self.end() > at.saturating_add(CLOCK_TOLERANCE)
    }
}

/// The effect of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// None: it contradicts a running statement of another node.
    Ignored,
    /// It only takes back or shortens what its writer said.
    Withdraws,
    /// The host is fine: no other node's statement was running.
    Fine,
    /// It pauses a host that was not known.
    New,
    /// It claims the trial, or pauses a known host for longer.
    Changes,
}

/// The statements about one host that hold, at most one of each node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostStatements {
    all: Vec<Statement>,
}

impl HostStatements {
    /// Returns the statements.
    pub fn all(&self) -> &[Statement] {
        &self.all
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the latest end of all statements.
    pub fn end(&self) -> Option<Timestamp> {
        self.all.iter().map(Statement::end).max()
    }

    /// Returns the number of consecutive pauses.
    pub fn level(&self) -> u8 {
        self.all.iter().map(|statement| statement.state.level).max().unwrap_or(0)
    }

    /// Returns whether the newest claim of this process holds.
    pub fn is_tried_here(&self, now: Timestamp) -> bool {
        self.all
            .iter()
            .any(|statement| statement.is_ours && statement.is_trial() && statement.end() > now)
    }

    /// Returns the end of what the statements of others hold at `at`, by the broker's clock.
    pub fn others_hold(&self, by: NodeId, at: Timestamp) -> Option<Timestamp> {
        self.all
            .iter()
            .filter(|other| other.by != by && other.held_at(at))
            .map(Statement::end)
            .max()
    }

    /// Returns the effect that a statement has. It does not change anything yet.
    pub fn effect(&self, new: &Statement) -> Effect {
        let others =
            || self.all.iter().filter(|other| other.by != new.by && other.held_at(new.stored));
        match new.state.phase {
            Phase::Fine if others().next().is_some() => Effect::Withdraws,
            Phase::Fine => Effect::Fine,
            // Only after everything has ended, a pause of the same node included.
            Phase::Trial
                if self.all.iter().any(|known| {
                    known.held_at(new.stored) && !(known.by == new.by && known.is_trial())
                }) =>
            {
                Effect::Ignored
            }
            Phase::Trial if self.all.is_empty() => Effect::New,
            Phase::Trial => Effect::Changes,
            // The node that tries the host decides.
            Phase::Paused if others().any(Statement::is_trial) => Effect::Ignored,
            Phase::Paused if new.end() <= new.stored => Effect::Ignored,
            Phase::Paused if self.all.is_empty() => Effect::New,
            Phase::Paused if self.all.iter().any(|known| known.end() >= new.end()) => {
                Effect::Withdraws
            }
            Phase::Paused => Effect::Changes,
        }
    }

    /// Applies a statement with this effect.
    pub fn apply(&mut self, new: Statement, effect: Effect) {
        // The broker keeps one statement of a node about a host, so a node that starts later never
        // sees the earlier one.
        self.all.retain(|known| known.by != new.by);
        match (effect, new.state.phase) {
            (Effect::Ignored, _) | (Effect::Withdraws, Phase::Fine | Phase::Trial) => return,
            (Effect::Fine, _) => return self.all.clear(),
            (_, Phase::Trial) => self.all.clear(),
            // After a pause of everything that ended, only the new one matters.
            (_, Phase::Paused) => self.all.retain(|known| known.held_at(new.stored)),
            (_, Phase::Fine) => return,
        }
        if self.all.len() < MAX_STATEMENTS {
            self.all.push(new);
        } else if let Some(first) = self.all.iter_mut().min_by_key(|known| known.end())
            && first.end() < new.end()
        {
            *first = new;
        }
    }

    /// Removes a node's statement, if it is not newer than this revision. Returns whether it did.
    pub fn remove(&mut self, by: NodeId, revision: u64) -> bool {
        let before = self.all.len();
        self.all.retain(|known| known.by != by || known.revision > revision);
        self.all.len() < before
    }
}

/// Returns the statement when `by` pauses the host at `at` until `until`; none if what others say
/// lasts long enough.
pub fn paused(
    seen: &HostStatements,
    until: Timestamp,
    at: Timestamp,
    by: NodeId,
) -> Option<HostState> {
    let until = until.min(at.saturating_add(MAX_PAUSE));
    let pause = |level: u8| {
        Some(HostState { phase: Phase::Paused, until, at, level: level.clamp(1, MAX_RISK_LEVEL) })
    };
    let running = || seen.all.iter().filter(|known| known.end() > at);
    // The node that tries the host decides.
    if running().any(|known| known.is_trial() && known.by != by) {
        return None;
    }
    match running().filter(|known| !known.is_trial()).map(Statement::end).max() {
        // A trial of this node was blocked, or an earlier pause is over.
        None => pause(seen.level() + 1),
        // The same pause, extended.
        Some(end) if until > end => pause(seen.level()),
        Some(_) => None,
    }
}

/// The right to try a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The caller has it already.
    Mine,
    /// No node may try it before then.
    NotBefore(Timestamp),
    /// The node whose statement is stored first.
    State(HostState),
}

/// Returns what this process has to do to try the host at `now`.
pub fn claim(seen: &HostStatements, now: Timestamp) -> Claim {
    if seen.is_tried_here(now) {
        return Claim::Mine;
    }
    match seen.end() {
        Some(end) if end > now => Claim::NotBefore(end),
        _ => {
            let until = now.saturating_add(MAX_TRIAL);
            Claim::State(HostState { phase: Phase::Trial, until, at: now, level: seen.level() })
        }
    }
}

/// Returns the time at which a node that is cut off may try the host once. It is different for each
/// node, within the minute after the pause.
pub fn offline_trial_time(own: NodeId, domain: &str, ended: Timestamp) -> Timestamp {
    let mut bytes = own.as_bytes().to_vec();
    bytes.extend_from_slice(&ended.as_millis().to_le_bytes());
    bytes.extend_from_slice(domain.as_bytes());
    let within = u64::try_from(OFFLINE_TRIAL_WINDOW.as_millis()).unwrap_or(u64::MAX);
    ended.saturating_add(Duration::from_millis(xxh3_64(&bytes) % within))
}

/// The times at which something was accepted within the last hour.
#[derive(Debug, Default)]
struct Spent(VecDeque<Timestamp>);

impl Spent {
    /// Returns the number within the hour before `at`.
    fn count(&mut self, at: Timestamp) -> usize {
        while self.0.front().is_some_and(|first| at.since(*first) >= HOUR) {
            self.0.pop_front();
        }
        self.0.len()
    }
}

/// The quota of accepted statements, per node and of all peers.
#[derive(Debug)]
pub struct PauseQuota {
    own: NodeId,
    by: HashMap<NodeId, (Spent, Spent)>,
    total: Spent,
}

impl PauseQuota {
    /// Returns an unused quota. The node's own pauses do not count for the total of its peers.
    pub fn new(own: NodeId) -> Self {
        Self { own, by: HashMap::new(), total: Spent::default() }
    }

    /// Returns whether another statement of that node is accepted, which was stored at `at`: a
    /// pause of a new host, or a change of a known one.
    pub fn has_room(&mut self, by: NodeId, at: Timestamp, is_new: bool) -> bool {
        let (new, changes) = self.by.entry(by).or_default();
        match is_new {
            true => {
                new.count(at) < MAX_PAUSES_PER_HOUR
                    && (by == self.own || self.total.count(at) < MAX_TOTAL_PAUSES_PER_HOUR)
            }
            false => changes.count(at) < MAX_CHANGES_PER_HOUR,
        }
    }

    /// Works like [`has_room`](Self::has_room), and counts the statement.
    pub fn spend(&mut self, by: NodeId, at: Timestamp, is_new: bool) -> bool {
        if !self.has_room(by, at, is_new) {
            return false;
        }
        let (new, changes) = self.by.entry(by).or_default();
        if is_new {
            new.0.push_back(at)
        } else {
            changes.0.push_back(at)
        }
        if is_new && by != self.own {
            self.total.0.push_back(at);
        }
        true
    }

    /// Forgets nodes that are not present.
    pub fn retain(&mut self, is_present: impl Fn(NodeId) -> bool) {
        let own = self.own;
        self.by.retain(|by, _| *by == own || is_present(*by));
    }
}

/// Returns the key of a node's statement about a host, for an egress group.
pub fn key(by: NodeId, egress: &str, domain: &str) -> String {
    if egress.is_empty() { format!("{by}.{domain}") } else { format!("{by}.{egress}/{domain}") }
}

/// Returns the node and the host of a statement, if it belongs to that egress group.
pub fn parse_key<'k>(egress: &str, key: &'k str) -> Option<(NodeId, &'k str)> {
    let (name, rest) = key.split_once('.')?;
    // Only the printed form is valid, so that a node has one key for a host.
    let by = name.parse().ok().filter(|by: &NodeId| by.to_string() == name)?;
    let domain = match rest.rsplit_once('/') {
        None => egress.is_empty().then_some(rest)?,
        Some((label, domain)) => (label == egress && !egress.is_empty()).then_some(domain)?,
    };
    Some((by, domain))
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

    fn said(by: NodeId, state: HostState, stored: u64) -> Statement {
        Statement { by, is_ours: false, state, stored: after(stored), revision: stored + 1 }
    }

    fn pause(until: u64, at: u64) -> HostState {
        HostState { phase: Phase::Paused, until: after(until), at: after(at), level: 1 }
    }

    fn trial(at: u64) -> HostState {
        HostState { phase: Phase::Trial, until: after(at + 600), at: after(at), level: 1 }
    }

    /// Applies statements in order, and returns their effects.
    fn applied(all: &mut HostStatements, statements: &[Statement]) -> Vec<Effect> {
        let apply = |statement: &Statement| {
            let effect = all.effect(statement);
            all.apply(*statement, effect);
            effect
        };
        statements.iter().map(apply).collect()
    }

    #[test]
    fn a_level_rises_only_after_a_blocked_trial() {
        let (a, b, mut host) = (nobody(1), nobody(2), HostStatements::default());
        let first = paused(&host, after(600), NOW, a).unwrap();
        assert_eq!(first.level, 1);
        applied(&mut host, &[said(a, first, 0)]);
        assert_eq!(paused(&host, after(600), NOW, b), None, "the same pause by another node");
        assert_eq!(
            paused(&host, after(900), NOW, b).unwrap().level,
            1,
            "a longer pause of the same event"
        );
        assert_eq!(claim(&host, after(599)), Claim::NotBefore(after(600)));
        let Claim::State(state) = claim(&host, after(600)) else { panic!("it is over") };
        applied(&mut host, &[Statement { is_ours: true, ..said(b, state, 600) }]);
        assert_eq!(claim(&host, after(601)), Claim::Mine);
        assert_eq!(
            paused(&host, after(1800), after(602), a),
            None,
            "the node that tries it decides"
        );
        assert_eq!(paused(&host, after(1800), after(602), b).unwrap().level, 2);
        assert!(matches!(claim(&host, after(1200)), Claim::State(_)), "a trial without a result");
        host.all[0].is_ours = false;
        assert_eq!(
            claim(&host, after(601)),
            Claim::NotBefore(after(1200)),
            "the name alone is no permission"
        );
    }

    #[test]
    fn a_node_ends_no_running_pause_of_another() {
        let (a, b, mut host) = (nobody(1), nobody(2), HostStatements::default());
        let fine = |at| HostState::fine(after(at));
        assert_eq!(
            applied(
                &mut host,
                &[said(a, pause(600, 0), 0), said(b, fine(10), 10), said(b, trial(20), 20)]
            ),
            [Effect::New, Effect::Withdraws, Effect::Ignored]
        );
        assert_eq!(host.end(), Some(after(600)));
        // It may extend the pause, and takes back only that.
        assert_eq!(
            applied(&mut host, &[said(b, pause(900, 30), 30), said(b, fine(40), 40)]),
            [Effect::Changes, Effect::Withdraws]
        );
        assert_eq!(host.end(), Some(after(600)));
        // A shorter pause than that of the others takes nothing back, nor does a claim while they
        // last.
        assert_eq!(applied(&mut host, &[said(b, pause(300, 50), 50)]), [Effect::Withdraws]);
        assert_eq!(host.end(), Some(after(600)));
        // Its writer may, and nobody else is left.
        assert_eq!(
            applied(&mut host, &[said(b, fine(60), 60), said(a, fine(70), 70)]),
            [Effect::Withdraws, Effect::Fine]
        );
        assert!(host.is_empty());
    }

    #[test]
    fn the_first_claim_gets_the_trial() {
        let (a, b, c, mut host) = (nobody(1), nobody(2), nobody(3), HostStatements::default());
        let fine = HostState::fine(after(640));
        assert_eq!(
            applied(
                &mut host,
                &[
                    said(a, pause(600, 0), 0),
                    said(b, trial(601), 601),
                    said(c, trial(601), 602),
                    said(a, pause(9000, 603), 603),
                    said(c, fine, 604),
                ]
            ),
            [Effect::New, Effect::Changes, Effect::Ignored, Effect::Ignored, Effect::Withdraws]
        );
        assert_eq!((host.all().len(), host.all()[0].by, host.end()), (1, b, Some(after(1201))));
        assert_eq!(applied(&mut host, &[said(b, fine, 640)]), [Effect::Fine]);
        // Also after it was over without a result.
        assert_eq!(
            applied(
                &mut host,
                &[
                    said(b, pause(1700, 1000), 1000),
                    said(b, trial(1700), 1700),
                    said(c, trial(2301), 2301)
                ]
            ),
            [Effect::New, Effect::Changes, Effect::Changes]
        );
        assert_eq!(host.all()[0].by, c);
    }

    #[test]
    fn a_node_may_add_100_pauses_per_hour() {
        let mut quota = PauseQuota::new(nobody(9));
        let believed =
            (0..1000).filter(|second| quota.spend(nobody(1), after(*second), true)).count();
        assert_eq!(believed, MAX_PAUSES_PER_HOUR);
        let changes =
            (0..2000).filter(|second| quota.spend(nobody(1), after(*second), false)).count();
        assert_eq!(changes, MAX_CHANGES_PER_HOUR);
        assert!(quota.spend(nobody(2), after(1000), true), "each node has a separate quota");
        assert!(!quota.spend(nobody(1), after(3599), true));
        assert!(quota.spend(nobody(1), after(3600), true));
    }

    #[test]
    fn all_peers_together_have_a_quota() {
        let mut quota = PauseQuota::new(nobody(9));
        let invented =
            |n: u32| NodeId::from_bytes([n.to_le_bytes(); 4].concat().try_into().unwrap());
        let believed = (0..60_000).filter(|n| quota.spend(invented(*n), NOW, true)).count();
        assert_eq!(believed, MAX_TOTAL_PAUSES_PER_HOUR);
        assert!(quota.spend(nobody(9), NOW, true), "the node's own pauses have their own");
    }

    #[test]
    fn egress_groups_have_separate_statements() {
        let by = nobody(3);
        for (egress, domain) in [("", "e.org"), ("eu", "e.org"), ("a/b.c", "e.org")] {
            let key = key(by, egress, domain);
            assert_eq!(parse_key(egress, &key), Some((by, domain)));
            assert_eq!(parse_key("other", &key), None);
            assert_eq!(parse_key("", &key), egress.is_empty().then_some((by, domain)));
        }
        assert_eq!(parse_key("", "e.org"), None, "without a node");
        assert_eq!(parse_key("", &key(nobody(0xab), "", "e.org").to_uppercase()), None);
    }

    fn phase() -> impl Strategy<Value = Phase> {
        prop_oneof![3 => Just(Phase::Paused), 4 => Just(Phase::Trial), 2 => Just(Phase::Fine)]
    }

    proptest! {
        #[test]
        fn no_node_ends_what_another_says(
            acts in prop::collection::vec((0..4u8, phase(), 1..4000u64, -2000..2000i64, 0..1500u64), 1..80)
        ) {
            let (mut host, mut now) = (HostStatements::default(), 0);
            for (revision, (by, phase, length, skew, passes)) in (1..).zip(acts) {
                now += passes;
                // A writer's clock may say anything.
                let at = Timestamp::from_millis(after(now).as_millis() + skew * 1000);
                let until = at.saturating_add(Duration::from_secs(length));
                let state = HostState { phase, until, at, level: 1 };
                let new = Statement { by: nobody(by), is_ours: false, state, stored: after(now), revision };
                let (before, effect) = (host.clone(), host.effect(&new));
                host.apply(new, effect);
                prop_assert!(host.all().len() <= MAX_STATEMENTS);
                let trials = host.all().iter().filter(|known| known.is_trial() && known.end() > after(now)).count();
                prop_assert!(trials <= 1, "two trials at once");
                for other in before.all().iter().filter(|other| other.by != new.by && other.held_at(new.stored)) {
                    let lasts = host.end().is_some_and(|end| end >= other.end());
                    prop_assert!(lasts, "{:?} was ended by {:?}", other, new);
                    prop_assert!(!other.is_trial() || host.all().contains(other), "another node decided about a trial");
                }
                if phase == Phase::Trial && effect != Effect::Ignored {
                    let is_running = |known: &Statement| known.held_at(new.stored) && known.by != new.by;
                    prop_assert!(!before.all().iter().any(is_running), "a trial during a pause");
                }
            }
        }

        #[test]
        fn no_clock_makes_a_pause_longer_than_meant(
            at in any::<i64>(), meant in 0..10_000_000u64, stored in any::<i64>(), phase in phase(),
        ) {
            let at = Timestamp::from_millis(at);
            let (until, stored) = (at.saturating_add(Duration::from_secs(meant)), Timestamp::from_millis(stored));
            let state = HostState { phase, until, at, level: 1 };
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
