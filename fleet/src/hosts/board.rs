//! What one node knows of the paused hosts of all, and what it owes them.
//!
//! Owns: the cells as they were last seen, what was done about them here, and what could not be said yet. Invariants: a host's own
//! pause is lifted only where the fleet's was its reason; cut off, a node tries a host out once a pause. Must not know: how cells are
//! swapped, or when.

use std::collections::HashMap;
use std::time::Duration;

use fetchwise::time::Timestamp;

use super::rules::{Budget, Claim, Seen, claim, own_moment};
use crate::origin::Origin;

/// After a broker did not answer, nobody asks it about the same host for so long.
const UNANSWERED: Duration = Duration::from_secs(5);
/// Brokers that choose a leader answer again within this. Who gets no answer for longer is cut off.
const CUT_OFF: Duration = Duration::from_secs(20);

/// What is known.
#[derive(Debug)]
pub(super) struct Board {
    own: Origin,
    /// Which table the cells are of, where the broker says so.
    table: Option<u64>,
    hosts: HashMap<String, Known>,
    budget: Budget,
    owed: HashMap<String, Owed>,
    /// Pauses of others that were not believed.
    pub(super) unbelieved: u64,
    /// Trials that were made without asking.
    pub(super) own_trials: u64,
}

#[derive(Debug)]
struct Known {
    seen: Seen,
    /// The pause that was set here because of it.
    applied: Option<Timestamp>,
    /// A claim is under way.
    is_claiming: bool,
    /// Since when claims have got no answer, and when the last one did not.
    unanswered: Option<(Timestamp, Timestamp)>,
    /// It has been tried out without asking anybody.
    is_tried: bool,
}

/// What others have not been told yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owed {
    /// A pause of this node's: until when, and when it was set.
    Pause(Timestamp, Timestamp),
    /// The host of the cell at that revision is fine.
    Lift(u64),
}

/// What has to be done here about what others did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Local {
    Nothing,
    /// Paused until then, or longer where it is for another reason than `applied`; so often in a row.
    Pause {
        until: Timestamp,
        applied: Option<Timestamp>,
        level: u8,
    },
    /// Fine again, where it is still paused until then.
    Lift(Timestamp),
}

/// What somebody who would try a host out is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    NotBefore(Timestamp),
    /// The broker is being asked; `true` where that has to begin.
    Asking(bool),
}

impl Board {
    pub(super) fn new(own: Origin) -> Self {
        Self {
            own,
            table: None,
            hosts: HashMap::new(),
            budget: Budget::default(),
            owed: HashMap::new(),
            unbelieved: 0,
            own_trials: 0,
        }
    }

    /// The cell of a host as it was last seen.
    pub(super) fn seen(&self, domain: &str) -> Option<Seen> {
        self.hosts.get(domain).map(|known| known.seen)
    }

    /// Whether the table is another one than at the last look.
    pub(super) fn is_another(&mut self, table: Option<u64>) -> bool {
        let before = self.table;
        self.table = table.or(before);
        before.is_some() && self.table != before
    }

    /// All hosts that have a cell.
    pub(super) fn domains(&self) -> Vec<String> {
        self.hosts.keys().cloned().collect()
    }

    /// A cell is this now. What is older than what was seen before changes nothing.
    pub(super) fn changed(&mut self, domain: &str, seen: Seen, now: Timestamp) -> Local {
        let before = self.hosts.get(domain);
        if before.is_some_and(|known| known.seen.revision >= seen.revision) {
            return Local::Nothing;
        }
        let applied = before.and_then(|known| known.applied);
        let state = &seen.state;
        let is_mine = state.by == self.own;
        if !is_mine && !state.is_trial && !self.budget.spend(state.by, seen.stored) {
            self.unbelieved += 1;
            return Local::Nothing;
        }
        let end = seen.end();
        let holds = end > now && !(is_mine && state.is_trial);
        let known = Known {
            seen,
            applied: if holds { Some(end) } else { applied },
            is_claiming: false,
            unanswered: None,
            is_tried: false,
        };
        self.hosts.insert(domain.to_owned(), known);
        if holds { Local::Pause { until: end, applied, level: state.level } } else { Local::Nothing }
    }

    /// A host has no cell any more.
    pub(super) fn gone(&mut self, domain: &str) -> Local {
        match self.hosts.remove(domain) {
            Some(Known { applied: Some(applied), .. }) => Local::Lift(applied),
            _ => Local::Nothing,
        }
    }

