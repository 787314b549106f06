//! Property tests: invariants for any responses in any order, and for any restored state.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use fetchwise_types::registry::FetcherId;

const BEGIN: i64 = 1_790_000_000_000;
const HOSTS: [&str; 3] = ["a.org", "b.example.org", "c.example.org"];

/// One action of a caller.
#[derive(Clone, Debug)]
enum CallerAction {
    /// Lets time pass, in milliseconds.
    AdvanceTime(i64),
    /// Requests a number of permits for a host.
    Admit(usize, u8, bool),
    /// Responds to one of the permits in flight.
    Respond(usize, Signal, Option<u64>, u64),
    /// Cancels one of them.
    Cancel(usize),
}

fn any_signal() -> impl Strategy<Value = Signal> {
    prop_oneof![
        8 => Just(Signal::Content),
        1 => Just(Signal::ClientError),
        1 => Just(Signal::Limited),
        1 => Just(Signal::Unavailable),
        1 => Just(Signal::Block),
        1 => Just(Signal::Broken),
        1 => Just(Signal::ServerError),
        1 => Just(Signal::NotAsked),
    ]
}

fn step() -> impl Strategy<Value = CallerAction> {
    prop_oneof![
        4 => prop_oneof![0_i64..400, 0_i64..30_000, 0_i64..4_000_000].prop_map(CallerAction::AdvanceTime),
        6 => (0..HOSTS.len(), 1_u8..6, any::<bool>()).prop_map(|(host, count, renders)| CallerAction::Admit(host, count, renders)),
        6 => (any::<prop::sample::Index>(), any_signal(), prop::option::of(0_u64..4000), 1_u64..20_000)
            .prop_map(|(at, signal, wait, ms)| CallerAction::Respond(at.index(1 << 16), signal, wait, ms)),
        1 => any::<prop::sample::Index>().prop_map(|at| CallerAction::Cancel(at.index(1 << 16))),
    ]
}

fn response_with(signal: Signal, wait: Option<u64>, ms: u64) -> Response {
    Response {
        retry_after: wait.map(Duration::from_secs),
        latency: Some(Duration::from_millis(ms)),
        ..Response::new(signal, FetcherId(0))
    }
}

/// Requests permits until the host admits a request, which succeeds; returns `false` if it never
/// does.
fn reaches(pace: &Pace, host: &str, now: &mut i64) -> bool {
    for _ in 0..64 {
        match pace.admit(Scope::host(host), Cost::Plain, Timestamp::from_millis(*now)) {
            Admit::Go(permit) => {
                let _ = pace.record_response(
                    permit,
                    &response_with(Signal::Content, None, 100),
                    Timestamp::from_millis(*now + 100),
                );
                return true;
            }
            Admit::Wait(until) => *now = until.as_millis(),
            Admit::AtCapacity => return false,
        }
    }
    false
}

