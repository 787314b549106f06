//! Traces of a real run, as a collector on loopback receives them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use fetchwise_testsite::ports::RefusingPort;
use fetchwise_testsite::program;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// Reads one request: its first line and its body.
fn request(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let (mut first, mut length) = (String::new(), 0);
    stream.read_line(&mut first).ok().filter(|read| *read > 0)?;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok()?;
        let line = line.trim().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((first, body))
}

/// Responds to every request by `answer` until the test ends.
fn server(answer: impl Fn(&str, Vec<u8>) -> String + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, answer) = (listener.local_addr().unwrap(), Arc::new(answer));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some((first, body)) = request(&mut reader) {
                    if (&stream).write_all(answer(&first, body).as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

fn page(status: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn text(span: &Span, name: &str) -> Option<String> {
    let value =
        span.attributes.iter().find(|attribute| attribute.key == name)?.value.clone()?.value?;
    Some(match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    })
}

#[test]
fn a_run_arrives_at_a_collector_as_nested_spans() {
    let site = server(|_, _| {
        page("200 OK", "text/html", &format!("<p>{}", "The ferry leaves at noon. ".repeat(40)))
    });
    let got: Arc<Mutex<Vec<ExportTraceServiceRequest>>> = Arc::default();
    let taken = Arc::clone(&got);
    let collector = server(move |first, body| {
        assert!(first.starts_with("POST /v1/traces "), "{first}");
        taken.lock().unwrap().push(ExportTraceServiceRequest::decode(body.as_slice()).unwrap());
        page("200 OK", "application/x-protobuf", "")
    });
    let dir = tempfile::tempdir().unwrap();
    let run = program::command(env!("CARGO_BIN_EXE_fetchwise"), dir.path())
        .args(["fetch", "--allow-private-network", "--pace", "off", "--json", "--data-dir"])
        .arg(dir.path().join("data"))
        .args(["--otlp", &format!("http://{collector}")])
        .arg(format!("http://user:secret@{site}/ferries"))
        .env_remove("OTEL_SERVICE_NAME")
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let got = got.lock().unwrap();
    let resource = got[0].resource_spans[0].resource.clone().unwrap();
    assert!(resource.attributes.iter().any(|attribute| {
        attribute.key == "service.name"
            && attribute.value.as_ref().unwrap().value
                == Some(Value::StringValue("fetchwise".to_owned()))
    }));
    let spans: Vec<&Span> = got
        .iter()
        .flat_map(|one| &one.resource_spans)
        .flat_map(|of| &of.scope_spans)
        .flat_map(|of| &of.spans)
        .collect();
    let named = |name: &str| {
        let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name}: {spans:#?}");
        *found[0]
    };
    let (visit, attempt, fetch, append) =
        (named("visit"), named("attempt"), named("fetch"), named("journal append"));
    assert!(visit.parent_span_id.is_empty());
    assert_eq!(attempt.parent_span_id, visit.span_id);
    assert_eq!(fetch.parent_span_id, attempt.span_id);
    assert_eq!(append.parent_span_id, attempt.span_id);
    assert!(spans.iter().all(|span| span.trace_id == visit.trace_id));
    assert_eq!(text(visit, "url"), Some(format!("http://{site}/ferries")));
    assert_eq!(text(visit, "end").as_deref(), Some("delivered"));
    assert_eq!(text(visit, "requests").as_deref(), Some("1"));
    assert_eq!(text(attempt, "fetcher").as_deref(), Some("direct_access"));
    assert_eq!(text(attempt, "outcome").as_deref(), Some("content"));
    assert_eq!(text(fetch, "status").as_deref(), Some("200"));
    assert!(fetch.start_time_unix_nano >= attempt.start_time_unix_nano);
    assert!(fetch.end_time_unix_nano <= attempt.end_time_unix_nano);
    assert!(!format!("{got:?}").contains("secret"), "nobody's password is told");
}

#[test]
fn a_missing_collector_changes_no_result() {
    let site = server(|_, _| {
        page("200 OK", "text/html", &format!("<p>{}", "The ferry leaves at noon. ".repeat(40)))
    });
    let refusing = RefusingPort::on(Ipv4Addr::LOCALHOST).unwrap();
    let nobody = refusing.address();
    let dir = tempfile::tempdir().unwrap();
    let run = program::command(env!("CARGO_BIN_EXE_fetchwise"), dir.path())
        .args(["fetch", "--allow-private-network", "--json", "--data-dir"])
        .arg(dir.path().join("data"))
        .arg(format!("http://{site}/ferries"))
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{nobody}"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&run.stdout).contains("\"success\":true"));
    assert!(said.contains("not all traces could be sent"), "{said}");
    let bad = program::command(env!("CARGO_BIN_EXE_fetchwise"), dir.path())
        .args(["fetch", "--otlp", "127.0.0.1:4317", "x"])
        .output();
    let bad = bad.unwrap();
    assert_eq!(bad.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&bad.stderr).contains("http://127.0.0.1:4318"));
}
