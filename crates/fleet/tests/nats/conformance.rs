//! The conformance test that every transport has to pass.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use fetchwise_fleet::model::node_id::NodeId;
use fetchwise_fleet::transport::{
    Change, Delivery, Position, QueueStatistics, RetransmitRequest, SwapOutcome, Table, Transport,
    TransportError, WorkQueues, shard_of,
};
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use tokio::time::timeout;

/// The timeout of every step.
const PATIENCE: Duration = Duration::from_secs(120);

type Changes<'t> = BoxStream<'t, Result<Change, TransportError>>;
type Deliveries<'t> = BoxStream<'t, Result<Delivery, TransportError>>;

fn text(n: usize) -> Bytes {
    Bytes::from(format!("message {n}"))
}

async fn message(read: &mut Deliveries<'_>) -> (NodeId, Position, Bytes) {
    match timeout(PATIENCE, read.next()).await.expect("a message comes").unwrap().unwrap() {
        Delivery::Message { node_id, position, body, .. } => (node_id, position, body),
        Delivery::Wiped(bounds) => panic!("the stream is a different one: {bounds:?}"),
    }
}

async fn change(watch: &mut Changes<'_>) -> (String, Option<Bytes>) {
    let change = timeout(PATIENCE, watch.next()).await.expect("a change comes").unwrap().unwrap();
    (change.key, change.cell.map(|cell| cell.value))
}

/// Runs all checks, on a pool that no other test uses.
pub async fn conforms(transport: &dyn Transport) {
    stream(transport).await;
    cells(transport).await;
    races(transport).await;
    watches(transport).await;
    blobs(transport).await;
    signals(transport).await;
    work_queues(transport).await;
}

async fn work_queues(transport: &dyn Transport) {
    let queues = transport.work_queues().unwrap();
    let is_missing = |error: TransportError| matches!(error, TransportError::NoQueue(_));
    assert!(is_missing(queues.content("q").await.unwrap_err()));
    assert!(queues.ensure("no.name").await.is_err());
    queues.ensure("q").await.unwrap();
    queues.ensure("q").await.unwrap();
    assert!(is_missing(queues.pull("q", "a.org", 1).await.unwrap_err()), "the site is not open");
    for n in 0..10 {
        for site in ["a.org", "[::1]"] {
            let id = format!("{n}{site}");
            assert!(queues.enqueue("q", site, &id, text(n)).await.unwrap());
            assert!(!queues.enqueue("q", site, &id, text(n)).await.unwrap(), "a duplicate");
        }
    }
    let content = queues.content("q").await.unwrap();
    assert_eq!((content.links, content.sites), (20, 2));
    let sites = |shard| async move {
        queues.sites("q", shard).await.unwrap().sites.into_iter().collect::<BTreeSet<_>>()
    };
    assert_eq!(sites(None).await, ["a.org", "[::1]"].map(str::to_owned).into());
    assert!(sites(Some(shard_of("a.org"))).await.contains("a.org"));
    assert_eq!(queues.delivered("q", "a.org").await.unwrap(), 0);
    // A cluster may still be making the site's consumer, or deleting the one before, and then a
    // reader opens the site again.
    let open_and_pull = |max| async move {
        let begun = tokio::time::Instant::now();
        loop {
            queues.open("q", "a.org").await.unwrap();
            match queues.pull("q", "a.org", max).await {
                Err(TransportError::NoQueue(_)) => {
                    assert!(begun.elapsed() < PATIENCE, "it stays away")
                }
                links => break links.unwrap(),
            }
        }
    };
    let first = open_and_pull(4).await;
    assert_eq!(
        first.iter().map(|link| link.body.clone()).collect::<Vec<_>>(),
        (0..4).map(text).collect::<Vec<_>>()
    );
    assert_eq!(queues.delivered("q", "a.org").await.unwrap(), first[3].seq);
    let statistics = queues.statistics("q").await.unwrap();
    assert_eq!((statistics.links, statistics.open_sites), (20, vec![("a.org".to_owned(), 4)]));
    let (oldest, now) = (statistics.oldest_at.unwrap(), transport.now().await.unwrap());
    assert!(now.is_none_or(|now| oldest <= now), "{oldest:?} {now:?}");
    for link in &first[..2] {
        queues.acknowledge("q", link).await.unwrap();
    }
    // A cluster removes them a moment later.
    let left = |links| async move {
        let is_left = async { while queues.content("q").await.unwrap().links != links {} };
        timeout(PATIENCE, is_left).await.expect("what is acknowledged leaves the queue");
    };
    left(18).await;
    // Links that wait, and links that are delivered, are no reason to wait for.
    let is_settled = || async {
        let is_settled = async { while !queues.is_settled("q", "a.org").await.unwrap() {} };
        timeout(PATIENCE, is_settled).await.expect("what is acknowledged is removed everywhere");
    };
    is_settled().await;
    assert_eq!(queues.pull("q", "a.org", 100).await.unwrap().len(), 6);
    assert_eq!(queues.pull("q", "a.org", 100).await.unwrap(), []);
    // Another node opens the site: what is not acknowledged comes again.
    let again = open_and_pull(100).await;
    assert_eq!(
        again.iter().map(|link| link.body.clone()).collect::<Vec<_>>(),
        (2..10).map(text).collect::<Vec<_>>()
    );
    for link in &again {
        queues.acknowledge("q", link).await.unwrap();
    }
    left(10).await;
    is_settled().await;
    queues.close("q", "a.org").await.unwrap();
    queues.close("q", "a.org").await.unwrap();
    assert_eq!(queues.delivered("q", "a.org").await.unwrap(), 0);
    assert_eq!(
        (queues.content("q").await.unwrap().links, sites(None).await),
        (10, ["[::1]".to_owned()].into())
    );
    purge(queues).await;
}

