//! One node's view of the fleet's paused hosts, and the writes that it still owes.
//!
//! Owns: the cells as last seen, the local pauses set because of them, and the pending writes.
//!
//! Invariants: the node lifts a local pause only if the fleet's pause was its reason. While cut off, it tries a host
//! once per pause.
//!
//! Must not know: how and when cells are swapped.

use std::collections::HashMap;
use std::time::Duration;

use fetchwise::time::Timestamp;

use crate::model::node_id::NodeId;
use crate::pauses::state_machine::{CellVersion, Claim, PauseQuota, claim, offline_trial_time};

/// The time after an unanswered claim for which the same host is not claimed again.
const CLAIM_RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// The time without any response after which the node counts as cut off. Brokers that elect a leader respond again
/// within it.
const CUT_OFF_AFTER: Duration = Duration::from_secs(30);
/// The maximum number of remembered deletions. They reject older changes that arrive later.
const MAX_DELETIONS: usize = 10_000;

/// One node's view of paused hosts.
#[derive(Debug)]
pub(super) struct PauseView {
    own: NodeId,
    /// The incarnation of the table, if the broker reports it.
    table: Option<u64>,
    hosts: HashMap<String, HostView>,
    /// Hosts whose cell was deleted, with the revision of the deletion.
    deleted: HashMap<String, u64>,
    quota: PauseQuota,
    pending: HashMap<String, PendingWrite>,
    /// The time since which no request got a response.
    silent_since: Option<Timestamp>,
    /// Pauses of other nodes that were rejected.
    pub(super) rejected: u64,
    /// Trials that this node has won.
    pub(super) trials: u64,
    /// Trials that were made without the broker.
    pub(super) own_trials: u64,
}

#[derive(Debug)]
struct HostView {
    seen: CellVersion,
    ours: OwnPauses,
    /// Whether a claim is in progress.
    is_claiming: bool,
    /// The time and outcome of the last failed claim.
    failed: Option<(Timestamp, ClaimOutcome)>,
    /// Whether the host was tried without the broker.
    is_tried: bool,
}

/// The local pauses of a host that were set because of its cell only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OwnPauses {
    /// The pause of the cell.
    applied: Option<Timestamp>,
    /// The time until which the host is held because of a claim without a response.
    held: Option<Timestamp>,
}

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimOutcome {
    /// The current cell is known.
    Known,
    /// No broker responded.
    Unanswered,
    /// The pause of the cell is rejected, and this node cannot swap it.
    Rejected,
}

/// A write that the broker has not accepted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PendingWrite {
    /// A pause of this node: its end, and the time at which it was set.
    Pause(Timestamp, Timestamp),
    /// The host of the cell at this revision is fine.
    Lift(u64),
}

/// The local action that follows from another node's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalAction {
    Nothing,
    /// Pause the host until then, or longer if it is paused for another reason; with this level.
    Pause {
        until: Timestamp,
        ours: OwnPauses,
        level: u8,
    },
    /// Lift the pause, if the cell is still its reason.
    Lift(OwnPauses),
    /// Let this node try the host, if it is still held; its pause was over at that time.
    Try {
        held: Timestamp,
        over: Timestamp,
    },
}

/// The reply to a visit that would try a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TrialReply {
    Now,
    NotBefore(Timestamp),
    /// The broker is being asked; `true` if the claim has to be sent.
    Asking(bool),
}

impl OwnPauses {
    /// Returns whether a pause is one of them.
    pub(super) fn has(&self, pause: Timestamp) -> bool {
        self.applied == Some(pause) || self.held == Some(pause)
    }
}

impl PauseView {
    pub(super) fn new(own: NodeId) -> Self {
        Self {
            own,
            table: None,
            hosts: HashMap::new(),
            deleted: HashMap::new(),
            quota: PauseQuota::default(),
            pending: HashMap::new(),
            silent_since: None,
            rejected: 0,
            trials: 0,
            own_trials: 0,
        }
    }

