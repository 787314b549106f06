//! Lines of files and stdin, and the URLs in them.
//!
//! Invariants: a line that exceeds the limit costs memory for the limit only, and the next line is read as usual.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::terminal::exit::Failure;
use crate::terminal::output::shown;
use fetchwise::heuristic::url::{UrlFeatures, parse};

/// A line of the input.
#[derive(Debug)]
pub(crate) struct Line {
    /// The line number, counted from 1.
    pub(crate) number: u64,
    /// The text without the line break, or why the line has none.
    pub(crate) text: Result<String, LineError>,
    /// The length in bytes, including the line break.
    pub(crate) bytes: u64,
}

/// Why a line is not text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LineError {
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
pub(crate) struct Lines {
    from: BufReader<Box<dyn Read + Send>>,
    max: usize,
    number: u64,
}

impl Lines {
    /// Opens the file at `path`, or stdin for `-`. The limit of a line is `max` bytes.
    pub(crate) fn open(path: &Path, max: usize) -> Result<Self, Failure> {
        let from: Box<dyn Read + Send> = if is_stdin(path) { Box::new(io::stdin()) } else { Box::new(open(path)?) };
        Ok(Self { from: BufReader::with_capacity(64 << 10, from), max, number: 0 })
    }

    /// Returns whether the next line is in memory, so that it can be read without waiting for its source.
    pub(crate) fn has_line(&self) -> bool {
        self.from.buffer().contains(&b'\n')
    }

    /// Returns the first bytes of what follows, without reading on.
    pub(crate) fn start(&mut self) -> io::Result<&[u8]> {
        loop {
            match self.from.fill_buf() {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
                // Once more, because the borrow checker does not accept to return the buffer of the match.
                Ok(_) => return self.from.fill_buf(),
            }
        }
    }

    /// Returns the next line; none at the end.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<Line>> {
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
                true if text.is_empty() => text.extend_from_slice(&piece[..piece.len().min(START_BYTES)]),
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

/// Returns whether a path stands for stdin.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a file that the command line names.
pub(crate) fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| Failure::usage(format_args!("cannot read {}: {error}", shown(path))))
}

/// Returns the failure for a file that could not be read to its end.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format_args!("cannot read {}: {error}", shown(path)))
}

/// Returns a hint for a URL without a scheme.
pub(crate) fn scheme_hint(text: &str) -> Option<String> {
    let text = text.trim();
    if text.contains("://") || text.contains('@') || text.contains(char::is_whitespace) {
        return None;
    }
    let url = parse(&format!("https://{text}")).ok()?;
    let host = url.host_str()?;
    let is_likely = host.contains(['.', ':']) || host == "localhost";
    is_likely.then(|| format!("did you mean https://{text}?"))
}

/// Returns the domain, as the heuristic defines it, of a name or a URL.
pub(crate) fn read_domain(text: &str) -> Result<String, Failure> {
    let text = text.trim();
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}/") };
    let bad =
        || Failure::usage(format_args!("{text:?} is not a valid domain")).advise("expected a name such as example.org");
    let url = parse(&url).map_err(|_| bad())?;
    Ok(UrlFeatures::extract(&url).map_err(|_| bad())?.domain.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], max: usize) -> Vec<Result<String, LineError>> {
        let from: Box<dyn Read + Send> = Box::new(io::Cursor::new(text.to_vec()));
        let mut lines = Lines { from: BufReader::new(from), max, number: 0 };
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

    #[test]
    fn a_url_without_a_scheme_gets_one() {
        assert_eq!(scheme_hint("e.org/a").as_deref(), Some("did you mean https://e.org/a?"));
        assert_eq!(scheme_hint("localhost:8080/a").as_deref(), Some("did you mean https://localhost:8080/a?"));
        for text in ["ftp://e.org/", "", "a b.org", "nonsense", "mailto:a@e.org "] {
            assert_eq!(scheme_hint(text), None, "{text}");
        }
    }

    #[test]
    fn a_domain_is_the_one_of_the_heuristic() {
        for text in ["example.org", "WWW.Example.ORG", "https://www.example.org:8080/a", "example.org."] {
            assert_eq!(read_domain(text).unwrap(), "example.org", "{text}");
        }
        assert!(read_domain("a b").is_err() && read_domain("").is_err());
    }
}
