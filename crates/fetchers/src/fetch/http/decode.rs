//! The conversion of the bytes on the wire to the bytes of the page: content codings are undone as
//! a stream, under all limits.
//!
//! Invariants: memory does not grow with the body. Both the received and the decoded bytes are
//! counted, so neither an endless body nor a small one that expands to gigabytes exceeds `max_body`
//! or `max_decompression_ratio`.
//!
//! Errors of servers are handled as in browsers, or better. A body labelled gzip or zstd that does
//! not begin like one is taken as it is, and one under an unknown coding is decoded if it begins
//! like gzip or zstd. `deflate` is zlib or raw, by its first bytes, and so is a body labelled gzip.
//! All members of gzip are read; checksums are not, and bytes after the last member are ignored. A
//! coding that breaks off or is damaged yields the part that could be decoded, with `truncated`. A
//! transfer coding besides `chunked` is undone like a content coding.

use std::io::{self, Cursor};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::{BrotliDecoder, DeflateDecoder, ZstdDecoder};
use async_compression::zstd::DParameter;
use bytes::Bytes;
use futures_util::Stream;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, TRANSFER_ENCODING};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::task::coop::consume_budget;
use tokio_util::io::StreamReader;

use crate::fetch::Limits;
use crate::fetch::body::{Body, BodyCollector, BodyError};
use crate::fetch::http::gzip::GzipReader;
use crate::fetch::http::tracked_connection::TrackedBody;

/// The codings that [`read`] can undo, as sent in a request.
pub(super) const ACCEPT_ENCODING: &str = "gzip, deflate, br, zstd";

/// Maximum number of stacked codings to undo. Two happen by mistake; more only on purpose.
const MAX_STACKED: usize = 3;

/// Decoded bytes from which on the ratio is checked: short repetitive texts are not bombs.
const RATIO_FROM: u64 = 1 << 20;

/// Maximum window that RFC 9659 allows in a zstd content coding, as a power of two: 8 MiB of
/// memory.
const MAX_ZSTD_WINDOW_LOG: u32 = 23;

const READ_BUFFER: usize = 32 << 10;

type Reader = Box<dyn AsyncBufRead + Send + Unpin>;

/// A received body, and whether it is complete.
#[derive(Debug)]
pub(super) struct Decoded {
    pub(super) body: Body,
    pub(super) truncated: bool,
}

/// The reason why a body was rejected.
#[derive(Debug, thiserror::Error)]
pub(super) enum DecodeError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error("decompression ratio over {ratio} to 1: {raw} bytes expand to over {decoded}")]
    Bomb { raw: u64, decoded: u64, ratio: u64 },
    #[error("too many content codings: {codings}, limit {MAX_STACKED}")]
    Stacked { codings: usize },
}

/// Reads `incoming` to its end, or until `enough` bytes have come, and undoes the codings that
/// `headers` name.
pub(super) async fn read(
    incoming: TrackedBody,
    headers: &HeaderMap,
    (limits, enough): (&Limits, Option<u64>),
    mut collector: BodyCollector,
) -> Result<Decoded, DecodeError> {
    let too_large = || DecodeError::Body(BodyError::TooLarge { limit: limits.max_body });
    // The announced length is checked before a byte is read.
    if enough.is_none() && incoming.size_hint().lower() > limits.max_body {
        return Err(too_large());
    }
    let enough = enough.unwrap_or(u64::MAX);
    let codings = codings(headers)?;
    if codings.is_empty() {
        return read_as_is(incoming, enough, collector).await;
    }
    let raw_len = Arc::new(AtomicU64::new(0));
    let raw = RawBody { incoming, len: Arc::clone(&raw_len), max: limits.max_body };
    // Relaxed, here and below: the same task adds and reads.
    let raw_len = || raw_len.load(Ordering::Relaxed);
    let mut reader: Reader = Box::new(StreamReader::new(raw));
    let mut cut = false;
    for coding in codings {
        match undo(coding, reader).await {
            Ok(decoder) => reader = decoder,
            Err(_) if raw_len() > limits.max_body => return Err(too_large()),
            Err(_) => return Ok(Decoded { body: collector.finish().await?, truncated: true }),
        }
    }
    let mut buffer = vec![0; READ_BUFFER];
    while !cut && collector.len() < enough {
        match reader.read(&mut buffer).await {
            Ok(0) => break,
            Ok(n) => collector.push(needed(&buffer[..n], &collector, enough)).await?,
            Err(_) => cut = true,
        }
        if raw_len() > limits.max_body {
            return Err(too_large());
        }
        let (raw, decoded) = (raw_len(), collector.len());
        if decoded > RATIO_FROM && decoded > raw.saturating_mul(limits.max_decompression_ratio) {
            return Err(DecodeError::Bomb { raw, decoded, ratio: limits.max_decompression_ratio });
        }
        // A few bytes can decompress for long: yield to the runtime's other tasks and to the
        // deadline.
        consume_budget().await;
    }
    Ok(Decoded { body: collector.finish().await?, truncated: cut })
}

