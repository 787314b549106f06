//! `GET /metrics`: all metrics, in the format that the scraper requests.
//!
//! Owns: the counts of requests.
//!
//! Invariant: their labels are routes of this server and statuses, whatever clients send. The
//! library owns its own counts.

pub(crate) mod crawl_endpoint;
pub(crate) mod fleet;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{MatchedPath, Request, State as Get};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family as Rows;
use prometheus_client::registry::Registry;

#[cfg(test)]
use crate::description::Operation;

use super::problem::Problem;
use fetchwise::journal::Journal;
use fetchwise::metrics::{Durations, Family, Kind, Metrics};
use fetchwise::selector::Selector;

/// The metrics of the server itself.
pub const FAMILIES: &[Family] = &[REQUESTS, DURATIONS];

const REQUESTS: Family = Family::new(
    "fetchwise_http_requests",
    Kind::Counter,
    &["route", "status"],
    "Answered requests",
);
const DURATIONS: Family = Family::new(
    "fetchwise_http_request_duration_seconds",
    Kind::Histogram,
    &["route"],
    "Duration of requests, including their bodies",
);

/// The route label of all unknown paths.
const NO_ROUTE: &str = "other";
/// Classic buckets of request durations, from 61 microseconds to 8 seconds.
const BOUNDS: (i32, i32) = (-14, 3);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    route: String,
    status: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: String,
}

/// The counter of requests, and the exposition of all metrics.
#[derive(Debug)]
pub(crate) struct RequestMetrics {
    registry: Registry,
    answered: Rows<Answered, Counter>,
    durations: Rows<Route, Durations, fn() -> Durations>,
}

impl RequestMetrics {
    /// Creates empty counts; `registry` has the other metrics.
    pub(crate) fn new(
        selector: Arc<Selector>,
        journal: Arc<Journal>,
        mut registry: Registry,
    ) -> Self {
        Metrics::new(selector).with_journal(journal).register(&mut registry);
        let answered = Rows::default();
        let durations = Rows::new_with_constructor(
            (|| Durations::between(BOUNDS.0, BOUNDS.1)) as fn() -> Durations,
        );
        registry.register(REQUESTS.name, REQUESTS.help, answered.clone());
        registry.register(DURATIONS.name, DURATIONS.help, durations.clone());
        Self { registry, answered, durations }
    }

    fn answered(&self, route: &str, status: u16, begun: Instant) {
        self.answered.get_or_create(&Answered { route: route.to_owned(), status }).inc();
        self.durations.get_or_create(&Route { route: route.to_owned() }).add(begun.elapsed());
    }

    /// Returns all metrics in the format `wanted`.
    fn show(&self, wanted: Format) -> Result<Response, Problem> {
        let broken = |error: &dyn std::error::Error| {
            Problem::internal(format!("cannot write the metrics: {error}"))
        };
        let kind = [(header::CONTENT_TYPE, wanted.content_type())];
        #[cfg(feature = "protobuf")]
        if wanted == Format::Protobuf {
            let bytes =
                prometheus_client::encoding::prometheus_protobuf::encode_to_vec(&self.registry)
                    .map_err(|error| broken(&error))?;
            return Ok((kind, bytes).into_response());
        }
        let mut page = String::new();
        text::encode(&mut page, &self.registry).map_err(|error| broken(&error))?;
        if wanted == Format::Text {
            page = classic_text(&page);
        }
        Ok((kind, page).into_response())
    }
}

/// Returns an OpenMetrics page in the classic text format: there the name of a counter's family has
/// the suffix of its samples, and a page has neither units nor an end mark.
fn classic_text(page: &str) -> String {
    let described = |line: &str| {
        let (keyword, rest) = line.strip_prefix("# ")?.split_once(' ')?;
        let (name, text) = rest.split_once(' ')?;
        Some((keyword.to_owned(), name.to_owned(), text.to_owned()))
    };
    let is_counter = |(keyword, name, text): (String, String, String)| {
        (keyword == "TYPE" && text == "counter").then_some(name)
    };
    let counters: HashSet<String> =
        page.lines().filter_map(described).filter_map(is_counter).collect();
    let mut classic = String::with_capacity(page.len());
    for line in page.lines() {
        match described(line) {
            Some((keyword, ..)) if keyword == "UNIT" => continue,
            Some((keyword, name, text)) => {
                let suffix = if counters.contains(&name) { "_total" } else { "" };
                classic.push_str(&format!("# {keyword} {name}{suffix} {text}"));
            }
            None if line == "# EOF" => continue,
            None => classic.push_str(line),
        }
        classic.push('\n');
    }
    classic
}

/// Returns the route.
pub(crate) fn routes<S: Clone + Send + Sync + 'static>(counted: Arc<RequestMetrics>) -> Router<S> {
    Router::new().route("/metrics", get(metrics)).layer(axum::Extension(counted))
}

