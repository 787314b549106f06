//! Heads of HTTP/1 responses that browsers read and the parser of hyper refuses, made readable in
//! front of it.
//!
//! Owns: the rewriting of a head, and the point in a connection at which a head begins.
//!
//! Invariants: only a head is rewritten, and only one that the parser would refuse, or whose
//! transfer coding is none. A length that is a number, and a coding, are never touched: where a
//! body ends is decided in one place, by the parser. A head that does not end within [`MAX_HEAD`] is passed on as it is.
//!
//! Must not know: requests, and what a header means, except for those that frame the body.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Maximum bytes of an HTTP/1 response head.
/// [`Limits::max_headers`](crate::fetch::Limits::max_headers) can lower it but not raise it.
pub const MAX_HEAD: usize = 512 << 10;

/// Bytes that are read at once while a head is incomplete.
const CHUNK: usize = 8 << 10;
/// White space before a status line that is skipped.
const MAX_SLOP: usize = 16;

/// The heads that a connection brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heads {
    /// None: it does not speak HTTP/1.
    None,
    /// One, for the only request.
    One,
    /// One for each GET without a body.
    EachGet,
}

/// A connection whose response heads are readable.
#[derive(Debug)]
pub(super) struct ReadableHeads<T> {
    io: T,
    heads: Heads,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Received bytes of heads.
    Head(ReceivedHeads),
    /// Bytes to hand over, and the number of those that were; then the body follows.
    HandOver(Vec<u8>, usize),
    /// The body.
    Body,
}

impl<T> ReadableHeads<T> {
    pub(super) fn new(io: T, heads: Heads) -> Self {
        let state =
            if heads == Heads::None { State::Body } else { State::Head(ReceivedHeads::default()) };
        Self { io, heads, state }
    }

