//! Children of command fetchers with invalid responses.

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::command::{CommandFetcher, CommandOptions};

use crate::support::{bounded, dialer, get, within};

/// Returns a fetcher whose child responds to each request with this line.
fn answering(line: &str) -> CommandFetcher {
    let text = format!("while read -r request; do printf '%s\\n' '{line}'; done");
    let options = CommandOptions {
        max_in_flight: 1,
        ..CommandOptions::new("script", ["/bin/sh", "-c", &text])
    };
    CommandFetcher::new(options, dialer())
}

#[tokio::test]
async fn a_header_with_a_line_break_is_refused() {
    bounded(async {
        let url = "http://127.0.0.1:9/".parse().unwrap();
        for headers in [
            r#"[["x\r\nWARC-Type: request\r\ny","1"]]"#,
            r#"[["x: y","1"]]"#,
            r#"{"x":"1\r\nset-cookie: a=b"}"#,
        ] {
            let fetcher =
                answering(&format!(r#"{{"id":1,"status":200,"headers":{headers},"body":"<p>x"}}"#));
            let error = get(&fetcher, &url, &within(120)).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::NetworkError);
            assert!(error.message.contains("invalid response") && !error.local, "{error}");
            fetcher.close().await;
        }
    })
    .await;
}
