//! What an operator should look at first: a log that fails, hosts that stopped delivering, paused
//! and slow hosts.
//!
//! Invariant: it reads the log for the causes of a few pauses only, and for each pause once.
//!
//! Must not know: how it is shown.

use fetchwise::time::Timestamp;
use fetchwise_present::{PaceJson, PauseCause, TimeJson};

use crate::dashboard_json::{AttentionItem, AttentionJson, LogJson};
use crate::pause_cause::{Paused, pause_cause};
use crate::state::State;
use crate::time_series::Recent;

/// Maximum number of items of each kind.
const LISTED: usize = 8;
/// Maximum number of pauses whose causes one request looks up.
const CAUSES: usize = 4;
/// Hosts below this rate, in requests per second, are slow.
const SLOW: f64 = 0.1;
/// The fewest recent attempts, and the fewest before, by which a host is judged.
const LEAST: (u64, u64) = (10, 20);
/// A host that delivers this share or less fails, whatever it did before.
const NOTHING: f64 = 0.1;
/// A smaller fall of the share that delivers does not matter, nor does one of fewer standard
/// deviations.
const FALL: (f64, f64) = (0.2, 3.0);

/// Collects it. May read the log, so no thread that serves requests may call it.
pub(super) fn find(state: &State, log: &LogJson, now: Timestamp) -> AttentionJson {
    let mut paused = state.selector.paused_hosts(now);
    let is_paused = |host: &str| paused.binary_search_by(|of| of.domain.as_str().cmp(host)).is_ok();
    let (mut failing, recent) = failing_and_recent(state, &is_paused, now);
    let mut slow = slow(state, recent, now);
    let is_log_bad = !matches!(log.state, "good" | "followed") || log.lost > 0;
    let total = usize::from(is_log_bad) + failing.len() + paused.len() + slow.len();
    let mut items = Vec::new();
    if is_log_bad {
        let is_followed = state.followed.is_some();
        items.push(AttentionItem::Log {
            state: log.state,
            reason: log.reason.clone(),
            lost: log.lost,
            is_followed,
        });
    }
    // The hosts with the most failures first.
    failing.sort_by(|(a, of_a, _), (b, of_b, _)| {
        (of_b.judged - of_b.delivered).cmp(&(of_a.judged - of_a.delivered)).then_with(|| a.cmp(b))
    });
    items.extend(failing.into_iter().take(LISTED).map(|(host, of, usual_rate)| {
        AttentionItem::Failing { host, judged: of.judged, delivered: of.delivered, usual_rate }
    }));
    paused
        .sort_by(|a, b| b.paused_until.cmp(&a.paused_until).then_with(|| a.domain.cmp(&b.domain)));
    let mut lookups = 0;
    items.extend(paused.into_iter().take(LISTED).map(|of| AttentionItem::Paused {
        cause: cause(state, (&of.domain, of.paused_until), now, &mut lookups),
        until: TimeJson::of_process(of.paused_until),
        times_paused: of.times,
        host: of.domain,
    }));
    slow.sort_by(|(a, _, rate_a), (b, _, rate_b)| rate_a.total_cmp(rate_b).then_with(|| a.cmp(b)));
    items.extend(
        slow.into_iter().take(LISTED).map(|(host, pace, _)| AttentionItem::Slow { host, pace }),
    );
    AttentionJson { total, items }
}

/// A host that delivers less than before: its recent attempts, and the share that delivered before.
type Failing = (String, Recent, Option<f64>);

/// Returns the hosts that stopped delivering, and all hosts with recent attempts that are not
/// paused.
fn failing_and_recent(
    state: &State,
    is_paused: &dyn Fn(&str) -> bool,
    now: Timestamp,
) -> (Vec<Failing>, Vec<String>) {
    state.attempts.with_domains(|stats, series| {
        let (mut failing, mut hosts) = (Vec::new(), Vec::new());
        for (host, recent) in series
            .recent_hosts(state.selector.clock().date_of(now))
            .filter(|(host, _)| !is_paused(host))
        {
            hosts.push(host.to_owned());
            let all = stats.row(host).map_or((0, 0), |row| (row.judged, row.delivered));
            let before =
                (all.0.saturating_sub(recent.judged), all.1.saturating_sub(recent.delivered));
            if let Some(usual) = is_failing(recent, before) {
                failing.push((host.to_owned(), recent, usual));
            }
        }
        (failing, hosts)
    })
}

/// Returns whether a host stopped delivering, with the share that delivered before, if that is
/// known. `before` are the earlier attempts that count, and those that delivered.
fn is_failing(recent: Recent, (judged, delivered): (u64, u64)) -> Option<Option<f64>> {
    if recent.judged < LEAST.0 {
        return None;
    }
    let rate = recent.delivered as f64 / recent.judged as f64;
    let usual = (judged >= LEAST.1).then(|| delivered as f64 / judged as f64);
    let fell = usual.is_some_and(|usual| {
        let pooled = (recent.delivered + delivered) as f64 / (recent.judged + judged) as f64;
        let deviation =
            (pooled * (1.0 - pooled) * (1.0 / recent.judged as f64 + 1.0 / judged as f64)).sqrt();
        usual - rate >= FALL.0 && usual - rate >= FALL.1 * deviation
    });
    (fell || rate <= NOTHING).then_some(usual)
}

/// Returns the slow hosts of `hosts`, with their rates.
fn slow(state: &State, hosts: Vec<String>, now: Timestamp) -> Vec<(String, Box<PaceJson>, f64)> {
    let Some(pace) = state.selector.pace() else { return Vec::new() };
    let slow = hosts.into_iter().filter_map(|host| {
        let of = pace.explain(&host, now).filter(|of| of.rate < SLOW)?;
        Some((host, Box::new(PaceJson::from(&of)), of.rate))
    });
    slow.collect()
}

/// Returns why a host is paused: its newest block before the pause.
fn cause(
    state: &State,
    paused: (&str, Timestamp),
    now: Timestamp,
    lookups: &mut usize,
) -> Option<PauseCause> {
    let (host, until) = paused;
    if let Some(known) = state.dashboard.cause(host, until) {
        return known;
    }
    *lookups += 1;
    if *lookups > CAUSES {
        // The next request looks it up.
        return None;
    }
    // A log that cannot be read is reported by other parts of the page.
    let date = state.selector.clock().date_of(now);
    let found = pause_cause(state.log_dir(), Paused::Host(host), date).ok().flatten();
    state.dashboard.keep_cause(host, until, found.clone());
    found
}

/// Returns the cause of the pause of `host`, if it is paused.
pub(super) fn cause_of(state: &State, host: &str, now: Timestamp) -> Option<PauseCause> {
    let until = state.selector.host_pause(host).filter(|until| *until > now)?;
    cause(state, (host, until), now, &mut 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_fails_if_it_delivers_nothing_or_much_less_than_before() {
        let recent = |judged, delivered| Recent { attempts: judged, judged, delivered };
        for (now, before, want) in [
            (recent(10, 0), (0, 0), Some(None)),
            (recent(10, 0), (100, 0), Some(Some(0.0))),
            (recent(9, 0), (100, 100), None),
            (recent(20, 10), (100, 95), Some(Some(0.95))),
            (recent(20, 18), (100, 95), None),
            (recent(20, 10), (19, 19), None),
            (recent(10, 6), (20, 16), None),
            (recent(200, 120), (400, 340), Some(Some(0.85))),
        ] {
            assert_eq!(is_failing(now, before), want, "{now:?} {before:?}");
        }
    }
}
