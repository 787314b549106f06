//! Results on stdout and messages on stderr: JSON lines, aligned tables and text.
//!
//! Invariants: no text from outside reaches a terminal with its control characters. Colours appear only on a terminal,
//! and not if `NO_COLOR` is set.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anstyle::{AnsiColor, Style};
use indicatif::HumanCount;
use serde::Serialize;

use crate::terminal::exit::Failure;
use crate::terminal::interruptible_writer::InterruptibleWriter;

/// The style of a heading.
pub(crate) const HEADING: Style = Style::new().bold();
/// The style of the selected item.
pub(crate) const CHOSEN: Style = AnsiColor::Green.on_default().bold();
/// The style of secondary text.
pub(crate) const DIM: Style = Style::new().dimmed();
/// The style of a failure.
pub(crate) const ERROR: Style = AnsiColor::Red.on_default().bold();

/// The results of a command, on stdout.
pub(crate) struct Output {
    to: BufWriter<Box<dyn Write>>,
    /// Whether the results are JSON lines.
    pub(crate) json: bool,
    /// The file that is written instead of stdout.
    file: Option<PathBuf>,
}

impl Output {
    /// Returns an output that prints JSON lines, or text.
    pub(crate) fn new(json: bool) -> Self {
        let to: Box<dyn Write> = if json { Box::new(io::stdout()) } else { Box::new(anstream::stdout()) };
        Self { to: BufWriter::with_capacity(64 << 10, to), json, file: None }
    }

    /// Makes all further writes interruptible: a stalled reader blocks them only until the user interrupts the run. With
    /// `unchanged` escape sequences are not removed, for bytes of a page.
    pub(crate) fn make_interruptible(&mut self, unchanged: bool) -> Result<(), Failure> {
        self.flush()?;
        let stdout: Box<dyn Write> = Box::new(InterruptibleWriter(io::stdout()));
        let to: Box<dyn Write> = match anstream::AutoStream::choice(&io::stdout()) {
            anstream::ColorChoice::Never if !self.json && !unchanged => Box::new(anstream::StripStream::new(stdout)),
            _ => stdout,
        };
        self.to = BufWriter::with_capacity(64 << 10, to);
        Ok(())
    }

    /// Writes all further bytes unchanged: escape sequences are not removed.
    pub(crate) fn write_unchanged(&mut self) -> Result<(), Failure> {
        self.flush()?;
        self.to = BufWriter::with_capacity(64 << 10, Box::new(io::stdout()));
        Ok(())
    }

    /// Writes all further bytes unchanged to a file, which failures call `name`.
    pub(crate) fn write_to_file(&mut self, file: File, name: &Path) -> Result<(), Failure> {
        self.flush()?;
        self.to = BufWriter::with_capacity(64 << 10, Box::new(file));
        self.file = Some(name.to_owned());
        Ok(())
    }

    fn failure(&self, error: &io::Error) -> Failure {
        match &self.file {
            Some(file) => Failure::failed(format_args!("cannot write {}: {error}", shown(file))),
            None => Failure::stdout(error),
        }
    }

    /// Prints one JSON line.
    pub(crate) fn object(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(value).map_err(Failure::failed)?;
        self.line(line)
    }

    /// Prints one line of text.
    pub(crate) fn line(&mut self, text: impl fmt::Display) -> Result<(), Failure> {
        writeln!(self.to, "{text}").map_err(|error| self.failure(&error))
    }

    /// Writes bytes; unchanged after [`Output::write_unchanged`].
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.to.write_all(bytes).map_err(|error| self.failure(&error))
    }

    /// Writes out everything that is buffered.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.to.flush().map_err(|error| self.failure(&error))
    }
}

/// Prints a message on stderr. Its text may come from outside. A failure to print is ignored, since nothing else could
/// report it.
pub(crate) fn note(text: impl fmt::Display) {
    print_error(&plain_lines(&text.to_string()));
}

/// Prints a message as [`note`] does, after a label in the style of a failure.
pub(crate) fn note_labelled(label: &str, text: impl fmt::Display) {
    print_error(&format!("{}: {}", styled(ERROR, label), plain_lines(&text.to_string())));
}

/// Prints a message with styles. The caller has passed all text from outside through [`plain`].
pub(crate) fn note_styled(text: impl fmt::Display) {
    print_error(&text.to_string());
}

