//! Provisioning of the streams: their required configuration, their creation, and the differences
//! of existing ones.
//!
//! Invariants: provisioning is idempotent. Existing streams change on request only.
//!
//! Must not know: what the streams are read for.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use serde_json::Value;

use super::error::{ApiError, api_error};
use crate::transport::nats::connection::Connection;
use crate::transport::nats::stream_info::StreamInfo;
use crate::transport::{MAX_QUEUED_LINK, Table, TransportError};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// The maximum size of a message in the message stream, in bytes.
const MAX_MESSAGE: i32 = 1 << 20;
/// The maximum size of a cell in bytes.
const MAX_CELL: i32 = 64 << 10;
/// The time for which the global snapshot of a node that has gone is kept: the same as for
/// attempts.
const GLOBAL_MAX_AGE: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// The time for which a work queue remembers the ids of its links.
const QUEUE_DUPLICATE_WINDOW: Duration = HOUR;
/// The size of a message's headers at most, in bytes.
const MESSAGE_OVERHEAD: i32 = 1 << 10;
const DUPLICATE_WINDOW: Duration = Duration::from_secs(120);
/// The number of replicas in a cluster.
const REPLICAS: usize = 3;

/// The result of `fleet init` for one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamReport {
    /// The name at the broker.
    pub name: String,
    /// The state of the stream.
    pub state: StreamState,
}

/// The state of a stream after `fleet init`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamState {
    /// It was created.
    Created,
    /// It existed with the required configuration.
    Exists,
    /// It exists with these differences.
    Differs(Vec<String>),
    /// It existed with these differences and was changed.
    Changed(Vec<String>),
}

/// Returns the time for which a table keeps a cell.
pub(super) fn max_age(table: Table) -> Option<Duration> {
    match table {
        Table::Hosts => Some(48 * HOUR),
        Table::Forget => Some(400 * 24 * HOUR),
        Table::Nodes => Some(600 * SECOND),
        Table::Excluded => None,
        Table::Sites => Some(7 * 24 * HOUR),
    }
}