/// Describes the route.
#[cfg(test)]
pub(crate) fn operation() -> Operation {
    let summary = "Get metrics for Prometheus: protobuf, OpenMetrics or text, as `Accept` requests";
    Operation::new("get", "/metrics", "figures", "getMetrics", summary).responds::<String>(
        200,
        "text/plain",
        "All metrics",
    )
}

/// Counts a request with its response.
pub(crate) async fn count(
    Get(counted): Get<Arc<RequestMetrics>>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    counted.answered(
        route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str),
        response.status().as_u16(),
        begun,
    );
    response
}

async fn metrics(
    axum::Extension(counted): axum::Extension<Arc<RequestMetrics>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let wanted = Format::of(&headers);
    // This reads every recent host and the log's directory.
    let shown = tokio::task::spawn_blocking(move || counted.show(wanted)).await;
    shown.map_err(|error| Problem::internal(error.to_string()))?
}

/// An exposition format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// Protobuf, with native histograms besides the classic ones. Builds without the feature
    /// `protobuf` never choose it.
    Protobuf,
    OpenMetrics,
    /// The classic text format, which every scraper reads.
    Text,
}

impl Format {
    /// Returns the best format for the sender of these headers.
    fn of(headers: &HeaderMap) -> Self {
        let mut best: Option<(f32, Self)> = None;
        let accepted =
            headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        for item in accepted.flat_map(|value| value.split(',')) {
            let mut parts = item.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<String> = parts.map(str::to_ascii_lowercase).collect();
            let has = |name: &str, value: &str| {
                parameters.iter().any(|parameter| {
                    parameter
                        .split_once('=')
                        .is_some_and(|(key, of)| key.trim() == name && of.trim() == value)
                })
            };
            let format = match media.as_str() {
                "application/vnd.google.protobuf"
                    if cfg!(feature = "protobuf")
                        && has("proto", "io.prometheus.client.metricfamily")
                        && has("encoding", "delimited") =>
                {
                    Self::Protobuf
                }
                "application/openmetrics-text" => Self::OpenMetrics,
                "text/plain" => Self::Text,
                "*/*" | "application/*" => Self::OpenMetrics,
                _ => continue,
            };
            let weight = parameters
                .iter()
                .find_map(|parameter| parameter.strip_prefix("q=")?.trim().parse().ok());
            let weight: f32 = weight.unwrap_or(1.0);
            if weight > 0.0 && best.is_none_or(|(known, _)| weight > known) {
                best = Some((weight, format));
            }
        }
        best.map_or(Self::OpenMetrics, |(_, format)| format)
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(accept: &str) -> Format {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        Format::of(&headers)
    }

    #[test]
    fn a_counter_in_classic_text_has_its_help() {
        let mut registry = Registry::default();
        let (counter, gauge) =
            (Counter::<u64>::default(), prometheus_client::metrics::gauge::Gauge::<i64>::default());
        registry.register("sent", "All sent", counter.clone());
        registry.register_with_unit(
            "size",
            "The size",
            prometheus_client::registry::Unit::Bytes,
            gauge,
        );
        let mut page = String::new();
        text::encode(&mut page, &registry).unwrap();
        assert_eq!(
            classic_text(&page),
            "# HELP sent_total All sent.\n# TYPE sent_total counter\nsent_total 0\n\
             # HELP size_bytes The size.\n# TYPE size_bytes gauge\nsize_bytes 0\n"
        );
    }

    #[test]
    fn the_reference_lists_every_metric_of_the_server_and_no_other() {
        let page = include_str!("../../../../docs/reference/metrics.md");
        let written: Vec<&str> =
            page.lines().filter(|line| line.starts_with("| `fetchwise_http_")).collect();
        let row = |family: &Family| {
            let labels: Vec<String> =
                family.labels.iter().map(|label| format!("`{label}`")).collect();
            let kind = if family.kind == Kind::Counter { "counter" } else { "histogram" };
            format!(
                "| `{}` | {kind} | {} | {} |",
                family.full_name(),
                labels.join(", "),
                family.help
            )
        };
        assert_eq!(written, FAMILIES.iter().map(row).collect::<Vec<_>>());
    }

    #[test]
    fn a_scraper_gets_its_best_format() {
        // The headers of Prometheus 2.42, with and without native histograms.
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                      application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let text = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                    text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let best = if cfg!(feature = "protobuf") { Format::Protobuf } else { Format::OpenMetrics };
        assert_eq!((of(native), of(text)), (best, Format::OpenMetrics));
        assert_eq!(
            (of("text/plain"), of("*/*"), of("image/png")),
            (Format::Text, Format::OpenMetrics, Format::OpenMetrics)
        );
        assert_eq!(of("application/vnd.google.protobuf;q=0, text/plain"), Format::Text);
        assert_eq!(
            of("application/vnd.google.protobuf"),
            Format::OpenMetrics,
            "of some other message"
        );
        assert_eq!(Format::of(&HeaderMap::new()), Format::OpenMetrics);
    }
}
