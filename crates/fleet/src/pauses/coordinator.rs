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

use crate::model::node_id::Origin;
use crate::pauses::state_machine::{Budget, Claim, Seen, claim, own_moment};

/// The time after an unanswered claim for which the same host is not claimed again.
const UNANSWERED: Duration = Duration::from_secs(5);
/// The time without any response after which the node counts as cut off. Brokers that elect a leader respond again
/// within it.
const CUT_OFF: Duration = Duration::from_secs(30);
/// The maximum number of remembered deletions. They reject older changes that arrive later.
const DELETIONS: usize = 10_000;

/// One node's view of paused hosts.
#[derive(Debug)]
pub(super) struct Board {
    own: Origin,
    /// The incarnation of the table, if the broker reports it.
    table: Option<u64>,
    hosts: HashMap<String, Known>,
    /// Hosts whose cell was deleted, with the revision of the deletion.
    deleted: HashMap<String, u64>,
    budget: Budget,
    owed: HashMap<String, Owed>,
    /// The time since which no request got a response.
    silent_since: Option<Timestamp>,
    /// Pauses of other nodes that were rejected.
    pub(super) unbelieved: u64,
    /// Trials that this node has won.
    pub(super) trials: u64,
    /// Trials that were made without the broker.
    pub(super) own_trials: u64,
}

#[derive(Debug)]
struct Known {
    seen: Seen,
    ours: Ours,
    /// Whether a claim is in progress.
    is_claiming: bool,
    /// The time and outcome of the last failed claim.
    failed: Option<(Timestamp, Answer)>,
    /// Whether the host was tried without the broker.
    is_tried: bool,
}

/// The local pauses of a host that were set because of its cell only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ours {
    /// The pause of the cell.
    applied: Option<Timestamp>,
    /// The time until which the host is held because of a claim without a response.
    held: Option<Timestamp>,
}

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The current cell is known.
    Known,
    /// No broker responded.
    Nothing,
    /// The pause of the cell is rejected, and this node cannot swap it.
    Barred,
}

/// A write that the broker has not accepted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owed {
    /// A pause of this node: its end, and the time at which it was set.
    Pause(Timestamp, Timestamp),
    /// The host of the cell at this revision is fine.
    Lift(u64),
}

/// The local action that follows from another node's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Local {
    Nothing,
    /// Pause the host until then, or longer if it is paused for another reason; with this level.
    Pause {
        until: Timestamp,
        ours: Ours,
        level: u8,
    },
    /// Lift the pause, if the cell is still its reason.
    Lift(Ours),
    /// Let this node try the host, if it is still held; its pause was over at that time.
    Try {
        held: Timestamp,
        over: Timestamp,
    },
}

/// The reply to a visit that would try a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    NotBefore(Timestamp),
    /// The broker is being asked; `true` if the claim has to be sent.
    Asking(bool),
}

impl Ours {
    /// Returns whether a pause is one of them.
    pub(super) fn has(&self, pause: Timestamp) -> bool {
        self.applied == Some(pause) || self.held == Some(pause)
    }
}

impl Board {
    pub(super) fn new(own: Origin) -> Self {
        Self {
            own,
            table: None,
            hosts: HashMap::new(),
            deleted: HashMap::new(),
            budget: Budget::default(),
            owed: HashMap::new(),
            silent_since: None,
            unbelieved: 0,
            trials: 0,
            own_trials: 0,
        }
    }

    /// Returns the cell of a host as last seen.
    pub(super) fn seen(&self, domain: &str) -> Option<Seen> {
        self.hosts.get(domain).map(|known| known.seen)
    }

    /// Returns whether the table was recreated since the last check. Revisions of two incarnations are not comparable.
    pub(super) fn is_another(&mut self, table: Option<u64>) -> bool {
        let before = self.table;
        self.table = table.or(before);
        let is_another = before.is_some() && self.table != before;
        if is_another {
            self.deleted.clear();
        }
        is_another
    }

    /// Returns all hosts with a cell, with its revision.
    pub(super) fn cells(&self) -> Vec<(String, u64)> {
        self.hosts.iter().map(|(domain, known)| (domain.clone(), known.seen.revision)).collect()
    }

