//! One node's view of the fleet's paused hosts, and the writes that it still owes.
//!
//! Owns: the statements as last seen, which nodes are believed, the local pauses set because of
//! them, and the pending writes.
//!
//! Invariants: the node lifts a local pause only if the fleet's pause was its reason; one from the
//! node's own attempts lasts for its own time. Nothing that peers say makes the view grow without
//! bound. While cut off, the node tries a host once per pause.
//!
//! Must not know: how and when statements are stored.

mod host_view;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use fetchwise::time::Timestamp;

use self::host_view::HostView;
pub(super) use self::host_view::{ClaimOutcome, LocalAction};
use crate::model::node_id::NodeId;
use crate::pauses::state_machine::{
    Claim, Effect, HostState, HostStatements, MAX_HOSTS_PER_NODE, PauseQuota, Phase, Statement,
    claim, offline_trial_time, paused,
};

/// The time after an unanswered claim for which the same host is not claimed again.
const CLAIM_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The time without any response after which the node counts as cut off. Brokers that elect a
/// leader respond again within it.
const CUT_OFF_AFTER: Duration = Duration::from_secs(30);
/// The maximum number of remembered ends. They reject older statements that arrive later.
const MAX_ENDS: usize = 10_000;
/// The maximum number of hosts in the view.
const MAX_HOSTS: usize = 20_000;
/// The maximum number of nodes that are believed.
const MAX_NODES: usize = 4_096;
/// The interval at which a full view drops hosts whose pauses are over.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// One node's view of paused hosts.
#[derive(Debug)]
pub(super) struct PauseView {
    own: NodeId,
    /// The incarnation of the table, if the broker reports it.
    table: Option<u64>,
    hosts: HashMap<String, HostView>,
    /// The number of statements in the view by their writers.
    counts: HashMap<NodeId, usize>,
    /// Hosts that were found to be fine, with the revision of the statement.
    ended: HashMap<String, u64>,
    /// The nodes with a heartbeat, and those that an operator has excluded.
    present: HashSet<NodeId>,
    excluded: HashSet<NodeId>,
    /// Nodes without a heartbeat whose statements were rejected.
    doubted: HashSet<NodeId>,
    quota: PauseQuota,
    swept: Option<Timestamp>,
    /// The last statement of this process about each host, and whether the broker has delivered it.
    sent: HashMap<String, (HostState, bool)>,
    /// Statements that the broker does not have yet, and the hosts about which one is on its way.
    outbox: HashMap<String, HostState>,
    writing: HashSet<String>,
    /// The time since which no request got a response.
    silent_since: Option<Timestamp>,
    /// Statements of other nodes that were rejected.
    pub(super) rejected: u64,
    /// Trials that this node has won.
    pub(super) trials: u64,
    /// Trials that were made without the broker.
    pub(super) own_trials: u64,
}

/// The reply to a visit that would try a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialReply {
    Now,
    NotBefore(Timestamp),
    /// The broker is being asked; `true` if the claim has to be sent.
    Asking(bool),
}

impl PauseView {
    pub(super) fn new(own: NodeId) -> Self {
        Self {
            own,
            table: None,
            hosts: HashMap::new(),
            counts: HashMap::new(),
            ended: HashMap::new(),
            present: HashSet::new(),
            excluded: HashSet::new(),
            doubted: HashSet::new(),
            quota: PauseQuota::new(own),
            swept: None,
            sent: HashMap::new(),
            outbox: HashMap::new(),
            writing: HashSet::new(),
            silent_since: None,
            rejected: 0,
            trials: 0,
            own_trials: 0,
        }
    }

    /// Returns whether the table was recreated since the last check. Revisions of two incarnations
    /// are not comparable.
    pub(super) fn is_recreated(&mut self, table: Option<u64>) -> bool {
        let before = self.table;
        self.table = table.or(before);
        before.is_some() && self.table != before
    }

    /// Applies the loss of the table, which is not a sign that any host is fine. This process's
    /// pauses are stated again.
    pub(super) fn apply_loss(&mut self, now: Timestamp) {
        self.ended.clear();
        self.counts.clear();
        for (domain, known) in self.hosts.drain() {
            let is_own = known.seen.all().iter().any(|statement| statement.is_ours);
            let sent = self.sent.get(&domain).map(|(state, _)| *state);
            if let Some(state) =
                sent.filter(|state| is_own && state.phase == Phase::Paused && state.until > now)
            {
                self.outbox.entry(domain).or_insert(state);
            }
        }
    }

