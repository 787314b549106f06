//! Tests of a node's view of paused hosts: whom it believes, when it tries, and what it writes.

use super::host_view::FleetPauses;
use super::*;
use crate::pauses::state_machine::MAX_PAUSES_PER_HOUR;

const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

fn after(seconds: u64) -> Timestamp {
    NOW.saturating_add(Duration::from_secs(seconds))
}

fn pause(until: u64) -> HostState {
    HostState { phase: Phase::Paused, until: after(until), at: NOW, level: 1 }
}

/// A view that believes these nodes.
fn view(own: NodeId, others: &[NodeId]) -> PauseView {
    let mut view = PauseView::new(own);
    view.set_nodes(others.iter().copied(), [], NOW);
    view
}

/// Applies a pause of another node, or of another process of this one.
fn hear(view: &mut PauseView, domain: &str, by: NodeId, until: u64, revision: u64) -> LocalAction {
    view.apply_statement(domain, by, pause(until), (NOW, revision), NOW)
}

fn hear_fine(
    view: &mut PauseView,
    domain: &str,
    by: NodeId,
    at: u64,
    revision: u64,
) -> LocalAction {
    view.apply_statement(domain, by, HostState::fine(after(at)), (after(at), revision), after(at))
}

#[test]
fn a_node_waits_for_its_own_pause_before_it_tries_the_host() {
    let mut view = view(NodeId::from_bytes([1; 16]), &[]);
    assert!(view.state_pause("e.org", after(60), NOW));
    let state = view.begin_write("e.org", None, NOW).unwrap();
    view.end_write("e.org", None);
    let asked = |view: &mut PauseView, at| view.request_trial("e.org", after(60), after(at));
    assert_eq!(
        asked(&mut view, 61),
        TrialReply::NotBefore(after(66)),
        "the broker has not delivered it yet"
    );
    assert_eq!(asked(&mut view, 90), TrialReply::Now, "the broker has lost it");
    view.record_response(false, after(60));
    assert_eq!(asked(&mut view, 61), TrialReply::Now, "nobody responds");
    view.record_response(true, after(60));
    view.apply_statement("e.org", view.own, state, (NOW, 1), after(61));
    assert_eq!(asked(&mut view, 61), TrialReply::Asking(true), "it is delivered");
}

/// Makes a claim without a response.
fn lose_response(view: &mut PauseView, domain: &str, now: Timestamp) {
    view.record_response(false, now);
    view.record_claim(domain, ClaimOutcome::Unanswered, now);
}

fn ours(applied: Option<u64>) -> FleetPauses {
    FleetPauses { applied: applied.map(after), held: None }
}

#[test]
fn a_node_that_is_cut_off_tries_a_host_once() {
    let (own, other) = (NodeId::random(), NodeId::random());
    let mut view = view(own, &[other]);
    assert_eq!(
        view.request_trial("e.org", after(600), after(600)),
        TrialReply::Now,
        "no other node has paused it"
    );
    hear(&mut view, "e.org", other, 600, 1);
    assert_eq!(
        view.request_trial("e.org", after(600), after(599)),
        TrialReply::NotBefore(after(600))
    );
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
    assert!(
        matches!(view.request_trial("e.org", after(600), moment), TrialReply::NotBefore(_)),
        "once a pause"
    );
    view.apply_statement("e.org", other, pause(9000), (moment, 2), moment);
    view.request_trial("e.org", after(9000), after(9000));
    lose_response(&mut view, "e.org", after(9000));
    let TrialReply::NotBefore(moment) = view.request_trial("e.org", after(9000), after(9000))
    else {
        panic!("not at once")
    };
    lose_response(&mut view, "e.org", moment);
    assert_eq!(
        view.request_trial("e.org", after(9000), moment),
        TrialReply::Now,
        "each pause has a trial"
    );
}

