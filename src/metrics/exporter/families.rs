//! Catalog of the metrics: name, kind, labels and help text of each family.
//!
//! Invariants: the collector exports exactly these families. `docs/reference/metrics.md` has the same list, and a test
//! compares the two.

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
    pub const fn new(name: &'static str, kind: Kind, labels: &'static [&'static str], help: &'static str) -> Self {
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
    BUILD = "fetchwise_build_info", Gauge, ["version"], "The release";
    DECISIONS = "fetchwise_decisions", Counter, ["via", "source", "fetcher"],
        "Decisions: by visits as their requests are handed out, and by whoever only asked what to take";
    ATTEMPTS = "fetchwise_attempts", Counter, ["fetcher", "outcome"],
        "Attempts that were recorded, those of earlier runs that the log knows of included";
    DURATIONS = "fetchwise_attempt_duration_seconds", Histogram, ["fetcher", "delivered"],
        "How long the attempts of this run took";
    COSTS = "fetchwise_fetcher_cost", Gauge, ["fetcher"], "What an attempt of each fetcher costs";
    BLOCKS = "fetchwise_blocks", Counter, ["vendor"], "Attempts that were blocked, by whose wall it was";
    PROBES = "fetchwise_probes", Counter, ["result"],
        "Probes: what they brought was reused as the result, or they failed, or another visit's was shared";
    VISITS = "fetchwise_visits", Counter, ["end"], "Visits that have ended";
    VISITS_UNDER_WAY = "fetchwise_visits_in_progress", Gauge, [], "Visits that have begun and not ended";
    VISIT_DURATIONS = "fetchwise_visit_duration_seconds", Histogram, ["delivered"],
        "How long visits took, with everything that they waited for";
    WAITS = "fetchwise_waits", Counter, ["why"], "How often visits were told to come back later";
    HOST_PAUSES = "fetchwise_host_pauses", Counter, ["cause"], "Pauses of hosts that began";
    HOSTS_PAUSED = "fetchwise_hosts_paused", Gauge, [], "Hosts that are paused";
    LINK_PAUSES = "fetchwise_link_pauses", Counter, [], "Pauses of links that began";
    LINKS_AT_RISK = "fetchwise_links_at_risk", Gauge, [], "Links that failed the last time, paused or not";
    PACE_TRIPS = "fetchwise_pace_trips", Counter, ["level"], "Limits that were met, by whose they were taken for";
    PACE_DOUBTS = "fetchwise_pace_doubts", Counter, [], "Walls that could have been the page's or the pace's";
    PACE_HOSTS = "fetchwise_pace_hosts", Gauge, ["state"], "Hosts that were asked within the hour";
    PACE_IN_FLIGHT = "fetchwise_pace_requests_in_flight", Gauge, [], "Requests that have a place in a host's pace";
    PACE_RATES = "fetchwise_pace_requests_per_second", Gauge, ["quantile"],
        "The rates of the hosts that were asked within the hour";
    KEYS = "fetchwise_evidence_keys", Gauge, [], "Domains, sites, paths, suffixes .. that evidence is kept for";
    EVICTED = "fetchwise_evidence_keys_evicted", Counter, [], "Keys that had to go because there were too many";
    CLAMPED = "fetchwise_attempts_clamped", Counter, [], "Attempts that came with a time in the future";
    LOG_HEALTHY = "fetchwise_log_healthy", Gauge, [], "Whether attempts reach the disk: 1 or 0";
    LOG_APPENDED = "fetchwise_log_records_appended", Counter, [], "Records that the log has taken in this run";
    LOG_LOST = "fetchwise_log_records_lost", Counter, [], "Records that are not in the log and will not be";
    LOG_QUEUED = "fetchwise_log_queue_records", Gauge, [], "Records that wait to be written";
    LOG_QUEUED_BYTES = "fetchwise_log_queue_bytes", Gauge, [], "Bytes that wait to be written";
    LOG_LAG = "fetchwise_log_unsynced_records", Gauge, [], "Records that a power failure now would take";
    LOG_WRITTEN_BYTES = "fetchwise_log_written_bytes", Counter, [], "Bytes that were written in this run";
    LOG_SYNCS = "fetchwise_log_syncs", Counter, [], "Syncs";
    LOG_SYNCED = "fetchwise_log_last_sync_timestamp_seconds", Gauge, [], "When the last sync ended";
    LOG_FAILURES = "fetchwise_log_failures", Counter, [], "Writes, syncs and new segments that failed";
    LOG_SEGMENTS = "fetchwise_log_segments", Gauge, ["state"], "Segments on disk, those that a compaction wrote apart";
    LOG_SEGMENT_BYTES = "fetchwise_log_segment_bytes", Gauge, [], "The size of all segments on disk";
    LOG_SNAPSHOT_BYTES = "fetchwise_log_snapshot_bytes", Gauge, [], "The size of all snapshots on disk";
    LOG_SNAPSHOT = "fetchwise_log_last_snapshot_timestamp_seconds", Gauge, [], "When the newest snapshot was written";
    LOG_COMPACTED = "fetchwise_log_last_compaction_timestamp_seconds", Gauge, [],
        "When a compaction last rewrote a segment";
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
            assert!(is_plain(family.name) && family.labels.iter().all(|label| is_plain(label)), "{family:?}");
        }
    }
}
