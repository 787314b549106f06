//! The metrics of a node in a fleet.
//!
//! Invariant: the number of rows is bounded for any number and names of nodes.
//!
//! Must not know: where values are counted.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::fleet_membership::Membership;
use fetchwise::fleet_status::{FleetStatus, PeerStatus};
use fetchwise::metrics::{Family, Kind};
use fetchwise_present::FleetJson;

/// The metrics of a fleet, besides all others.
pub const FLEET_FAMILIES: &[Family] = &[
    BROKER,
    CONVERGED,
    STOPPED,
    EPOCH,
    CLOCK,
    UNPUBLISHED,
    WITHHELD,
    PUBLISHED,
    BYTES,
    FAILURES,
    RECEIVED,
    REJECTED,
    DELAY,
    PEERS,
    MISSING,
    LAG,
    LAG_RECORDS,
    RETRANSMITS,
    STREAM_RESETS,
    SNAPSHOTS,
    LINKS,
    PAUSES,
    TRIALS,
];

/// The number of nodes with a separate row. They are the first by name, so that rows do not change
/// with the nodes' lag.
const MAX_NODES: usize = 50;

macro_rules! families {
    ($($constant:ident = $name:literal, $kind:ident, [$($label:literal),*], $help:literal;)+) => {
        $(const $constant: Family = Family::new(concat!("fetchwise_fleet_", $name), Kind::$kind, &[$($label),*], $help);)+
    };
}

families! {
    BROKER = "broker_up", Gauge, [], "Whether the broker answers: 1 or 0";
    CONVERGED = "converged", Gauge, [], "Whether everything that the node knows of is published, read and learned: 1 or 0";
    STOPPED = "stopped", Gauge, [], "Whether the node publishes nothing, for the reason that `fleet status` gives: 1 or 0";
    EPOCH = "epoch", Gauge, [], "Epoch of the node's log: one more for each time that its directory was restored";
    CLOCK = "clock_ahead_seconds", Gauge, [], "Seconds by which the node's clock is ahead of the broker's; absent where that is unknown";
    UNPUBLISHED = "unpublished_records", Gauge, [], "Records of the node's own log that are on disk and not published";
    WITHHELD = "withheld_records", Gauge, [], "Records that are never published because they have a time in the future";
    PUBLISHED = "published_attempts", Counter, [], "Attempts of this node that were published";
    BYTES = "published_bytes", Counter, [], "Bytes of published messages";
    FAILURES = "publish_failures", Counter, [], "Failed publish calls; the node retries them";
    RECEIVED = "received_attempts", Counter, ["result"], "Remote attempts received, by what the node did with them";
    REJECTED = "rejected_messages", Counter, [], "Messages that the node could not read or did not accept";
    DELAY = "delay_seconds", Histogram, [], "Time from the broker's disk until this node has learned a message";
    PEERS = "peers", Gauge, ["state"], "Other nodes";
    MISSING = "missing_records", Gauge, ["state"], "Records of other nodes that are known to exist and are missing here";
    LAG = "lag_seconds", Gauge, [], "Time for which records have been missing, for the node where that is longest";
    LAG_RECORDS = "lag_records", Gauge, ["node"], "Missing records per node, for at most 50 nodes";
    RETRANSMITS = "retransmit_requests", Counter, [], "Requests for missing records";
    STREAM_RESETS = "stream_resets", Counter, [], "Times that the broker's stream was a different one than before";
    SNAPSHOTS = "snapshots_applied", Counter, [], "Evidence snapshots of other nodes that replaced their messages";
    LINKS = "links", Gauge, ["state"], "Links whose results other nodes have reported: those that wait here for that, and the rest";
    PAUSES = "host_pauses", Counter, ["result"], "Host pauses shared by all nodes of an egress group";
    TRIALS = "trials", Counter, ["result"], "Trials of hosts whose shared pause was over";
}

/// The source of these metrics.
#[derive(Debug)]
pub(crate) struct FleetMetrics(Arc<dyn Membership>);

impl FleetMetrics {
    /// Registers the metrics of `fleet` in `registry`.
    pub(crate) fn register(fleet: Arc<dyn Membership>, registry: &mut Registry) {
        registry.register_collector(Box::new(Self(fleet)));
    }
}

impl Collector for FleetMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(fleet) = self.0.status() else { return Ok(()) };
        let mut give = FleetEncoder(encoder);
        node(&mut give, &fleet.status)?;
        others(&mut give, &fleet)
    }
}

