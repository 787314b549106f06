//! The state machines of hosts and flights against naive models, under any order of what can happen to them.
//!
//! The models keep plain values and no atomics; each operation is made on both, and what callers see must agree after each.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;

use super::flight::{Flights, Lead, Role, landed};
use super::hosts::{Admission, Hosts, Trial};
use crate::backoff::{BackoffSettings, RISK_LEVEL_MAX};
use crate::selector::Selector;
use crate::time::Timestamp;

const DOMAIN: &str = "e.org";
const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
const TRIAL_S: u64 = 600;

#[derive(Clone, Copy, Debug)]
enum Event {
    Wait(u64),
    /// A link of the host, not the trial, ends blocked.
    Blocked(u8),
    /// Somebody asks to be let in.
    Admit,
    /// The n-th trial that is out ends blocked, delivers, or is given back.
    TrialBlocked(usize, u8),
    TrialDelivered(usize),
    TrialDropped(usize),
}

fn event() -> impl Strategy<Value = Event> {
    // Whole multiples of what things last, so that ends that fall on the same moment are met often.
    let seconds = prop_oneof![Just(0u64), Just(300), Just(600), Just(601), 1..2000u64, Just(20_000)];
    prop_oneof![
        3 => seconds.prop_map(Event::Wait),
        4 => (0..6u8).prop_map(Event::Blocked),
        3 => Just(Event::Admit),
        2 => (0..3usize, 0..6u8).prop_map(|(trial, link)| Event::TrialBlocked(trial, link)),
        1 => (0..3usize).prop_map(Event::TrialDelivered),
        1 => (0..3usize).prop_map(Event::TrialDropped),
    ]
}

/// A host as one would write it down: seconds since the beginning.
#[derive(Default)]
struct Model {
    paused_until: Option<u64>,
    level: u8,
    blocks: Vec<(u8, u64)>,
    /// Trials that are out: until when each is held, and when the pause it tries out had ended.
    trials: Vec<(u64, u64)>,
}

impl Model {
    fn blocked(&mut self, link: u8, trial: bool, settings: &BackoffSettings, now: u64) -> Option<u64> {
        if !trial && self.paused_until.is_some_and(|until| until > now) {
            return None;
        }
        self.blocks.retain(|(other, at)| now - at <= settings.host_window.as_secs() && *other != link);
        self.blocks.push((link, now));
        if !trial && self.blocks.len() < settings.host_links as usize {
            return None;
        }
        let until = now + settings.blocked_base.as_secs() * (1 << self.level);
        self.level = (self.level + 1).min(RISK_LEVEL_MAX);
        self.blocks.clear();
        self.paused_until = Some(until);
        Some(until)
    }

    fn give_back(&mut self, place: usize) {
        let (held, ended) = self.trials.remove(place);
        if self.paused_until == Some(held) {
            self.paused_until = Some(ended);
        }
    }
}

fn at(second: u64) -> Timestamp {
    BEGIN.saturating_add(Duration::from_secs(second))
}

