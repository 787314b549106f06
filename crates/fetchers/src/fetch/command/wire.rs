//! The messages to and from a child: `docs/guides/command-fetcher.md` as types. No I/O.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::fetch::Limits;
use fetchwise_types::response::Header;

/// Version of the protocol; the child may refuse another one.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct RequestMessage<'a> {
    v: u32,
    id: u64,
    url: &'a str,
    deadline_ms: u64,
    max_body: u64,
    max_headers: usize,
    max_redirects: u32,
    /// The headers to add to the first request, if it is signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<&'a SignatureHeaders>,
}

/// The headers of a signature, by name.
pub(super) type SignatureHeaders = BTreeMap<&'static str, String>;

#[derive(Serialize)]
struct CancelMessage {
    v: u32,
    cancel: u64,
}

/// Returns the line that requests a page.
pub(super) fn request_line(
    id: u64,
    url: &str,
    limits: &Limits,
    headers: Option<&SignatureHeaders>,
) -> Vec<u8> {
    line(&RequestMessage {
        v: VERSION,
        id,
        url,
        deadline_ms: u64::try_from(limits.deadline.as_millis()).unwrap_or(u64::MAX),
        max_body: limits.max_body,
        max_headers: limits.max_headers,
        max_redirects: limits.max_redirects,
        headers,
    })
}

/// Returns the line that cancels request `id`.
pub(super) fn cancel_line(id: u64) -> Vec<u8> {
    line(&CancelMessage { v: VERSION, cancel: id })
}

fn line(message: &impl Serialize) -> Vec<u8> {
    // Numbers and strings can always be written as JSON.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// The child's reply to one request.
#[derive(Debug)]
pub(super) enum Reply {
    /// A response, whatever its status.
    Response(ResponseMessage),
    /// An error instead of a response.
    Error { kind: String, message: String, status: Option<u16>, headers: Vec<Header> },
    /// The line has the request's id but is otherwise invalid.
    Invalid(String),
}

/// A response as the child reports it.
#[derive(Debug)]
pub(super) struct ResponseMessage {
    pub(super) status: u16,
    pub(super) headers: Vec<Header>,
    pub(super) content: Content,
    pub(super) final_url: Option<String>,
    pub(super) truncated: bool,
}

/// Location of the body.
#[derive(Debug)]
pub(super) enum Content {
    Bytes(Vec<u8>),
    /// A file in the scratch folder.
    File(String),
}

/// A line that is not a message, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct InvalidLine(String);

/// Parses one line of the child: the request's id and the reply.
pub(super) fn read(line: &[u8]) -> Result<(u64, Reply), InvalidLine> {
    // The id is parsed first: with it, an error in the rest concerns only that request.
    let id = match serde_json::from_slice::<Id>(line) {
        Ok(Id { id }) => id,
        Err(error) => {
            return Err(InvalidLine(format!("not a valid message ({error}): {}", excerpt(line))));
        }
    };
    Ok((
        id,
        read_reply(line).unwrap_or_else(|why| Reply::Invalid(format!("{why}: {}", excerpt(line)))),
    ))
}

fn read_reply(line: &[u8]) -> Result<Reply, String> {
    let message: ChildMessage<'_> =
        serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let headers = message.headers.map(Headers::list).unwrap_or_default();
    check_headers(&headers)?;
    if let Some(status) = message.status.filter(|status| !(100..=599).contains(status)) {
        return Err(format!("invalid HTTP status {status}"));
    }
    if let Some(error) = message.error {
        return Ok(Reply::Error {
            kind: error.kind,
            message: error.message,
            status: message.status,
            headers,
        });
    }
    let status = message.status.ok_or("missing status or error")?;
    let content = match (message.body, message.body_base64, message.body_path) {
        (None, None, None) => Content::Bytes(Vec::new()),
        (Some(text), None, None) => Content::Bytes(text.into_owned().into_bytes()),
        (None, Some(base64), None) => Content::Bytes(
            STANDARD.decode(base64.as_bytes()).map_err(|error| format!("body_base64: {error}"))?,
        ),
        (None, None, Some(path)) => Content::File(path),
        _ => return Err("more than one of body, body_base64 and body_path".to_owned()),
    };
    Ok(Reply::Response(ResponseMessage {
        status,
        headers,
        content,
        final_url: message.final_url,
        truncated: message.truncated,
    }))
}

/// Refuses headers that HTTP could not have carried: an archive or a log would read back something
/// else.
fn check_headers(headers: &[Header]) -> Result<(), String> {
    for Header { name, value, .. } in headers {
        if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            return Err(format!("invalid header name {}", excerpt(name.as_bytes())));
        }
        if value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(format!("invalid value of the header {name}: line break or NUL"));
        }
    }
    Ok(())
}

