//! Nodes that log link states and share them with each other.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fetchwise::Selector;
use fetchwise::backoff::BackoffSettings;
use fetchwise::fetch_result::{Block, Outcome};
use fetchwise::journal::{self, Durability, Journal, JournalOptions};
use fetchwise::time::{Clock, Timestamp};
use fetchwise::visit::{Visit, VisitOutcome, WaitScope};
use fetchwise_fleet::transport::Transport;
use fetchwise_fleet::{Fleet, Options};
use fetchwise_testsite::poll::until;
use url::Url;

use super::flush;
use super::visits::goes;

/// The first pause of a blocked link. It ends before a clock is too far ahead of the broker's to be
/// accepted.
const FIRST: Duration = Duration::from_secs(60);

/// A whole node, whose visits write link states to its log.
pub(crate) struct CrawlingNode {
    pub(crate) selector: Arc<Selector>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) fleet: Fleet,
}

impl CrawlingNode {
    pub(crate) async fn start(
        dir: &Path,
        transport: Arc<dyn Transport>,
        clock: &Arc<Clock>,
        options: Options,
    ) -> Self {
        let (journal, _) =
            Journal::open(dir, JournalOptions::default().durability(Durability::Os)).unwrap();
        let journal = Arc::new(journal);
        let backoff = BackoffSettings { blocked_base: FIRST, ..BackoffSettings::default() };
        let builder = Selector::builder()
            .without_pace()
            .clock(Arc::clone(clock))
            .around(clock.now())
            .backoff(backoff);
        let selector = Arc::new(builder.sink(Arc::clone(&journal)).build().unwrap());
        journal::load(dir, &selector, clock.now()).unwrap();
        let (own, learner) = (Arc::clone(&journal), Arc::clone(&selector));
        let fleet = Fleet::join(own, learner, transport, options).await.unwrap();
        Self { selector, journal, fleet }
    }

    /// Visits a link and gets this outcome from every fetcher that is tried. Returns the end of the
    /// pause; none if the link is not fetched at all.
    pub(crate) async fn ask(&self, link: &str, outcome: Outcome) -> Option<Timestamp> {
        let mut visit = Visit::new(Arc::clone(&self.selector), Url::parse(link).unwrap()).unwrap();
        let mut asked = false;
        loop {
            match goes(&mut visit).await {
                Ok(fetch) => {
                    asked = true;
                    visit.report(fetch, outcome.clone());
                }
                Err(VisitOutcome::Paused { until, whom: WaitScope::Link }) if !asked => {
                    return Some(until);
                }
                Err(end) => {
                    assert!(asked, "{link}: {end:?}");
                    return None;
                }
            }
        }
    }

    pub(crate) fn pause(&self, link: &str) -> Option<Timestamp> {
        self.selector.link_state(link).pause_at(self.selector.now())
    }

    pub(crate) async fn stop(self) {
        let Self { selector, journal, fleet } = self;
        fleet.stop().await;
        drop(selector);
        drop(Arc::try_unwrap(journal).map(Journal::close));
    }
}

pub(crate) fn blocked() -> Outcome {
    Outcome::Blocked(Block::refusal())
}

/// Waits until a node has read everything that another one has published.
pub(crate) async fn heard(reader: &CrawlingNode, of: &CrawlingNode) {
    flush(&of.journal).await;
    until("everything is published and read", || {
        let (name, top) = (of.fleet.node_id().to_string(), of.journal.durable_seq());
        reader.fleet.status().peers.iter().any(|peer| peer.node == name && peer.position >= top)
    })
    .await;
}

/// A link that fails at `a` is fetched at neither node until its pause is over, and at both again
/// then. It does not affect `elsewhere`, which is in another egress group.
pub(crate) async fn fails_here_and_waits_there(
    a: &CrawlingNode,
    b: &CrawlingNode,
    elsewhere: &CrawlingNode,
    clock: &Clock,
) {
    let (link, other) = ("https://e.org/1", "https://e.org/2");
    assert_eq!(a.ask(link, blocked()).await, None);
    let first = a.pause(link).unwrap();
    until("the pause at the other", || b.pause(link) == Some(first)).await;
    assert_eq!(b.ask(link, Outcome::Content).await, Some(first), "it is not fetched there");
    assert_eq!(b.ask(other, Outcome::Content).await, None, "another link is");
    heard(elsewhere, a).await;
    assert_eq!(elsewhere.pause(link), None, "other egress groups are not affected");
    assert!(b.selector.links_at_risk().is_empty(), "states of peers are not this node's own");
    clock.set(Timestamp::from_millis(first.as_millis() - 1));
    assert_eq!(b.ask(link, blocked()).await, Some(first));
    // The pause is over: the next visit fetches, is blocked again, and pauses for twice as long.
    clock.set(first);
    assert_eq!(b.ask(link, blocked()).await, None, "it is fetched again");
    let second = b.pause(link).unwrap();
    assert_eq!(second.since(first), FIRST * 2, "as after the second failure at one node");
    until("the next pause at the first", || a.pause(link) == Some(second)).await;
    assert_eq!(a.ask(link, Outcome::Content).await, Some(second));
    clock.set(second);
    assert_eq!(a.ask(link, Outcome::Content).await, None);
    heard(b, a).await;
    assert_eq!(a.selector.link_state(link).risk_level, 0);
    assert_eq!((b.pause(link), b.ask(link, Outcome::Content).await), (None, None));
}
