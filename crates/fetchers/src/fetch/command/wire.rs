//! The lines that go to a child and come back: `docs/guides/command-fetcher.md` as types. No I/O.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::fetch::Limits;
use fetchwise_types::response::Header;

/// The version of the protocol; the child may refuse another one.
const VERSION: u32 = 1;

#[derive(Serialize)]
struct Ask<'a> {
    v: u32,
    id: u64,
    url: &'a str,
    deadline_ms: u64,
    max_body: u64,
    max_headers: usize,
    max_redirects: u32,
}

#[derive(Serialize)]
struct Cancel {
    v: u32,
    cancel: u64,
}

/// The line that asks for a page.
pub(super) fn ask(id: u64, url: &str, limits: &Limits) -> Vec<u8> {
    line(&Ask {
        v: VERSION,
        id,
        url,
        deadline_ms: u64::try_from(limits.deadline.as_millis()).unwrap_or(u64::MAX),
        max_body: limits.max_body,
        max_headers: limits.max_headers,
        max_redirects: limits.max_redirects,
    })
}

/// The line that says that nobody waits for `id` any more.
pub(super) fn cancel(id: u64) -> Vec<u8> {
    line(&Cancel { v: VERSION, cancel: id })
}

fn line(message: &impl Serialize) -> Vec<u8> {
    // Numbers and strings: there is nothing in it that JSON cannot hold.
    let mut line = serde_json::to_vec(message).unwrap_or_default();
    line.push(b'\n');
    line
}

/// What a child answered to one request.
#[derive(Debug)]
pub(super) enum Answer {
    /// A response, whatever its status.
    Response(Reply),
    /// It brought none.
    Error { kind: String, message: String, status: Option<u16>, headers: Vec<Header> },
    /// The line has the request's id, and nothing that makes sense beside it.
    Nonsense(String),
}

/// A response as the child tells it.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<Header>,
    pub(super) content: Content,
    pub(super) final_url: Option<String>,
    pub(super) truncated: bool,
}

/// Where the body is.
#[derive(Debug)]
pub(super) enum Content {
    Bytes(Vec<u8>),
    /// A file in the scratch folder.
    File(String),
}

/// A line that is no message, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct BadLine(String);

/// Reads one line of the child's: the request's id and its answer.
pub(super) fn read(line: &[u8]) -> Result<(u64, Answer), BadLine> {
    // The id first: with it, what is wrong with the rest is that request's failure and nobody else's.
    let id = match serde_json::from_slice::<Id>(line) {
        Ok(Id { id }) => id,
        Err(error) => return Err(BadLine(format!("no message of the protocol ({error}): {}", excerpt(line)))),
    };
    Ok((id, read_answer(line).unwrap_or_else(|why| Answer::Nonsense(format!("{why}: {}", excerpt(line))))))
}

fn read_answer(line: &[u8]) -> Result<Answer, String> {
    let message: Message<'_> = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    let headers = message.headers.map(Headers::list).unwrap_or_default();
    check_headers(&headers)?;
    if let Some(status) = message.status.filter(|status| !(100..=599).contains(status)) {
        return Err(format!("{status} is no HTTP status"));
    }
    if let Some(error) = message.error {
        return Ok(Answer::Error { kind: error.kind, message: error.message, status: message.status, headers });
    }
    let status = message.status.ok_or("neither a status nor an error")?;
    let content = match (message.body, message.body_base64, message.body_path) {
        (None, None, None) => Content::Bytes(Vec::new()),
        (Some(text), None, None) => Content::Bytes(text.into_owned().into_bytes()),
        (None, Some(base64), None) => {
            Content::Bytes(STANDARD.decode(base64.as_bytes()).map_err(|error| format!("body_base64: {error}"))?)
        }
        (None, None, Some(path)) => Content::File(path),
        _ => return Err("more than one of body, body_base64 and body_path".to_owned()),
    };
    Ok(Answer::Response(Reply { status, headers, content, final_url: message.final_url, truncated: message.truncated }))
}

/// Refuses headers that HTTP could not have carried: an archive or a log that takes them in would read back something else.
fn check_headers(headers: &[Header]) -> Result<(), String> {
    for Header { name, value } in headers {
        if http::HeaderName::from_bytes(name.as_bytes()).is_err() {
            return Err(format!("{} is no name of a header", excerpt(name.as_bytes())));
        }
        if value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(format!("the header {name} has a line break or a NUL in its value"));
        }
    }
    Ok(())
}

/// The id in the beginning of a line that is too long to be read as a whole: `{"id": 7, ...`.
pub(super) fn id_of_beginning(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line.get(..64).unwrap_or(line)).ok()?;
    let after = text.trim_start().strip_prefix('{')?.trim_start().strip_prefix("\"id\"")?;
    let digits = after.trim_start().strip_prefix(':')?.trim_start();
    let end = digits.find(|c: char| !c.is_ascii_digit())?;
    digits[..end].parse().ok()
}

/// The beginning of a line, for a message.
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
struct Message<'a> {
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
    error: Option<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    kind: String,
    #[serde(default)]
    message: String,
}

/// Headers as a list of pairs, which keeps order and repetitions, or as an object, which is easier to write.
#[derive(Deserialize)]
#[serde(untagged)]
enum Headers {
    Pairs(Vec<(String, String)>),
    Object(serde_json::Map<String, serde_json::Value>),
}