/// Returns the id at the beginning of a line that is too long to be parsed: `{"id": 7, ...`.
pub(super) fn id_of_beginning(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line.get(..64).unwrap_or(line)).ok()?;
    let after = text.trim_start().strip_prefix('{')?.trim_start().strip_prefix("\"id\"")?;
    let digits = after.trim_start().strip_prefix(':')?.trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit())?;
    digits[..end].parse().ok()
}

/// Returns the beginning of a line, for a message.
pub(super) fn excerpt(line: &[u8]) -> String {
    const MAX: usize = 120;
    let text = String::from_utf8_lossy(line.get(..MAX).unwrap_or(line));
    format!("{text:?}{}", if line.len() > MAX { " ..." } else { "" })
}

#[derive(Deserialize)]
struct Id {
    id: u64,
}

#[derive(Deserialize)]
struct ChildMessage<'a> {
    status: Option<u16>,
    headers: Option<Headers>,
    #[serde(borrow)]
    body: Option<Cow<'a, str>>,
    #[serde(borrow)]
    body_base64: Option<Cow<'a, str>>,
    body_path: Option<String>,
    final_url: Option<String>,
    #[serde(default)]
    truncated: bool,
    error: Option<ErrorMessage>,
}

#[derive(Deserialize)]
struct ErrorMessage {
    kind: String,
    #[serde(default)]
    message: String,
}

/// Headers as a list of pairs, which keeps order and repetitions, or as an object, which is easier
/// to write.
#[derive(Deserialize)]
#[serde(untagged)]
enum Headers {
    Pairs(Vec<(String, String)>),
    Object(serde_json::Map<String, serde_json::Value>),
}

impl Headers {
    fn list(self) -> Vec<Header> {
        match self {
            Self::Pairs(pairs) => {
                pairs.into_iter().flat_map(|(name, value)| lines(&name, &value)).collect()
            }
            Self::Object(map) => {
                map.into_iter().flat_map(|(name, value)| values(&name, value)).collect()
            }
        }
    }
}

fn values(name: &str, value: serde_json::Value) -> Vec<Header> {
    match value {
        serde_json::Value::String(text) => lines(name, &text),
        serde_json::Value::Array(many) => {
            many.into_iter().flat_map(|value| values(name, value)).collect()
        }
        serde_json::Value::Number(number) => vec![Header::new(name, number.to_string())],
        _ => Vec::new(),
    }
}

