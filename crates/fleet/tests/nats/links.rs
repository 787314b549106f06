//! A link that failed at one node waits at another one, over a real broker.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fetchwise::time::{Clock, Timestamp};
use fetchwise_fleet::Options;
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};

use crate::common::links::{CrawlingNode, fails_here_and_waits_there};
use crate::common::visits::LONG;
use crate::node_process::timing;
use crate::servers::{self, Servers};

async fn node(servers: &Servers, dir: &Path, clock: &Arc<Clock>, egress: &str) -> CrawlingNode {
    std::fs::create_dir_all(dir).unwrap();
    let nats = Nats::connect(NatsSettings::new(servers.urls(), "test")).await.unwrap();
    nats.ready(LONG).await.unwrap();
    let mut options = Options::default();
    options.timing = timing();
    options.timing.lease = Duration::from_secs(30);
    options.egress_group = egress.to_owned();
    CrawlingNode::start(dir, Arc::new(nats), clock, options).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_link_is_paused_at_all_nodes_of_the_egress_group() {
    if !servers::is_available() {
        return;
    }
    let (servers, dir) = (Servers::start(1), tempfile::tempdir().unwrap());
    // Never ahead of the broker's clock, so that pauses last for their whole time. The clock starts
    // five minutes behind, and both pauses are over by then.
    let clock =
        Arc::new(Clock::fixed(Timestamp::from_millis(Timestamp::now().as_millis() - 300_000)));
    let a = node(&servers, &dir.path().join("a"), &clock, "").await;
    let b = node(&servers, &dir.path().join("b"), &clock, "").await;
    let c = node(&servers, &dir.path().join("c"), &clock, "eu").await;
    fails_here_and_waits_there(&a, &b, &c, &clock).await;
}
