//! The paces of a site, from the node that gives it up to the one that takes it.
//!
//! Invariants: a node restores only what another one has handed over. Between the last request of
//! one node and the first of the next there is at least the gap of the host's pace.
//!
//! Must not know: what the bytes of a pace mean.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use fetchwise::pace::{Level, PaceState};
use fetchwise::selector::Selector;

use super::site_lease::HandedPace;

/// The longest wait before the first request of a new holder.
const MAX_GAP: Duration = Duration::from_secs(60);

/// Returns the paces of a site and its hosts.
pub(super) fn paces(
    selector: &Selector,
    site: &str,
    hosts: &BTreeSet<Box<str>>,
) -> Vec<HandedPace> {
    let Some(pace) = selector.pace() else { return Vec::new() };
    let of = |level, name: &str| {
        // Another node has other times: it gets dates.
        let PaceState(bytes) = pace.state(level, name)?.moved_by(selector.clock().ahead_ms());
        let mut state = String::with_capacity(2 * bytes.len());
        for byte in bytes {
            // Writing to a string does not fail.
            let _ = write!(state, "{byte:02x}");
        }
        Some(HandedPace { is_site: level == Level::Site, name: name.to_owned(), state })
    };
    of(Level::Site, site)
        .into_iter()
        .chain(hosts.iter().filter_map(|host| of(Level::Host, host)))
        .collect()
}

/// Restores handed paces. Returns the time for which the hosts of the site are not asked.
pub(super) fn restore(selector: &Selector, site: &str, paces: &[HandedPace]) -> Duration {
    let (Some(pace), now) = (selector.pace(), selector.now()) else { return Duration::ZERO };
    let (mut gap, to_time_ms) = (Duration::ZERO, selector.clock().ahead_ms().saturating_neg());
    for handed in paces {
        let Some(state) = parse(&handed.state).map(|state| state.moved_by(to_time_ms)) else {
            continue;
        };
        match handed.is_site {
            true if handed.name == site => pace.restore(Level::Site, site, &state, now),
            false if fetchwise::heuristic::url::site_of(&handed.name) == site => {
                pace.restore(Level::Host, &handed.name, &state, now);
                let rate = pace.explain(&handed.name, now).map_or(0.0, |host| host.rate);
                let own = Duration::try_from_secs_f64(1.0 / rate).unwrap_or(MAX_GAP);
                gap = gap.max(own.min(MAX_GAP));
            }
            // A node speaks for the site of the cell only.
            _ => {}
        }
    }
    gap
}

fn parse(digits: &str) -> Option<PaceState> {
    let mut bytes = [0; 64];
    if digits.len() != 2 * bytes.len() || !digits.is_ascii() {
        return None;
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
    }
    Some(PaceState(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::pace::{Pace, PaceSettings};
    use fetchwise::registry::FetcherId;

    fn selector() -> Selector {
        Selector::builder().pace(Pace::new(PaceSettings::default())).build().unwrap()
    }

    /// Makes the host refuse requests until its rate is below the initial one.
    fn slow_down(selector: &Selector, host: &str) {
        use fetchwise::pace::{Admit, Cost, Response, Scope, Signal};
        let pace = selector.pace().unwrap();
        let mut now = selector.now();
        for _ in 0..40 {
            now = now.saturating_add(Duration::from_secs(30));
            if let Admit::Go(permit) = pace.admit(Scope::host(host), Cost::Plain, now) {
                let _ = pace.record_response(
                    permit,
                    &Response::new(Signal::Limited, FetcherId(0)),
                    now,
                );
            }
        }
    }

    #[test]
    fn a_learned_pace_moves_with_its_site() {
        let (from, to) = (selector(), selector());
        slow_down(&from, "a.example.org");
        let rate = |selector: &Selector| {
            selector.pace().unwrap().explain("a.example.org", selector.now()).map(|pace| pace.rate)
        };
        let hosts = BTreeSet::from(["a.example.org".into()]);
        let handed = paces(&from, "example.org", &hosts);
        let gap = restore(&to, "example.org", &handed);
        let (before, after) = (rate(&from).unwrap(), rate(&to).unwrap());
        assert!(before < PaceSettings::default().initial_rate, "{before}");
        // A restored pace begins a little below the learned one, as after a restart.
        assert!(after <= before && after >= before / 2.0, "{before} {after}");
        assert!(gap >= Duration::from_secs_f64(0.99 / after).min(MAX_GAP));
        assert_eq!(
            restore(&to, "elsewhere.net", &handed),
            Duration::ZERO,
            "a cell of another site"
        );
        let broken = [HandedPace {
            is_site: false,
            name: "a.example.org".to_owned(),
            state: "é".repeat(64),
        }];
        assert_eq!(restore(&to, "example.org", &broken), Duration::ZERO);
    }
}
