//! Every pause of a host is announced to the trace, the metrics, the sink and the processes that
//! share the address, whatever its cause.

use std::sync::atomic::{AtomicUsize, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;
use crate::metrics::recorder::PauseCause;
use crate::pause_coordination::{PauseCoordinator, TrialPermission};
use fetchwise_pace::{Pace, PaceSettings};

#[derive(Debug, Default)]
struct Peers(Mutex<Vec<String>>);

impl PauseCoordinator for Peers {
    fn paused(&self, domain: &str, _: Timestamp, _: Timestamp) {
        self.0.lock().unwrap().push(domain.to_owned());
    }

    fn lifted(&self, _: &str) {}

    fn may_try(&self, _: &str, _: Timestamp, _: Timestamp) -> TrialPermission {
        TrialPermission::Now
    }
}

/// Counts the warnings. Pauses are the only ones of a selector.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == tracing::Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn status(status: u16) -> FetchResult {
    FetchResult::from(Outcome::Http(status)).with_status(status)
}

/// Runs `pauses`, which pauses `e.org` once, and asserts that everybody hears of it.
fn assert_announced(cause: PauseCause, world: &World, pauses: impl FnOnce(&World)) {
    let (peers, warnings) = (Arc::new(Peers::default()), Warnings::default());
    assert!(world.selector.set_pause_coordinator(Arc::clone(&peers) as Arc<dyn PauseCoordinator>));
    tracing::subscriber::with_default(warnings.clone(), || pauses(world));
    let name = PauseCause::NAMES[cause as usize];
    assert!(world.selector.host_pause("e.org").is_some(), "{name}");
    assert_eq!(*peers.0.lock().unwrap(), ["e.org"], "{name}");
    let told: Vec<_> = world
        .sink
        .hosts
        .lock()
        .unwrap()
        .iter()
        .map(|(domain, until)| (domain.clone(), until.is_some()))
        .collect();
    assert_eq!(told, [("e.org".to_owned(), true)], "{name}");
    assert_eq!(warnings.0.load(Ordering::Relaxed), 1, "{name}");
    let counted = world
        .selector
        .recorder()
        .counts()
        .host_pauses
        .each_ref()
        .map(|count| count.load(Ordering::Relaxed));
    let mut one = [0; 4];
    one[cause as usize] = 1;
    assert_eq!(counted, one, "{name}");
}

#[test]
fn each_cause_of_a_pause_is_announced_everywhere() {
    assert_announced(PauseCause::Limited, &World::new(), |world| {
        drop(world.run("/a", &[status(429)]))
    });
    assert_announced(PauseCause::Declined, &World::new(), |world| {
        world.run("/a", &[Outcome::Declined.into()]);
    });
    assert_announced(PauseCause::Blocked, &World::new(), |world| {
        for path in ["/a", "/b", "/c"] {
            world.run(path, &[status(403)]);
        }
    });
    let paced = World::with(|builder| builder.pace(Pace::new(PaceSettings::default())));
    assert_announced(PauseCause::Pace, &paced, |world| drop(world.run("/a", &[status(429)])));
}

#[test]
fn a_pause_that_comes_from_another_process_is_announced_everywhere() {
    let attempt = |path: &str| {
        let url = Url::parse("https://e.org/").unwrap().join(path).unwrap();
        Attempt::new(&url, "direct_access", BEGIN).unwrap()
    };
    assert_announced(PauseCause::Limited, &World::new(), |world| {
        let mut limited = attempt("a").failed(ErrorKind::RateLimited);
        limited.response_headers = vec![Header::new("Retry-After", "120")];
        world.selector.observe_remote_attempt(&limited, BEGIN);
    });
    assert_announced(PauseCause::Declined, &World::new(), |world| {
        world.selector.observe_remote_attempt(&attempt("a").failed(ErrorKind::Declined), BEGIN);
    });
    assert_announced(PauseCause::Blocked, &World::new(), |world| {
        for path in ["a", "b", "c"] {
            world
                .selector
                .observe_remote_attempt(&attempt(path).failed(ErrorKind::Blocked403), BEGIN);
        }
    });
    assert_announced(PauseCause::Blocked, &World::new(), |world| {
        for link in 0..3 {
            world.selector.observe_remote_block("e.org", link, BEGIN, BEGIN);
        }
    });
}

#[test]
fn metrics_count_the_ends_of_visits_by_their_names() {
    assert_eq!(crate::metrics::recorder::counts::ENDS[..7], VisitOutcome::NAMES);
}