async fn purge(queues: &dyn WorkQueues) {
    let is_missing = |error: TransportError| matches!(error, TransportError::NoQueue(_));
    assert!(is_missing(queues.statistics("none").await.unwrap_err()));
    assert!(is_missing(queues.purge("none").await.unwrap_err()));
    let statistics = queues.statistics("q").await.unwrap();
    assert_eq!((statistics.links, statistics.open_sites.len()), (10, 0), "no site is open");
    assert_eq!(queues.purge("q").await.unwrap(), 10);
    assert_eq!(queues.statistics("q").await.unwrap(), QueueStatistics::default());
    assert_eq!(queues.purge("q").await.unwrap(), 0);
    // Its ids are known for the rest of their hour; other links come in.
    assert!(!queues.enqueue("q", "[::1]", "0[::1]", text(0)).await.unwrap());
    assert!(queues.enqueue("q", "[::1]", "another", text(0)).await.unwrap());
    assert_eq!(queues.content("q").await.unwrap().links, 1);
}

async fn stream(transport: &dyn Transport) {
    let (a, b) = (NodeId::random(), NodeId::random());
    let before = transport.bounds().await.unwrap();
    assert_ne!(before.incarnation, 0);
    assert_eq!(before.first, before.last + 1, "nothing is there yet");
    assert_eq!(before.first_at, None);
    let mut live = transport.read(Position { incarnation: before.incarnation, seq: before.first });
    let mut stored = Vec::new();
    for n in 0..100 {
        let node_id = if n % 3 == 0 { a } else { b };
        let position =
            transport.publish(node_id, &format!("{node_id}.1.{n}-{n}"), text(n)).await.unwrap();
        assert_eq!(position.incarnation, before.incarnation);
        stored.push((node_id, position, text(n)));
    }
    assert!(stored.windows(2).all(|pair| pair[0].1.seq < pair[1].1.seq));
    let after = transport.bounds().await.unwrap();
    assert_eq!((after.incarnation, after.last), (before.incarnation, stored[99].1.seq));
    assert!(after.first_at.is_some());
    for expected in &stored {
        assert_eq!(
            message(&mut live).await,
            *expected,
            "as published, in order, with the node of the subject"
        );
    }
    let newest = |of| {
        stored.iter().rev().find(|(node_id, ..)| *node_id == of).map(|(.., body)| body.clone())
    };
    assert_eq!(transport.newest(a).await.unwrap(), newest(a));
    assert_eq!(transport.newest(b).await.unwrap(), newest(b));
    assert_eq!(transport.newest(NodeId::random()).await.unwrap(), None);
    if let Some(now) = transport.now().await.unwrap() {
        assert!(after.first_at.unwrap() <= now);
    }
    // From the middle on.
    let mut late = transport.read(stored[60].1);
    assert_eq!(message(&mut late).await, stored[60]);
    // From before the oldest message, and from the very beginning.
    let mut all = transport.read(Position { incarnation: before.incarnation, seq: 0 });
    assert_eq!(message(&mut all).await, stored[0]);
    let mut whichever = transport.read(Position::default());
    assert_eq!(message(&mut whichever).await, stored[0]);
    // A position of a stream that no longer exists.
    let mut other = transport.read(Position { incarnation: before.incarnation + 1, seq: 70 });
    match timeout(PATIENCE, other.next()).await.unwrap().unwrap().unwrap() {
        Delivery::Wiped(bounds) => assert_eq!(bounds.incarnation, before.incarnation),
        message => panic!("{message:?}"),
    }
    assert_eq!(message(&mut other).await, stored[0]);
    // The last message, when it arrives.
    let mut next =
        transport.read(Position { incarnation: before.incarnation, seq: after.last + 1 });
    assert!(next.next().now_or_never().is_none(), "nothing is stored");
    let position = transport.publish(a, "later", text(7)).await.unwrap();
    assert_eq!(message(&mut next).await, (a, position, text(7)));
    assert_eq!(message(&mut live).await, (a, position, text(7)));
    // A large message, and one that is too large.
    let large = Bytes::from(vec![7; 1_000_000]);
    let position = transport.publish(b, "large", large.clone()).await.unwrap();
    assert_eq!(message(&mut live).await, (b, position, large));
    assert!(transport.publish(b, "larger", Bytes::from(vec![7; (1 << 20) + 1])).await.is_err());
}