/// Writes the metrics of the node itself.
fn node(give: &mut FleetEncoder<'_>, status: &FleetStatus) -> fmt::Result {
    let counts = &status.counts;
    let flag = |is: bool| f64::from(u8::from(is));
    give.one(&BROKER, flag(status.broker))?;
    give.one(&CONVERGED, flag(status.converged))?;
    give.one(&STOPPED, flag(status.stopped.is_some()))?;
    give.one(&EPOCH, f64::from(status.epoch))?;
    if let Some(ahead) = status.clock_ahead_s {
        give.one(&CLOCK, ahead)?;
    }
    give.one(&UNPUBLISHED, status.position.saturating_sub(status.published) as f64)?;
    give.one(&WITHHELD, status.withheld as f64)?;
    give.one(&PUBLISHED, counts.published as f64)?;
    give.one(&BYTES, counts.bytes as f64)?;
    give.one(&FAILURES, counts.failures as f64)
}

/// Writes the metrics of its peers.
fn others(give: &mut FleetEncoder<'_>, fleet: &FleetJson) -> fmt::Result {
    let FleetJson { status, hosts } = fleet;
    let (counts, peers) = (&status.counts, &status.peers);
    let received = [
        ("learned", counts.received),
        ("duplicate", counts.duplicate),
        ("forgotten", counts.forgotten),
    ];
    give.rows(&RECEIVED, &received)?;
    give.one(&REJECTED, counts.rejected as f64)?;
    give.delays(status)?;
    let of = |state: &'static str| {
        (state, peers.iter().filter(|peer| state_of(peer) == state).count() as u64)
    };
    give.rows(&PEERS, &STATES.map(of))?;
    let sum = |of: fn(&PeerStatus) -> u64| peers.iter().map(of).fold(0, u64::saturating_add);
    let lost = sum(|peer| peer.lost);
    give.rows(
        &MISSING,
        &[("requested", sum(|peer| peer.missing_records).saturating_sub(lost)), ("lost", lost)],
    )?;
    give.one(&LAG, peers.iter().map(|peer| peer.lag_s).fold(0.0, f64::max))?;
    let mut named: Vec<(&str, u64)> =
        peers.iter().map(|peer| (peer.node.as_str(), peer.missing_records)).collect();
    named.sort_unstable();
    named.truncate(MAX_NODES);
    give.rows(&LAG_RECORDS, &named)?;
    give.one(&RETRANSMITS, counts.retransmit_requests as f64)?;
    give.one(&STREAM_RESETS, counts.stream_resets as f64)?;
    give.one(&SNAPSHOTS, counts.snapshots_applied as f64)?;
    let rest = status.links.saturating_sub(status.links_waiting);
    give.rows(&LINKS, &[("waiting", status.links_waiting), ("known", rest)])?;
    give.rows(
        &PAUSES,
        &[("sent", hosts.sent), ("received", hosts.received), ("rejected", hosts.rejected)],
    )?;
    give.rows(
        &TRIALS,
        &[("made", hosts.trials), ("left_to_another", hosts.lost), ("alone", hosts.own_trials)],
    )
}

/// The states of a node; the first that applies counts.
const STATES: [&str; 4] = ["excluded", "set_aside", "present", "absent"];

fn state_of(peer: &PeerStatus) -> &'static str {
    match peer {
        PeerStatus { excluded: true, .. } => "excluded",
        PeerStatus { set_aside_reason: Some(_), .. } => "set_aside",
        PeerStatus { present: true, .. } => "present",
        _ => "absent",
    }
}

struct FleetEncoder<'e>(DescriptorEncoder<'e>);

impl FleetEncoder<'_> {
    fn one(&mut self, family: &Family, value: f64) -> fmt::Result {
        give(
            &mut self.0.encode_descriptor(family.name, family.help, None, kind(family))?,
            family,
            value,
        )
    }

    fn rows(&mut self, family: &Family, rows: &[(&str, u64)]) -> fmt::Result {
        let [label] = family.labels else { return Err(fmt::Error) };
        if rows.is_empty() {
            return Ok(());
        }
        let mut encoder = self.0.encode_descriptor(family.name, family.help, None, kind(family))?;
        for (value, count) in rows {
            give(&mut encoder.encode_family(&[(*label, *value)])?, family, *count as f64)?;
        }
        Ok(())
    }

    fn delays(&mut self, status: &FleetStatus) -> fmt::Result {
        let delays = &status.counts.delays;
        // The last bound has no upper limit.
        let end = |ms: u64| if ms == u64::MAX { f64::INFINITY } else { ms as f64 / 1000.0 };
        let mut buckets: Vec<(f64, u64)> =
            delays.iter().map(|(ms, count)| (end(*ms), *count)).collect();
        if !delays.contains_key(&u64::MAX) {
            buckets.push((f64::INFINITY, 0));
        }
        let (sum, count) = (status.counts.delayed_ms as f64 / 1000.0, delays.values().sum());
        let mut encoder = self.0.encode_descriptor(DELAY.name, DELAY.help, None, kind(&DELAY))?;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

fn kind(family: &Family) -> MetricType {
    match family.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    }
}

