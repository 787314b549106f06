//! Lines of limited length.
//!
//! Invariants: a line that exceeds the limit costs memory for the limit only, and the next line is
//! read as usual.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::error::CrawlError;

/// A line of the input.
#[derive(Debug)]
pub struct Line {
    /// The line number, counted from 1.
    pub number: u64,
    /// The text without the line break, or why the line has none.
    pub text: Result<String, LineError>,
    /// The length in bytes, including the line break.
    pub bytes: u64,
}

/// Why a line is not text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line exceeds the limit.
    #[error("longer than {max} bytes: {start}...")]
    TooLong {
        /// The limit in bytes.
        max: usize,
        /// The start of the line.
        start: String,
    },
    /// The line is not UTF-8.
    #[error("not valid UTF-8")]
    NotUtf8,
}

/// The number of bytes that a message shows of a line that is too long.
const START_BYTES: usize = 80;

/// A reader of lines with a limited length.
pub struct Lines {
    from: BufReader<Box<dyn Read + Send>>,
    max: usize,
    number: u64,
}

impl Lines {
    /// Opens the lines of a file. The limit of a line is `max` bytes.
    pub(crate) fn of_file(path: &Path, max: usize) -> Result<Self, CrawlError> {
        let opened =
            File::open(path).map_err(|error| CrawlError::Open { path: path.to_owned(), error });
        opened.map(|file| Self::new(Box::new(file), max))
    }

    /// Returns the lines of `from`. The limit of a line is `max` bytes.
    pub fn new(from: Box<dyn Read + Send>, max: usize) -> Self {
        Self { from: BufReader::with_capacity(64 << 10, from), max, number: 0 }
    }

    /// Returns whether the next line is in memory, so that it can be read without waiting for its
    /// source.
    pub fn has_line(&self) -> bool {
        self.from.buffer().contains(&b'\n')
    }

    /// Returns the first bytes of what follows, without reading on.
    pub fn start(&mut self) -> io::Result<&[u8]> {
        loop {
            match self.from.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                // Once more, because the borrow checker does not accept to return the buffer of the
                // match.
                Ok(_) => return self.from.fill_buf(),
            }
        }
    }

    /// Returns the next line; none at the end.
    pub fn next_line(&mut self) -> io::Result<Option<Line>> {
        let (mut text, mut bytes, mut too_long) = (Vec::new(), 0, false);
        loop {
            let available = match self.from.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let (piece, is_end, used) = match available.iter().position(|byte| *byte == b'\n') {
                Some(at) => (&available[..at], true, at + 1),
                None => (available, available.is_empty(), available.len()),
            };
            too_long |= text.len() + piece.len() > self.max;
            match too_long {
                true if text.is_empty() => {
                    text.extend_from_slice(&piece[..piece.len().min(START_BYTES)])
                }
                true => {}
                false => text.extend_from_slice(piece),
            }
            self.from.consume(used);
            bytes += used as u64;
            if is_end {
                break;
            }
        }
        if bytes == 0 {
            return Ok(None);
        }
        self.number += 1;
        if text.last() == Some(&b'\r') {
            text.pop();
        }
        if self.number == 1 && text.starts_with(b"\xef\xbb\xbf") {
            text.drain(..3);
        }
        let text = match too_long {
            true => Err(LineError::TooLong { max: self.max, start: start_of(&text) }),
            false => String::from_utf8(text).map_err(|_| LineError::NotUtf8),
        };
        Ok(Some(Line { number: self.number, text, bytes }))
    }
}

fn start_of(text: &[u8]) -> String {
    String::from_utf8_lossy(&text[..text.len().min(START_BYTES)]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], max: usize) -> Vec<Result<String, LineError>> {
        let from: Box<dyn Read + Send> = Box::new(io::Cursor::new(text.to_vec()));
        let mut lines = Lines::new(from, max);
        let mut out = Vec::new();
        while let Some(line) = lines.next_line().unwrap() {
            assert_eq!(line.number, out.len() as u64 + 1);
            out.push(line.text);
        }
        out
    }

    #[test]
    fn line_breaks_byte_order_marks_and_last_lines() {
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(lines(b"\xef\xbb\xbfa\r\n\nb", 9), [ok("a"), ok(""), ok("b")]);
        assert_eq!(lines(b"", 9), []);
        assert_eq!(lines(b"a\n", 9), [ok("a")]);
    }

    #[test]
    fn an_invalid_line_does_not_stop_the_next_ones() {
        let text = [b"abcdefghij\n".as_slice(), b"\xff\xfe\n", b"ok"].concat();
        let too_long = LineError::TooLong { max: 5, start: "abcdefghij".to_owned() };
        assert_eq!(lines(&text, 5), [Err(too_long), Err(LineError::NotUtf8), Ok("ok".to_owned())]);
    }
}