    /// Applies a changed cell. Changes older than the last seen one have no effect.
    pub(super) fn changed(&mut self, domain: &str, seen: Seen, now: Timestamp) -> Local {
        let before = self.hosts.get(domain);
        let is_late = before.is_some_and(|known| known.seen.revision >= seen.revision)
            || self.deleted.get(domain).is_some_and(|deleted| *deleted >= seen.revision);
        if is_late {
            return Local::Nothing;
        }
        let (ours, over) = (before.map(|known| known.ours), before.map(|known| known.seen.end()));
        let state = &seen.state;
        let is_mine = state.by == self.own;
        // A change of a host that is paused already is not a new pause.
        if !is_mine && ours.is_none() && !self.budget.spend(state.by, seen.stored) {
            self.unbelieved += 1;
            return Local::Nothing;
        }
        let ours = ours.unwrap_or_default();
        let end = seen.end();
        if is_mine && state.is_trial && end > now {
            // Counted here and not where the claim is answered: the watcher may see the change first, and it starts the
            // trial.
            self.trials += 1;
        }
        let holds = end > now && !(is_mine && state.is_trial);
        let known = Known {
            seen,
            ours: if holds { Ours { applied: Some(end), held: None } } else { ours },
            is_claiming: false,
            failed: None,
            is_tried: false,
        };
        self.hosts.insert(domain.to_owned(), known);
        match (holds, ours.held, over) {
            (true, ..) => Local::Pause { until: end, ours, level: state.level },
            // The claim had arrived, but its response was lost.
            (false, Some(held), Some(over)) if end > now => Local::Try { held, over },
            _ => Local::Nothing,
        }
    }

    /// Applies the deletion of a cell at that revision.
    pub(super) fn gone(&mut self, domain: &str, revision: u64) -> Local {
        if self.hosts.get(domain).is_some_and(|known| known.seen.revision > revision) {
            return Local::Nothing;
        }
        let deleted = self.deleted.entry(domain.to_owned()).or_default();
        *deleted = revision.max(*deleted);
        if self.deleted.len() > DELETIONS {
            let mut revisions: Vec<u64> = self.deleted.values().copied().collect();
            let (_, middle, _) = revisions.select_nth_unstable(DELETIONS / 2);
            let middle = *middle;
            self.deleted.retain(|_, revision| *revision > middle);
        }
        match self.hosts.remove(domain) {
            Some(known) if known.ours != Ours::default() => Local::Lift(known.ours),
            _ => Local::Nothing,
        }
    }

    /// Applies the loss of a cell together with its table, which is not a sign that the host is fine.
    pub(super) fn lost(&mut self, domain: &str, now: Timestamp) {
        if let Some(known) = self.hosts.remove(domain)
            && known.seen.state.by == self.own
            && !known.seen.state.is_trial
            && known.seen.end() > now
        {
            self.owe(domain, Owed::Pause(known.seen.end(), now));
        }
    }

    /// Returns whether this node may try a host.
    pub(super) fn turn(&mut self, domain: &str, ended: Timestamp, now: Timestamp) -> Turn {
        let (own, silent_since) = (self.own, self.silent_since);
        let Some(known) = self.hosts.get_mut(domain) else { return Turn::Now };
        match claim(&known.seen, now, own) {
            Claim::Mine => return Turn::Now,
            Claim::NotBefore(until) => return Turn::NotBefore(until),
            Claim::Take(_) if known.is_claiming => return Turn::Asking(false),
            Claim::Take(_) => {}
        }
        // All visits are held until the same time, so that this time identifies the hold.
        if let Some(held) = known.ours.held.filter(|held| *held > now) {
            return Turn::NotBefore(held);
        }
        let Some((last, answer)) = known.failed.filter(|(last, _)| now.since(*last) <= UNANSWERED) else {
            known.is_claiming = true;
            return Turn::Asking(true);
        };
        let ask_again = last.saturating_add(UNANSWERED + Duration::from_millis(1));
        let over = known.seen.end().min(ended);
        let moment = match (answer, silent_since) {
            (Answer::Barred, _) => own_moment(own, domain, over),
            (_, Some(since)) => own_moment(own, domain, over).max(since.saturating_add(CUT_OFF)),
            // The broker is available and was merely late.
            (_, None) => ask_again,
        };
        if moment > now {
            known.ours.held = Some(moment);
            return Turn::NotBefore(moment);
        }
        if known.is_tried {
            let later = now.saturating_add(UNANSWERED * 2);
            known.ours.held = Some(later);
            return Turn::NotBefore(later);
        }
        known.is_tried = true;
        self.own_trials += 1;
        Turn::Now
    }

    /// Holds visits to a host until then, because the broker cannot be asked at the moment.
    pub(super) fn hold(&mut self, domain: &str, until: Timestamp) {
        if let Some(known) = self.hosts.get_mut(domain) {
            known.is_claiming = false;
            known.ours.held = Some(until);
        }
    }

    /// Records the outcome of a claim.
    pub(super) fn claimed(&mut self, domain: &str, answer: Answer, now: Timestamp) {
        if let Some(known) = self.hosts.get_mut(domain) {
            known.is_claiming = false;
            known.failed = if answer == Answer::Known { None } else { Some((now, answer)) };
        }
    }