#[test]
fn one_late_response_does_not_mean_cut_off() {
    let other = NodeId::random();
    let mut view = view(NodeId::random(), &[other]);
    hear(&mut view, "e.org", other, 600, 1);
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
    // Long after that, a single claim without a response is no reason to go without the broker
    // either.
    now = now.saturating_add(Duration::from_secs(3600));
    assert_eq!(view.request_trial("e.org", after(600), now), TrialReply::Asking(true));
    lose_response(&mut view, "e.org", now);
    assert_eq!(
        view.request_trial("e.org", after(600), now),
        TrialReply::NotBefore(now.saturating_add(CUT_OFF_AFTER))
    );
}

#[test]
fn a_remote_pause_is_lifted_only_by_its_writer() {
    let (other, third) = (NodeId::random(), NodeId::random());
    let mut view = view(NodeId::random(), &[other, third]);
    let pauses =
        |until, before| LocalAction::Pause { until: after(until), ours: ours(before), level: 1 };
    assert_eq!(hear(&mut view, "e.org", other, 600, 2), pauses(600, None));
    assert_eq!(hear(&mut view, "e.org", other, 900, 1), LocalAction::Nothing, "late news");
    assert_eq!(hear(&mut view, "e.org", third, 900, 3), pauses(900, Some(600)));
    assert_eq!(
        view.apply_removal("e.org", third, 2, NOW),
        LocalAction::Nothing,
        "it was there again since"
    );
    assert_eq!(
        hear_fine(&mut view, "e.org", third, 10, 4),
        pauses(600, Some(900)),
        "of the other's it ends nothing"
    );
    assert_eq!(hear_fine(&mut view, "e.org", third, 20, 5), LocalAction::Nothing);
    let lift = LocalAction::Lift { ours: ours(Some(600)), own_until: None };
    assert_eq!(hear_fine(&mut view, "e.org", other, 30, 6), lift);
    assert_eq!(hear(&mut view, "e.org", other, 900, 6), LocalAction::Nothing, "it is gone since");
    assert_eq!(hear(&mut view, "e.org", other, 900, 7), pauses(900, None));
}

#[test]
fn a_pause_of_own_attempts_lasts_for_its_own_time() {
    let other = NodeId::random();
    let mut view = view(NodeId::random(), &[other]);
    hear(&mut view, "e.org", other, 900, 1);
    view.record_own_pause("e.org", after(600));
    let lift = LocalAction::Lift { ours: ours(Some(900)), own_until: Some(after(600)) };
    assert_eq!(hear_fine(&mut view, "e.org", other, 10, 2), lift);
    // This process's own statement is no reason of a local pause, so that its removal lifts
    // nothing.
    assert!(view.state_pause("own.org", after(600), NOW));
    let state = view.begin_write("own.org", None, NOW).unwrap();
    assert_eq!(
        view.apply_statement("own.org", view.own, state, (NOW, 3), NOW),
        LocalAction::Nothing
    );
    let nothing = LocalAction::Lift { ours: ours(None), own_until: None };
    assert_eq!(view.apply_removal("own.org", view.own, 3, NOW), nothing);
}

#[test]
fn only_nodes_with_a_heartbeat_are_believed() {
    let (own, other) = (NodeId::random(), NodeId::random());
    let mut view = view(own, &[]);
    assert_eq!(hear(&mut view, "e.org", other, 600, 1), LocalAction::Nothing);
    assert_eq!(hear(&mut view, "f.org", own, 600, 2), LocalAction::Nothing, "nor the own name");
    assert_eq!(view.rejected, 2);
    assert!(view.set_present(other, true), "its statements are to be read again");
    assert!(!view.set_present(other, true));
    assert_ne!(hear(&mut view, "e.org", other, 600, 1), LocalAction::Nothing);
    let lift = LocalAction::Lift { ours: ours(Some(600)), own_until: None };
    assert_eq!(view.exclude(other, true, NOW), [("e.org".to_owned(), lift)]);
    assert_eq!(hear(&mut view, "g.org", other, 600, 3), LocalAction::Nothing);
    for _ in 0..2 * MAX_NODES {
        view.set_present(NodeId::random(), true);
    }
    assert!(view.present.len() <= MAX_NODES);
}