/// Reads `incoming` to its end, or until `enough` bytes have come, without any coding: each byte is
/// copied once.
async fn read_as_is(
    mut incoming: TrackedBody,
    enough: u64,
    mut collector: BodyCollector,
) -> Result<Decoded, DecodeError> {
    collector.reserve(incoming.size_hint().lower().min(enough));
    let mut truncated = false;
    while collector.len() < enough
        && let Some(frame) = incoming.frame().await
    {
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => collector.push(needed(&data, &collector, enough)).await?,
            // Trailers are dropped.
            Ok(Err(_)) => {}
            Err(_) => {
                truncated = true;
                break;
            }
        }
        consume_budget().await;
    }
    Ok(Decoded { body: collector.finish().await?, truncated })
}

/// Returns the part of the next bytes with which the body has at most `enough`.
fn needed<'b>(bytes: &'b [u8], collector: &BodyCollector, enough: u64) -> &'b [u8] {
    let left = usize::try_from(enough.saturating_sub(collector.len())).unwrap_or(usize::MAX);
    &bytes[..bytes.len().min(left)]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    Gzip,
    Deflate,
    Brotli,
    Zstd,
    /// A name that is none: the body's first bytes tell what it is.
    Unknown,
}

impl Coding {
    /// Returns the coding of a name in a header, `None` where nothing was done to the body. Quotes
    /// and parameters, which some servers copy from a request, are no part of the name.
    fn of_name(name: &str) -> Option<Self> {
        let name = name.split(';').next().unwrap_or_default().trim().trim_matches(['"', '\'']);
        Some(match name.to_ascii_lowercase().as_str() {
            "" | "identity" | "chunked" => return None,
            "gzip" | "x-gzip" => Self::Gzip,
            "deflate" => Self::Deflate,
            "br" => Self::Brotli,
            "zstd" => Self::Zstd,
            _ => Self::Unknown,
        })
    }
}

/// Returns the codings of a response in the order in which they are undone. Transfer codings were
/// applied last.
fn codings(headers: &HeaderMap) -> Result<Vec<Coding>, DecodeError> {
    let lines = headers.get_all(CONTENT_ENCODING).iter().chain(headers.get_all(TRANSFER_ENCODING));
    let mut undone = Vec::new();
    for line in lines {
        let text = String::from_utf8_lossy(line.as_bytes());
        undone.extend(text.split(',').filter_map(Coding::of_name));
    }
    undone.reverse();
    // A body that stays encoded must not pass for a page.
    if undone.len() > MAX_STACKED {
        Err(DecodeError::Stacked { codings: undone.len() })
    } else {
        Ok(undone)
    }
}

async fn undo(coding: Coding, encoded: Reader) -> io::Result<Reader> {
    let (start, encoded) = peek(encoded).await?;
    Ok(match (coding, start.as_slice()) {
        // An empty body, whatever its label.
        (_, []) => encoded,
        (Coding::Gzip | Coding::Unknown, [0x1f, 0x8b, ..]) => decoder(GzipReader::new(encoded)),
        (
            Coding::Zstd | Coding::Unknown,
            [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18],
        ) => {
            let params = [DParameter::window_log_max(MAX_ZSTD_WINDOW_LOG)];
            let mut zstd = ZstdDecoder::with_params(encoded, &params);
            zstd.multiple_members(true);
            decoder(zstd)
        }
        // What is inside zlib's frame alone, so that its checksum does not count.
        (Coding::Deflate | Coding::Gzip, &[cmf, flags, ..]) if is_zlib_header(cmf, flags) => {
            decoder(DeflateDecoder::new(without_start(encoded, 2).await?))
        }
        (Coding::Gzip | Coding::Zstd | Coding::Unknown, _) => encoded,
        (Coding::Deflate, _) => decoder(DeflateDecoder::new(encoded)),
        (Coding::Brotli, _) => decoder(BrotliDecoder::new(encoded)),
    })
}

/// Returns a reader that begins after the first `len` bytes.
async fn without_start(mut reader: Reader, len: usize) -> io::Result<Reader> {
    let mut left = len;
    while left > 0 {
        let taken = reader.fill_buf().await?.len().min(left);
        if taken == 0 {
            break;
        }
        reader.consume(taken);
        left -= taken;
    }
    Ok(reader)
}

