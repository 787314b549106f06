//! Provisioning: streams are created, created again, compared, and refused without permission.

use std::time::Duration;

use bytes::Bytes;
use fetchwise_fleet::model::node_id::NodeId;
use fetchwise_fleet::transport::nats::{Nats, NatsSettings, StreamState};
use fetchwise_fleet::transport::{
    Delivery, Position, RetransmitRequest, SwapOutcome, Table, Transport, TransportError,
};
use futures_util::StreamExt;

use crate::authentication::refused;
use crate::conformance::conforms;
use crate::servers::{self, ReservedPort, Servers};

const SOON: Duration = Duration::from_secs(120);

fn settings(servers: &Servers) -> NatsSettings {
    NatsSettings::new(servers.urls(), "test")
}

#[tokio::test(flavor = "multi_thread")]
async fn one_broker_conforms() {
    if !servers::is_available() {
        return;
    }
    let servers = Servers::start(1);
    let nats = Nats::connect(settings(&servers)).await.unwrap();
    nats.ready(SOON).await.unwrap();
    conforms(&nats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn three_brokers_conform() {
    if !servers::is_available() {
        return;
    }
    let servers = Servers::start(3);
    let nats = Nats::connect(settings(&servers)).await.unwrap();
    nats.ready(SOON).await.unwrap();
    conforms(&nats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn init_creates_everything_once_and_reports_differences() {
    if !servers::is_available() {
        return;
    }
    let servers = Servers::start(1);
    let keeps = NatsSettings { make: false, ..settings(&servers) };
    let nats = Nats::connect(keeps.clone()).await.unwrap();
    let error = nats.ready(SOON).await.unwrap_err();
    assert!(matches!(&error, TransportError::Missing(what) if what == "FW_test"), "{error:?}");
    assert!(error.to_string().contains("fetchwise fleet init"));
    let missing = nats.cells().put(Table::Hosts, "a", Bytes::new()).await.unwrap_err();
    assert!(matches!(missing, TransportError::Missing(_)), "{missing:?}");
    let missing = nats.publish(NodeId::random(), "a", Bytes::new()).await.unwrap_err();
    assert!(matches!(missing, TransportError::Missing(_)), "{missing:?}");
    let made = nats.init(false).await.unwrap();
    assert_eq!(made.len(), 8);
    assert!(made.iter().all(|made| made.state == StreamState::Created), "{made:?}");
    let again = nats.init(false).await.unwrap();
    assert!(again.iter().all(|made| made.state == StreamState::Exists), "{again:?}");
    let day =
        NatsSettings { max_age: Duration::from_secs(86_400), max_bytes: Some(1 << 30), ..keeps };
    let day = Nats::connect(day).await.unwrap();
    day.ready(SOON).await.unwrap();
    let words = vec![
        "max_age is 604800 s, not 86400 s".to_owned(),
        "max_bytes is unlimited, not 1073741824".to_owned(),
    ];
    let found = day.init(false).await.unwrap();
    assert_eq!(found[0].state, StreamState::Differs(words.clone()));
    assert!(found[1..].iter().all(|made| made.state == StreamState::Exists), "{found:?}");
    assert_eq!(
        nats.init(false).await.unwrap()[0].state,
        StreamState::Exists,
        "a check changed nothing"
    );
    assert_eq!(day.init(true).await.unwrap()[0].state, StreamState::Changed(words));
    assert!(day.init(false).await.unwrap().iter().all(|made| made.state == StreamState::Exists));
}

#[tokio::test]
async fn a_missing_broker_is_reported_with_its_address() {
    let nobody = ReservedPort::new();
    let url = format!("nats://me:secret@{}", nobody.address());
    let nats = Nats::connect(NatsSettings::new([url], "test")).await.unwrap();
    let error = nats.ready(Duration::from_secs(2)).await.unwrap_err();
    assert!(matches!(error, TransportError::Away(_)), "{error:?}");
    assert!(
        error.to_string().contains("127.0.0.1") && !error.to_string().contains("secret"),
        "{error}"
    );
    assert!(!nats.is_up());
    assert!(matches!(nats.cells().get(Table::Hosts, "a").await, Err(TransportError::Away(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_refused_and_not_printed() {
    if !servers::is_available() {
        return;
    }
    let users = "authorization { users: [ { user: \"ops\", password: \"right\" } ] }";
    let servers = Servers::start_with(1, users);
    let url =
        |word: &str| vec![servers.urls()[0].replace("nats://", &format!("nats://ops:{word}@"))];
    let error = refused(NatsSettings::new(url("wrongword"), "test")).await;
    assert!(!error.to_string().contains("wrongword"), "{error}");
    Nats::connect(NatsSettings::new(url("right"), "test"))
        .await
        .unwrap()
        .ready(SOON)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_permission_learns_which_stream_is_missing() {
    if !servers::is_available() {
        return;
    }
    let users = "authorization { users: [ { user: \"ops\", password: \"ops\" }, { user: \"node\", password: \"node\", \
                 permissions: { publish: { deny: [\"$JS.API.STREAM.CREATE.>\", \"$KV.FW_test_forget.>\"] } } } ] }";
    let servers = Servers::start_with(1, users);
    let of = |user: &str| {
        let url = servers.urls()[0].replace("nats://", &format!("nats://{user}:{user}@"));
        NatsSettings::new([url], "test")
    };
    let node = Nats::connect(of("node")).await.unwrap();
    let error = node.ready(SOON).await.unwrap_err();
    assert!(matches!(error, TransportError::Missing(_)), "{error:?}");
    let ops = Nats::connect(of("ops")).await.unwrap();
    ops.ready(SOON).await.unwrap();
    ops.init(false).await.unwrap();
    node.ready(SOON).await.unwrap();
    let error = node.cells().put(Table::Forget, "e.org", Bytes::new()).await.unwrap_err();
    assert!(matches!(error, TransportError::Refused(_)), "{error:?}");
    node.cells().put(Table::Hosts, "e.org", Bytes::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_in_process_broker_conforms() {
    let clock = std::sync::Arc::new(fetchwise::time::Clock::System);
    conforms(
        &fetchwise_fleet::transport::in_process::InProcessBroker::new(clock, 1)
            .node(NodeId::random()),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_permissions_are_sufficient_and_minimal() {
    if !servers::is_available() {
        return;
    }
    let own = NodeId::random();
    let node = fetchwise_fleet::transport::nats::permissions("test", own, &["q".to_owned()])
        .unwrap()
        .replace("CHANGE ME", "word");
    let servers = Servers::start_with(1, &format!("authorization {{ users: [\n{node}\n] }}"));
    let of = |user: &str| {
        let url = servers.urls()[0].replace("nats://", &format!("nats://{user}:word@"));
        NatsSettings::new([url], "test")
    };
    let ops = Nats::connect(of("ops")).await.unwrap();
    ops.ready(SOON).await.unwrap();
    let nats = Nats::connect(of(&format!("node-{}", &own.to_string()[..8]))).await.unwrap();
    nats.ready(SOON).await.unwrap();
    let (cells, name) = (nats.cells(), own.to_string());
    let position = nats.publish(own, "first", Bytes::from_static(b"facts")).await.unwrap();
    let mut read = nats.read(Position { seq: 1, ..position });
    assert!(matches!(read.next().await, Some(Ok(Delivery::Message { .. }))));
    assert!(nats.newest(own).await.unwrap().is_some() && nats.now().await.unwrap().is_some());
    cells.put(Table::Nodes, &name, Bytes::new()).await.unwrap();
    let host = |by| fetchwise_fleet::pauses::state_machine::key(by, "", "e.org");
    assert!(matches!(
        cells.swap(Table::Hosts, &host(own), None, Bytes::new()).await.unwrap(),
        SwapOutcome::Done(_)
    ));
    assert!(matches!(
        cells.delete(Table::Hosts, &host(own), None).await.unwrap(),
        SwapOutcome::Done(_)
    ));
    for table in Table::ALL {
        cells.list(table).await.unwrap();
    }
    assert!(cells.watch(Table::Nodes).next().await.unwrap().is_ok());
    for body in ["one", "another"] {
        nats.blobs().put(&name, "note", Bytes::from_static(body.as_bytes())).await.unwrap();
    }
    assert_eq!(nats.blobs().get(&name, 100).await.unwrap().unwrap(), &b"another"[..]);
    assert_eq!(nats.blobs().list().await.unwrap().len(), 1);
    nats.signal(NodeId::random(), RetransmitRequest { epoch: 1, first: 1, last: 1 }).await.unwrap();
    // The node fetches the links of its queue and cannot fill it.
    let (filled, queue) = (ops.work_queues().unwrap(), nats.work_queues().unwrap());
    filled.ensure("q").await.unwrap();
    assert!(filled.enqueue("q", "e.org", "1", Bytes::from_static(b"a link")).await.unwrap());
    assert_eq!(queue.content("q").await.unwrap().links, 1);
    assert_eq!(
        (queue.sites("q", None).await.unwrap().sites, queue.delivered("q", "e.org").await.unwrap()),
        (vec!["e.org".to_owned()], 0)
    );
    queue.open("q", "e.org").await.unwrap();
    let links = queue.pull("q", "e.org", 9).await.unwrap();
    queue.acknowledge("q", &links[0]).await.unwrap();
    queue.close("q", "e.org").await.unwrap();
    assert_eq!(queue.content("q").await.unwrap().links, 0);
    assert!(matches!(
        cells.swap(Table::Sites, "e.org", None, Bytes::new()).await.unwrap(),
        SwapOutcome::Done(_)
    ));
    // All at once: what is refused gets no response, so each of them takes the whole timeout.
    let (others, others_host) = (NodeId::random(), host(NodeId::random()));
    let others_name = others.to_string();
    let (link, ensured, dropped, blob) = tokio::join!(
        queue.enqueue("q", "e.org", "2", Bytes::new()),
        queue.ensure("another"),
        nats.drop_before(1),
        nats.blobs().put("another's", "", Bytes::new()),
    );
    assert!(link.is_err() && ensured.is_err() && dropped.is_err() && blob.is_err());
    // Nor anything in another node's name, or an operator's.
    let put = |table, key| cells.put(table, key, Bytes::new());
    let (published, heartbeat, pause, old_pause, forgets, excludes) = tokio::join!(
        nats.publish(others, "second", Bytes::new()),
        put(Table::Nodes, &others_name),
        put(Table::Hosts, &others_host),
        put(Table::Hosts, "e.org"),
        put(Table::Forget, "e.org"),
        put(Table::Excluded, &name),
    );
    for refused in [
        published.map(drop),
        heartbeat.map(drop),
        pause.map(drop),
        old_pause.map(drop),
        forgets.map(drop),
        excludes.map(drop),
    ] {
        assert!(matches!(refused, Err(TransportError::Refused(_))), "{refused:?}");
    }
}

/// Returns the first message of a subscription.
async fn reply(replies: &mut async_nats::Subscriber) -> String {
    let message = tokio::time::timeout(SOON, replies.next()).await.unwrap().unwrap();
    String::from_utf8_lossy(&message.payload).into_owned()
}

/// A node with the printed permissions that uses another client.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_with_the_printed_permissions_changes_nothing_of_others() {
    if !servers::is_available() {
        return;
    }
    let (bad, victim) = (NodeId::random(), NodeId::random());
    let permissions = fetchwise_fleet::transport::nats::permissions("test", bad, &[])
        .unwrap()
        .replace("CHANGE ME", "word");
    let servers =
        Servers::start_with(1, &format!("authorization {{ users: [\n{permissions}\n] }}"));
    let url = |user: &str| servers.urls()[0].replace("nats://", &format!("nats://{user}:word@"));
    let ops = Nats::connect(NatsSettings::new([url("ops")], "test")).await.unwrap();
    ops.ready(SOON).await.unwrap();
    // What the others have stored.
    let (body, name) = (Bytes::from(vec![7; 1_500_000]), victim.to_string());
    ops.blobs().put(&name, "note", body.clone()).await.unwrap();
    let host = |by| fetchwise_fleet::pauses::state_machine::key(by, "", "e.org");
    let value = Bytes::from_static(b"{}");
    let cells = [
        (Table::Hosts, host(victim)),
        (Table::Nodes, name.clone()),
        (Table::Forget, "e.org".to_owned()),
    ];
    for (table, key) in &cells {
        ops.cells().put(*table, key, value.clone()).await.unwrap();
    }
    let user = format!("node-{}", &bad.to_string()[..8]);
    let options = async_nats::ConnectOptions::with_user_and_password(user, "word".to_owned());
    let client = options.connect(servers.urls()[0].as_str()).await.unwrap();
    let inbox = client.new_inbox();
    let mut replies = client.subscribe(inbox.clone()).await.unwrap();
    // Purging, deleting and changing streams, and writing what belongs to others: none of it is
    // answered.
    for stream in
        ["FW_test", "FW_test_general", "FW_test_shares", "KV_FW_test_hosts", "KV_FW_test_nodes"]
    {
        for what in ["PURGE", "DELETE", "UPDATE", "MSG.DELETE", "SNAPSHOT"] {
            let subject = format!("$JS.API.STREAM.{what}.{stream}");
            client.publish_with_reply(subject, inbox.clone(), "".into()).await.unwrap();
        }
        client
            .publish_with_reply(format!("$JS.API.DIRECT.GET.{stream}"), inbox.clone(), "".into())
            .await
            .unwrap();
    }
    let others = [
        format!("fw.test.s.{victim}.head"),
        format!("fw.test.s.{victim}.0.0"),
        format!("fw.test.f.{victim}"),
        format!("$KV.FW_test_hosts.{victim}.e.org"),
        format!("$KV.FW_test_nodes.{victim}"),
        "$KV.FW_test_forget.e.org".to_owned(),
    ];
    for subject in others {
        client.publish_with_reply(subject, inbox.clone(), "{}".into()).await.unwrap();
    }
    // A roll-up of this node's cells would replace those of all others.
    for subject in [
        format!("$KV.FW_test_hosts.{bad}.e.org"),
        format!("$KV.FW_test_nodes.{bad}"),
        format!("fw.test.s.{bad}.head"),
    ] {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Rollup", "all");
        client
            .publish_with_reply_and_headers(subject, inbox.clone(), headers, "{}".into())
            .await
            .unwrap();
        let said = reply(&mut replies).await;
        assert!(said.contains("rollup not permitted"), "{said}");
    }
    for (table, key) in &cells {
        assert_eq!(ops.cells().get(*table, key).await.unwrap().unwrap().value, value, "{key}");
    }
    assert_eq!(ops.blobs().get(&name, 2_000_000).await.unwrap(), Some(body));
    assert_eq!(ops.bounds().await.unwrap().last, 0);
    // NATS sends a response to any subject. Such a value is known for what it is.
    let excluded = format!("$KV.FW_test_excluded.{victim}");
    for (subject, body) in [
        (format!("fw.test.f.{bad}"), "anything"),
        ("$JS.API.STREAM.MSG.GET.FW_test".to_owned(), "{\"seq\":1}"),
        ("$JS.API.STREAM.INFO.FW_test".to_owned(), ""),
        (
            "$JS.API.CONSUMER.CREATE.FW_test.c".to_owned(),
            "{\"stream_name\":\"FW_test\",\"config\":{\"name\":\"c\",\"until\":1}}",
        ),
    ] {
        let before =
            ops.cells().get(Table::Excluded, &name).await.unwrap().map(|cell| cell.revision);
        client.publish_with_reply(subject.clone(), excluded.clone(), body.into()).await.unwrap();
        let cell = loop {
            match ops.cells().get(Table::Excluded, &name).await.unwrap() {
                Some(cell) if Some(cell.revision) != before => break cell,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let shown = String::from_utf8_lossy(&cell.value);
        assert!(fetchwise_fleet::transport::is_broker_response(&cell.value), "{subject}: {shown}");
        assert_eq!(
            fetchwise_fleet::model::heartbeat::Heartbeat::decode(&cell.value),
            None,
            "{subject}: {shown}"
        );
        assert_eq!(
            fetchwise_fleet::pauses::state_machine::HostState::decode(&cell.value),
            None,
            "{subject}: {shown}"
        );
    }
}
