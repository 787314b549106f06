//! Bearer tokens, stored as hashes only.
//!
//! Invariants: comparison takes the same time for every token. No message contains a token, and no
//! token's text outlives the construction of [`Tokens`].
//!
//! Must not know: which routes need one.

use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The prefix of a line that holds the hash of a token.
const HASHED: &str = "sha256:";

/// The tokens of a server. Without any, the server is open to every client that reaches it.
#[derive(Clone, Default)]
pub struct Tokens {
    hashes: Vec<[u8; 32]>,
    plain: usize,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").field("count", &self.hashes.len()).finish_non_exhaustive()
    }
}

/// The reason why tokens cannot be read.
#[derive(Debug)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A line is neither a token nor a hash.
    Line {
        /// The file, or none for the environment.
        file: Option<PathBuf>,
        /// The line number, counted from 1.
        line: usize,
        /// What is wrong, without the text of the line.
        what: &'static str,
    },
    /// The source has no token.
    None {
        /// The file, or none for the environment.
        file: Option<PathBuf>,
    },
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |file: &Option<PathBuf>| {
            file.as_ref()
                .map_or_else(|| "the variable".to_owned(), |file| file.display().to_string())
        };
        match self {
            Self::Unreadable { file, source } => {
                write!(f, "cannot read tokens from {}: {source}", file.display())
            }
            Self::Line { file, line, what } => write!(f, "{}, line {line}: {what}", place(file)),
            Self::None { file } => {
                write!(f, "{} contains no token: write one token per line", place(file))
            }
        }
    }
}

impl std::error::Error for TokenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable { source, .. } => Some(source),
            _ => None,
        }
    }
}

impl Tokens {
    /// Reads a file. Each line has a token, or `sha256:` and the 64 hexadecimal digits of its hash;
    /// `#` begins a comment.
    ///
    /// # Errors
    /// If the file cannot be read, a line is neither, or there is no token.
    pub fn from_file(file: &Path) -> Result<Self, TokenError> {
        let text = std::fs::read_to_string(file)
            .map_err(|source| TokenError::Unreadable { file: file.to_owned(), source })?;
        Self::from_lines(&text, Some(file))
    }

    /// Reads the value of a variable: tokens separated by white space.
    ///
    /// # Errors
    /// If one of them is not a valid token, or there is no token.
    pub fn from_text(text: &str) -> Result<Self, TokenError> {
        let lines: Vec<&str> = text.split_whitespace().collect();
        Self::from_lines(&lines.join("\n"), None)
    }

    /// Combines the tokens of both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.hashes.extend(other.hashes);
        self.plain += other.plain;
        self
    }

    /// Returns whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns the number of tokens that were given as text, not as hashes.
    pub fn plain(&self) -> usize {
        self.plain
    }

    /// Returns the line of a file that holds the hash of `token`.
    pub fn hashed_line(token: &str) -> String {
        let hash = hash(token.as_bytes());
        let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{HASHED}{digits}")
    }

    /// Returns a new token: 256 bits of the system's randomness.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn random() -> Result<String, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Appends the hash of a token to a file. A new file is readable for its owner only.
    ///
    /// # Errors
    /// What the system says.
    pub fn append(file: &Path, token: &str) -> std::io::Result<()> {
        let mut options = std::fs::OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(file)?;
        std::io::Write::write_all(&mut file, format!("{}\n", Self::hashed_line(token)).as_bytes())
    }

    /// Returns the index of a token, if it is known. Takes the same time for every token.
    pub(crate) fn find(&self, token: &[u8]) -> Option<usize> {
        let given = hash(token);
        let mut found = None;
        for (place, known) in self.hashes.iter().enumerate() {
            if bool::from(known.ct_eq(&given)) {
                found = Some(place);
            }
        }
        found
    }

    fn from_lines(text: &str, file: Option<&Path>) -> Result<Self, TokenError> {
        let mut tokens = Self::default();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start_matches('\u{feff}').trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong =
                |what| TokenError::Line { file: file.map(Path::to_owned), line: number + 1, what };
            tokens.hashes.push(match line.strip_prefix(HASHED) {
                Some(digits) => digits_of(digits).ok_or_else(|| {
                    wrong("invalid hash: expected sha256: and 64 hexadecimal digits")
                })?,
                None if line.bytes().all(|byte| byte.is_ascii_graphic()) => {
                    tokens.plain += 1;
                    hash(line.as_bytes())
                }
                None => return Err(wrong("invalid token: expected one word of printable ASCII")),
            });
        }
        match tokens.is_empty() {
            true => Err(TokenError::None { file: file.map(Path::to_owned) }),
            false => Ok(tokens),
        }
    }
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn digits_of(text: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_match_as_text_and_as_hash() {
        let lines = format!("# ours\nopen-sesame\n\n{}\n", Tokens::hashed_line("second"));
        let tokens = Tokens::from_lines(&lines, None).unwrap();
        assert_eq!([tokens.find(b"open-sesame"), tokens.find(b"second")], [Some(0), Some(1)]);
        assert_eq!((tokens.find(b"open-sesam"), tokens.find(b""), tokens.plain()), (None, None, 1));
    }

    #[test]
    fn an_error_does_not_contain_the_text_of_an_invalid_token() {
        for text in ["two words here", "sha256:12", "umlaut-\u{fc}"] {
            let error = Tokens::from_lines(&format!("fine\n{text}"), None).unwrap_err().to_string();
            assert!(error.contains("line 2") && !error.contains(text), "{error}");
        }
        assert!(Tokens::from_text(" \n").is_err());
        assert_eq!(Tokens::from_text("a b").unwrap().hashes.len(), 2);
        assert!(!format!("{:?}", Tokens::from_text("secret").unwrap()).contains("secret"));
    }
}
