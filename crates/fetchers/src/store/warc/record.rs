//! The records of WARC 1.1: their heads, and the digests in them.
//!
//! Owns: the fields of a record, their names and their order. The same page gives the same fields,
//! those of the standard first.
//!
//! Invariants: no external text ends a line of a head.
//!
//! Must not know: files.

use std::io::{self, Write};
use std::net::IpAddr;

use chrono::{DateTime, SecondsFormat, Utc};
use data_encoding::BASE32;
use sha1::{Digest as _, Sha1};
use url::Url;
use uuid::Uuid;

use crate::fetch::Body;
use fetchwise_types::attempt::id;
use fetchwise_types::response::Header;
use fetchwise_types::time::Timestamp;

/// End of a record.
pub(super) const RECORD_END: &[u8] = b"\r\n\r\n";
/// Profile of a `revisit` record that is based on the payload's digest.
const SAME_PAYLOAD: &str = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest";
/// Profile of a `revisit` record of a 304.
const NOT_MODIFIED: &str = "http://netpreserve.org/warc/1.1/revisit/server-not-modified";

/// Headers that describe the transfer and do not apply to the stored block.
const TRANSFER_HEADERS: [&str; 5] =
    ["content-encoding", "transfer-encoding", "content-length", "connection", "keep-alive"];

/// The kind of a record.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Info,
    Request,
    Response,
    /// A response whose payload the archive already contains.
    Revisit(Original),
    /// A 304: the page is the same as an earlier record.
    NotModified(Original),
    Metadata,
}

/// The earlier record with a payload.
#[derive(Clone, Debug)]
pub(super) struct Original {
    pub(super) id: Uuid,
    pub(super) url: Url,
    pub(super) at: Timestamp,
}

/// A SHA-1 digest, by which archives compare payloads. It identifies copies and is not a protection
/// against forgery.
pub(super) type Digest = [u8; 20];

/// The head of a record, without its length.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) id: Uuid,
    pub(super) at: Timestamp,
    pub(super) url: Option<Url>,
    /// The record that it belongs to.
    pub(super) concurrent_to: Option<Uuid>,
    pub(super) peer: Option<IpAddr>,
    pub(super) payload: Option<Digest>,
    /// Why the payload is incomplete.
    pub(super) truncated: Option<&'static str>,
    /// Name of the file, in its `warcinfo`.
    pub(super) file: Option<String>,
}

impl Head {
    /// Returns a head with only kind and time.
    pub(super) fn new(kind: Kind, at: Timestamp) -> Self {
        Self {
            kind,
            id: id::new(),
            at,
            url: None,
            concurrent_to: None,
            peer: None,
            payload: None,
            truncated: None,
            file: None,
        }
    }

    /// Returns the encoded head, with the empty line at its end.
    pub(super) fn to_bytes(&self, block: Digest, len: u64) -> Vec<u8> {
        let mut text = String::from("WARC/1.1\r\n");
        let mut field = |name: &str, value: &str| {
            text.push_str(name);
            text.push_str(": ");
            match value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
                true => text.push_str(value),
                false => text.extend(value.chars().filter(|c| !c.is_control())),
            }
            text.push_str("\r\n");
        };
        let (kind, content_type) = match &self.kind {
            Kind::Info => ("warcinfo", "application/warc-fields"),
            Kind::Request => ("request", "application/http; msgtype=request"),
            Kind::Response => ("response", "application/http; msgtype=response"),
            Kind::Revisit(_) | Kind::NotModified(_) => {
                ("revisit", "application/http; msgtype=response")
            }
            Kind::Metadata => ("metadata", "application/warc-fields"),
        };
        field("WARC-Type", kind);
        field("WARC-Record-ID", &urn(self.id));
        field("WARC-Date", &date(self.at));
        if let Some(url) = &self.url {
            field("WARC-Target-URI", url.as_str());
        }
        if let Some(other) = self.concurrent_to {
            field("WARC-Concurrent-To", &urn(other));
        }
        if let Some(peer) = self.peer {
            field("WARC-IP-Address", &peer.to_string());
        }
        if let Kind::Revisit(original) | Kind::NotModified(original) = &self.kind {
            let is_same_payload = matches!(self.kind, Kind::Revisit(_));
            field("WARC-Profile", if is_same_payload { SAME_PAYLOAD } else { NOT_MODIFIED });
            field("WARC-Refers-To", &urn(original.id));
            field("WARC-Refers-To-Target-URI", original.url.as_str());
            field("WARC-Refers-To-Date", &date(original.at));
        }
        if let Some(reason) = self.truncated {
            field("WARC-Truncated", reason);
        }
        if let Some(file) = &self.file {
            field("WARC-Filename", file);
        }
        field("WARC-Block-Digest", &digest_text(block));
        if let Some(payload) = self.payload {
            field("WARC-Payload-Digest", &digest_text(payload));
        }
        field("Content-Type", content_type);
        field("Content-Length", &len.to_string());
        text.push_str("\r\n");
        text.into_bytes()
    }
}