    /// Returns all statements in the view: the host, the writer and the revision.
    pub(super) fn statements(&self) -> Vec<(String, NodeId, u64)> {
        let all = self
            .hosts
            .iter()
            .flat_map(|(domain, known)| known.seen.all().iter().map(move |said| (domain, said)));
        all.map(|(domain, said)| (domain.clone(), said.by, said.revision)).collect()
    }

    /// Sets whether a node has a heartbeat. Returns whether statements of it were rejected that
    /// count now.
    pub(super) fn set_present(&mut self, node: NodeId, is_present: bool) -> bool {
        if !is_present {
            self.present.remove(&node);
            return false;
        }
        (self.present.contains(&node) || self.present.len() < MAX_NODES)
            && self.present.insert(node)
            && self.doubted.remove(&node)
    }

    /// Replaces the sets of present and of excluded nodes. Returns what follows locally.
    pub(super) fn set_nodes(
        &mut self,
        present: impl IntoIterator<Item = NodeId>,
        excluded: impl IntoIterator<Item = NodeId>,
        now: Timestamp,
    ) -> Vec<(String, LocalAction)> {
        self.present = present.into_iter().take(MAX_NODES).collect();
        self.doubted.clear();
        let excluded: HashSet<NodeId> = excluded.into_iter().collect();
        self.excluded.retain(|node| excluded.contains(node));
        let new: Vec<NodeId> = excluded.difference(&self.excluded).copied().collect();
        let (present, excluded) = (&self.present, &self.excluded);
        self.quota.retain(|node| present.contains(&node) && !excluded.contains(&node));
        new.into_iter().flat_map(|node| self.exclude(node, true, now)).collect()
    }

    /// Returns whether a node is excluded.
    pub(super) fn is_excluded(&self, node: NodeId) -> bool {
        self.excluded.contains(&node)
    }

    /// Excludes a node, or includes it again. Nothing that an excluded node has said holds any
    /// longer.
    pub(super) fn exclude(
        &mut self,
        node: NodeId,
        is_excluded: bool,
        now: Timestamp,
    ) -> Vec<(String, LocalAction)> {
        if !is_excluded {
            self.excluded.remove(&node);
            return Vec::new();
        }
        if !self.excluded.insert(node) || !self.counts.contains_key(&node) {
            return Vec::new();
        }
        let domains: Vec<String> = self.hosts.keys().cloned().collect();
        let remove = |domain: String| {
            let action = self.apply_removal(&domain, node, u64::MAX, now);
            (domain, action)
        };
        domains.into_iter().map(remove).collect()
    }

    /// Applies a statement. One older than the last applied one about the host has no effect.
    pub(super) fn apply_statement(
        &mut self,
        domain: &str,
        by: NodeId,
        state: HostState,
        (stored, revision): (Timestamp, u64),
        now: Timestamp,
    ) -> LocalAction {
        let is_late = self.hosts.get(domain).is_some_and(|known| known.newest >= revision)
            || self.ended.get(domain).is_some_and(|ended| *ended >= revision);
        if is_late {
            return LocalAction::Nothing;
        }
        // The node's own name is no exception: another process may have written the statement.
        let is_ours = by == self.own && self.is_delivery(domain, state);
        if !is_ours && (!self.present.contains(&by) || self.excluded.contains(&by)) {
            self.rejected += u64::from(state.phase != Phase::Fine);
            if self.doubted.len() < MAX_NODES {
                self.doubted.insert(by);
            }
            return LocalAction::Nothing;
        }
        let new = Statement { by, is_ours, state, stored, revision };
        let effect = self.hosts.get(domain).map_or_else(
            || HostStatements::default().effect(&new),
            |known| known.seen.effect(&new),
        );
        let is_new = effect == Effect::New;
        if (is_new || effect == Effect::Changes) && !self.admit(&new, is_new, now) {
            self.rejected += 1;
            if let Some(known) = self.hosts.get_mut(domain) {
                known.newest = revision;
                if is_ours && state.phase == Phase::Trial {
                    known.failed = Some((now, ClaimOutcome::Rejected));
                }
            }
            return LocalAction::Nothing;
        }
        if effect == Effect::Fine {
            return self.end(domain, revision, now);
        }
        if is_new {
            self.hosts.entry(domain.to_owned()).or_default();
        }
        let Some(known) = self.hosts.get_mut(domain) else { return LocalAction::Nothing };
        let (before, over) = (known.seen.clone(), known.seen.end());
        known.newest = revision;
        known.seen.apply(new, effect);
        change_counts(&mut self.counts, &before, &known.seen);
        match effect {
            Effect::New | Effect::Changes => {
                (known.failed, known.is_tried, known.is_waived) = (None, false, false);
                if is_ours && known.seen.is_tried_here(now) {
                    // Counted here and not where the claim is answered: the watcher starts the
                    // trial.
                    self.trials += 1;
                }
            }
            // By the broker's clock this node was early: its own clock is ahead.
            Effect::Ignored if is_ours && state.phase == Phase::Trial => {
                if let Some(end) = known.seen.others_hold(by, stored) {
                    known.ours.held = Some(now.saturating_add(end.since(stored)));
                }
            }
            Effect::Ignored | Effect::Withdraws | Effect::Fine => {}
        }
        if known.is_waived { LocalAction::Nothing } else { known.settle(over, now) }
    }