    /// A cell is gone with all others: that says nothing of the host.
    pub(super) fn lost(&mut self, domain: &str, now: Timestamp) {
        if let Some(known) = self.hosts.remove(domain)
            && known.seen.state.by == self.own
            && !known.seen.state.is_trial
            && known.seen.end() > now
        {
            self.owe(domain, Owed::Pause(known.seen.end(), now));
        }
    }

    /// Whether this node may try a host out.
    pub(super) fn turn(&mut self, domain: &str, ended: Timestamp, now: Timestamp) -> Turn {
        let own = self.own;
        let Some(known) = self.hosts.get_mut(domain) else { return Turn::Now };
        match claim(&known.seen, now, own) {
            Claim::Mine => return Turn::Now,
            Claim::NotBefore(until) => return Turn::NotBefore(until),
            Claim::Take(_) if known.is_claiming => return Turn::Asking(false),
            Claim::Take(_) => {}
        }
        let Some((since, _)) = known.unanswered.filter(|(_, last)| now.since(*last) <= UNANSWERED) else {
            known.is_claiming = true;
            return Turn::Asking(true);
        };
        let moment = own_moment(own, domain, known.seen.end().min(ended)).max(since.saturating_add(CUT_OFF));
        if moment > now {
            return Turn::NotBefore(moment);
        }
        if known.is_tried {
            return Turn::NotBefore(now.saturating_add(UNANSWERED * 2));
        }
        known.is_tried = true;
        self.own_trials += 1;
        Turn::Now
    }

    /// A claim came to an end without the cell being known to be another.
    pub(super) fn claimed(&mut self, domain: &str, is_answered: bool, now: Timestamp) {
        if let Some(known) = self.hosts.get_mut(domain) {
            known.is_claiming = false;
            let since = known.unanswered.map_or(now, |(since, _)| since);
            known.unanswered = if is_answered { None } else { Some((since, now)) };
        }
    }

    /// Something could not be said.
    pub(super) fn owe(&mut self, domain: &str, owed: Owed) {
        self.owed.insert(domain.to_owned(), owed);
    }

    /// Everything that could not be said and is still true.
    pub(super) fn settle(&mut self) -> Vec<(String, Owed)> {
        let hosts = &self.hosts;
        let is_true = |domain: &String, owed: &Owed| match owed {
            Owed::Pause(..) => true,
            Owed::Lift(revision) => hosts.get(domain).is_some_and(|known| known.seen.revision == *revision),
        };
        self.owed.drain().filter(|(domain, owed)| is_true(domain, owed)).collect()
    }

    /// Whether one more pause of this node's own goes to the others.
    pub(super) fn may_say(&mut self, at: Timestamp) -> bool {
        self.budget.spend(self.own, at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosts::rules::{HostState, PAUSES_AN_HOUR};

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn after(seconds: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_secs(seconds))
    }

    fn seen(by: Origin, until: u64, revision: u64) -> Seen {
        let state = HostState { is_trial: false, until: after(until), at: NOW, level: 1, by };
        Seen { state, stored: NOW, revision }
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
        board.claimed("e.org", false, after(600));
        let Turn::NotBefore(moment) = board.turn("e.org", after(600), after(600)) else { panic!("not at once") };
        assert!(moment <= after(660));
        board.claimed("e.org", false, moment);
        assert_eq!(board.turn("e.org", after(600), moment), Turn::Now);
        board.claimed("e.org", false, moment);
        assert!(matches!(board.turn("e.org", after(600), moment), Turn::NotBefore(_)), "once a pause");
        board.changed("e.org", seen(other, 9000, 2), moment);
        board.turn("e.org", after(9000), after(9000));
        board.claimed("e.org", false, after(9000));
        assert!(matches!(board.turn("e.org", after(9000), after(9000)), Turn::NotBefore(_)));
        board.claimed("e.org", false, after(9060));
        assert_eq!(board.turn("e.org", after(9000), after(9060)), Turn::Now, "another pause, another trial");
    }

    #[test]
    fn what_others_did_is_undone_with_their_cell_only() {
        let mut board = Board::new(Origin::random());
        let other = Origin::random();
        let pause = |until, applied| Local::Pause { until, applied, level: 1 };
        assert_eq!(board.changed("e.org", seen(other, 600, 2), NOW), pause(after(600), None));
        assert_eq!(board.changed("e.org", seen(other, 900, 1), NOW), Local::Nothing, "late news");
        assert_eq!(board.changed("e.org", seen(other, 900, 3), NOW), pause(after(900), Some(after(600))));
        assert_eq!(board.gone("e.org"), Local::Lift(after(900)));
        assert_eq!(board.gone("e.org"), Local::Nothing);
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
        assert_eq!(board.domains(), [""; 0]);
    }
}