impl Headers {
    fn list(self) -> Vec<Header> {
        match self {
            Self::Pairs(pairs) => pairs.into_iter().flat_map(|(name, value)| lines(&name, &value)).collect(),
            Self::Object(map) => map.into_iter().flat_map(|(name, value)| values(&name, value)).collect(),
        }
    }
}

fn values(name: &str, value: serde_json::Value) -> Vec<Header> {
    match value {
        serde_json::Value::String(text) => lines(name, &text),
        serde_json::Value::Array(many) => many.into_iter().flat_map(|value| values(name, value)).collect(),
        serde_json::Value::Number(number) => vec![Header::new(name, number.to_string())],
        _ => Vec::new(),
    }
}

/// Browsers hand several `Set-Cookie` headers over as one, a line each.
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

    fn response(line: &str) -> Reply {
        match read(line.as_bytes()).unwrap().1 {
            Answer::Response(reply) => reply,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn nonsense(line: &str) -> String {
        match read(line.as_bytes()).unwrap() {
            (7, Answer::Nonsense(why)) => why,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_request_is_one_line_of_json_whatever_the_url_holds() {
        let line = ask(7, "http://h/\u{2028}\"\\\n", &Limits::default());
        assert_eq!(line.iter().filter(|&&b| b == b'\n').count(), 1);
        let json: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!((json["id"].as_u64(), json["url"].as_str()), (Some(7), Some("http://h/\u{2028}\"\\\n")));
        assert_eq!(json["deadline_ms"].as_u64(), Some(30_000));
    }

    #[test]
    fn headers_come_as_pairs_or_as_an_object() {
        let pairs = response(r#"{"id":7,"status":200,"headers":[["B","1"],["A","2"],["B","3"]]}"#);
        assert_eq!(pairs.headers, [Header::new("B", "1"), Header::new("A", "2"), Header::new("B", "3")]);
        let object = response(r#"{"id":7,"status":200,"headers":{"a":"1","b":["2","3"],"c":4,"d":null}}"#);
        let expected = [("a", "1"), ("b", "2"), ("b", "3"), ("c", "4")].map(|(n, v)| Header::new(n, v));
        assert_eq!(object.headers, expected);
    }

    #[test]
    fn a_body_is_text_or_base64_or_a_file() {
        for (field, expected) in [(r#""body":"a\nü""#, "a\nü".as_bytes()), (r#""body_base64":"AP8=""#, &[0, 255])] {
            match response(&format!(r#"{{"id":7,"status":200,{field}}}"#)).content {
                Content::Bytes(bytes) => assert_eq!(bytes, expected),
                other @ Content::File(_) => panic!("{other:?}"),
            }
        }
        let file = response(r#"{"id":7,"status":200,"body_path":"x","truncated":true,"note":"unknown"}"#);
        assert!(matches!(file.content, Content::File(path) if path == "x") && file.truncated);
    }

    #[test]
    fn a_line_with_an_id_blames_its_request_and_one_without_blames_the_child() {
        for (line, part) in [
            (r#"{"id":7}"#, "neither a status nor an error"),
            (r#"{"id":7,"status":1000}"#, "no HTTP status"),
            (r#"{"id":7,"status":-1}"#, "invalid value"),
            (r#"{"id":7,"status":200,"body":"a","body_path":"b"}"#, "more than one of"),
            (r#"{"id":7,"status":200,"body_base64":"*"}"#, "body_base64"),
            (r#"{"id":7,"status":200,"headers":"x"}"#, "untagged enum Headers"),
        ] {
            assert!(nonsense(line).contains(part), "{line}: {}", nonsense(line));
        }
        for line in ["", "hello", "[]", "{}", r#"{"id":"7"}"#, r#"{"id":7"#, "\u{0}", r#"{"id":-7}"#] {
            assert!(read(line.as_bytes()).is_err(), "{line}");
        }
        assert!(read(&[b'{', 0xff, b'}']).is_err());
    }

    #[test]
    fn headers_that_http_cannot_carry_are_refused() {
        for (headers, part) in [
            (r#"[["x\r\ny: z","1"]]"#, "no name of a header"),
            (r#"[["","1"]]"#, "no name of a header"),
            (r#"{"a b":"1"}"#, "no name of a header"),
            (r#"{"x":"1\r\ny: z"}"#, "line break"),
            (r#"[["x","\u0000"]]"#, "NUL"),
        ] {
            let why = nonsense(&format!(r#"{{"id":7,"status":200,"headers":{headers}}}"#));
            assert!(why.contains(part), "{headers}: {why}");
        }
        let cookies = response(r#"{"id":7,"status":200,"headers":{"set-cookie":"a=1\nb=2"}}"#);
        assert_eq!(cookies.headers, [Header::new("set-cookie", "a=1"), Header::new("set-cookie", "b=2")]);
    }

    #[test]
    fn the_id_of_a_line_that_is_too_long_is_in_its_beginning() {
        assert_eq!(id_of_beginning(br#" { "id" : 42 , "body":"xxxxxx"#), Some(42));
        for line in [&br#"{"status":200,"id":42,"#[..], b"{\"id\":", b"{\"id\":99999999999999999999999,", b"", b"\xff"]
        {
            assert_eq!(id_of_beginning(line), None);
        }
    }
}