    /// Returns the cell of a host as last seen.
    pub(super) fn cell(&self, domain: &str) -> Option<CellVersion> {
        self.hosts.get(domain).map(|known| known.seen)
    }

    /// Returns whether the table was recreated since the last check. Revisions of two incarnations are not comparable.
    pub(super) fn is_recreated(&mut self, table: Option<u64>) -> bool {
        let before = self.table;
        self.table = table.or(before);
        let is_recreated = before.is_some() && self.table != before;
        if is_recreated {
            self.deleted.clear();
        }
        is_recreated
    }

    /// Returns all hosts with a cell, with its revision.
    pub(super) fn cells(&self) -> Vec<(String, u64)> {
        self.hosts.iter().map(|(domain, known)| (domain.clone(), known.seen.revision)).collect()
    }

    /// Applies a changed cell. Changes older than the last seen one have no effect.
    pub(super) fn apply_change(&mut self, domain: &str, seen: CellVersion, now: Timestamp) -> LocalAction {
        let before = self.hosts.get(domain);
        let is_late = before.is_some_and(|known| known.seen.revision >= seen.revision)
            || self.deleted.get(domain).is_some_and(|deleted| *deleted >= seen.revision);
        if is_late {
            return LocalAction::Nothing;
        }
        let (ours, over) = (before.map(|known| known.ours), before.map(|known| known.seen.end()));
        let state = &seen.state;
        let is_mine = state.by == self.own;
        // A change of a host that is paused already is not a new pause.
        if !is_mine && ours.is_none() && !self.quota.spend(state.by, seen.stored) {
            self.rejected += 1;
            return LocalAction::Nothing;
        }
        let ours = ours.unwrap_or_default();
        let end = seen.end();
        if is_mine && state.is_trial && end > now {
            // Counted here and not where the claim is answered: the watcher may see the change first, and it starts the
            // trial.
            self.trials += 1;
        }
        let holds = end > now && !(is_mine && state.is_trial);
        let known = HostView {
            seen,
            ours: if holds { OwnPauses { applied: Some(end), held: None } } else { ours },
            is_claiming: false,
            failed: None,
            is_tried: false,
        };
        self.hosts.insert(domain.to_owned(), known);
        match (holds, ours.held, over) {
            (true, ..) => LocalAction::Pause { until: end, ours, level: state.level },
            // The claim had arrived, but its response was lost.
            (false, Some(held), Some(over)) if end > now => LocalAction::Try { held, over },
            _ => LocalAction::Nothing,
        }
    }

    /// Applies the deletion of a cell at that revision.
    pub(super) fn apply_deletion(&mut self, domain: &str, revision: u64) -> LocalAction {
        if self.hosts.get(domain).is_some_and(|known| known.seen.revision > revision) {
            return LocalAction::Nothing;
        }
        let deleted = self.deleted.entry(domain.to_owned()).or_default();
        *deleted = revision.max(*deleted);
        if self.deleted.len() > MAX_DELETIONS {
            let mut revisions: Vec<u64> = self.deleted.values().copied().collect();
            let (_, middle, _) = revisions.select_nth_unstable(MAX_DELETIONS / 2);
            let middle = *middle;
            self.deleted.retain(|_, revision| *revision > middle);
        }
        match self.hosts.remove(domain) {
            Some(known) if known.ours != OwnPauses::default() => LocalAction::Lift(known.ours),
            _ => LocalAction::Nothing,
        }
    }

    /// Applies the loss of a cell together with its table, which is not a sign that the host is fine.
    pub(super) fn apply_loss(&mut self, domain: &str, now: Timestamp) {
        if let Some(known) = self.hosts.remove(domain)
            && known.seen.state.by == self.own
            && !known.seen.state.is_trial
            && known.seen.end() > now
        {
            self.add_pending(domain, PendingWrite::Pause(known.seen.end(), now));
        }
    }

