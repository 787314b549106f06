//! Brokers that are killed, stopped and wiped under a transport: the guarantees for single messages
//! hold, and reading continues.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fetchwise_fleet::model::node_id::NodeId;
use fetchwise_fleet::transport::nats::{Nats, NatsSettings};
use fetchwise_fleet::transport::{Delivery, Position, Table, Transport, TransportError};
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use crate::servers::{self, Servers};

const LONG: Duration = Duration::from_secs(120);

async fn connect(servers: &Servers) -> Nats {
    let nats = Nats::connect(NatsSettings::new(servers.urls(), "test")).await.unwrap();
    nats.ready(LONG).await.unwrap();
    nats
}

/// Publishes until the message is stored, whatever fails.
async fn insist(nats: &Nats, node_id: NodeId, n: u32) -> Position {
    let id = format!("{node_id}.0.{n}-{n}");
    loop {
        match nats.publish(node_id, &id, Bytes::copy_from_slice(&n.to_le_bytes())).await {
            Ok(position) => return position,
            Err(TransportError::Away(_)) => sleep(Duration::from_millis(50)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

fn number(body: &Bytes) -> u32 {
    u32::from_le_bytes(body[..].try_into().unwrap())
}

/// Publishes 0, 1, 2 and so on while brokers come and go, and reads them at another node. Every
/// acknowledged message arrives.
async fn nothing_acknowledged_is_missed(
    mut servers: Servers,
    mut faults: impl FnMut(&mut Servers, u32),
) {
    let (writer, reader) = (connect(&servers).await, Arc::new(connect(&servers).await));
    let begin = reader.bounds().await.unwrap();
    let (node_id, last) = (NodeId::random(), Arc::new(AtomicU64::new(u64::MAX)));
    let reading = tokio::spawn({
        let (reader, last) = (Arc::clone(&reader), Arc::clone(&last));
        async move {
            let mut read = reader.read(Position { incarnation: begin.incarnation, seq: 1 });
            let (mut seen, mut places) = (Vec::new(), Vec::new());
            // To the last message of the stream, however long the reader takes to notice that its
            // consumer is gone.
            while places.last().is_none_or(|place| *place < last.load(Ordering::SeqCst)) {
                match timeout(Duration::from_secs(1), read.next()).await {
                    Ok(Some(Ok(Delivery::Message { position, body, .. }))) => {
                        seen.push(number(&body));
                        places.push(position.seq);
                    }
                    Ok(other) => panic!("{other:?}"),
                    Err(_) => {}
                }
            }
            (seen, places)
        }
    });
    let all = 60;
    for n in 0..all {
        faults(&mut servers, n);
        timeout(LONG, insist(&writer, node_id, n)).await.expect("it is stored at last");
    }
    for broker in 0..servers.len() {
        servers.revive(broker);
    }
    let end = timeout(LONG, async {
        loop {
            match reader.bounds().await {
                Ok(bounds) => return bounds,
                Err(_) => sleep(Duration::from_millis(100)).await,
            }
        }
    });
    let end = end.await.unwrap();
    assert_eq!(end.incarnation, begin.incarnation);
    last.store(end.last, Ordering::SeqCst);
    let (seen, places) =
        timeout(LONG, reading).await.expect("the stream is read to its end").unwrap();
    assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "positions increase: {places:?}");
    let missing: Vec<u32> = (0..all).filter(|n| !seen.contains(n)).collect();
    assert_eq!(missing, [0; 0], "of {all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_broker_is_killed_in_turn() {
    if !servers::is_available() {
        return;
    }
    nothing_acknowledged_is_missed(Servers::start(3), |servers, n| match n {
        10 | 30 | 50 => servers.kill((n / 20) as usize),
        20 | 40 => servers.revive((n / 20 - 1) as usize),
        _ => {}
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_brokers_are_killed_at_once() {
    if !servers::is_available() {
        return;
    }
    nothing_acknowledged_is_missed(Servers::start(3), |servers, n| {
        if n == 20 || n == 40 {
            (0..3).for_each(|broker| servers.kill(broker));
            (0..3).for_each(|broker| servers.revive(broker));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_brokers_are_stopped_for_a_while() {
    if !servers::is_available() {
        return;
    }
    nothing_acknowledged_is_missed(Servers::start(3), |servers, n| {
        if n == 20 {
            (0..2).for_each(|broker| servers.stop(broker));
            std::thread::sleep(Duration::from_secs(3));
            (0..2).for_each(|broker| servers.resume(broker));
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_broker_is_killed_and_comes_back() {
    if !servers::is_available() {
        return;
    }
    nothing_acknowledged_is_missed(Servers::start(1), |servers, n| {
        if n == 20 || n == 40 {
            servers.kill(0);
            servers.revive(0);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wiped_broker_gets_a_recreated_stream() {
    if !servers::is_available() {
        return;
    }
    let mut servers = Servers::start(1);
    let nats = connect(&servers).await;
    let node_id = NodeId::random();
    let begin = nats.bounds().await.unwrap();
    for n in 0..5 {
        assert_eq!(insist(&nats, node_id, n).await.incarnation, begin.incarnation);
    }
    nats.cells().put(Table::Hosts, "e.org", Bytes::from_static(b"1")).await.unwrap();
    let mut watch = nats.cells().watch(Table::Hosts);
    assert_eq!(timeout(LONG, watch.next()).await.unwrap().unwrap().unwrap().key, "e.org");
    let mut read = nats.read(Position { incarnation: begin.incarnation, seq: 1 });
    for n in 0..5 {
        match timeout(LONG, read.next()).await.unwrap().unwrap().unwrap() {
            Delivery::Message { body, .. } => assert_eq!(number(&body), n),
            other => panic!("{other:?}"),
        }
    }
    servers.wipe(0);
    servers.revive(0);
    let position = timeout(LONG, insist(&nats, node_id, 6)).await.unwrap();
    assert_eq!(position.seq, 1);
    assert_ne!(position.incarnation, begin.incarnation, "acknowledgements are of the new stream");
    match timeout(LONG, read.next()).await.unwrap().unwrap().unwrap() {
        Delivery::Wiped(bounds) => assert_eq!(bounds.incarnation, position.incarnation),
        other => panic!("{other:?}"),
    }
    match timeout(LONG, read.next()).await.unwrap().unwrap().unwrap() {
        Delivery::Message { body, position: at, .. } => {
            assert_eq!((number(&body), at), (6, position))
        }
        other => panic!("{other:?}"),
    }
    let ended = timeout(LONG, async { while let Some(Ok(_)) = watch.next().await {} }).await;
    assert!(ended.is_ok(), "a watcher of a lost table watches again");
    assert_eq!(nats.cells().get(Table::Hosts, "e.org").await.unwrap(), None);
}

/// Stores messages with headers that brokers send as a status, as any client can.
fn store_statuses(port: u16, subject: &str) {
    use std::io::{BufRead, BufReader, Write};
    let mut broker = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut lines = BufReader::new(broker.try_clone().unwrap()).lines();
    lines.next().unwrap().unwrap();
    write!(broker, "CONNECT {{\"verbose\":false,\"headers\":true,\"protocol\":1}}\r\n").unwrap();
    for status in [
        "100 Idle Heartbeat",
        "404 No Messages",
        "408 Request Timeout",
        "409 Consumer Deleted",
        "503",
        "204 EOB",
    ] {
        let header = format!("NATS/1.0 {status}\r\n\r\n");
        write!(broker, "HPUB {subject} {} {}\r\n{header}\r\n", header.len(), header.len()).unwrap();
    }
    write!(broker, "PING\r\n").unwrap();
    // The answer comes after everything has been stored.
    assert!(lines.any(|line| line.unwrap() == "PONG"));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_look_like_a_status_stop_no_reader() {
    if !servers::is_available() {
        return;
    }
    let servers = Servers::start(1);
    let nats = connect(&servers).await;
    let (bad, good) = (NodeId::random(), NodeId::random());
    nats.publish(good, "first", Bytes::from_static(b"first")).await.unwrap();
    nats.cells().put(Table::Nodes, "first", Bytes::from_static(b"1")).await.unwrap();
    for subject in [format!("fw.test.f.{bad}"), format!("$KV.FW_test_nodes.{bad}")] {
        store_statuses(servers.ports()[0], &subject);
    }
    nats.publish(good, "last", Bytes::from_static(b"last")).await.unwrap();
    nats.cells().put(Table::Nodes, "last", Bytes::from_static(b"2")).await.unwrap();
    assert_eq!(nats.bounds().await.unwrap().last, 8, "all are stored");
    let mut read = nats.read(Position::default());
    let mut bodies = Vec::new();
    while bodies.last() != Some(&Bytes::from_static(b"last")) {
        let delivery = timeout(LONG, read.next()).await.expect("a message comes");
        if let Delivery::Message { node_id, body, .. } = delivery.unwrap().unwrap()
            && node_id == good
        {
            bodies.push(body);
        }
    }
    assert_eq!(bodies, [&b"first"[..], b"last"]);
    let listed = nats.cells().list(Table::Nodes).await.unwrap();
    assert!(
        ["first", "last"].iter().all(|key| listed.iter().any(|(listed, _)| listed == key)),
        "{listed:?}"
    );
}

/// A snapshot is interrupted at any moment: a reader gets it or the earlier one, as a whole.
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_evidence_snapshot_leaves_the_earlier_one() {
    if !servers::is_available() {
        return;
    }
    let servers = Servers::start(1);
    let nats = connect(&servers).await;
    let body = |n: u32, len: u32| {
        Bytes::from((0..len).flat_map(|at| (at ^ n).to_le_bytes()).collect::<Vec<u8>>())
    };
    let (mut last, mut interrupted, mut n) = (body(0, 500_000), Vec::new(), 0);
    nats.blobs().put("share", "0", last.clone()).await.unwrap();
    let mut patience = Duration::from_micros(500);
    loop {
        n += 1;
        // Longer and shorter ones in turn, so that a slot has parts of longer ones.
        let next = body(n, if n % 2 == 0 { 900_000 } else { 200_000 });
        let note = n.to_string();
        let is_ended = timeout(patience, nats.blobs().put("share", &note, next.clone())).await;
        let read = nats.blobs().get("share", 8_000_000).await.unwrap().unwrap();
        let is_stored = is_ended.is_ok();
        match is_ended {
            Ok(stored) => {
                stored.unwrap();
                assert_eq!(read, next);
            }
            // The head may be stored although its response was not waited for, even after the next
            // read.
            Err(_) => {
                interrupted.push(next);
                assert!(
                    read == last || interrupted.contains(&read),
                    "a mixture of {} bytes",
                    read.len()
                );
            }
        }
        last = read;
        if is_stored && interrupted.len() > 2 {
            break;
        }
        patience = patience * 3 / 2;
    }
    let listed = nats.blobs().list().await.unwrap();
    assert_eq!((listed.len(), listed[0].len as usize), (1, last.len()));
    // With the right to purge, an operator deletes it as a whole.
    nats.blobs().delete("share").await.unwrap();
    assert_eq!(nats.blobs().get("share", 8_000_000).await.unwrap(), None);
}