proptest! {
    /// Holds are kept, parallel requests stay within the limit, a trial is alone, rates are finite,
    /// and once all requests have ended, every host admits requests again.
    #[test]
    fn holds_are_kept_and_no_host_is_locked_out(
        steps in prop::collection::vec(step(), 1..250),
        max_parallel in 1_u8..20,
    ) {
        let pace = Pace::new(PaceSettings { max_parallel, ..PaceSettings::default() });
        let (mut now, mut out): (i64, Vec<(usize, Permit)>) = (BEGIN, Vec::new());
        for step in steps {
            let at = Timestamp::from_millis(now);
            match step {
                CallerAction::AdvanceTime(ms) => now += ms,
                CallerAction::Admit(host, count, renders) => for _ in 0..count {
                    let cost = if renders { Cost::Rendered } else { Cost::Plain };
                    let hold = pace.hold(Scope::host(HOSTS[host]), at);
                    match pace.admit(Scope::host(HOSTS[host]), cost, at) {
                        Admit::Go(permit) => {
                            prop_assert_eq!(hold, None, "asked during a hold");
                            out.push((host, permit));
                        }
                        Admit::Wait(until) => {
                            prop_assert!(until > at && hold.is_none_or(|hold| until >= hold));
                            break;
                        }
                        Admit::AtCapacity => break,
                    }
                    let in_flight = out.iter().filter(|(of, _)| *of == host).count();
                    prop_assert!(in_flight <= usize::from(max_parallel));
                },
                CallerAction::Respond(at_index, signal, wait, ms) if !out.is_empty() => {
                    let (host, permit) = out.swap_remove(at_index % out.len());
                    if let ResponseEffect::LimitHit { hold_until, .. } | ResponseEffect::Doubt { hold_until, .. } = pace.record_response(permit, &response_with(signal, wait, ms), at) {
                        prop_assert!(hold_until > at);
                        prop_assert!(pace.hold(Scope::host(HOSTS[host]), at).is_some_and(|hold| hold >= hold_until));
                    }
                }
                CallerAction::Cancel(at_index) if !out.is_empty() => {
                    let (_, permit) = out.swap_remove(at_index % out.len());
                    pace.cancel(permit, at);
                }
                CallerAction::Respond(..) | CallerAction::Cancel(_) => {}
            }
            for host in HOSTS {
                if let Some(explanation) = pace.explain(host, at) {
                    prop_assert!(explanation.rate > 0.0 && explanation.rate <= 20.0, "{}", explanation.rate);
                    prop_assert!(explanation.parallel >= 1 && explanation.parallel <= max_parallel);
                }
            }
        }
        for (_, permit) in out {
            let _ = pace.record_response(permit, &response_with(Signal::Content, None, 100), Timestamp::from_millis(now));
        }
        for host in HOSTS {
            prop_assert!(reaches(&pace, host, &mut now), "{host} is locked out");
        }
    }

    /// Responses to requests sent before a limit hit change nothing, in any order.
    #[test]
    fn the_order_of_responses_after_a_limit_hit_does_not_matter(
        signals in prop::collection::vec(any_signal(), 3..8),
        order in any::<prop::sample::Index>(),
    ) {
        let run = |turn: usize| {
            let pace = Pace::new(PaceSettings::default());
            let (mut now, mut permits) = (BEGIN, Vec::new());
            for _ in 0..200 {
                assert!(reaches(&pace, "a.org", &mut now));
                now += 100;
            }
            while permits.len() <= signals.len() {
                match pace.admit(Scope::host("a.org"), Cost::Plain, Timestamp::from_millis(now)) {
                    Admit::Go(permit) => permits.push(permit),
                    Admit::Wait(until) => now = until.as_millis(),
                    Admit::AtCapacity => break,
                }
            }
            let now = Timestamp::from_millis(now + 5);
            let first = permits.remove(0);
            assert!(matches!(pace.record_response(first, &response_with(Signal::Limited, None, 5), now), ResponseEffect::LimitHit { .. }));
            let count = permits.len();
            let mut late: Vec<(Permit, Signal)> = permits.into_iter().zip(signals.iter().copied()).collect();
            late.rotate_left(turn % count.max(1));
            for (permit, signal) in late {
                let effect = pace.record_response(permit, &response_with(signal, None, 5), now);
                let is_page = matches!(signal, Signal::Content | Signal::ClientError | Signal::NotAsked);
                assert!(if is_page { effect == ResponseEffect::Nothing } else { matches!(effect, ResponseEffect::Refused { .. }) });
            }
            pace.state(Level::Host, "a.org")
        };
        prop_assert_eq!(run(0), run(order.index(8)));
    }

    /// With any restored bytes, the host has a finite rate; and the restored state is the persisted
    /// state.
    #[test]
    fn any_state_can_be_restored_and_restoring_it_twice_changes_nothing(low in any::<[u8; 32]>(), high in any::<[u8; 32]>()) {
        let state = PaceState(std::array::from_fn(|at| if at < 32 { low[at] } else { high[at - 32] }));
        let pace = Pace::default();
        let mut now = BEGIN;
        pace.restore(Level::Host, "a.org", &state, Timestamp::from_millis(now));
        let once = pace.state(Level::Host, "a.org");
        if let Some(once) = once {
            pace.restore(Level::Host, "a.org", &once, Timestamp::from_millis(now));
            prop_assert_eq!(pace.state(Level::Host, "a.org"), Some(once));
        }
        prop_assert!(reaches(&pace, "a.org", &mut now));
        let explanation = pace.explain("a.org", Timestamp::from_millis(now)).unwrap();
        prop_assert!(explanation.rate > 0.0 && explanation.rate <= 20.0);
        prop_assert!(!explanation.to_string().is_empty());
    }
}