    /// Returns whether a statement is the one that this node has sent last, which is delivered
    /// then.
    fn is_delivery(&mut self, domain: &str, state: HostState) -> bool {
        let Some((_, is_delivered)) = self.sent.get_mut(domain).filter(|(sent, _)| *sent == state)
        else {
            return false;
        };
        *is_delivered = true;
        // The response was lost.
        if self.outbox.get(domain) == Some(&state) {
            self.outbox.remove(domain);
        }
        true
    }

    /// Returns whether a statement that pauses or tries a host is accepted.
    fn admit(&mut self, new: &Statement, is_new: bool, now: Timestamp) -> bool {
        let is_full = |view: &Self| {
            view.counts.get(&new.by).copied().unwrap_or(0) >= MAX_HOSTS_PER_NODE
                || is_new && view.hosts.len() >= MAX_HOSTS
        };
        if is_full(self) {
            self.sweep(now);
        }
        !is_full(self) && self.quota.spend(new.by, new.stored, is_new)
    }

    /// Drops hosts whose pauses are over.
    fn sweep(&mut self, now: Timestamp) {
        if self.swept.is_some_and(|at| now.since(at) < SWEEP_INTERVAL) {
            return;
        }
        self.swept = Some(now);
        let counts = &mut self.counts;
        self.hosts.retain(|_, known| {
            let is_kept = known.seen.end().is_some_and(|end| end > now);
            if !is_kept {
                change_counts(counts, &known.seen, &HostStatements::default());
            }
            is_kept
        });
    }

    /// Ends all statements about a host, which is fine.
    fn end(&mut self, domain: &str, revision: u64, now: Timestamp) -> LocalAction {
        let ended = self.ended.entry(domain.to_owned()).or_default();
        *ended = revision.max(*ended);
        if self.ended.len() > MAX_ENDS {
            let mut revisions: Vec<u64> = self.ended.values().copied().collect();
            let (_, middle, _) = revisions.select_nth_unstable(MAX_ENDS / 2);
            let middle = *middle;
            self.ended.retain(|_, revision| *revision > middle);
        }
        let Some(known) = self.hosts.remove(domain) else { return LocalAction::Nothing };
        change_counts(&mut self.counts, &known.seen, &HostStatements::default());
        LocalAction::Lift {
            ours: known.ours,
            own_until: known.own_until.filter(|until| *until > now),
        }
    }

    /// Applies the removal of a node's statement, which the broker no longer has, up to that
    /// revision.
    pub(super) fn apply_removal(
        &mut self,
        domain: &str,
        by: NodeId,
        revision: u64,
        now: Timestamp,
    ) -> LocalAction {
        let Some(known) = self.hosts.get_mut(domain) else { return LocalAction::Nothing };
        let before = known.seen.clone();
        if !known.seen.remove(by, revision) {
            return LocalAction::Nothing;
        }
        change_counts(&mut self.counts, &before, &known.seen);
        if known.seen.is_empty() {
            let newest = known.newest;
            return self.end(domain, newest, now);
        }
        known.settle(before.end(), now)
    }