fn check_hosts(events: &[Event], base_s: u64) -> Result<(), TestCaseError> {
    let settings = BackoffSettings { blocked_base: Duration::from_secs(base_s), ..BackoffSettings::default() };
    let selector = Selector::builder().around(BEGIN).backoff(settings).build().unwrap();
    let (hosts, mut model, mut now) = (Hosts::default(), Model::default(), 0u64);
    let mut trials: Vec<Trial<'_>> = Vec::new();
    let link = |link: u8| format!("https://{DOMAIN}/{link}");
    for event in events {
        match *event {
            Event::Wait(seconds) => now += seconds,
            Event::Blocked(n) => {
                let until = hosts.blocked(&selector, DOMAIN, &link(n), false, &settings, at(now));
                prop_assert_eq!(until, model.blocked(n, false, &settings, now).map(at));
            }
            Event::Admit => match (Hosts::admit(&selector, DOMAIN, at(now)), model.paused_until) {
                (Admission::Open, until) => prop_assert_eq!(until, None),
                (Admission::Wait(until), model_until) => {
                    prop_assert!(until > at(now), "nobody waits for what is over");
                    prop_assert_eq!(Some(until), model_until.map(at));
                }
                (Admission::Trial(trial), model_until) => {
                    prop_assert!(model_until.is_some_and(|until| until <= now), "a trial while paused");
                    let held = now + TRIAL_S;
                    model.trials.push((held, model_until.unwrap_or_default()));
                    model.paused_until = Some(held);
                    trials.push(trial);
                }
            },
            Event::TrialBlocked(place, n) if place < trials.len() => {
                let trial = trials.remove(place);
                let until = hosts.blocked(&selector, DOMAIN, &link(n), true, &settings, at(now));
                prop_assert!(until.is_some(), "a blocked trial always pauses");
                trial.settle();
                model.trials.remove(place);
                prop_assert_eq!(until, model.blocked(n, true, &settings, now).map(at));
            }
            Event::TrialDelivered(place) if place < trials.len() => {
                hosts.trial_delivered(&selector, DOMAIN);
                trials.remove(place).settle();
                model.trials.remove(place);
                (model.paused_until, model.level) = (None, 0);
                model.blocks.clear();
            }
            Event::TrialDropped(place) if place < trials.len() => {
                drop(trials.remove(place));
                model.give_back(place);
            }
            _ => {}
        }
        prop_assert_eq!(selector.host_pause(DOMAIN), model.paused_until.map(at), "after {:?}", event);
        let held = model.trials.iter().filter(|(held, _)| Some(*held) == model.paused_until && *held > now).count();
        prop_assert!(held <= 1, "one trial at a time");
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Flight {
    /// A caller joins the probe of one of three hosts.
    Join(u8),
    /// The n-th leader comes to a verdict, or is cancelled.
    Verdict(usize),
    Cancel(usize),
}

fn flight() -> impl Strategy<Value = Flight> {
    prop_oneof![
        3 => (0..3u8).prop_map(Flight::Join),
        1 => (0..4usize).prop_map(Flight::Verdict),
        1 => (0..4usize).prop_map(Flight::Cancel),
    ]
}

/// Followers of one flight, and what they must be told.
type Waiting = (u8, usize, tokio::sync::watch::Receiver<bool>);

fn check_flights(events: &[Flight]) -> Result<(), TestCaseError> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let flights = Flights::default();
    let mut leaders: Vec<(u8, usize, Lead)> = Vec::new();
    let mut followers: Vec<Waiting> = Vec::new();
    for (number, event) in events.iter().enumerate() {
        match *event {
            Flight::Join(host) => match flights.join(&format!("h{host}.org")) {
                Role::Leader(lead) => {
                    prop_assert!(leaders.iter().all(|(other, ..)| *other != host), "two leaders of one host");
                    leaders.push((host, number, lead));
                }
                Role::Follower(flight) => {
                    let led_by = leaders.iter().find(|(other, ..)| *other == host).map(|(_, number, _)| *number);
                    prop_assert!(led_by.is_some(), "a follower without a leader");
                    followers.push((host, led_by.unwrap_or_default(), flight));
                }
            },
            Flight::Verdict(place) | Flight::Cancel(place) if place < leaders.len() => {
                let (_, led, lead) = leaders.remove(place);
                let has_verdict = matches!(event, Flight::Verdict(_));
                match has_verdict {
                    true => lead.verdict(),
                    false => drop(lead),
                }
                let (theirs, others): (Vec<Waiting>, Vec<Waiting>) =
                    followers.into_iter().partition(|(_, by, _)| *by == led);
                followers = others;
                for (_, _, flight) in theirs {
                    prop_assert_eq!(runtime.block_on(landed(flight)), has_verdict);
                }
                for (_, _, flight) in &followers {
                    prop_assert!(!*flight.borrow(), "another flight's verdict");
                }
            }
            _ => {}
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn a_hosts_pauses_and_trials_are_those_of_the_model(
        events in prop::collection::vec(event(), 1..80),
        base_s in prop::sample::select(vec![75u64, 300, 600]),
    ) {
        check_hosts(&events, base_s)?;
    }

    #[test]
    fn a_host_has_one_leader_and_its_followers_learn_how_it_ended(events in prop::collection::vec(flight(), 1..60)) {
        check_flights(&events)?;
    }
}

/// A verdict that ends just when its own trial was held until used to be undone by the trial's drop: the pause was lifted.
#[test]
fn a_verdict_that_ends_when_the_trial_would_have_is_kept() {
    let events = [
        Event::Blocked(0),
        Event::Blocked(1),
        Event::Blocked(2),
        Event::Wait(600),
        Event::Admit,
        Event::TrialBlocked(0, 3),
    ];
    check_hosts(&events, 300).unwrap();
}

#[test]
fn of_threads_that_ask_at_once_one_has_the_trial() {
    for round in 0..200 {
        let selector = Selector::builder().around(BEGIN).build().unwrap();
        selector.set_host_pause(DOMAIN, Some(at(round)));
        let trials = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    if let Admission::Trial(trial) = Hosts::admit(&selector, DOMAIN, at(round)) {
                        trials.fetch_add(1, Ordering::Relaxed);
                        trial.settle();
                    }
                });
            }
        });
        assert_eq!(trials.into_inner(), 1);
    }
}

#[test]
fn of_tasks_that_ask_at_once_one_probes_and_all_others_wait_for_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).build().unwrap();
    for _ in 0..100 {
        let (flights, probing) = (Arc::new(Flights::default()), Arc::new(AtomicUsize::new(0)));
        let mut tasks = Vec::new();
        for _ in 0..16 {
            let (flights, probing) = (Arc::clone(&flights), Arc::clone(&probing));
            tasks.push(runtime.spawn(async move {
                match flights.join(DOMAIN) {
                    Role::Leader(lead) => {
                        assert_eq!(probing.fetch_add(1, Ordering::SeqCst), 0, "two probes at once");
                        tokio::task::yield_now().await;
                        probing.fetch_sub(1, Ordering::SeqCst);
                        lead.verdict();
                        true
                    }
                    Role::Follower(flight) => landed(flight).await,
                }
            }));
        }
        let told: HashSet<bool> = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).collect();
        assert_eq!(told, HashSet::from([true]), "every leader had a verdict");
    }
}
