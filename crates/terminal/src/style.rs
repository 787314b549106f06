//! The styles of results and messages.

use std::fmt;

use anstyle::{AnsiColor, Style};

/// The style of a heading.
pub const HEADING: Style = Style::new().bold();
/// The style of the selected item.
pub const CHOSEN: Style = AnsiColor::Green.on_default().bold();
/// The style of secondary text.
pub const DIM: Style = Style::new().dimmed();
/// The style of a failure.
pub const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Returns `text` in a style.
pub fn styled(style: Style, text: impl fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}