#[test]
fn an_unpaused_host_waits_no_longer_here() {
    let other = NodeId::random();
    let mut view = view(NodeId::random(), &[other]);
    hear(&mut view, "e.org", other, 600, 1);
    assert!(!view.state_fine("e.org", after(10)), "to the others it means nothing");
    assert_eq!(view.request_trial("e.org", after(10), after(10)), TrialReply::Now);
    assert_ne!(hear(&mut view, "e.org", other, 900, 2), LocalAction::Nothing);
    assert_eq!(
        view.request_trial("e.org", after(10), after(20)),
        TrialReply::NotBefore(after(900))
    );
}

#[test]
fn a_held_visit_is_released_when_the_host_is_fine() {
    let other = NodeId::random();
    let mut view = view(NodeId::random(), &[other]);
    hear(&mut view, "e.org", other, 600, 1);
    view.request_trial("e.org", after(600), after(600));
    lose_response(&mut view, "e.org", after(600));
    let TrialReply::NotBefore(moment) = view.request_trial("e.org", after(600), after(600)) else {
        panic!("not at once")
    };
    let LocalAction::Lift { ours, own_until: None } = hear_fine(&mut view, "e.org", other, 601, 2)
    else {
        panic!("it was paused")
    };
    assert!(ours.has(moment) && ours.has(after(600)) && !ours.has(after(601)));
}

#[test]
fn a_held_node_tries_once_its_claim_is_confirmed() {
    let (own, other) = (NodeId::random(), NodeId::random());
    let mut view = view(own, &[other]);
    hear(&mut view, "e.org", other, 600, 1);
    view.request_trial("e.org", after(600), after(600));
    let claim = view.claim("e.org", after(600));
    let state = view.begin_write("e.org", claim, after(600)).unwrap();
    lose_response(&mut view, "e.org", after(600));
    let TrialReply::NotBefore(held) = view.request_trial("e.org", after(600), after(600)) else {
        panic!("not at once")
    };
    let does = view.apply_statement("e.org", own, state, (after(600), 2), after(605));
    assert_eq!(does, LocalAction::Try { held, over: after(600) });
    assert_eq!(view.request_trial("e.org", after(600), after(605)), TrialReply::Now);
    assert_eq!((view.trials, view.own_trials), (1, 0));
}

#[test]
fn a_claim_that_is_early_by_the_brokers_clock_waits() {
    let (own, other) = (NodeId::random(), NodeId::random());
    let mut view = view(own, &[other]);
    hear(&mut view, "e.org", other, 600, 1);
    // This node's clock is ahead by 100 seconds.
    assert_eq!(view.request_trial("e.org", after(600), after(600)), TrialReply::Asking(true));
    let claim = view.claim("e.org", after(600));
    let state = view.begin_write("e.org", claim, after(600)).unwrap();
    view.apply_statement("e.org", own, state, (after(500), 2), after(600));
    view.record_claim("e.org", ClaimOutcome::Known, after(600));
    assert_eq!(
        view.request_trial("e.org", after(600), after(601)),
        TrialReply::NotBefore(after(700))
    );
    assert_eq!(view.trials, 0);
}

#[test]
fn remembered_ends_are_bounded() {
    let other = NodeId::random();
    let mut view = view(NodeId::random(), &[other]);
    for n in 1..=3 * MAX_ENDS as u64 {
        hear_fine(&mut view, &format!("h{n}.org"), other, 0, n);
        assert!(view.ended.len() <= MAX_ENDS);
    }
    assert!(view.ended.contains_key(&format!("h{}.org", 3 * MAX_ENDS)));
}

