//! Reading gzip as browsers and crawlers do: all members one after the other, and without their
//! checksums.
//!
//! Owns: the frame of RFC 1952 around the compressed data, which a library decodes.
//!
//! Invariants: data that break off are an error. A trailer that is missing or wrong is none, since
//! all data were there: servers that compress a file while it changes send such trailers. Bytes
//! after a member that begin no other one are ignored.
//!
//! Must not know: how much may be read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_compression::tokio::bufread::DeflateDecoder;
use tokio::io::{AsyncBufRead, AsyncRead, ReadBuf};

/// Length in bytes of a checksum and a length after the data.
const TRAILER: usize = 8;

/// Decodes a series of gzip members.
pub(super) struct GzipReader<R> {
    state: State<R>,
    /// Whether a member has ended, so that what follows may be anything.
    has_member: bool,
}

enum State<R> {
    Header(R, Header),
    Data(DeflateDecoder<R>),
    Trailer(R, usize),
    End,
}

impl<R: AsyncBufRead + Unpin> GzipReader<R> {
    pub(super) fn new(encoded: R) -> Self {
        Self { state: State::Header(encoded, Header::default()), has_member: false }
    }
}

impl<R: AsyncBufRead + Unpin> AsyncRead for GzipReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if out.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            // An error leaves the end behind, so that nothing is read twice.
            self.state = match std::mem::replace(&mut self.state, State::End) {
                State::Header(mut encoded, mut header) => {
                    match header.poll(Pin::new(&mut encoded), cx) {
                        Poll::Pending => {
                            self.state = State::Header(encoded, header);
                            return Poll::Pending;
                        }
                        Poll::Ready(Ok(())) => State::Data(DeflateDecoder::new(encoded)),
                        Poll::Ready(Err(_)) if self.has_member && !header.is_gzip() => State::End,
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    }
                }
                State::Data(mut data) => {
                    let before = out.filled().len();
                    match Pin::new(&mut data).poll_read(cx, out) {
                        Poll::Ready(Ok(())) if out.filled().len() == before => {
                            State::Trailer(data.into_inner(), TRAILER)
                        }
                        Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                        other => {
                            self.state = State::Data(data);
                            return other;
                        }
                    }
                }
                State::Trailer(mut encoded, left) => match Pin::new(&mut encoded).poll_fill_buf(cx)
                {
                    Poll::Pending => {
                        self.state = State::Trailer(encoded, left);
                        return Poll::Pending;
                    }
                    // All data were there, whatever became of the connection.
                    Poll::Ready(Ok([]) | Err(_)) => State::End,
                    Poll::Ready(Ok(bytes)) => {
                        let taken = bytes.len().min(left);
                        Pin::new(&mut encoded).consume(taken);
                        if taken < left {
                            State::Trailer(encoded, left - taken)
                        } else {
                            self.has_member = true;
                            State::Header(encoded, Header::default())
                        }
                    }
                },
                State::End => return Poll::Ready(Ok(())),
            };
        }
    }
}

/// The header of a member, read byte by byte.
#[derive(Debug, Default)]
struct Header {
    /// Number of bytes of the fixed part that were read.
    fixed: usize,
    flags: u8,
    /// The optional parts that are left, as bits of the flags.
    parts: u8,
    /// The length of the extra field, of which the first bytes may be missing.
    extra: [u8; 2],
    extra_read: usize,
    checksum_read: usize,
}

impl Header {
    const FIXED: usize = 10;
    const CHECKSUM: u8 = 1 << 1;
    const EXTRA: u8 = 1 << 2;
    const NAME: u8 = 1 << 3;
    const COMMENT: u8 = 1 << 4;

    /// Returns whether the bytes so far are those of a member.
    fn is_gzip(&self) -> bool {
        self.fixed > 2
    }

    fn is_whole(&self) -> bool {
        self.fixed == Self::FIXED && self.parts == 0
    }