/// Returns the configuration of all streams of a pool.
fn wanted(connection: &Connection, replicas: usize) -> Vec<Config> {
    let (names, settings) = (&connection.names, &connection.settings);
    let common = Config {
        storage: StorageType::File,
        num_replicas: replicas,
        allow_direct: true,
        ..Config::default()
    };
    let messages = Config {
        name: names.stream(),
        description: Some("What the nodes of a fetchwise pool have learned".to_owned()),
        subjects: vec![names.message_subjects()],
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::Old,
        max_age: settings.max_age,
        max_bytes: settings.max_bytes.map_or(-1, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
        max_message_size: MAX_MESSAGE,
        duplicate_window: DUPLICATE_WINDOW,
        deny_delete: true,
        ..common.clone()
    };
    let table = |table: Table| Config {
        name: names.bucket_stream(table),
        subjects: vec![names.all_cells(table)],
        discard: DiscardPolicy::New,
        max_age: max_age(table).unwrap_or_default(),
        max_messages_per_subject: 1,
        max_message_size: MAX_CELL,
        duplicate_window: max_age(table).unwrap_or(DUPLICATE_WINDOW).min(DUPLICATE_WINDOW),
        // A node that may write one cell could replace all of them by a roll-up.
        allow_rollup: false,
        deny_delete: true,
        ..common.clone()
    };
    let snapshots = Config {
        name: names.snapshot_stream(),
        description: Some("The evidence snapshots of a fetchwise pool's nodes".to_owned()),
        subjects: vec![names.snapshot_subjects()],
        discard: DiscardPolicy::New,
        max_messages_per_subject: 1,
        max_message_size: MAX_MESSAGE,
        duplicate_window: DUPLICATE_WINDOW,
        deny_delete: true,
        ..common.clone()
    };
    let global = Config {
        name: names.global_stream(),
        description: Some(
            "What belongs to no one site, of each node of a fetchwise pool of scope own".to_owned(),
        ),
        subjects: vec![names.global_subjects()],
        discard: DiscardPolicy::Old,
        max_age: GLOBAL_MAX_AGE,
        max_messages_per_subject: 1,
        max_message_size: MAX_MESSAGE,
        duplicate_window: DUPLICATE_WINDOW,
        deny_delete: true,
        ..common.clone()
    };
    let mut all = vec![messages, global, snapshots];
    all.extend(Table::ALL.map(table));
    all
}

/// Returns the configuration of a work queue.
pub(super) fn work_queue(connection: &Connection, queue: &str) -> Config {
    Config {
        name: connection.names.queue_stream(queue),
        description: Some("Links that the nodes of a fetchwise pool fetch".to_owned()),
        subjects: vec![connection.names.queue_subjects(queue)],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        num_replicas: connection.settings.replicas.unwrap_or(REPLICAS),
        discard: DiscardPolicy::New,
        max_message_size: i32::try_from(MAX_QUEUED_LINK).unwrap_or(i32::MAX) + MESSAGE_OVERHEAD,
        duplicate_window: QUEUE_DUPLICATE_WINDOW,
        deny_delete: true,
        ..Config::default()
    }
}

/// Creates missing streams and reports the differences of the others; `change` updates those.
pub(super) async fn init(
    connection: &Connection,
    change: bool,
) -> Result<Vec<StreamReport>, TransportError> {
    let mut all = Vec::new();
    for config in wanted(connection, connection.settings.replicas.unwrap_or(REPLICAS)) {
        let name = config.name.clone();
        let state = match info(connection, &name).await? {
            None => {
                create(connection, config).await?;
                StreamState::Created
            }
            Some(there) => {
                let differs = differences(connection, &there.config, &config);
                match (differs.is_empty(), change) {
                    (true, _) => StreamState::Exists,
                    (false, false) => StreamState::Differs(differs),
                    (false, true) => {
                        update(connection, there.config, config).await?;
                        StreamState::Changed(differs)
                    }
                }
            }
        };
        all.push(StreamReport { name, state });
    }
    Ok(all)
}

/// Creates missing streams.
pub(super) async fn create_missing(connection: &Connection) -> Result<(), TransportError> {
    for config in wanted(connection, connection.settings.replicas.unwrap_or(REPLICAS)) {
        if info(connection, &config.name).await?.is_none() {
            create(connection, config).await?;
        }
    }
    Ok(())
}

async fn info(connection: &Connection, name: &str) -> Result<Option<StreamInfo>, TransportError> {
    match connection
        .api_request::<StreamInfo>(&format!("STREAM.INFO.{name}"), &serde_json::json!({}), name)
        .await?
    {
        Ok(info) => Ok(Some(info)),
        Err(error) if error.is(ErrorCode::STREAM_NOT_FOUND) => Ok(None),
        Err(error) => Err(api_error(&error, name)),
    }
}

pub(super) async fn create(
    connection: &Connection,
    mut config: Config,
) -> Result<(), TransportError> {
    let name = config.name.clone();
    let subject = format!("STREAM.CREATE.{name}");
    let mut answer = connection.api_request::<StreamInfo>(&subject, &config, &name).await;
    // A single broker keeps one replica.
    let alone = |answer: &Result<Result<StreamInfo, ApiError>, _>| matches!(answer, Ok(Err(error)) if error.is(ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED));
    if alone(&answer) && connection.settings.replicas.is_none() {
        config.num_replicas = 1;
        answer = connection.api_request::<StreamInfo>(&subject, &config, &name).await;
    }
    match answer {
        // Another node was faster.
        Ok(Err(error)) if error.is(ErrorCode::STREAM_NAME_EXIST) => Ok(()),
        Ok(Err(error)) if error.is(ErrorCode::CLUSTER_NO_PEERS) => {
            Err(TransportError::Away(format!(
                "{name}: {error}. It needs {} available brokers; `fetchwise fleet init --replicas` sets fewer",
                config.num_replicas
            )))
        }
        Ok(Err(error)) => Err(api_error(&error, &name)),
        Ok(Ok(_)) => Ok(()),
        // For a node without permission to create it, the stream is just missing.
        Err(TransportError::Refused(_)) => Err(TransportError::Missing(name)),
        Err(error) => Err(error),
    }
}

async fn update(
    connection: &Connection,
    there: Config,
    want: Config,
) -> Result<(), TransportError> {
    let merged = Config {
        subjects: want.subjects,
        max_age: want.max_age,
        max_bytes: if connection.settings.max_bytes.is_some() {
            want.max_bytes
        } else {
            there.max_bytes
        },
        max_message_size: want.max_message_size,
        max_messages_per_subject: want.max_messages_per_subject,
        duplicate_window: want.duplicate_window,
        discard: want.discard,
        num_replicas: connection.settings.replicas.unwrap_or(there.num_replicas),
        allow_direct: want.allow_direct,
        allow_rollup: want.allow_rollup,
        deny_delete: want.deny_delete,
        ..there
    };
    let name = merged.name.clone();
    match connection
        .api_request::<StreamInfo>(&format!("STREAM.UPDATE.{name}"), &merged, &name)
        .await?
    {
        Ok(_) => Ok(()),
        Err(error) => Err(api_error(&error, &name)),
    }
}

/// Returns the differences from the required configuration, in words.
fn differences(connection: &Connection, there: &Config, want: &Config) -> Vec<String> {
    const MATTER: [&str; 13] = [
        "subjects",
        "retention",
        "storage",
        "discard",
        "max_age",
        "max_bytes",
        "max_msg_size",
        "max_msgs_per_subject",
        "num_replicas",
        "duplicate_window",
        "allow_rollup_hdrs",
        "allow_direct",
        "deny_delete",
    ];
    let (Ok(there), Ok(want)) = (serde_json::to_value(there), serde_json::to_value(want)) else {
        return Vec::new();
    };
    let of = |config: &Value, field: &str| match config.get(field) {
        // An absent value means no limit, which JetStream writes in two ways.
        None | Some(Value::Null | Value::Bool(false)) => Value::from(-1),
        Some(number) if number.as_i64() == Some(0) => Value::from(-1),
        Some(value) => value.clone(),
    };
    let is_free = |field: &str| match field {
        "max_bytes" => connection.settings.max_bytes.is_none(),
        "num_replicas" => connection.settings.replicas.is_none(),
        _ => false,
    };
    let differing =
        MATTER.into_iter().filter(|field| !is_free(field) && of(&there, field) != of(&want, field));
    differing
        .map(|field| {
            format!(
                "{field} is {}, not {}",
                said(field, &of(&there, field)),
                said(field, &of(&want, field))
            )
        })
        .collect()
}

/// Formats a configuration value.
fn said(field: &str, value: &Value) -> String {
    match value.as_i64() {
        Some(-1) if field.starts_with("allow") || field.starts_with("deny") => "off".to_owned(),
        Some(-1) => "unlimited".to_owned(),
        Some(nanos) if matches!(field, "max_age" | "duplicate_window") => {
            format!("{} s", nanos / 1_000_000_000)
        }
        _ if *value == Value::Bool(true) => "on".to_owned(),
        _ => value.to_string(),
    }
}
