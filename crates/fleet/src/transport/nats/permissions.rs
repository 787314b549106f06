//! The server permissions for a node of a pool and for its operators.
//!
//! Owns: the list of permissions.
//!
//! Invariants: a node can publish as itself only, and writes no other node's cells except those of hosts.
//!
//! Must not know: how the permissions get to the server.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;

use super::names::Names;
use crate::model::node_id::NodeId;
use crate::transport::{Table, TransportError};

/// Returns the part of a server configuration that admits a node and an operator, with passwords to fill in.
///
/// # Errors
/// [`TransportError::Invalid`] when `pool` is not a valid pool name.
pub fn permissions(pool: &str, node: NodeId) -> Result<String, TransportError> {
    let names = Names::new(pool)?;
    let mut streams = vec![names.stream(), names.global_stream(), names.snapshot_store_stream()];
    streams.extend(Table::ALL.map(|table| names.bucket_stream(table)));
    let mut publish = vec![
        names.message_subject(node),
        names.global_subject(node),
        names.request_subjects(),
        names.host_cells(node),
        names.cell(Table::Nodes, &node.to_string()),
        format!("$O.{}.C.>", names.snapshot_store()),
        format!("$O.{}.M.{}", names.snapshot_store(), URL_SAFE.encode(node.to_string())),
        format!("$JS.API.STREAM.PURGE.{}", names.snapshot_store_stream()),
        "$JS.API.INFO".to_owned(),
        "$JS.ACK.>".to_owned(),
        "$JS.FC.>".to_owned(),
    ];
    for stream in &streams {
        publish.push(format!("$JS.API.STREAM.INFO.{stream}"));
        publish.push(format!("$JS.API.STREAM.MSG.GET.{stream}"));
        publish.push(format!("$JS.API.DIRECT.GET.{stream}"));
        publish.push(format!("$JS.API.DIRECT.GET.{stream}.>"));
        for what in ["CREATE", "INFO", "DELETE", "MSG.NEXT"] {
            publish.push(format!("$JS.API.CONSUMER.{what}.{stream}.>"));
        }
        publish.push(format!("$JS.API.CONSUMER.CREATE.{stream}"));
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
    let _ = writeln!(out, "    subscribe: {{ allow: [ \"_INBOX.>\", \"{}\" ] }}", names.request_subject(node));
    let _ = writeln!(out, "  }}");
    let _ = writeln!(out, "}}");
    let _ = writeln!(out, "# For an operator, who creates streams, forgets domains and excludes nodes:");
    let _ = write!(out, "{{ user: \"ops\", password: \"CHANGE ME\" }}");
    Ok(out)
}
