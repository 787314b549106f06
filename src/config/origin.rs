//! Origins of settings, and problems with them.
//!
//! Owns: the wording of both.
//!
//! Invariants: nothing here holds a value, so nothing here can reveal a secret.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Position in a text. Both numbers count from 1; columns are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TextPosition {
    /// Line.
    pub line: usize,
    /// Column.
    pub column: usize,
}

impl TextPosition {
    const START: Self = Self { line: 1, column: 1 };

    /// Returns the place of byte `at` in `text`.
    pub(super) fn of(text: &str, at: usize) -> Self {
        Self::START.after(&text[..text.floor_char_boundary(at)])
    }

    /// Returns the place after `text` that begins here.
    fn after(self, text: &str) -> Self {
        text.chars().fold(self, |at, next| match next {
            '\n' => Self { line: at.line + 1, column: 1 },
            _ => Self { column: at.column + 1, ..at },
        })
    }
}

/// Positions in a text, each counted from the nearest checkpoint before it: many positions take a
/// time linear in the text.
pub(super) struct TextPositions<'t> {
    text: &'t str,
    /// Bytes with their places, the first byte first.
    checkpoints: Vec<(usize, TextPosition)>,
}

impl<'t> TextPositions<'t> {
    /// Bytes between two checkpoints, up to the next character.
    const STEP: usize = 1024;

    pub(super) fn new(text: &'t str) -> Self {
        let (mut checkpoints, mut from, mut at) = (Vec::new(), 0, TextPosition::START);
        while from < text.len() {
            checkpoints.push((from, at));
            let to = text.ceil_char_boundary(from + Self::STEP);
            (from, at) = (to, at.after(&text[from..to]));
        }
        Self { text, checkpoints }
    }

    /// Returns the place of byte `at`.
    pub(super) fn of(&self, at: usize) -> TextPosition {
        let end = self.text.floor_char_boundary(at);
        let after = self.checkpoints.partition_point(|(from, _)| *from <= end);
        let nearest = after.checked_sub(1).and_then(|place| self.checkpoints.get(place));
        let (from, place) = nearest.copied().unwrap_or((0, TextPosition::START));
        place.after(&self.text[from..end])
    }

    /// Returns the line of byte `at`.
    pub(super) fn line_of(&self, at: usize) -> usize {
        self.of(at).line
    }
}

/// Origin of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// Default, not set.
    Default,
    /// Config file.
    File {
        /// Path of the file.
        path: Arc<Path>,
        /// Position in the file.
        at: TextPosition,
    },
    /// Environment variable.
    Variable(String),
    /// Command-line option.
    Flag(&'static str),
}

impl Origin {
    /// Returns `default`, `file`, `environment` or `flag`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File { .. } => "file",
            Self::Variable(_) => "environment",
            Self::Flag(_) => "flag",
        }
    }
}

/// Writes `default`, `FILE:LINE`, or the name of the variable or option.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, at } => write!(f, "{}:{}", path.display(), at.line),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// Problem with a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// Origin of the setting.
    pub origin: Origin,
    /// Full name of the key, such as `fetcher.0.cost`; empty for a syntax error.
    pub key: String,
    /// Problem, and the expected value.
    pub message: String,
    /// Most similar known key or name, which the message contains as well.
    pub meant: Option<String>,
}

impl Problem {
    /// Returns the file and the place in it.
    pub fn place(&self) -> Option<(&Path, TextPosition)> {
        match &self.origin {
            Origin::File { path, at } => Some((path, *at)),
            _ => None,
        }
    }

    /// Returns a sort key: problems of files by place, then the others by name.
    pub(super) fn rank(&self) -> (bool, Option<(PathBuf, TextPosition)>, String) {
        let place = self.place().map(|(path, at)| (path.to_owned(), at));
        (place.is_none(), place, self.origin.to_string())
    }
}

/// Writes `FILE, line N: message`, or the variable and the message.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Default => f.write_str(&self.message),
            Origin::File { path, at } => {
                write!(f, "{}, line {}: {}", path.display(), at.line, self.message)
            }
            Origin::Variable(name) => write!(f, "the variable {name}: {}", self.message),
            Origin::Flag(name) => write!(f, "{name}: {}", self.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_lines_and_characters_from_one() {
        let text = "a = 1\n\u{e9}\u{e9} = 2\n";
        assert_eq!(TextPosition::of(text, 0), TextPosition { line: 1, column: 1 });
        assert_eq!(TextPosition::of(text, 4), TextPosition { line: 1, column: 5 });
        // Within the second letter of the second line.
        assert_eq!(TextPosition::of(text, 9), TextPosition { line: 2, column: 2 });
        assert_eq!(TextPosition::of(text, 999), TextPosition { line: 3, column: 1 });
    }

    #[test]
    fn a_place_is_counted_from_a_checkpoint_near_it() {
        for line in ["a = 1\n", "\u{e9}\u{6f22}", "\n"] {
            let text = line.repeat(2000);
            let positions = TextPositions::new(&text);
            for at in (0..text.len() + 9).step_by(7) {
                assert_eq!(positions.of(at), TextPosition::of(&text, at), "{at} of {line:?}");
            }
            let starts: Vec<usize> = positions.checkpoints.iter().map(|(from, _)| *from).collect();
            assert!(starts.windows(2).all(|pair| pair[1] - pair[0] < TextPositions::STEP + 4));
            assert!(text.len() - starts.last().unwrap() <= TextPositions::STEP + 4);
        }
        assert_eq!(TextPositions::new("").of(3), TextPosition::START);
    }
}
