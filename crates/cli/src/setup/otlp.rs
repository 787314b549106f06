//! Export of traces by OTLP over HTTP: the library's spans, sent by a separate thread.
//!
//! Invariants: a slow or missing collector delays nothing but the end of the program, by a few
//! seconds. The number of waiting spans is limited.
//!
//! Must not know: which spans exist.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt};

use crate::terminal::exit::Failure;
use crate::terminal::output::note;

/// The variables that name the collector if no option does.
const VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// The time to send the remaining spans when the program ends.
const CLOSE_TIME: Duration = Duration::from_secs(5);

/// An exporter that sends spans until it is dropped.
pub(crate) struct TraceExporter {
    provider: SdkTracerProvider,
}

/// Starts to send spans to `endpoint`, or to the collector that the environment names; returns none
/// if there is neither.
pub(crate) fn start(endpoint: Option<&str>) -> Result<Option<TraceExporter>, Failure> {
    if endpoint.is_none() && !VARIABLES.into_iter().any(is_set) {
        return Ok(None);
    }
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client()?)
        .with_protocol(Protocol::HttpBinary);
    if let Some(endpoint) = endpoint {
        exporter = exporter.with_endpoint(traces_of(endpoint)?);
    }
    let exporter = exporter.build().map_err(|error| {
        Failure::usage(format_args!("--otlp (or OTEL_EXPORTER_OTLP_ENDPOINT): {error}"))
    })?;
    let mut resource = Resource::builder();
    if !is_set("OTEL_SERVICE_NAME") {
        resource = resource.with_service_name("fetchwise");
    }
    let version = opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.with_attribute(version).build())
        .build();
    let own = Targets::new().with_target("fetchwise", LevelFilter::DEBUG);
    let layer =
        tracing_opentelemetry::layer().with_tracer(provider.tracer("fetchwise")).with_filter(own);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))
        .map_err(Failure::failed)?;
    Ok(Some(TraceExporter { provider }))
}

impl TraceExporter {
    /// Sends the remaining spans, and reports a failure.
    pub(crate) fn finish(self) {
        let flushed = self.provider.force_flush();
        let ended = self.provider.shutdown_with_timeout(CLOSE_TIME);
        if let Err(error) = flushed.and(ended) {
            note(format_args!("warning: not all traces could be sent by OTLP: {error}"));
        }
    }
}

/// Returns whether the environment variable `name` is set and not empty.
fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// Returns the URL at which a collector takes traces.
fn traces_of(endpoint: &str) -> Result<String, Failure> {
    let url = url::Url::parse(endpoint).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let mut url = url.ok_or_else(|| {
        Failure::usage(format_args!("--otlp: {endpoint} is not a valid collector address"))
            .advise("give an OTLP address over HTTP (not gRPC), such as http://127.0.0.1:4318")
    })?;
    if !url.path().ends_with("/v1/traces") {
        let path = format!("{}/v1/traces", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    Ok(url.into())
}

/// Returns a client that trusts Mozilla's authorities, as the fetchers do. The sending thread makes
/// its requests.
fn client() -> Result<reqwest::blocking::Client, Failure> {
    let roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let tls = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .map_err(Failure::failed)?
    .with_root_certificates(roots)
    .with_no_client_auth();
    let client =
        reqwest::blocking::Client::builder().tls_backend_preconfigured(tls).timeout(CLOSE_TIME);
    client.build().map_err(Failure::failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_traces_is_appended_once() {
        let of = |endpoint: &str| traces_of(endpoint).unwrap();
        assert_eq!(of("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces");
        assert_eq!(of("https://e.org/otlp/"), "https://e.org/otlp/v1/traces");
        assert_eq!(of("http://e.org/v1/traces"), "http://e.org/v1/traces");
        assert!(traces_of("127.0.0.1:4317").is_err() && traces_of("grpc://e.org").is_err());
    }
}