fn print_error(line: &str) {
    let line = format!("{line}\n");
    let line = match anstream::AutoStream::choice(&io::stderr()) {
        anstream::ColorChoice::Never => anstream::adapter::strip_str(&line).to_string(),
        _ => line,
    };
    let _ = InterruptibleWriter(io::stderr()).write_all(line.as_bytes());
}

/// Returns `text` in a style.
pub(crate) fn styled(style: Style, text: impl fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Returns `text` without control characters, for a terminal. Invisible characters and marks that reverse text are
/// escaped.
pub(crate) fn plain(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if c.is_control() => shown.push('\u{fffd}'),
            c if is_deceptive(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// Returns a text of several lines for a terminal, each as [`plain`] returns it. Further lines are indented, so that a
/// name with a line break cannot pass for a message.
pub(crate) fn plain_lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for (number, line) in text.lines().enumerate() {
        if number > 0 {
            shown.push('\n');
            if !line.starts_with(' ') && !line.is_empty() {
                shown.push_str("  ");
            }
        }
        shown.push_str(&plain(line));
    }
    shown
}

/// Returns the name of a file for a terminal.
pub(crate) fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

/// Returns whether a text has characters that [`plain`] replaces.
pub(crate) fn is_plain(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() || is_deceptive(c))
}

/// Returns whether a terminal draws nothing for the character although it changes how others appear: direction marks,
/// joiners, line separators and tags.
fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a count with its noun: `1 host`, `2,705 hosts`.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{} {}", HumanCount(count as u64), if count == 1 { one } else { many })
}

/// Returns a share as a percentage; `-` if there is none.
pub(crate) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// A table with aligned columns.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<(Style, Vec<String>)>,
    right: Vec<bool>,
}

impl Table {
    /// Returns a table with these column heads. A head that starts with `>` aligns its column to the right.
    pub(crate) fn new(heads: &[&str]) -> Self {
        let right = heads.iter().map(|head| head.starts_with('>')).collect();
        let heads = heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect();
        Self { rows: vec![(HEADING, heads)], right }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.styled_row(Style::new(), cells);
    }

    /// Adds a row in a style.
    pub(crate) fn styled_row(&mut self, style: Style, cells: impl IntoIterator<Item = String>) {
        self.rows.push((style, cells.into_iter().map(|cell| plain(&cell)).collect()));
    }

    /// Returns whether the table has no rows besides its heads.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.right.len();
        let width = |column: usize| {
            self.rows.iter().filter_map(|(_, row)| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for (index, (style, row)) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate().take(columns) {
                let gap = if column == 0 { "" } else { "  " };
                match self.right[column] {
                    true => write!(line, "{gap}{cell:>width$}", width = widths[column])?,
                    false => write!(line, "{gap}{cell:<width$}", width = widths[column])?,
                }
            }
            let end = if index + 1 == self.rows.len() { "" } else { "\n" };
            write!(f, "{style}{}{style:#}{end}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_and_reversing_characters_are_escaped() {
        assert_eq!(plain("http://e.org/\u{202e}gpj.exe"), "http://e.org/\\u{202e}gpj.exe");
        for c in ["\u{200b}", "\u{2066}", "\u{feff}", "\u{e0041}", "\u{2028}"] {
            assert!(plain(c).is_ascii(), "{}", plain(c));
        }
        assert_eq!(plain("grün 日本 😀"), "grün 日本 😀");
    }

    #[test]
    fn a_line_break_in_a_name_does_not_begin_a_message() {
        assert_eq!(plain_lines("cannot read a\nerror: b\x1b[2J"), "cannot read a\n  error: b\u{fffd}[2J");
        assert_eq!(plain_lines("one\n  hint: two"), "one\n  hint: two");
        assert_eq!(shown(Path::new("a\nb")), "a\u{fffd}b");
    }

    #[test]
    fn columns_align_and_control_characters_do_not_reach_the_terminal() {
        let mut table = Table::new(&["name", ">n"]);
        table.row(["a\x1b[31m".to_owned(), "1000".to_owned()]);
        table.row(["longer".to_owned(), "7".to_owned()]);
        let text = anstream::adapter::strip_str(&table.to_string()).to_string();
        assert_eq!(text, "name       n\na\u{fffd}[31m  1000\nlonger     7");
    }
}
