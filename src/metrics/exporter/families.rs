//! Catalog of the metrics: name, kind, labels and help text of each family.
//!
//! Invariants: the collector exports exactly these families. `docs/reference/metrics.md` has the
//! same list, and a test compares the two.

/// Metric family: rows that differ in their labels only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Family {
    /// Name, without the suffix that the format appends to counters (`_total`) and histograms.
    pub name: &'static str,
    /// Kind of the metric.
    pub kind: Kind,
    /// Names of the labels.
    pub labels: &'static [&'static str],
    /// Help text: a sentence without a full stop.
    pub help: &'static str,
}

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Value that only grows.
    Counter,
    /// Value that goes up and down.
    Gauge,
    /// Distribution.
    Histogram,
}

impl Family {
    /// Creates a family of a crawler, for a reference that is generated from such lists.
    pub const fn new(
        name: &'static str,
        kind: Kind,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self { name, kind, labels, help }
    }

    /// Returns the name that queries use.
    pub fn full_name(&self) -> String {
        let suffix = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge | Kind::Histogram => "",
        };
        format!("{}{suffix}", self.name)
    }
}

macro_rules! families {
    ($($constant:ident = $name:literal, $kind:ident, [$($label:literal),*], $help:literal;)+) => {
        $(pub(super) const $constant: Family = Family::new($name, Kind::$kind, &[$($label),*], $help);)+

        /// All families, in the order of export.
        pub(super) const ALL: &[Family] = &[$($constant),+];
    };
}

families! {
    BUILD = "fetchwise_build_info", Gauge, ["version"], "Version of the running release";
    DECISIONS = "fetchwise_decisions", Counter, ["via", "source", "fetcher"],
        "Decisions: those of visits, counted per request handed out, and those of plain selects";
    ATTEMPTS = "fetchwise_attempts", Counter, ["fetcher", "outcome"],
        "Recorded attempts, including those of earlier runs that the log knows";
    DURATIONS = "fetchwise_attempt_duration_seconds", Histogram, ["fetcher", "delivered"],
        "Duration of the attempts of this run";
    COSTS = "fetchwise_fetcher_cost", Gauge, ["fetcher"], "Cost of an attempt of each fetcher";
    BLOCKS = "fetchwise_blocks", Counter, ["vendor"], "Blocked attempts, by the vendor of the block";
    PROBES = "fetchwise_probes", Counter, ["result"],
        "Probes: the visit reused the response, the probe failed, or the visit shared the probe of another one";
    VISITS = "fetchwise_visits", Counter, ["end"], "Visits that ended";
    VISITS_IN_PROGRESS = "fetchwise_visits_in_progress", Gauge, [], "Visits that began and have not ended";
    VISIT_DURATIONS = "fetchwise_visit_duration_seconds", Histogram, ["delivered"],
        "Duration of visits, including all waits";
    WAITS = "fetchwise_waits", Counter, ["reason"], "Waits: a visit has to come back later";
    HOST_PAUSES = "fetchwise_host_pauses", Counter, ["cause"], "Host pauses that began";
    HOSTS_PAUSED = "fetchwise_hosts_paused", Gauge, [], "Hosts that are paused";
    LINK_PAUSES = "fetchwise_link_pauses", Counter, [], "Link pauses that began";
    LINKS_AT_RISK = "fetchwise_links_at_risk", Gauge, [], "Links whose last fetch failed, paused or not";
    RATE_LIMIT_HITS = "fetchwise_rate_limit_hits", Counter, ["level"], "Rate limits that were hit, by the level that they were attributed to";
    AMBIGUOUS_BLOCKS = "fetchwise_ambiguous_blocks", Counter, [], "Blocks that may concern either the page or the request rate";
    PACE_HOSTS = "fetchwise_pace_hosts", Gauge, ["state"], "Hosts asked within the last hour";
    PACE_IN_FLIGHT = "fetchwise_pace_requests_in_flight", Gauge, [], "Requests that hold a pace permit";
    PACE_RATES = "fetchwise_pace_requests_per_second", Gauge, ["percentile"],
        "Request rates of the hosts asked within the last hour";
    KEYS = "fetchwise_evidence_keys", Gauge, [], "Keys with evidence in memory: domains, sites, paths, suffixes and others";
    EVICTED = "fetchwise_evidence_keys_evicted", Counter, [], "Keys evicted because there were too many";
    READ_BACK = "fetchwise_evidence_keys_read_back", Counter, [], "Evicted keys that were read back from disk";
    EVICTED_ERRORS = "fetchwise_evidence_disk_errors", Counter, ["operation"],
        "Failed reads and writes of evicted keys on disk, and failed merges of their files";
    EVICTED_HEALTHY = "fetchwise_evidence_disk_healthy", Gauge, [], "Whether evicted keys can be written and read: 1 or 0";
    FUTURE_TIMESTAMPS = "fetchwise_future_timestamps", Counter, [], "Attempts that arrived with a time in the future";
    LOG_HEALTHY = "fetchwise_log_healthy", Gauge, [], "Whether attempts reach the disk: 1 or 0";
    LOG_APPENDED = "fetchwise_log_records_appended", Counter, [], "Records appended to the log in this run";
    LOG_LOST = "fetchwise_log_records_lost", Counter, [], "Records that are not in the log and never will be";
    LOG_QUEUED = "fetchwise_log_queue_records", Gauge, [], "Records waiting to be written";
    LOG_QUEUED_BYTES = "fetchwise_log_queue_bytes", Gauge, [], "Bytes waiting to be written";
    LOG_LAG = "fetchwise_log_unsynced_records", Gauge, [], "Records that a power failure would lose now";
    LOG_WRITTEN_BYTES = "fetchwise_log_written_bytes", Counter, [], "Bytes written in this run";
    LOG_SYNCS = "fetchwise_log_syncs", Counter, [], "Syncs of the log";
    LOG_SYNCED = "fetchwise_log_last_sync_timestamp_seconds", Gauge, [], "Time at which the last sync ended";
    LOG_FAILURES = "fetchwise_log_failures", Counter, [], "Failed writes, syncs and segment creations";
    LOG_SEGMENTS = "fetchwise_log_segments", Gauge, ["state"], "Segments on disk, written or rewritten by a compaction";
    LOG_SEGMENT_BYTES = "fetchwise_log_segment_bytes", Gauge, [], "Size of all segments on disk";
    LOG_SNAPSHOT_BYTES = "fetchwise_log_snapshot_bytes", Gauge, [], "Size of all snapshots on disk";
    LOG_SNAPSHOT = "fetchwise_log_last_snapshot_timestamp_seconds", Gauge, [], "Time of the newest snapshot";
    LOG_COMPACTED = "fetchwise_log_last_compaction_timestamp_seconds", Gauge, [],
        "Time of the last compaction, or of the newest snapshot once no compacted segment is left";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_to_the_conventions() {
        for family in ALL {
            assert!(family.name.starts_with("fetchwise_"), "{}", family.name);
            assert!(!family.name.ends_with("_total"), "{}: the format appends it", family.name);
            assert!(!family.help.ends_with('.') && !family.help.contains('\n'), "{}", family.help);
            let is_plain = |name: &str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            assert!(
                is_plain(family.name) && family.labels.iter().all(|label| is_plain(label)),
                "{family:?}"
            );
        }
    }
}
