//! Visits of hosts by nodes that share their pauses.

use std::sync::Arc;
use std::time::Duration;

use fetchwise::Selector;
use fetchwise::backoff::BackoffSettings;
use fetchwise::fetch_result::{Block, Outcome};
use fetchwise::time::Clock;
use fetchwise::visit::{Fetch, Step, Visit, VisitOutcome};
use fetchwise_fleet::model::heartbeat::Heartbeat;
use fetchwise_fleet::model::node_id::NodeId;
use fetchwise_fleet::pauses::SharedHosts;
use fetchwise_fleet::transport::{Table, Transport};
use url::Url;

/// The timeout of every wait.
pub(crate) const LONG: Duration = Duration::from_secs(120);
/// The first pause of a host.
pub(crate) const PAUSE: Duration = Duration::from_secs(300);

pub(crate) type Own = Visit<Arc<Selector>, Url>;

/// A node that shares its pauses and nothing else.
pub(crate) struct Sharer {
    pub(crate) selector: Arc<Selector>,
    pub(crate) hosts: SharedHosts,
    _heartbeats: Heartbeats,
}

/// The task that sends the heartbeats of a node. Only nodes that send them are believed.
pub(crate) struct Heartbeats(tokio::task::JoinHandle<()>);

impl Heartbeats {
    pub(crate) fn start(transport: Arc<dyn Transport>, own: NodeId, heartbeat: Heartbeat) -> Self {
        Self(tokio::spawn(async move {
            loop {
                let _ =
                    transport.cells().put(Table::Nodes, &own.to_string(), heartbeat.encode()).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }))
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        self.0.abort();
    }
}

pub(crate) fn sharer(
    transport: Arc<dyn Transport>,
    own: NodeId,
    clock: &Arc<Clock>,
    egress: &str,
) -> Sharer {
    let backoff = BackoffSettings { blocked_base: PAUSE, ..BackoffSettings::default() };
    let selector = Selector::builder()
        .without_pace()
        .clock(Arc::clone(clock))
        .around(clock.now())
        .backoff(backoff)
        .build()
        .unwrap();
    let selector = Arc::new(selector);
    let heartbeats = Heartbeats::start(Arc::clone(&transport), own, Heartbeat::default());
    let hosts = SharedHosts::share(Arc::clone(&selector), transport, own, egress).unwrap();
    Sharer { selector, hosts, _heartbeats: heartbeats }
}

pub(crate) fn visit(node: &Sharer, host: &str, page: usize) -> Own {
    let url = Url::parse(&format!("https://{host}/{page}")).unwrap();
    Visit::new(Arc::clone(&node.selector), url).unwrap()
}

/// Fetches with every fetcher and is blocked each time.
pub(crate) fn be_blocked(node: &Sharer, host: &str, page: usize) {
    let mut visit = visit(node, host, page);
    while let Step::Fetch(fetch) = visit.next() {
        visit.report(fetch, Outcome::Blocked(Block::refusal()));
    }
}

/// Returns the fetch of a visit, or the outcome without one.
pub(crate) async fn goes(visit: &mut Own) -> Result<Fetch<Arc<Selector>>, VisitOutcome> {
    loop {
        match visit.next() {
            Step::Fetch(fetch) => return Ok(fetch),
            Step::End(end) => return Err(end.how),
            Step::Wait(mut wait) => {
                drop(tokio::time::timeout(Duration::from_secs(1), wait.notified()).await)
            }
        }
    }
}

/// Ends the trial with this outcome.
pub(crate) async fn ends(visit: &mut Own, fetch: Fetch<Arc<Selector>>, is_fine: bool) {
    let outcome = if is_fine { Outcome::Content } else { Outcome::Blocked(Block::refusal()) };
    visit.report(fetch, outcome);
    // A blocked trial may go on with another fetcher, which is blocked, too.
    while let Ok(fetch) = goes(visit).await {
        visit.report(fetch, Outcome::Blocked(Block::refusal()));
    }
}