    /// Reads to the end of the header.
    fn poll<R: AsyncBufRead + Unpin>(
        &mut self,
        mut encoded: Pin<&mut R>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_whole() {
            let bytes = ready!(encoded.as_mut().poll_fill_buf(cx))?;
            if bytes.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            let mut taken = 0;
            while taken < bytes.len() && !self.is_whole() {
                if !self.take(bytes[taken]) {
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
                taken += 1;
            }
            encoded.as_mut().consume(taken);
        }
        Poll::Ready(Ok(()))
    }

    /// Takes the next byte. Returns false if no gzip header has it here.
    fn take(&mut self, byte: u8) -> bool {
        if self.fixed < Self::FIXED {
            let is_valid = match self.fixed {
                0 => byte == 0x1f,
                1 => byte == 0x8b,
                2 => byte == 8,
                _ => true,
            };
            if self.fixed == 3 {
                self.flags = byte;
                self.parts = byte & (Self::CHECKSUM | Self::EXTRA | Self::NAME | Self::COMMENT);
            }
            self.fixed += usize::from(is_valid);
            return is_valid;
        }
        if self.parts & Self::EXTRA != 0 {
            if self.extra_read < 2 {
                self.extra[self.extra_read] = byte;
            }
            self.extra_read += 1;
            if self.extra_read >= 2
                && self.extra_read - 2 == usize::from(u16::from_le_bytes(self.extra))
            {
                self.parts &= !Self::EXTRA;
            }
        } else if self.parts & Self::NAME != 0 {
            self.parts &= if byte == 0 { !Self::NAME } else { u8::MAX };
        } else if self.parts & Self::COMMENT != 0 {
            self.parts &= if byte == 0 { !Self::COMMENT } else { u8::MAX };
        } else {
            self.checksum_read += 1;
            self.parts &= if self.checksum_read == 2 { !Self::CHECKSUM } else { u8::MAX };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::Write as _;

    use flate2::{Compression, GzBuilder};
    use tokio::io::{AsyncReadExt as _, BufReader};

    use super::*;

    fn member(text: &str) -> Vec<u8> {
        let mut encoder = GzBuilder::new().write(Vec::new(), Compression::default());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    /// Decodes bytes that come `size` at a time, and returns what was decoded before the end or the
    /// first error.
    async fn decoded(encoded: &[u8], size: usize) -> (String, bool) {
        let mut reader = GzipReader::new(BufReader::with_capacity(size, encoded));
        let (mut out, mut buffer) = (Vec::new(), [0; 7]);
        let is_whole = loop {
            match reader.read(&mut buffer).await {
                Ok(0) => break true,
                Ok(n) => out.extend_from_slice(&buffer[..n]),
                Err(_) => break false,
            }
        };
        assert_eq!(reader.read(&mut buffer).await.unwrap(), 0, "nothing follows the end");
        (String::from_utf8(out).unwrap(), is_whole)
    }

    #[tokio::test]
    async fn all_members_are_read_and_no_trailer_is_needed() {
        let (one, two) = (member("one and "), member("two"));
        let mut named = GzBuilder::new()
            .filename("a.html")
            .comment("b")
            .extra([1, 0, 2])
            .write(Vec::new(), Compression::best());
        named.write_all(b"named").unwrap();
        let named = named.finish().unwrap();
        let mut wrong = two.clone();
        let at = wrong.len() - TRAILER;
        wrong[at..].fill(7);
        let junk = [&two[..], b"\0\0 junk"].concat();
        for (encoded, expected) in [
            (one.clone(), "one and "),
            ([&one[..], &two].concat(), "one and two"),
            ([&one[..], &named, &member(""), &two].concat(), "one and namedtwo"),
            (wrong.clone(), "two"),
            ([&wrong[..], &one].concat(), "twoone and "),
            (two[..at].to_vec(), "two"),
            (two[..at + 3].to_vec(), "two"),
            (junk, "two"),
            ([&two[..], b"\x1f"].concat(), "two"),
        ] {
            for size in [1, 3, 4096] {
                assert_eq!(
                    decoded(&encoded, size).await,
                    (expected.to_owned(), true),
                    "{encoded:?}"
                );
            }
        }
    }

    #[tokio::test]
    async fn data_that_break_off_are_an_error() {
        let (one, two) = (member("one and "), member("two"));
        for (encoded, expected) in [
            (two[..two.len() - TRAILER - 1].to_vec(), "two"),
            (two[..5].to_vec(), ""),
            ([&one[..], &two[..4]].concat(), "one and "),
            (b"\x1f\x8b\x08\0\0\0\0\0\0\0\xff\xff\xff".to_vec(), ""),
        ] {
            let (text, is_whole) = decoded(&encoded, 4096).await;
            assert!(!is_whole && expected.starts_with(&text), "{encoded:?}: {text}");
        }
    }
}
