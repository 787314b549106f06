//! Response bodies: complete ones, and streams that misbehave.
//!
//! Must not know: which site it serves.

use std::io::{self, Write};
use std::time::Duration;

use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress};
use futures_util::stream::{self, Stream, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::Response;
use hyper::body::Frame;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};

use crate::pages::html;

/// A response body of any kind.
pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// Content type of HTML as a server usually labels it.
pub(super) const HTML: &str = "text/html; charset=utf-8";

/// Decoded bytes per block of the gzip bomb.
const BOMB_BLOCK: usize = 1 << 20;
/// Number of blocks of the gzip bomb: 1.0625 GiB in all.
const BOMB_BLOCKS: u32 = 1088;
/// Time that a broken body waits before it breaks, so that the bytes before have been sent.
const BREAK_WAIT: Duration = Duration::from_millis(30);

/// Returns a response with a complete body.
pub(super) fn whole(
    status: u16,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    response(
        status,
        content_type,
        Full::new(body.into()).map_err(|never| match never {}).boxed_unsync(),
    )
}

/// Returns a plain-text response.
pub(super) fn text(status: u16, text: &str) -> Response<Body> {
    whole(status, "text/plain; charset=utf-8", text.to_owned())
}

/// Returns a response with any body. An invalid status becomes 500.
pub(super) fn response(status: u16, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Returns a short error page; 401 carries a challenge for credentials, as HTTP requires.
pub(super) fn status(code: u16) -> Response<Body> {
    let reason = http::StatusCode::from_u16(code)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Error");
    let page = whole(code, HTML, html::status_page(code, reason));
    if code == 401 { with_header(page, WWW_AUTHENTICATE, "Basic realm=\"almanac\"") } else { page }
}

/// Returns `response` with one more header; an invalid value is left out.
pub(super) fn with_header(
    mut response: Response<Body>,
    name: HeaderName,
    value: &str,
) -> Response<Body> {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
    response
}

/// Returns a body made of the pieces of a stream.
pub(super) fn streamed(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Body {
    BodyExt::boxed_unsync(StreamBody::new(pieces.map(|piece| piece.map(Frame::data))))
}

/// Returns `bytes` in pieces of `size`, with a pause before each.
pub(super) fn drip(bytes: Bytes, size: usize, every: Duration) -> Body {
    streamed(stream::unfold(bytes, move |mut rest| async move {
        if rest.is_empty() {
            return None;
        }
        tokio::time::sleep(every).await;
        let piece = rest.split_to(size.clamp(1, rest.len()));
        Some((Ok(piece), rest))
    }))
}

/// Returns a body that sends `bytes` and then breaks the connection.
pub(super) fn broken_after(bytes: Bytes) -> Body {
    let breaking = stream::once(async {
        tokio::time::sleep(BREAK_WAIT).await;
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "broken off on purpose"))
    });
    streamed(stream::once(async { Ok(bytes) }).chain(breaking))
}

/// Returns a body that sends `first`, and then `repeated` for as long as the client reads.
pub(super) fn endless(first: Bytes, repeated: Bytes) -> Body {
    streamed(
        stream::once(async { Ok(first) }).chain(stream::repeat_with(move || Ok(repeated.clone()))),
    )
}

/// Returns a gzip stream that opens with `head` and continues with more than 1 GiB of spaces: about
/// 1 MiB on the wire.
///
/// Only two pieces are compressed: `head` and one block. Each ends with a full flush, after which
/// deflate refers to nothing before it, so the block's bytes can be repeated.
pub(super) fn gzip_bomb(head: &[u8]) -> io::Result<Body> {
    const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    const LAST_EMPTY_BLOCK: [u8; 2] = [3, 0];

    let block = vec![b' '; BOMB_BLOCK];
    let mut opening = GZIP_HEADER.to_vec();
    opening.write_all(&deflate_with_full_flush(head)?)?;
    let repeated = Bytes::from(deflate_with_full_flush(&block)?);

    let mut crc = Crc::new();
    crc.update(head);
    let mut block_crc = Crc::new();
    block_crc.update(&block);
    let mut length = head.len() as u64;
    for _ in 0..BOMB_BLOCKS {
        crc.combine(&block_crc);
        length += BOMB_BLOCK as u64;
    }
    let mut ending = LAST_EMPTY_BLOCK.to_vec();
    ending.extend(crc.sum().to_le_bytes());
    // The format stores the length modulo 2^32.
    ending.extend((length as u32).to_le_bytes());

    let middle = stream::iter(0..BOMB_BLOCKS).map(move |_| Ok(repeated.clone()));
    let opening = stream::once(async { Ok(Bytes::from(opening)) });
    let ending = stream::once(async { Ok(Bytes::from(ending)) });
    Ok(streamed(opening.chain(middle).chain(ending)))
}

/// Returns `input` as deflate blocks that end at a byte boundary and refer to nothing before them.
fn deflate_with_full_flush(input: &[u8]) -> io::Result<Vec<u8>> {
    let mut deflate = Compress::new(Compression::best(), false);
    let mut out = Vec::with_capacity(input.len() / 500 + 1024);
    loop {
        let taken = usize::try_from(deflate.total_in()).unwrap_or(usize::MAX);
        let rest = input.get(taken..).unwrap_or_default();
        out.reserve(1024);
        deflate.compress_vec(rest, &mut out, FlushCompress::Full).map_err(io::Error::other)?;
        // Spare capacity means that no output is pending.
        if out.len() < out.capacity() && deflate.total_in() == input.len() as u64 {
            return Ok(out);
        }
    }
}