async fn cells(transport: &dyn Transport) {
    let (cells, table) = (transport.cells(), Table::Forget);
    let value = |text: &'static str| Bytes::from_static(text.as_bytes());
    assert_eq!(cells.get(table, "a").await.unwrap(), None);
    let SwapOutcome::Done(first) = cells.swap(table, "a", None, value("1")).await.unwrap() else {
        panic!("it was empty")
    };
    let there = cells.get(table, "a").await.unwrap().unwrap();
    assert_eq!((there.revision, &there.value), (first, &value("1")));
    assert_eq!(
        cells.swap(table, "a", None, value("x")).await.unwrap(),
        SwapOutcome::Lost(Some(there.clone()))
    );
    let SwapOutcome::Done(second) = cells.swap(table, "a", Some(first), value("2")).await.unwrap()
    else {
        panic!("mine")
    };
    assert!(second > first);
    match cells.swap(table, "a", Some(first), value("x")).await.unwrap() {
        SwapOutcome::Lost(Some(cell)) => {
            assert_eq!((cell.revision, cell.value), (second, value("2")))
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        cells.delete(table, "a", Some(first)).await.unwrap(),
        SwapOutcome::Lost(Some(_))
    ));
    assert!(matches!(cells.delete(table, "a", Some(second)).await.unwrap(), SwapOutcome::Done(_)));
    assert_eq!(cells.get(table, "a").await.unwrap(), None);
    assert_eq!(
        cells.swap(table, "a", Some(second), value("x")).await.unwrap(),
        SwapOutcome::Lost(None)
    );
    assert!(
        matches!(cells.swap(table, "a", None, value("3")).await.unwrap(), SwapOutcome::Done(third) if third > second)
    );
    assert!(matches!(cells.delete(table, "a", None).await.unwrap(), SwapOutcome::Done(_)));
    assert!(matches!(cells.delete(table, "never", None).await.unwrap(), SwapOutcome::Done(_)));
    // Any text is a key, and no two keys share a cell.
    let long = "k".repeat(512);
    let keys = [
        "",
        ".",
        "..",
        "a.b",
        "a..b",
        "A",
        "=2E",
        "ä €",
        "*",
        ">",
        "a b",
        "\u{0}",
        "a/b",
        long.as_str(),
    ];
    for key in keys {
        cells.put(table, key, Bytes::from(key.to_owned())).await.unwrap();
    }
    for key in keys {
        assert_eq!(cells.get(table, key).await.unwrap().unwrap().value, key.as_bytes());
    }
    let listed = cells.list(table).await.unwrap();
    assert_eq!(listed.len(), keys.len());
    assert!(listed.iter().all(|(key, cell)| cell.value == key.as_bytes()));
    assert!(cells.put(table, &"k".repeat(513), Bytes::new()).await.is_err());
    assert_eq!(cells.list(Table::Excluded).await.unwrap(), [], "tables are separate");
}