fn decoder(reader: impl tokio::io::AsyncRead + Send + Unpin + 'static) -> Reader {
    Box::new(BufReader::with_capacity(READ_BUFFER, reader))
}

/// Returns whether the header is deflate with a window of at most 32 KiB and a valid checksum (RFC 1950).
fn is_zlib_header(cmf: u8, flags: u8) -> bool {
    cmf & 0x0f == 8 && cmf >> 4 <= 7 && (u16::from(cmf) << 8 | u16::from(flags)).is_multiple_of(31)
}

/// Returns the first four bytes (fewer at the end), and a reader that still begins with them.
async fn peek(mut reader: Reader) -> io::Result<(Vec<u8>, Reader)> {
    let mut start = Vec::with_capacity(4);
    while start.len() < 4 {
        let mut rest = [0; 4];
        let want = 4 - start.len();
        match reader.read(&mut rest[..want]).await? {
            0 => break,
            n => start.extend_from_slice(&rest[..n]),
        }
    }
    Ok((start.clone(), Box::new(Cursor::new(start).chain(reader))))
}

/// The data frames of a response, counted, and cut off over the limit even if a decoder consumes
/// them without any output.
struct RawBody {
    incoming: TrackedBody,
    len: Arc<AtomicU64>,
    max: u64,
}

impl Stream for RawBody {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                Some(Ok(frame)) => frame,
            };
            // Trailers are dropped; so are empty frames, which a reader would take for the end.
            let Ok(data) = frame.into_data() else { continue };
            if data.is_empty() {
                continue;
            }
            let len = self.len.load(Ordering::Relaxed).saturating_add(data.len() as u64);
            self.len.store(len, Ordering::Relaxed);
            if len > self.max {
                return Poll::Ready(Some(Err(io::Error::other("body over max_body"))));
            }
            return Poll::Ready(Some(Ok(data)));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn codings_of(values: &[&str]) -> Vec<Coding> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_ENCODING, value.parse().unwrap());
        }
        codings(&headers).unwrap()
    }

    #[test]
    fn codings_are_undone_from_the_last_to_the_first() {
        use Coding::*;
        assert_eq!(codings_of(&[]), []);
        assert_eq!(codings_of(&["", "identity"]), []);
        assert_eq!(codings_of(&["GZip"]), [Gzip]);
        assert_eq!(codings_of(&["x-gzip"]), [Gzip]);
        assert_eq!(codings_of(&["deflate, br"]), [Brotli, Deflate]);
        assert_eq!(codings_of(&["gzip", "identity , zstd"]), [Zstd, Gzip]);
    }

    #[test]
    fn names_of_codings_are_read_as_servers_write_them() {
        use Coding::*;
        assert_eq!(codings_of(&["gzip;q=1.0"]), [Gzip]);
        assert_eq!(codings_of(&["\"gzip\""]), [Gzip]);
        assert_eq!(codings_of(&["'br'", "GZIP ; q=0.5 , identity;q=0"]), [Gzip, Brotli]);
        assert_eq!(codings_of(&["rot13, gzip"]), [Gzip, Unknown]);
        assert_eq!(codings_of(&["none"]), [Unknown]);
        let mut headers = HeaderMap::new();
        headers.append(CONTENT_ENCODING, "br".parse().unwrap());
        headers.append(TRANSFER_ENCODING, "gzip, chunked".parse().unwrap());
        assert_eq!(codings(&headers).unwrap(), [Gzip, Brotli]);
    }

    #[test]
    fn more_codings_than_are_undone_are_refused() {
        let mut headers = HeaderMap::new();
        headers.append(CONTENT_ENCODING, "gzip, gzip, gzip, gzip".parse().unwrap());
        assert!(matches!(codings(&headers), Err(DecodeError::Stacked { codings: 4 })));
        assert_eq!(codings_of(&["gzip, identity, gzip, gzip"]).len(), 3);
    }

    #[test]
    fn a_zlib_header_is_distinguished_from_raw_deflate() {
        for zlib in [[0x78, 0x9c], [0x78, 0x01], [0x78, 0xda], [0x58, 0x85]] {
            assert!(is_zlib_header(zlib[0], zlib[1]), "{zlib:x?}");
        }
        for raw in [[0x4b, 0x4c], [0xed, 0xbd], [0x01, 0x05], [0x78, 0x9d], [0x88, 0x1c]] {
            assert!(!is_zlib_header(raw[0], raw[1]), "{raw:x?}");
        }
    }
}
