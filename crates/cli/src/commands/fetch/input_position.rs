//! The place of a link in the input, which its result names.

/// The place of an item in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputPosition {
    /// The position among the arguments, counted from 1.
    Position(u64),
    /// The line of a file or of stdin, counted from 1.
    Line(u64),
}

impl InputPosition {
    /// Returns the line number; none for an argument.
    pub(crate) fn line(self) -> Option<u64> {
        if let Self::Line(line) = self { Some(line) } else { None }
    }

    /// Returns the position; none for a line.
    pub(crate) fn position(self) -> Option<u64> {
        if let Self::Position(position) = self { Some(position) } else { None }
    }
}