    /// Returns whether this node may try a host.
    pub(super) fn request_trial(
        &mut self,
        domain: &str,
        ended: Timestamp,
        now: Timestamp,
    ) -> TrialReply {
        let (own, silent_since) = (self.own, self.silent_since);
        let Some(known) = self.hosts.get_mut(domain) else {
            // Other nodes may know this node's pause before this node does, and claim the trial
            // that follows it. The hold has a limit, because a broker may lose what it has
            // confirmed.
            let own_pause = self.sent.get(domain).filter(|(state, is_delivered)| {
                state.phase == Phase::Paused && !is_delivered && silent_since.is_none()
            });
            let limit = own_pause.map(|(state, _)| state.until.saturating_add(CUT_OFF_AFTER));
            return match limit.filter(|limit| *limit > now) {
                Some(limit) => {
                    TrialReply::NotBefore(now.saturating_add(CLAIM_RETRY_INTERVAL).min(limit))
                }
                None => TrialReply::Now,
            };
        };
        if known.is_waived {
            return TrialReply::Now;
        }
        match claim(&known.seen, now) {
            Claim::Mine => return TrialReply::Now,
            Claim::NotBefore(until) => {
                // The visit pauses the host until then, and it is the fleet that says so.
                known.ours.applied = Some(until);
                return TrialReply::NotBefore(until);
            }
            Claim::State(_) if known.is_claiming => return TrialReply::Asking(false),
            Claim::State(_) => {}
        }
        // All visits are held until the same time, so that this time identifies the hold.
        if let Some(held) = known.ours.held.filter(|held| *held > now) {
            return TrialReply::NotBefore(held);
        }
        let Some((last, answer)) =
            known.failed.filter(|(last, _)| now.since(*last) <= CLAIM_RETRY_INTERVAL)
        else {
            known.is_claiming = true;
            return TrialReply::Asking(true);
        };
        let ask_again = last.saturating_add(CLAIM_RETRY_INTERVAL + Duration::from_millis(1));
        let over = known.seen.end().unwrap_or(ended).min(ended);
        let moment = match (answer, silent_since) {
            (ClaimOutcome::Rejected, _) => offline_trial_time(own, domain, over),
            (_, Some(since)) => {
                offline_trial_time(own, domain, over).max(since.saturating_add(CUT_OFF_AFTER))
            }
            // The broker is available and was merely late.
            (_, None) => ask_again,
        };
        if moment > now {
            known.ours.held = Some(moment);
            return TrialReply::NotBefore(moment);
        }
        if known.is_tried {
            let later = now.saturating_add(CLAIM_RETRY_INTERVAL * 2);
            known.ours.held = Some(later);
            return TrialReply::NotBefore(later);
        }
        known.is_tried = true;
        self.own_trials += 1;
        TrialReply::Now
    }

    /// Holds visits to a host until then, because the broker cannot be asked at the moment.
    pub(super) fn hold(&mut self, domain: &str, until: Timestamp) {
        if let Some(known) = self.hosts.get_mut(domain) {
            known.is_claiming = false;
            known.ours.held = Some(until);
        }
    }

    /// Returns the claim that this process has to state; none if there is nothing to claim.
    pub(super) fn claim(&self, domain: &str, now: Timestamp) -> Option<HostState> {
        match claim(&self.hosts.get(domain)?.seen, now) {
            Claim::State(state) => Some(state),
            Claim::Mine | Claim::NotBefore(_) => None,
        }
    }

    /// Returns whether everything about a host up to a revision was applied.
    pub(super) fn is_applied(&self, domain: &str, revision: u64) -> bool {
        self.hosts.get(domain).map(|known| known.newest).max(self.ended.get(domain).copied())
            >= Some(revision)
    }

    /// Returns whether this process has the trial of a host.
    pub(super) fn is_tried_here(&self, domain: &str, now: Timestamp) -> bool {
        self.hosts.get(domain).is_some_and(|known| known.seen.is_tried_here(now))
    }