    /// Records whether the broker responded. Any response proves that it is available.
    pub(super) fn heard(&mut self, is_answered: bool, now: Timestamp) {
        self.silent_since = if is_answered { None } else { Some(self.silent_since.unwrap_or(now)) };
    }

    /// Records a write that failed.
    pub(super) fn owe(&mut self, domain: &str, owed: Owed) {
        self.owed.insert(domain.to_owned(), owed);
    }

    /// Takes all pending writes that are still valid.
    pub(super) fn settle(&mut self) -> Vec<(String, Owed)> {
        let hosts = &self.hosts;
        let is_true = |domain: &String, owed: &Owed| match owed {
            Owed::Pause(..) => true,
            Owed::Lift(revision) => hosts.get(domain).is_some_and(|known| known.seen.revision == *revision),
        };
        self.owed.drain().filter(|(domain, owed)| is_true(domain, owed)).collect()
    }

    /// Returns whether another pause of this node is shared. Pauses of hosts that are paused already always are.
    pub(super) fn may_say(&mut self, domain: &str, at: Timestamp) -> bool {
        self.hosts.contains_key(domain) || self.budget.spend(self.own, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pauses::state_machine::{HostState, PAUSES_AN_HOUR};

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn after(seconds: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_secs(seconds))
    }

    fn seen(by: Origin, until: u64, revision: u64) -> Seen {
        let state = HostState { is_trial: false, until: after(until), at: NOW, level: 1, by };
        Seen { state, stored: NOW, revision }
    }

    /// Makes a claim without a response.
    fn in_vain(board: &mut Board, domain: &str, now: Timestamp) {
        board.heard(false, now);
        board.claimed(domain, Answer::Nothing, now);
    }

    #[test]
    fn who_is_cut_off_tries_a_host_out_once() {
        let (own, other) = (Origin::random(), Origin::random());
        let mut board = Board::new(own);
        assert_eq!(board.turn("e.org", after(600), after(600)), Turn::Now, "nobody else has paused it");
        board.changed("e.org", seen(other, 600, 1), NOW);
        assert_eq!(board.turn("e.org", after(600), after(599)), Turn::NotBefore(after(600)));
        assert_eq!(board.turn("e.org", after(600), after(600)), Turn::Asking(true));
        assert_eq!(board.turn("e.org", after(600), after(600)), Turn::Asking(false), "one question for all who ask");
        in_vain(&mut board, "e.org", after(600));
        let Turn::NotBefore(moment) = board.turn("e.org", after(600), after(600)) else { panic!("not at once") };
        assert!(moment <= after(660));
        assert_eq!(board.turn("e.org", after(600), after(601)), Turn::NotBefore(moment), "one moment for all who ask");
        in_vain(&mut board, "e.org", moment);
        assert_eq!(board.turn("e.org", after(600), moment), Turn::Now);
        in_vain(&mut board, "e.org", moment);
        assert!(matches!(board.turn("e.org", after(600), moment), Turn::NotBefore(_)), "once a pause");
        board.changed("e.org", seen(other, 9000, 2), moment);
        board.turn("e.org", after(9000), after(9000));
        in_vain(&mut board, "e.org", after(9000));
        let Turn::NotBefore(moment) = board.turn("e.org", after(9000), after(9000)) else { panic!("not at once") };
        in_vain(&mut board, "e.org", moment);
        assert_eq!(board.turn("e.org", after(9000), moment), Turn::Now, "another pause, another trial");
    }

    #[test]
    fn a_broker_that_is_late_with_one_answer_is_there() {
        let mut board = Board::new(Origin::random());
        board.changed("e.org", seen(Origin::random(), 600, 1), NOW);
        let mut now = after(600);
        for _ in 0..100 {
            assert_eq!(board.turn("e.org", after(600), now), Turn::Asking(true));
            in_vain(&mut board, "e.org", now);
            board.heard(true, now);
            let Turn::NotBefore(again) = board.turn("e.org", after(600), now) else { panic!("it asks again") };
            now = again;
        }
        assert_eq!(board.own_trials, 0);
        // Long after that, a single claim without a response is no reason to go without the broker either.
        now = now.saturating_add(Duration::from_secs(3600));
        assert_eq!(board.turn("e.org", after(600), now), Turn::Asking(true));
        in_vain(&mut board, "e.org", now);
        assert_eq!(board.turn("e.org", after(600), now), Turn::NotBefore(now.saturating_add(CUT_OFF)));
    }

    #[test]
    fn what_others_did_is_undone_with_their_cell_only() {
        let mut board = Board::new(Origin::random());
        let other = Origin::random();
        let ours = |applied| Ours { applied, held: None };
        let pause = |until, before| Local::Pause { until, ours: ours(before), level: 1 };
        assert_eq!(board.changed("e.org", seen(other, 600, 2), NOW), pause(after(600), None));
        assert_eq!(board.changed("e.org", seen(other, 900, 1), NOW), Local::Nothing, "late news");
        assert_eq!(board.changed("e.org", seen(other, 900, 3), NOW), pause(after(900), Some(after(600))));
        assert_eq!(board.gone("e.org", 2), Local::Nothing, "it was there again since");
        assert_eq!(board.gone("e.org", 4), Local::Lift(ours(Some(after(900)))));
        assert_eq!(board.gone("e.org", 4), Local::Nothing);
        assert_eq!(board.changed("e.org", seen(other, 900, 3), NOW), Local::Nothing, "it is gone since");
        assert_eq!(board.changed("e.org", seen(other, 900, 5), NOW), pause(after(900), None));
    }

    #[test]
    fn who_was_held_off_is_let_go_with_the_cell() {
        let mut board = Board::new(Origin::random());
        board.changed("e.org", seen(Origin::random(), 600, 1), NOW);
        board.turn("e.org", after(600), after(600));
        in_vain(&mut board, "e.org", after(600));
        let Turn::NotBefore(moment) = board.turn("e.org", after(600), after(600)) else { panic!("not at once") };
        let Local::Lift(ours) = board.gone("e.org", 2) else { panic!("it was paused") };
        assert!(ours.has(moment) && ours.has(after(600)) && !ours.has(after(601)));
    }

    #[test]
    fn who_was_held_off_and_hears_that_its_claim_was_heard_tries_the_host_out() {
        let own = Origin::random();
        let mut board = Board::new(own);
        board.changed("e.org", seen(Origin::random(), 600, 1), NOW);
        board.turn("e.org", after(600), after(600));
        in_vain(&mut board, "e.org", after(600));
        let Turn::NotBefore(held) = board.turn("e.org", after(600), after(600)) else { panic!("not at once") };
        let mut trial = seen(own, 1200, 2);
        (trial.state.is_trial, trial.state.at, trial.stored) = (true, after(600), after(600));
        assert_eq!(board.changed("e.org", trial, after(605)), Local::Try { held, over: after(600) });
        assert_eq!(board.turn("e.org", after(600), after(605)), Turn::Now);
        assert_eq!((board.trials, board.own_trials), (1, 0));
    }

    #[test]
    fn deletions_are_not_remembered_for_ever() {
        let mut board = Board::new(Origin::random());
        for n in 1..=3 * DELETIONS as u64 {
            board.gone(&format!("h{n}.org"), n);
            assert!(board.deleted.len() <= DELETIONS);
        }
        assert!(board.deleted.contains_key(&format!("h{}.org", 3 * DELETIONS)));
    }

    #[test]
    fn what_becomes_of_a_paused_host_is_no_new_pause() {
        let (own, other) = (Origin::random(), Origin::random());
        let mut board = Board::new(own);
        for n in 0..PAUSES_AN_HOUR as u64 {
            assert_ne!(board.changed(&format!("h{n}.org"), seen(other, 600, n + 1), NOW), Local::Nothing);
        }
        // One of all nodes has tried them and was blocked.
        for n in 0..PAUSES_AN_HOUR as u64 {
            let again = seen(other, 1800, 1000 + n);
            assert_ne!(board.changed(&format!("h{n}.org"), again, NOW), Local::Nothing);
            assert!(board.may_say(&format!("h{n}.org"), NOW));
        }
        assert_eq!(board.unbelieved, 0);
        assert_eq!(board.changed("new.org", seen(other, 600, 5000), NOW), Local::Nothing);
        let own_new = (0..1000).filter(|n| board.may_say(&format!("own{n}.org"), NOW)).count();
        assert_eq!(own_new, PAUSES_AN_HOUR);
    }

    #[test]
    fn who_pauses_the_world_pauses_itself() {
        let (mut board, other) = (Board::new(Origin::random()), Origin::random());
        let mut paused = 0;
        for n in 0..1000u64 {
            paused += usize::from(board.changed(&format!("h{n}.org"), seen(other, 600, n + 1), NOW) != Local::Nothing);
        }
        assert_eq!((paused, board.unbelieved), (PAUSES_AN_HOUR, 900));
    }

    #[test]
    fn a_table_that_is_gone_gets_ones_own_pauses_back() {
        let (own, other) = (Origin::random(), Origin::random());
        let mut board = Board::new(own);
        board.changed("mine.org", seen(own, 600, 1), NOW);
        board.changed("theirs.org", seen(other, 600, 2), NOW);
        board.lost("mine.org", NOW);
        board.lost("theirs.org", NOW);
        assert_eq!(board.settle(), [("mine.org".to_owned(), Owed::Pause(after(600), NOW))]);
        assert_eq!(board.cells(), []);
    }
}