    /// Returns whether this node may try a host.
    pub(super) fn request_trial(&mut self, domain: &str, ended: Timestamp, now: Timestamp) -> TrialReply {
        let (own, silent_since) = (self.own, self.silent_since);
        let Some(known) = self.hosts.get_mut(domain) else { return TrialReply::Now };
        match claim(&known.seen, now, own) {
            Claim::Mine => return TrialReply::Now,
            Claim::NotBefore(until) => return TrialReply::NotBefore(until),
            Claim::Swap(_) if known.is_claiming => return TrialReply::Asking(false),
            Claim::Swap(_) => {}
        }
        // All visits are held until the same time, so that this time identifies the hold.
        if let Some(held) = known.ours.held.filter(|held| *held > now) {
            return TrialReply::NotBefore(held);
        }
        let Some((last, answer)) = known.failed.filter(|(last, _)| now.since(*last) <= CLAIM_RETRY_INTERVAL) else {
            known.is_claiming = true;
            return TrialReply::Asking(true);
        };
        let ask_again = last.saturating_add(CLAIM_RETRY_INTERVAL + Duration::from_millis(1));
        let over = known.seen.end().min(ended);
        let moment = match (answer, silent_since) {
            (ClaimOutcome::Rejected, _) => offline_trial_time(own, domain, over),
            (_, Some(since)) => offline_trial_time(own, domain, over).max(since.saturating_add(CUT_OFF_AFTER)),
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

    /// Records the outcome of a claim.
    pub(super) fn record_claim(&mut self, domain: &str, answer: ClaimOutcome, now: Timestamp) {
        if let Some(known) = self.hosts.get_mut(domain) {
            known.is_claiming = false;
            known.failed = if answer == ClaimOutcome::Known { None } else { Some((now, answer)) };
        }
    }

    /// Records whether the broker responded. Any response proves that it is available.
    pub(super) fn record_response(&mut self, is_answered: bool, now: Timestamp) {
        self.silent_since = if is_answered { None } else { Some(self.silent_since.unwrap_or(now)) };
    }

    /// Records a write that failed.
    pub(super) fn add_pending(&mut self, domain: &str, pending: PendingWrite) {
        self.pending.insert(domain.to_owned(), pending);
    }

    /// Takes all pending writes that are still valid.
    pub(super) fn take_pending(&mut self) -> Vec<(String, PendingWrite)> {
        let hosts = &self.hosts;
        let is_true = |domain: &String, pending: &PendingWrite| match pending {
            PendingWrite::Pause(..) => true,
            PendingWrite::Lift(revision) => hosts.get(domain).is_some_and(|known| known.seen.revision == *revision),
        };
        self.pending.drain().filter(|(domain, pending)| is_true(domain, pending)).collect()
    }

    /// Returns whether another pause of this node is shared. Pauses of hosts that are paused already always are.
    pub(super) fn may_share(&mut self, domain: &str, at: Timestamp) -> bool {
        self.hosts.contains_key(domain) || self.quota.spend(self.own, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pauses::state_machine::{HostState, MAX_PAUSES_PER_HOUR};

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn after(seconds: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_secs(seconds))
    }

    fn seen(by: NodeId, until: u64, revision: u64) -> CellVersion {
        let state = HostState { is_trial: false, until: after(until), at: NOW, level: 1, by };
        CellVersion { state, stored: NOW, revision }
    }

    /// Makes a claim without a response.
    fn lose_response(view: &mut PauseView, domain: &str, now: Timestamp) {
        view.record_response(false, now);
        view.record_claim(domain, ClaimOutcome::Unanswered, now);
    }

    #[test]
    fn a_node_that_is_cut_off_tries_a_host_once() {
        let (own, other) = (NodeId::random(), NodeId::random());
        let mut view = PauseView::new(own);
        assert_eq!(view.request_trial("e.org", after(600), after(600)), TrialReply::Now, "no other node has paused it");
        view.apply_change("e.org", seen(other, 600, 1), NOW);
        assert_eq!(view.request_trial("e.org", after(600), after(599)), TrialReply::NotBefore(after(600)));
        assert_eq!(view.request_trial("e.org", after(600), after(600)), TrialReply::Asking(true));
        assert_eq!(
            view.request_trial("e.org", after(600), after(600)),
            TrialReply::Asking(false),
            "one claim for all visits"
        );
        lose_response(&mut view, "e.org", after(600));
        let TrialReply::NotBefore(moment) = view.request_trial("e.org", after(600), after(600)) else {
            panic!("not at once")
        };
        assert!(moment <= after(660));
        assert_eq!(
            view.request_trial("e.org", after(600), after(601)),
            TrialReply::NotBefore(moment),
            "one time for all visits"
        );
        lose_response(&mut view, "e.org", moment);
        assert_eq!(view.request_trial("e.org", after(600), moment), TrialReply::Now);
        lose_response(&mut view, "e.org", moment);
        assert!(matches!(view.request_trial("e.org", after(600), moment), TrialReply::NotBefore(_)), "once a pause");
        view.apply_change("e.org", seen(other, 9000, 2), moment);
        view.request_trial("e.org", after(9000), after(9000));
        lose_response(&mut view, "e.org", after(9000));
        let TrialReply::NotBefore(moment) = view.request_trial("e.org", after(9000), after(9000)) else {
            panic!("not at once")
        };
        lose_response(&mut view, "e.org", moment);
        assert_eq!(view.request_trial("e.org", after(9000), moment), TrialReply::Now, "each pause has a trial");
    }

    #[test]
    fn one_late_response_does_not_mean_cut_off() {
        let mut view = PauseView::new(NodeId::random());
        view.apply_change("e.org", seen(NodeId::random(), 600, 1), NOW);
        let mut now = after(600);
        for _ in 0..100 {
            assert_eq!(view.request_trial("e.org", after(600), now), TrialReply::Asking(true));
            lose_response(&mut view, "e.org", now);
            view.record_response(true, now);
            let TrialReply::NotBefore(again) = view.request_trial("e.org", after(600), now) else {
                panic!("it asks again")
            };
            now = again;
        }
        assert_eq!(view.own_trials, 0);
        // Long after that, a single claim without a response is no reason to go without the broker either.
        now = now.saturating_add(Duration::from_secs(3600));
        assert_eq!(view.request_trial("e.org", after(600), now), TrialReply::Asking(true));
        lose_response(&mut view, "e.org", now);
        assert_eq!(
            view.request_trial("e.org", after(600), now),
            TrialReply::NotBefore(now.saturating_add(CUT_OFF_AFTER))
        );
    }

    #[test]
    fn a_remote_pause_is_lifted_only_with_its_cell() {
        let mut view = PauseView::new(NodeId::random());
        let other = NodeId::random();
        let ours = |applied| OwnPauses { applied, held: None };
        let pause = |until, before| LocalAction::Pause { until, ours: ours(before), level: 1 };
        assert_eq!(view.apply_change("e.org", seen(other, 600, 2), NOW), pause(after(600), None));
        assert_eq!(view.apply_change("e.org", seen(other, 900, 1), NOW), LocalAction::Nothing, "late news");
        assert_eq!(view.apply_change("e.org", seen(other, 900, 3), NOW), pause(after(900), Some(after(600))));
        assert_eq!(view.apply_deletion("e.org", 2), LocalAction::Nothing, "it was there again since");
        assert_eq!(view.apply_deletion("e.org", 4), LocalAction::Lift(ours(Some(after(900)))));
        assert_eq!(view.apply_deletion("e.org", 4), LocalAction::Nothing);
        assert_eq!(view.apply_change("e.org", seen(other, 900, 3), NOW), LocalAction::Nothing, "it is gone since");
        assert_eq!(view.apply_change("e.org", seen(other, 900, 5), NOW), pause(after(900), None));
    }

    #[test]
    fn a_held_visit_is_released_with_the_cell() {
        let mut view = PauseView::new(NodeId::random());
        view.apply_change("e.org", seen(NodeId::random(), 600, 1), NOW);
        view.request_trial("e.org", after(600), after(600));
        lose_response(&mut view, "e.org", after(600));
        let TrialReply::NotBefore(moment) = view.request_trial("e.org", after(600), after(600)) else {
            panic!("not at once")
        };
        let LocalAction::Lift(ours) = view.apply_deletion("e.org", 2) else { panic!("it was paused") };
        assert!(ours.has(moment) && ours.has(after(600)) && !ours.has(after(601)));
    }

    #[test]
    fn a_held_node_tries_once_its_claim_is_confirmed() {
        let own = NodeId::random();
        let mut view = PauseView::new(own);
        view.apply_change("e.org", seen(NodeId::random(), 600, 1), NOW);
        view.request_trial("e.org", after(600), after(600));
        lose_response(&mut view, "e.org", after(600));
        let TrialReply::NotBefore(held) = view.request_trial("e.org", after(600), after(600)) else {
            panic!("not at once")
        };
        let mut trial = seen(own, 1200, 2);
        (trial.state.is_trial, trial.state.at, trial.stored) = (true, after(600), after(600));
        assert_eq!(view.apply_change("e.org", trial, after(605)), LocalAction::Try { held, over: after(600) });
        assert_eq!(view.request_trial("e.org", after(600), after(605)), TrialReply::Now);
        assert_eq!((view.trials, view.own_trials), (1, 0));
    }

    #[test]
    fn remembered_deletions_are_bounded() {
        let mut view = PauseView::new(NodeId::random());
        for n in 1..=3 * MAX_DELETIONS as u64 {
            view.apply_deletion(&format!("h{n}.org"), n);
            assert!(view.deleted.len() <= MAX_DELETIONS);
        }
        assert!(view.deleted.contains_key(&format!("h{}.org", 3 * MAX_DELETIONS)));
    }

    #[test]
    fn a_change_of_a_paused_host_is_not_a_new_pause() {
        let (own, other) = (NodeId::random(), NodeId::random());
        let mut view = PauseView::new(own);
        for n in 0..MAX_PAUSES_PER_HOUR as u64 {
            assert_ne!(view.apply_change(&format!("h{n}.org"), seen(other, 600, n + 1), NOW), LocalAction::Nothing);
        }
        // One of all nodes has tried them and was blocked.
        for n in 0..MAX_PAUSES_PER_HOUR as u64 {
            let again = seen(other, 1800, 1000 + n);
            assert_ne!(view.apply_change(&format!("h{n}.org"), again, NOW), LocalAction::Nothing);
            assert!(view.may_share(&format!("h{n}.org"), NOW));
        }
        assert_eq!(view.rejected, 0);
        assert_eq!(view.apply_change("new.org", seen(other, 600, 5000), NOW), LocalAction::Nothing);
        let own_new = (0..1000).filter(|n| view.may_share(&format!("own{n}.org"), NOW)).count();
        assert_eq!(own_new, MAX_PAUSES_PER_HOUR);
    }

    #[test]
    fn pauses_over_the_quota_stay_local() {
        let (mut view, other) = (PauseView::new(NodeId::random()), NodeId::random());
        let mut paused = 0;
        for n in 0..1000u64 {
            paused += usize::from(
                view.apply_change(&format!("h{n}.org"), seen(other, 600, n + 1), NOW) != LocalAction::Nothing,
            );
        }
        assert_eq!((paused, view.rejected), (MAX_PAUSES_PER_HOUR, 900));
    }

    #[test]
    fn own_pauses_are_restored_to_a_lost_table() {
        let (own, other) = (NodeId::random(), NodeId::random());
        let mut view = PauseView::new(own);
        view.apply_change("mine.org", seen(own, 600, 1), NOW);
        view.apply_change("theirs.org", seen(other, 600, 2), NOW);
        view.apply_loss("mine.org", NOW);
        view.apply_loss("theirs.org", NOW);
        assert_eq!(view.take_pending(), [("mine.org".to_owned(), PendingWrite::Pause(after(600), NOW))]);
        assert_eq!(view.cells(), []);
    }
}