/// Of many concurrent swaps one wins, and the others see which.
async fn races(transport: &dyn Transport) {
    let (cells, table) = (transport.cells(), Table::Hosts);
    for round in 0..20 {
        let key = format!("race.{round}");
        let seen = if round % 2 == 0 {
            None
        } else {
            Some(cells.put(table, &key, Bytes::new()).await.unwrap())
        };
        let claims = (0..8u8).map(|claimer| {
            let key = &key;
            async move {
                (claimer, cells.swap(table, key, seen, Bytes::from(vec![claimer])).await.unwrap())
            }
        });
        let ends = futures_util::future::join_all(claims).await;
        let winners: Vec<u8> = ends
            .iter()
            .filter(|(_, end)| matches!(end, SwapOutcome::Done(_)))
            .map(|(claimer, _)| *claimer)
            .collect();
        assert_eq!(winners.len(), 1, "{ends:?}");
        for (_, end) in ends {
            if let SwapOutcome::Lost(cell) = end {
                assert_eq!(cell.unwrap().value, winners, "a losing swap returns the current cell");
            }
        }
    }
}

async fn watches(transport: &dyn Transport) {
    let (cells, table) = (transport.cells(), Table::Excluded);
    cells.put(table, "old", Bytes::from_static(b"1")).await.unwrap();
    cells.put(table, "old", Bytes::from_static(b"2")).await.unwrap();
    cells.put(table, "gone", Bytes::new()).await.unwrap();
    cells.delete(table, "gone", None).await.unwrap();
    let mut watch = cells.watch(table);
    let mut seen = BTreeMap::new();
    while seen.get("old") != Some(&Bytes::from_static(b"2")) {
        let (key, value) = change(&mut watch).await;
        match value {
            Some(value) => seen.insert(key, value),
            None => seen.remove(&key),
        };
    }
    cells.put(table, "new", Bytes::from_static(b"3")).await.unwrap();
    cells.delete(table, "old", None).await.unwrap();
    while seen != BTreeMap::from([("new".to_owned(), Bytes::from_static(b"3"))]) {
        let (key, value) = change(&mut watch).await;
        match value {
            Some(value) => seen.insert(key, value),
            None => seen.remove(&key),
        };
    }
    cells.delete(table, "new", None).await.unwrap();
    assert_eq!(change(&mut watch).await, ("new".to_owned(), None));
}

async fn blobs(transport: &dyn Transport) {
    let blobs = transport.blobs();
    assert_eq!(blobs.get("share", 10).await.unwrap(), None);
    assert_eq!(blobs.list().await.unwrap(), []);
    let body: Bytes = (0..3_000_000u32).flat_map(u32::to_le_bytes).take(5_000_000).collect();
    blobs.put("share", "covers 7", body.clone()).await.unwrap();
    blobs.put("empty", "", Bytes::new()).await.unwrap();
    assert_eq!(blobs.get("share", 5_000_000).await.unwrap().unwrap(), body);
    assert_eq!(blobs.get("empty", 0).await.unwrap().unwrap(), Bytes::new());
    assert!(matches!(blobs.get("share", 4_999_999).await, Err(TransportError::Invalid(_))));
    blobs.put("share", "covers 9 ä", Bytes::from_static(b"new")).await.unwrap();
    assert_eq!(blobs.get("share", 100).await.unwrap().unwrap(), &b"new"[..]);
    let listed: BTreeSet<_> = blobs
        .list()
        .await
        .unwrap()
        .into_iter()
        .map(|blob| (blob.name, blob.note, blob.len))
        .collect();
    let blob = |name: &str, note: &str, len| (name.to_owned(), note.to_owned(), len);
    assert_eq!(listed, BTreeSet::from([blob("share", "covers 9 ä", 3), blob("empty", "", 0)]));
    blobs.delete("share").await.unwrap();
    blobs.delete("share").await.unwrap();
    blobs.delete("never").await.unwrap();
    assert_eq!(blobs.get("share", 100).await.unwrap(), None);
    assert_eq!(blobs.list().await.unwrap().len(), 1);
    assert!(blobs.put("noted", &"n".repeat(1025), Bytes::new()).await.is_err());
}

async fn signals(transport: &dyn Transport) {
    let (own, other) = (NodeId::random(), NodeId::random());
    let mut heard = transport.signals(own);
    let want = RetransmitRequest { epoch: 3, first: 7, last: 9 };
    // Signals may get lost: for one before the subscription has reached the broker.
    let hears = async { heard.next().await.unwrap().unwrap() };
    let says = async {
        loop {
            transport
                .signal(other, RetransmitRequest { epoch: 1, first: 1, last: 1 })
                .await
                .unwrap();
            transport.signal(own, want).await.unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let got = timeout(PATIENCE, async {
        tokio::select! {
            got = hears => got,
            never = says => never,
        }
    });
    assert_eq!(got.await.expect("a request arrives"), want);
}
