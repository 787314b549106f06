//! Bearer tokens, of which only hashes are kept.
//!
//! Invariant: a token is compared in the same time whatever it is, it is in no message, and none of its text outlives [`Tokens`]'
//! making. Must not know which routes want one.

use std::fmt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// What a line of a file begins with whose token is hashed already.
const HASHED: &str = "sha256:";

/// The tokens that open the server. Without any it is open to all who reach it.
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

/// Why tokens cannot be read.
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
        /// Counted from 1.
        line: usize,
        /// What is wrong, without the line's text.
        what: &'static str,
    },
    /// There is not a single token.
    None {
        /// The file, or none for the environment.
        file: Option<PathBuf>,
    },
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |file: &Option<PathBuf>| {
            file.as_ref().map_or_else(|| "the variable".to_owned(), |file| file.display().to_string())
        };
        match self {
            Self::Unreadable { file, source } => write!(f, "cannot read the tokens in {}: {source}", file.display()),
            Self::Line { file, line, what } => write!(f, "{}, line {line}: {what}", place(file)),
            Self::None { file } => write!(f, "{} has no token in it: write one a line", place(file)),
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
    /// Reads a file: a token a line, or `sha256:` and the 64 hexadecimal digits of one's hash; `#` begins a comment.
    ///
    /// # Errors
    /// When it cannot be read, or a line is neither, or there is none.
    pub fn from_file(file: &Path) -> Result<Self, TokenError> {
        let text =
            std::fs::read_to_string(file).map_err(|source| TokenError::Unreadable { file: file.to_owned(), source })?;
        Self::from_lines(&text, Some(file))
    }

    /// Reads the value of a variable: tokens with white space between them.
    ///
    /// # Errors
    /// When one of them is none, or there is none.
    pub fn from_text(text: &str) -> Result<Self, TokenError> {
        let lines: Vec<&str> = text.split_whitespace().collect();
        Self::from_lines(&lines.join("\n"), None)
    }

    /// Those of both.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.hashes.extend(other.hashes);
        self.plain += other.plain;
        self
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// How many stood there as they are, not as hashes.
    pub fn plain(&self) -> usize {
        self.plain
    }

    /// The line for a file that stands for `token` without giving it away.
    pub fn hashed_line(token: &str) -> String {
        let hash = hash(token.as_bytes());
        let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{HASHED}{digits}")
    }

    /// A new token: 256 bits of the system's randomness.
    ///
    /// # Errors
    /// When the system has none.
    pub fn random() -> Result<String, getrandom::Error> {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes)?;
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Adds the hash of a token to a file, which is made readable for its owner only when there is none.
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

    /// Which token this is, if it is one. Takes as long for each.
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
            let wrong = |what| TokenError::Line { file: file.map(Path::to_owned), line: number + 1, what };
            tokens.hashes.push(match line.strip_prefix(HASHED) {
                Some(digits) => {
                    digits_of(digits).ok_or_else(|| wrong("a hash is sha256: and 64 hexadecimal digits"))?
                }
                None if line.bytes().all(|byte| byte.is_ascii_graphic()) => {
                    tokens.plain += 1;
                    hash(line.as_bytes())
                }
                None => return Err(wrong("a token is one word of printable ASCII")),
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
    fn a_token_is_known_as_itself_and_by_its_hash() {
        let lines = format!("# ours\nopen-sesame\n\n{}\n", Tokens::hashed_line("second"));
        let tokens = Tokens::from_lines(&lines, None).unwrap();
        assert_eq!([tokens.find(b"open-sesame"), tokens.find(b"second")], [Some(0), Some(1)]);
        assert_eq!((tokens.find(b"open-sesam"), tokens.find(b""), tokens.plain()), (None, None, 1));
    }

    #[test]
    fn what_is_no_token_is_said_without_its_text() {
        for text in ["two words here", "sha256:12", "umlaut-\u{fc}"] {
            let error = Tokens::from_lines(&format!("fine\n{text}"), None).unwrap_err().to_string();
            assert!(error.contains("line 2") && !error.contains(text), "{error}");
        }
        assert!(Tokens::from_text(" \n").is_err());
        assert_eq!(Tokens::from_text("a b").unwrap().hashes.len(), 2);
        assert!(!format!("{:?}", Tokens::from_text("secret").unwrap()).contains("secret"));
    }
}
