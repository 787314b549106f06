//! The server permissions for a node of a pool and for its operators.
//!
//! Owns: the list of permissions.
//!
//! Invariants: a node can publish as itself only, and can write no other node's cells or evidence
//! snapshot. It needs no right to purge, delete or change streams, nor to read messages by direct
//! gets: their responses are the only ones whose content a node could choose and send to another
//! node's subjects.
//!
//! Must not know: how the permissions get to the server.

use std::fmt::Write as _;

use super::names::Names;
use crate::model::node_id::NodeId;
use crate::transport::{Table, TransportError, check_queue_name};

/// What a node can still do, for the operator who grants the permissions.
const REMAINS: &str = "\
# A node with these permissions can still:
# - publish attempts and evidence that it did not make. `fleet status --outliers` compares, `fleet exclude` removes.
# - pause at most 100 hosts per hour for its egress group, each for a day at most, until it is excluded.
# - read everything of the pool, and have each peer publish 500000 positions per minute again.
# - fill the broker's disk, and push the messages of others out of the stream: limit the account, and --max-bytes.
# - create consumers: limit max_consumers of the account.
# - replace entries of others by responses of the broker, since NATS lets a client name any subject for a response.
#   Nodes ignore these entries, but a node that starts later misses the ones in whose place they stand.
";

/// Works for nodes that read work queues.
const QUEUES_REMAIN: &str = "\
# - take the sites of its queues from other nodes, remove links without a result, and hand over wrong paces.
";

/// Returns the part of a server configuration that admits a node and an operator, with passwords to
/// fill in.
///
/// # Errors
/// [`TransportError::Invalid`] when `pool` is not a valid pool name.
pub fn permissions(pool: &str, node: NodeId, queues: &[String]) -> Result<String, TransportError> {
    queues.iter().try_for_each(|queue| check_queue_name(queue))?;
    let names = Names::new(pool)?;
    let mut streams = vec![names.stream(), names.global_stream(), names.snapshot_stream()];
    streams.extend(Table::ALL.map(|table| names.bucket_stream(table)));
    let mut publish = vec![
        names.message_subject(node),
        names.global_subject(node),
        names.request_subjects(),
        names.host_cells(node),
        names.cell(Table::Nodes, &node.to_string()),
        names.blob_parts(&node.to_string()),
    ];
    for stream in &streams {
        publish.push(format!("$JS.API.STREAM.INFO.{stream}"));
        publish.push(format!("$JS.API.STREAM.MSG.GET.{stream}"));
        for what in ["CREATE", "MSG.NEXT"] {
            publish.push(format!("$JS.API.CONSUMER.{what}.{stream}.>"));
        }
        publish.push(format!("$JS.API.CONSUMER.CREATE.{stream}"));
    }
    if !queues.is_empty() {
        // A lease passes from node to node, so each of them writes the cells of all sites.
        publish.push(names.all_cells(Table::Sites));
    }
    for queue in queues {
        let stream = names.queue_stream(queue);
        publish.push(format!("$JS.API.STREAM.INFO.{stream}"));
        publish.push(format!("$JS.API.CONSUMER.CREATE.{stream}.>"));
        for what in ["INFO", "DELETE", "MSG.NEXT"] {
            publish.push(format!("$JS.API.CONSUMER.{what}.{stream}.*"));
        }
        publish.push(format!("$JS.ACK.{stream}.>"));
    }
    let mut out = String::new();
    let _ = writeln!(
        out,
        "# For authorization {{ users: [ ... ] }} of an account. NKeys and .creds take the same permissions."
    );
    let _ = writeln!(out, "{{");
    let _ = writeln!(out, "  user: \"node-{}\", password: \"CHANGE ME\"", &node.to_string()[..8]);
    let _ = writeln!(out, "  permissions: {{");
    let _ = writeln!(out, "    publish: {{ allow: [");
    for subject in publish {
        let _ = writeln!(out, "      \"{subject}\"");
    }
    let _ = writeln!(out, "    ] }}");
    let _ = writeln!(
        out,
        "    subscribe: {{ allow: [ \"_INBOX.>\", \"{}\" ] }}",
        names.request_subject(node)
    );
    let _ = writeln!(out, "  }}");
    let _ = writeln!(out, "}}");
    out.push_str(REMAINS);
    if !queues.is_empty() {
        out.push_str(QUEUES_REMAIN);
    }
    let _ = writeln!(
        out,
        "# For an operator, who creates streams, forgets domains and excludes nodes:"
    );
    let _ = write!(out, "{{ user: \"ops\", password: \"CHANGE ME\" }}");
    Ok(out)
}