/// Returns a digest as archives write it.
pub(super) fn digest_text(digest: Digest) -> String {
    format!("sha1:{}", BASE32.encode(&digest))
}

/// The block of a record: a head of HTTP or other text, and the body of a page.
#[derive(Clone, Copy)]
pub(super) struct Block<'b> {
    pub(super) head: &'b [u8],
    pub(super) body: Option<&'b Body>,
}

impl Block<'_> {
    /// Returns its length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.head.len() as u64 + self.body.map_or(0, Body::len)
    }

    fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(self.head)?;
        match self.body {
            Some(body) if body.copy_to(out)? != body.len() => Err(cut_short()),
            _ => Ok(()),
        }
    }

    /// Returns its digest, and the one of its body.
    pub(super) fn digests(&self) -> io::Result<(Digest, Digest)> {
        let mut digests =
            Digests { of_block: Sha1::new_with_prefix(self.head), of_body: Sha1::new() };
        Block { head: b"", ..*self }.write_to(&mut digests)?;
        Ok((digests.of_block.finalize().into(), digests.of_body.finalize().into()))
    }
}

/// The digests of a block, while its body is read.
struct Digests {
    of_block: Sha1,
    of_body: Sha1,
}

impl Write for Digests {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.of_block.update(bytes);
        self.of_body.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the digest of a block in memory.
pub(super) fn digest(block: &[u8]) -> Digest {
    Sha1::digest(block).into()
}

/// Returns the digest that [`digest_text`] wrote.
pub(super) fn digest_of(text: &str) -> Option<Digest> {
    BASE32.decode(text.strip_prefix("sha1:")?.as_bytes()).ok()?.try_into().ok()
}

/// Writes a record.
pub(super) fn write(out: &mut impl Write, head: &[u8], block: Block<'_>) -> io::Result<()> {
    out.write_all(head)?;
    block.write_to(out)?;
    out.write_all(RECORD_END)
}

/// Returns the error of a body with another number of bytes than at its arrival: its file was
/// truncated.
fn cut_short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the page is shorter than at its arrival")
}

/// Returns the stored head of an HTTP response: without the headers of the transfer, and with the
/// actual length.
pub(super) fn response_head(status: u16, headers: &[Header], len: u64) -> Vec<u8> {
    let reason =
        http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason.unwrap_or_default()).into_bytes();
    let kept = headers
        .iter()
        .filter(|h| !TRANSFER_HEADERS.iter().any(|name| h.name.eq_ignore_ascii_case(name)));
    push_headers(&mut head, kept);
    head.extend_from_slice(format!("Content-Length: {len}\r\n\r\n").as_bytes());
    head
}

/// Returns the stored head of a 304, which has no body.
pub(super) fn not_modified_head(status: u16, headers: &[Header]) -> Vec<u8> {
    let reason =
        http::StatusCode::from_u16(status).ok().and_then(|status| status.canonical_reason());
    let mut head = format!("HTTP/1.1 {status} {}\r\n", reason.unwrap_or_default()).into_bytes();
    let kept = headers
        .iter()
        .filter(|h| !TRANSFER_HEADERS.iter().any(|name| h.name.eq_ignore_ascii_case(name)));
    push_headers(&mut head, kept);
    head.extend_from_slice(b"\r\n");
    head
}

/// Returns the head of a request as it was sent.
pub(super) fn request_head(url: &Url, headers: &[Header]) -> Vec<u8> {
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut head = format!("GET {}{query} HTTP/1.1\r\n", url.path()).into_bytes();
    // Credentials do not belong in an archive that others read.
    let secrets = ["authorization", "cookie", "proxy-authorization"];
    push_headers(
        &mut head,
        headers.iter().filter(|h| !secrets.iter().any(|name| h.name.eq_ignore_ascii_case(name))),
    );
    head.extend_from_slice(b"\r\n");
    head
}

fn push_headers<'a>(head: &mut Vec<u8>, headers: impl Iterator<Item = &'a Header>) {
    for header in headers {
        // A header with a line break would become two; no parser produces one, and none may get
        // into an archive.
        if http::HeaderName::from_bytes(header.name.as_bytes()).is_err() {
            continue;
        }
        head.extend_from_slice(format!("{}: ", header.name).as_bytes());
        // The bytes as they were received: a replay follows the address that the server named.
        head.extend(header.bytes().iter().filter(|byte| !matches!(byte, b'\r' | b'\n')));
        head.extend_from_slice(b"\r\n");
    }
}

/// Returns an id as archives write it.
pub(super) fn urn(id: Uuid) -> String {
    format!("<urn:uuid:{id}>")
}

fn date(at: Timestamp) -> String {
    let time = DateTime::<Utc>::from_timestamp_millis(at.as_millis()).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}