#[test]
fn a_change_of_a_paused_host_is_not_a_new_pause() {
    let (own, other) = (NodeId::random(), NodeId::random());
    let mut view = view(own, &[other]);
    for n in 0..MAX_PAUSES_PER_HOUR as u64 {
        assert_ne!(hear(&mut view, &format!("h{n}.org"), other, 600, n + 1), LocalAction::Nothing);
    }
    // One of all nodes has tried them and was blocked.
    for n in 0..MAX_PAUSES_PER_HOUR as u64 {
        assert_ne!(
            hear(&mut view, &format!("h{n}.org"), other, 1800, 1000 + n),
            LocalAction::Nothing
        );
        assert!(view.state_pause(&format!("h{n}.org"), after(1900), NOW));
    }
    assert_eq!(view.rejected, 0);
    assert_eq!(hear(&mut view, "new.org", other, 600, 5000), LocalAction::Nothing);
    for n in 0..1000u64 {
        let domain = format!("own{n}.org");
        let may = view.state_pause(&domain, after(600), NOW);
        assert_eq!(may, n < MAX_PAUSES_PER_HOUR as u64);
        if let Some(state) = view.begin_write(&domain, None, NOW) {
            view.apply_statement(&domain, own, state, (NOW, 6000 + n), NOW);
            view.end_write(&domain, None);
        }
    }
}

#[test]
fn the_view_is_bounded_whatever_peers_say() {
    let (own, others) = (NodeId::random(), [(); 300].map(|()| NodeId::random()));
    let mut view = view(own, &others);
    let (mut paused, mut revision) = (0, 0);
    // Pauses as long as possible, by many nodes and under the own name as well.
    for hour in 0..24u64 {
        for by in others.iter().chain([&own]) {
            for n in 0..120 {
                revision += 1;
                let (at, domain) = (after(hour * 3600), format!("{by}.{hour}.{n}.org"));
                let state =
                    HostState { phase: Phase::Paused, until: after(9_000_000), at, level: 9 };
                let does = view.apply_statement(&domain, *by, state, (at, revision), at);
                paused += usize::from(does != LocalAction::Nothing);
            }
            assert!(view.counts.get(by).is_none_or(|count| *count <= MAX_HOSTS_PER_NODE));
        }
        assert!(view.hosts.len() <= MAX_HOSTS);
    }
    assert!(paused <= MAX_HOSTS, "{paused}");
    assert_eq!(view.counts.values().sum::<usize>(), view.statements().len());
}

#[test]
fn pauses_over_the_quota_stay_local() {
    let other = NodeId::random();
    let mut view = view(NodeId::random(), &[other]);
    let mut paused = 0;
    for n in 0..1000u64 {
        paused += usize::from(
            hear(&mut view, &format!("h{n}.org"), other, 600, n + 1) != LocalAction::Nothing,
        );
    }
    assert_eq!((paused, view.rejected), (MAX_PAUSES_PER_HOUR, 900));
}

#[test]
fn own_pauses_are_restored_to_a_lost_table() {
    let (own, other) = (NodeId::random(), NodeId::random());
    let mut view = view(own, &[other]);
    assert!(view.state_pause("mine.org", after(600), NOW));
    let state = view.begin_write("mine.org", None, NOW).unwrap();
    view.apply_statement("mine.org", own, state, (NOW, 1), NOW);
    view.end_write("mine.org", None);
    hear(&mut view, "theirs.org", other, 600, 2);
    view.apply_loss(NOW);
    assert_eq!(view.pending(), ["mine.org"]);
    assert_eq!(view.begin_write("mine.org", None, NOW), Some(state));
    assert_eq!(view.statements(), []);
}

#[test]
fn writes_about_a_host_are_made_one_by_one() {
    let mut view = view(NodeId::random(), &[]);
    assert!(view.state_pause("e.org", after(600), NOW));
    let first = view.begin_write("e.org", None, NOW).unwrap();
    assert!(view.state_fine("e.org", after(10)));
    assert_eq!(view.begin_write("e.org", None, after(10)), None, "one is on its way");
    view.end_write("e.org", Some(first));
    assert_eq!(
        view.begin_write("e.org", None, after(10)),
        Some(HostState::fine(after(10))),
        "the newest"
    );
}