fn give(encoder: &mut MetricEncoder<'_>, family: &Family, value: f64) -> fmt::Result {
    match family.kind {
        Kind::Counter => encoder.encode_counter::<NoLabelSet, _, f64>(&(value as u64), None),
        _ => encoder.encode_gauge(&value),
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;
    use crate::fleet_membership::MembershipFuture;
    use fetchwise::time::Timestamp;

    #[derive(Debug)]
    struct StaticMembership(FleetJson);

    impl Membership for StaticMembership {
        fn status(&self) -> Option<FleetJson> {
            Some(self.0.clone())
        }

        fn forget(&self, _: String, _: Timestamp) -> MembershipFuture<Result<(), String>> {
            Box::pin(async { Ok(()) })
        }
    }

    fn page(status: FleetJson) -> String {
        let (mut registry, mut page) = (Registry::default(), String::new());
        FleetMetrics::register(Arc::new(StaticMembership(status)), &mut registry);
        text::encode(&mut page, &registry).unwrap();
        page
    }

    #[test]
    fn the_reference_lists_every_metric_of_a_fleet_and_no_other() {
        let page = include_str!("../../../../docs/reference/metrics.md");
        let written: Vec<&str> =
            page.lines().filter(|line| line.starts_with("| `fetchwise_fleet_")).collect();
        let row = |family: &Family| {
            let labels: Vec<String> =
                family.labels.iter().map(|label| format!("`{label}`")).collect();
            let kind = match family.kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Histogram => "histogram",
            };
            format!(
                "| `{}` | {kind} | {} | {} |",
                family.full_name(),
                labels.join(", "),
                family.help
            )
        };
        assert_eq!(written, FLEET_FAMILIES.iter().map(row).collect::<Vec<_>>());
    }

    #[test]
    fn every_listed_metric_is_exported_and_rows_are_bounded() {
        let peer = |n: u64| PeerStatus {
            node: format!("{n:03}\"}} 1\n"),
            missing_records: n,
            lost: n / 2,
            ..PeerStatus::default()
        };
        let mut status = FleetStatus {
            peers: (0..200).map(peer).collect(),
            clock_ahead_s: Some(-0.5),
            ..FleetStatus::default()
        };
        status.peers[1].excluded = true;
        status.peers[2].set_aside_reason = Some("its clock".to_owned());
        status.peers[3].present = true;
        status.counts.delays = [(1, 3), (20, 2), (u64::MAX, 1)].into();
        let page = page(FleetJson { status, ..FleetJson::default() });
        for family in FLEET_FAMILIES {
            assert!(
                page.contains(&format!("\n# TYPE {} ", family.name))
                    || page.starts_with(&format!("# HELP {} ", family.name)),
                "{}",
                family.name
            );
        }
        let rows =
            |name: &str| page.lines().filter(|line| line.starts_with(&format!("{name}{{"))).count();
        assert_eq!((rows("fetchwise_fleet_lag_records"), rows("fetchwise_fleet_peers")), (50, 4));
        for line in [
            "fetchwise_fleet_peers{state=\"absent\"} 197",
            "fetchwise_fleet_peers{state=\"present\"} 1",
            "fetchwise_fleet_clock_ahead_seconds -0.5",
            "fetchwise_fleet_delay_seconds_bucket{le=\"0.02\"} 5",
            "fetchwise_fleet_delay_seconds_bucket{le=\"+Inf\"} 6",
        ] {
            assert!(
                page.lines().any(|is| is == line || is == format!("{line}.0")),
                "{line}: {page}"
            );
        }
    }

    #[test]
    fn a_node_that_left_the_fleet_exports_nothing() {
        #[derive(Debug)]
        struct Gone;
        impl Membership for Gone {
            fn status(&self) -> Option<FleetJson> {
                None
            }
            fn forget(&self, _: String, _: Timestamp) -> MembershipFuture<Result<(), String>> {
                Box::pin(async { Err("gone".to_owned()) })
            }
        }
        let (mut registry, mut page) = (Registry::default(), String::new());
        FleetMetrics::register(Arc::new(Gone), &mut registry);
        text::encode(&mut page, &registry).unwrap();
        assert!(!page.contains("fetchwise_fleet"), "{page}");
    }
}