    /// Records the outcome of a claim.
    pub(super) fn record_claim(&mut self, domain: &str, answer: ClaimOutcome, now: Timestamp) {
        if let Some(known) = self.hosts.get_mut(domain) {
            known.is_claiming = false;
            if answer != ClaimOutcome::Known {
                known.failed = Some((now, answer));
            }
        }
    }

    /// Records whether the broker responded. Any response proves that it is available.
    pub(super) fn record_response(&mut self, is_answered: bool, now: Timestamp) {
        self.silent_since = if is_answered { None } else { Some(self.silent_since.unwrap_or(now)) };
    }

    /// Records a pause that this node's own attempts have set. Whatever the fleet says, it lasts
    /// for its own time.
    pub(super) fn record_own_pause(&mut self, domain: &str, until: Timestamp) {
        if let Some(known) = self.hosts.get_mut(domain) {
            known.own_until = known.own_until.max(Some(until));
        }
    }

    /// Queues the statement of a pause of this node, if the others do not say the same and would
    /// accept it. Returns whether it did.
    pub(super) fn state_pause(&mut self, domain: &str, until: Timestamp, at: Timestamp) -> bool {
        let nothing = HostStatements::default();
        let seen = self.hosts.get(domain).map_or(&nothing, |known| &known.seen);
        let Some(state) = paused(seen, until, at, self.own) else { return false };
        let is_new = seen.is_empty();
        if !self.quota.has_room(self.own, at, is_new) {
            return false;
        }
        self.outbox.insert(domain.to_owned(), state);
        true
    }

    /// Queues the statement that a host is fine, as this node found out or as its operator says.
    /// Returns whether it did: while other nodes have paused it, this has no effect for others.
    pub(super) fn state_fine(&mut self, domain: &str, at: Timestamp) -> bool {
        let is_said = |state: Option<&HostState>| {
            state.is_some_and(|state| state.phase != Phase::Fine && state.until > at)
        };
        let has_said = is_said(self.outbox.get(domain))
            || is_said(self.sent.get(domain).map(|(state, _)| state));
        let known = self.hosts.get_mut(domain);
        let is_over = known.as_ref().is_some_and(|known| known.hold(at).is_none());
        if let Some(known) = known {
            (known.own_until, known.is_waived) = (None, true);
        }
        if has_said || is_over {
            self.outbox.insert(domain.to_owned(), HostState::fine(at));
        }
        has_said || is_over
    }

    /// Begins to write a statement: the given one, or the queued one. Returns none if there is none
    /// that still holds, or if another one is on its way.
    pub(super) fn begin_write(
        &mut self,
        domain: &str,
        state: Option<HostState>,
        now: Timestamp,
    ) -> Option<HostState> {
        if self.writing.contains(domain) {
            return None;
        }
        let state =
            state.or_else(|| self.outbox.remove(domain)).filter(|state| state.until > now)?;
        if self.sent.len() > 2 * MAX_HOSTS_PER_NODE {
            self.sent.retain(|_, (state, _)| state.until > now);
        }
        self.writing.insert(domain.to_owned());
        self.sent.insert(domain.to_owned(), (state, false));
        Some(state)
    }

    /// Ends a write; a failed one is `again` tried later, unless a newer statement is queued.
    pub(super) fn end_write(&mut self, domain: &str, again: Option<HostState>) {
        self.writing.remove(domain);
        let is_delivered = |state: &HostState| self.sent.get(domain) == Some(&(*state, true));
        if let Some(state) = again.filter(|state| !is_delivered(state)) {
            self.outbox.entry(domain.to_owned()).or_insert(state);
        }
    }

    /// Returns the hosts with a queued statement.
    pub(super) fn pending(&self) -> Vec<String> {
        self.outbox.keys().filter(|domain| !self.writing.contains(*domain)).cloned().collect()
    }
}

/// Adjusts the numbers of statements by writers after those about one host have changed.
fn change_counts(
    counts: &mut HashMap<NodeId, usize>,
    before: &HostStatements,
    after: &HostStatements,
) {
    for statement in after.all() {
        *counts.entry(statement.by).or_default() += 1;
    }
    for statement in before.all() {
        if let Some(count) = counts.get_mut(&statement.by) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&statement.by);
            }
        }
    }
}

#[cfg(test)]
mod tests;