/// Browsers report several `Set-Cookie` headers as one, with one line each.
fn lines(name: &str, value: &str) -> Vec<Header> {
    if name.eq_ignore_ascii_case("set-cookie") {
        value.split('\n').map(|line| Header::new(name, line)).collect()
    } else {
        vec![Header::new(name, value)]
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn response(line: &str) -> ResponseMessage {
        match read(line.as_bytes()).unwrap().1 {
            Reply::Response(reply) => reply,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn invalid(line: &str) -> String {
        match read(line.as_bytes()).unwrap() {
            (7, Reply::Invalid(why)) => why,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_request_is_one_line_of_json_whatever_the_url_holds() {
        let line = request_line(7, "http://h/\u{2028}\"\\\n", &Limits::default(), None);
        assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1);
        let json: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            (json["id"].as_u64(), json["url"].as_str()),
            (Some(7), Some("http://h/\u{2028}\"\\\n"))
        );
        assert_eq!((json["deadline_ms"].as_u64(), json.get("headers")), (Some(30_000), None));
    }

    #[test]
    fn headers_come_as_pairs_or_as_an_object() {
        let pairs = response(r#"{"id":7,"status":200,"headers":[["B","1"],["A","2"],["B","3"]]}"#);
        assert_eq!(
            pairs.headers,
            [Header::new("B", "1"), Header::new("A", "2"), Header::new("B", "3")]
        );
        let object =
            response(r#"{"id":7,"status":200,"headers":{"a":"1","b":["2","3"],"c":4,"d":null}}"#);
        let expected =
            [("a", "1"), ("b", "2"), ("b", "3"), ("c", "4")].map(|(n, v)| Header::new(n, v));
        assert_eq!(object.headers, expected);
    }

    #[test]
    fn a_body_is_text_or_base64_or_a_file() {
        for (field, expected) in
            [(r#""body":"a\nü""#, "a\nü".as_bytes()), (r#""body_base64":"AP8=""#, &[0, 255])]
        {
            match response(&format!(r#"{{"id":7,"status":200,{field}}}"#)).content {
                Content::Bytes(bytes) => assert_eq!(bytes, expected),
                other @ Content::File(_) => panic!("{other:?}"),
            }
        }
        let file =
            response(r#"{"id":7,"status":200,"body_path":"x","truncated":true,"note":"unknown"}"#);
        assert!(matches!(file.content, Content::File(path) if path == "x") && file.truncated);
    }

    #[test]
    fn an_invalid_line_with_an_id_concerns_its_request_only() {
        for (line, part) in [
            (r#"{"id":7}"#, "missing status or error"),
            (r#"{"id":7,"status":1000}"#, "invalid HTTP status"),
            (r#"{"id":7,"status":-1}"#, "invalid value"),
            (r#"{"id":7,"status":200,"body":"a","body_path":"b"}"#, "more than one of"),
            (r#"{"id":7,"status":200,"body_base64":"*"}"#, "body_base64"),
            (r#"{"id":7,"status":200,"headers":"x"}"#, "untagged enum Headers"),
        ] {
            assert!(invalid(line).contains(part), "{line}: {}", invalid(line));
        }
        for line in
            ["", "hello", "[]", "{}", r#"{"id":"7"}"#, r#"{"id":7"#, "\u{0}", r#"{"id":-7}"#]
        {
            assert!(read(line.as_bytes()).is_err(), "{line}");
        }
        assert!(read(&[b'{', 0xff, b'}']).is_err());
    }

    #[test]
    fn headers_that_http_cannot_carry_are_refused() {
        for (headers, part) in [
            (r#"[["x\r\ny: z","1"]]"#, "invalid header name"),
            (r#"[["","1"]]"#, "invalid header name"),
            (r#"{"a b":"1"}"#, "invalid header name"),
            (r#"{"x":"1\r\ny: z"}"#, "line break"),
            (r#"[["x","\u0000"]]"#, "NUL"),
        ] {
            let why = invalid(&format!(r#"{{"id":7,"status":200,"headers":{headers}}}"#));
            assert!(why.contains(part), "{headers}: {why}");
        }
        let cookies = response(r#"{"id":7,"status":200,"headers":{"set-cookie":"a=1\nb=2"}}"#);
        assert_eq!(
            cookies.headers,
            [Header::new("set-cookie", "a=1"), Header::new("set-cookie", "b=2")]
        );
    }

    #[test]
    fn the_id_of_a_line_that_is_too_long_is_in_its_beginning() {
        assert_eq!(id_of_beginning(br#" { "id" : 42 , "body":"xxxxxx"#), Some(42));
        for line in [
            &br#"{"status":200,"id":42,"#[..],
            b"{\"id\":",
            b"{\"id\":99999999999999999999999,",
            b"",
            b"\xff",
        ] {
            assert_eq!(id_of_beginning(line), None);
        }
    }
}