    /// Notes what is written: a request begins, or goes on. The parser writes the next request only
    /// when it has read the whole response before.
    fn on_write(&mut self, bytes: &[u8]) {
        if self.heads == Heads::EachGet
            && matches!(self.state, State::Body)
            && bytes.starts_with(b"GET ")
        {
            self.state = State::Head(ReceivedHeads::default());
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ReadableHeads<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            match &mut this.state {
                State::Body => return Pin::new(&mut this.io).poll_read(cx, buf),
                State::HandOver(bytes, done) => {
                    let len = (bytes.len() - *done).min(buf.remaining());
                    buf.put_slice(&bytes[*done..*done + len]);
                    *done += len;
                    if *done == bytes.len() {
                        this.state = State::Body;
                    }
                    return Poll::Ready(Ok(()));
                }
                State::Head(received) => {
                    let mut chunk = [0; CHUNK];
                    let mut read = ReadBuf::new(&mut chunk);
                    ready!(Pin::new(&mut this.io).poll_read(cx, &mut read))?;
                    let is_end = read.filled().is_empty();
                    let scanned = received.bytes.len();
                    received.bytes.extend_from_slice(read.filled());
                    if is_end && received.bytes.is_empty() {
                        this.state = State::Body;
                        return Poll::Ready(Ok(()));
                    }
                    if received.are_complete(scanned) || is_end {
                        this.state = State::HandOver(std::mem::take(&mut received.bytes), 0);
                    }
                }
            }
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ReadableHeads<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.on_write(buf);
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.on_write(bufs.iter().find(|buf| !buf.is_empty()).map_or(&[], |buf| buf));
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }
}

impl<T: Connection> Connection for ReadableHeads<T> {
    fn connected(&self) -> Connected {
        self.io.connected()
    }
}

/// Received bytes: whole heads of interim responses, which are readable, and the beginning of the
/// head that follows.
#[derive(Debug, Default)]
struct ReceivedHeads {
    bytes: Vec<u8>,
    /// Where the head begins that is not whole.
    begin: usize,
}

impl ReceivedHeads {
    /// Makes whole heads readable, and returns whether no head is expected any more: the one that
    /// counts has come, is too long, or is none. It does not end in the first `scanned` bytes.
    fn are_complete(&mut self, scanned: usize) -> bool {
        let mut scanned = scanned.saturating_sub(3);
        loop {
            let head = &self.bytes[self.begin..];
            if !may_be_http(head) {
                return true;
            }
            let Some(len) = end_of_head(head, scanned.saturating_sub(self.begin)) else {
                return self.bytes.len() > MAX_HEAD;
            };
            let readable = readable(&head[..len], &head[len..]);
            let is_interim =
                readable.as_deref().unwrap_or(&head[..len]).get(9..12).is_some_and(is_interim);
            let end = self.begin + readable.as_ref().map_or(len, Vec::len);
            if let Some(readable) = readable {
                self.bytes.splice(self.begin..self.begin + len, readable);
            }
            if !is_interim {
                return true;
            }
            (self.begin, scanned) = (end, end);
        }
    }
}

/// Returns whether another head follows that of a response with this status.
fn is_interim(status: &[u8]) -> bool {
    status[0] == b'1' && status != b"101"
}

/// Returns whether `bytes` may be the beginning of a head.
fn may_be_http(bytes: &[u8]) -> bool {
    let start = &bytes[slop(bytes)..];
    let len = start.len().min(5);
    start[..len].eq_ignore_ascii_case(&b"HTTP/"[..len])
}

/// Returns the length of the white space before a status line.
fn slop(bytes: &[u8]) -> usize {
    bytes.iter().take(MAX_SLOP).take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// Returns the length of the head: up to the first empty line, whose end is a line feed. `from` is
/// where to search.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let from = from.max(slop(bytes));
    let found = |at: usize| match &bytes[at + 1..] {
        [b'\n', ..] => Some(at + 2),
        [b'\r', b'\n', ..] => Some(at + 3),
        _ => None,
    };
    memchr::memchr_iter(b'\n', bytes.get(from..)?).find_map(|at| found(from + at))
}

/// Returns a head as the parser reads it. `None` if it needs no change, or is none that browsers
/// read either. `body` is what has come after it.
fn readable(head: &[u8], body: &[u8]) -> Option<Vec<u8>> {
    let start = &head[slop(head)..];
    let line_end = memchr::memchr2(b'\r', b'\n', start)?;
    let mut status = status_line(&start[..line_end])?;
    let lines = logical_lines(&start[line_end..]);
    let has_length = !is_invalid_length(&lines);
    // HTTP/1.0 has no transfer codings. Some servers use one, and some only say so.
    let is_old = status.starts_with(b"HTTP/1.0") && lines.iter().any(|line| is_chunked(line));
    let is_newer = is_old && may_be_chunk(body);
    let has_coding = !is_without_coding(&lines) && is_old == is_newer;
    if is_newer {
        status[7] = b'1';
    }
    let is_plain = status == start[..line_end] && start.len() == head.len() && !has_bare_cr(head);
    if is_plain && has_length && has_coding {
        return None;
    }
    let mut out = status;
    out.extend_from_slice(if is_newer { b"\r\nConnection: close\r\n" } else { b"\r\n" });
    for line in lines.iter().filter(|line| {
        (has_length || !is_named(line[0], b"content-length"))
            && (has_coding || !is_named(line[0], b"transfer-encoding"))
    }) {
        for part in line {
            out.extend_from_slice(part);
            out.extend_from_slice(b"\r\n");
        }
    }
    out.extend_from_slice(b"\r\n");
    Some(out)
}

/// Returns a status line in its normal form. The status has three digits, and the rest may be
/// missing. A version above 1.1 is one of the server's, and what follows is HTTP/1.
fn status_line(line: &[u8]) -> Option<Vec<u8>> {
    let (name, rest) = line.split_at_checked(5)?;
    let version_end = rest.iter().position(|byte| matches!(byte, b' ' | b'\t'))?;
    let (version, rest) = rest.split_at(version_end);
    let minor = match version {
        b"1.0" => 0,
        [b'1', b'.', b'1'..=b'9'] | [b'2' | b'3'] | [b'2' | b'3', b'.', b'0'..=b'9'] => 1,
        _ => return None,
    };
    let spaces = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let (code, reason) = rest[spaces..].split_at_checked(3)?;
    let is_status =
        code.iter().all(u8::is_ascii_digit) && !reason.first().is_some_and(u8::is_ascii_digit);
    if !name.eq_ignore_ascii_case(b"HTTP/") || !is_status {
        return None;
    }
    let is_text = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
    let mut out = format!("HTTP/1.{minor} ").into_bytes();
    out.extend_from_slice(code);
    // An empty reason may do without the space before it.
    if reason.iter().all(is_text) && !reason.is_empty() {
        if !reason.starts_with(b" ") {
            out.push(b' ');
        }
        out.extend_from_slice(reason);
    }
    Some(out)
}

/// Returns the lines of headers, each with its continuations. Carriage returns and line feeds end
/// lines, in any number. A continuation of nothing is left out.
fn logical_lines(headers: &[u8]) -> Vec<Vec<&[u8]>> {
    let mut lines: Vec<Vec<&[u8]>> = Vec::new();
    for line in headers.split(|byte| matches!(byte, b'\r' | b'\n')).filter(|line| !line.is_empty())
    {
        match lines.last_mut() {
            Some(last) if line.starts_with(b" ") || line.starts_with(b"\t") => last.push(line),
            None if line.starts_with(b" ") || line.starts_with(b"\t") => {}
            _ => lines.push(vec![line]),
        }
    }
    lines
}

/// Returns whether a line is a header of this name. White space before the colon does not count.
fn is_named(line: &[u8], name: &[u8]) -> bool {
    let colon = memchr::memchr(b':', line).unwrap_or(0);
    line[..colon].trim_ascii_end().eq_ignore_ascii_case(name)
}

/// Returns whether the head names lengths of which none is a number, and no other end of its body.
/// Then the body ends with the connection.
fn is_invalid_length(lines: &[Vec<&[u8]>]) -> bool {
    if lines.iter().any(|line| is_named(line[0], b"transfer-encoding")) {
        return false;
    }
    let mut lengths = lines.iter().filter(|line| is_named(line[0], b"content-length")).peekable();
    lengths.peek().is_some() && lengths.all(|line| !has_number(line))
}

/// Returns whether the head names transfer codings of which none is one, and a length. Then the body
/// has that length.
fn is_without_coding(lines: &[Vec<&[u8]>]) -> bool {
    const CODINGS: [&[u8]; 6] =
        [b"chunked", b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress"];
    let mut codings =
        lines.iter().filter(|line| is_named(line[0], b"transfer-encoding")).peekable();
    let is_coding =
        |value: &Vec<u8>| CODINGS.iter().any(|coding| value.eq_ignore_ascii_case(coding));
    let has_length =
        || lines.iter().any(|line| is_named(line[0], b"content-length") && has_number(line));
    codings.peek().is_some()
        && !codings.any(|line| values(line).iter().any(is_coding))
        && has_length()
}

/// Returns whether the body has chunks according to this line.
fn is_chunked(line: &[&[u8]]) -> bool {
    is_named(line[0], b"transfer-encoding")
        && values(line).last().is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"))
}

/// Returns whether a body may begin with the size of a chunk.
fn may_be_chunk(body: &[u8]) -> bool {
    let digits = body.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    match body.get(digits) {
        None => digits == body.len(),
        Some(next) => digits > 0 && matches!(next, b'\r' | b'\n' | b';' | b' ' | b'\t'),
    }
}

/// Returns whether one of the values of a header is a number.
fn has_number(line: &[&[u8]]) -> bool {
    values(line).iter().any(|value| {
        let is_digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        is_digits && std::str::from_utf8(value).is_ok_and(|digits| digits.parse::<u64>().is_ok())
    })
}

/// Returns the values of a header, which commas separate.
fn values(line: &[&[u8]]) -> Vec<Vec<u8>> {
    let whole = line.join(&b' ');
    let value = memchr::memchr(b':', &whole).map_or(&[][..], |colon| &whole[colon + 1..]);
    value.split(|byte| *byte == b',').map(|value| value.trim_ascii().to_vec()).collect()
}

/// Returns whether a carriage return stands without its line feed.
fn has_bare_cr(head: &[u8]) -> bool {
    memchr::memchr_iter(b'\r', head).any(|at| head.get(at + 1) != Some(&b'\n'))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    fn read(head: &str) -> String {
        let bytes = readable(head.as_bytes(), b"").unwrap_or_else(|| head.as_bytes().to_vec());
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn a_head_that_the_parser_reads_is_not_touched() {
        for head in [
            "HTTP/1.1 200 OK\r\nA: b\r\n\r\n",
            "HTTP/1.0 404\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 \r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            "HTTP/1.1 200 OK\nA: b\n\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5, x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length:\r\n 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\nTransfer-Encoding : gzip\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/9.9 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: identity, GZip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: identity\r\n\r\n",
            "HTTP/1.1200 OK\r\n\r\n",
        ] {
            assert_eq!(readable(head.as_bytes(), b""), None, "{head:?}");
        }
    }

    #[test]
    fn a_length_that_is_no_number_is_left_out() {
        for value in [
            "-1",
            "+5",
            "5;",
            "0x10",
            "5.0",
            "",
            "abc",
            "18446744073709551616",
            "x\r\n y",
            "-1, -1",
        ] {
            let head =
                format!("HTTP/1.1 200 OK\r\nA: b\r\ncontent-length : {value}\r\nC: d\r\n\r\n");
            assert_eq!(read(&head), "HTTP/1.1 200 OK\r\nA: b\r\nC: d\r\n\r\n", "{value}");
        }
    }

    #[test]
    fn a_transfer_coding_that_is_none_is_left_out_next_to_a_length() {
        for value in ["identity", "none", "8bit", "", "binary\r\n , identity"] {
            let head = format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: {value}\r\nContent-Length: 5\r\n\r\n"
            );
            assert_eq!(read(&head), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "{value}");
        }
    }

    #[test]
    fn chunks_of_http_1_0_are_those_of_http_1_1() {
        assert_eq!(
            read("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        let head = b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for (body, is_chunk) in
            [("1a4\r\n<p>", true), ("1A;x", true), ("1a", true), ("<p>", false), ("abcd<p>", false)]
        {
            let out = readable(head, body.as_bytes()).unwrap();
            assert_eq!(out.starts_with(b"HTTP/1.1"), is_chunk, "{body}");
        }
    }

    #[test]
    fn a_status_line_is_brought_to_its_normal_form() {
        for (line, expected) in [
            ("HTTP/1.1  200 OK", "HTTP/1.1 200 OK"),
            ("HTTP/1.1\t200 OK", "HTTP/1.1 200 OK"),
            ("HTTP/1.0 200OK", "HTTP/1.0 200 OK"),
            ("http/1.1 200 OK", "HTTP/1.1 200 OK"),
            ("HTTP/1.2 200 OK", "HTTP/1.1 200 OK"),
            ("HTTP/2 200", "HTTP/1.1 200"),
            ("HTTP/2.0 200 OK", "HTTP/1.1 200 OK"),
            ("http/3 404 Not Found", "HTTP/1.1 404 Not Found"),
            ("HTTP/1.1 200 \u{1}", "HTTP/1.1 200"),
            ("\r\n\n HTTP/1.1 200 OK", "HTTP/1.1 200 OK"),
            ("HTTP/1.1 200 OK\rA: b", "HTTP/1.1 200 OK\r\nA: b"),
            ("HTTP/1.1 200 OK\r\r\nA: b\r\r\n", "HTTP/1.1 200 OK\r\nA: b"),
            ("HTTP/1.1  200 OK\r\n folded", "HTTP/1.1 200 OK"),
        ] {
            assert_eq!(read(&format!("{line}\r\n\r\n")), format!("{expected}\r\n\r\n"), "{line:?}");
        }
    }

    /// Returns what the parser gets of `wire`, in pieces of `piece` bytes.
    async fn through(wire: &[u8], piece: usize) -> Vec<u8> {
        let (mut server, client) = tokio::io::duplex(piece);
        let wire = wire.to_vec();
        let sending =
            tokio::spawn(
                async move { tokio::io::AsyncWriteExt::write_all(&mut server, &wire).await },
            );
        let mut out = Vec::new();
        ReadableHeads::new(client, Heads::One).read_to_end(&mut out).await.unwrap();
        sending.await.unwrap().unwrap();
        out
    }

    #[tokio::test]
    async fn a_body_is_passed_on_as_it_is() {
        let body = "\r\n\r\nHTTP/1.1  200 OK\r\nContent-Length: -1\r\n\r\n\rrest";
        for (head, expected) in [
            ("HTTP/1.1  200 OK\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\n"),
            ("HTTP/1.1 200 OK\n\n", "HTTP/1.1 200 OK\n\n"),
            (
                "HTTP/1.1  103 Early\r\nLink: x\r\n\r\nHTTP/1.1  200\r\n\r\n",
                "HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 200\r\n\r\n",
            ),
            ("SSH-2.0-x\r\n", "SSH-2.0-x\r\n"),
        ] {
            for piece in [1, 7, 4096] {
                let out = through(format!("{head}{body}").as_bytes(), piece).await;
                assert_eq!(
                    String::from_utf8(out).unwrap(),
                    format!("{expected}{body}"),
                    "{head:?} by {piece}"
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, rng_seed: proptest::test_runner::RngSeed::Fixed(18), ..Default::default() })]

        /// What the parser reads already it reads as before, and a rewritten head stays one head:
        /// it ends at its end.
        #[test]
        fn a_rewritten_head_is_one_head(
            status in "(HTTP/1\\.[01] {1,2}200( OK)?|[ -~]{0,12})",
            lines in proptest::collection::vec("(Content-Length|Transfer-Encoding|A| ?X) ?: ?([0-9]{1,3}|-1|chunked|[\\t -~]{0,6})", 0..5),
            end in "(\\r\\n|\\n|\\r)",
        ) {
            let head = format!("{status}{end}{}\r\n\r\n", lines.join(&end));
            prop_assume!(end_of_head(head.as_bytes(), 0) == Some(head.len()));
            if let Some(out) = readable(head.as_bytes(), b"") {
                prop_assert_eq!(end_of_head(&out, 0), Some(out.len()));
                prop_assert_eq!(readable(&out, b""), None);
                let count = |head: &[u8], name: &[u8]| {
                    logical_lines(head).iter().filter(|line| is_named(line[0], name)).count()
                };
                let (before, after) = (head.as_bytes(), &out[..]);
                for name in [&b"transfer-encoding"[..], b"content-length"] {
                    let left = count(after, name);
                    prop_assert!(left == 0 || left == count(before, name));
                }
            }
        }
    }
}
