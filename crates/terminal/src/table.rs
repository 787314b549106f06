//! Tables with aligned columns.
//!
//! Invariants: no cell reaches a terminal with its control characters.

use std::fmt::{self, Write as _};

use anstyle::Style;

use crate::plain::plain;
use crate::style::HEADING;

/// A table with aligned columns.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<(Style, Vec<String>)>,
    right: Vec<bool>,
}

impl Table {
    /// Returns a table with these column heads. A head that starts with `>` aligns its column to
    /// the right.
    pub fn new(heads: &[&str]) -> Self {
        let right = heads.iter().map(|head| head.starts_with('>')).collect();
        let heads = heads.iter().map(|head| head.trim_start_matches('>').to_owned()).collect();
        Self { rows: vec![(HEADING, heads)], right }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.styled_row(Style::new(), cells);
    }

    /// Adds a row in a style.
    pub fn styled_row(&mut self, style: Style, cells: impl IntoIterator<Item = String>) {
        self.rows.push((style, cells.into_iter().map(|cell| plain(&cell)).collect()));
    }

    /// Returns whether the table has no rows besides its heads.
    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.right.len();
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|(_, row)| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
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
    fn columns_align_and_control_characters_do_not_reach_the_terminal() {
        let mut table = Table::new(&["name", ">n"]);
        table.row(["a\x1b[31m".to_owned(), "1000".to_owned()]);
        table.row(["longer".to_owned(), "7".to_owned()]);
        let text = anstream::adapter::strip_str(&table.to_string()).to_string();
        assert_eq!(text, "name       n\na\u{fffd}[31m  1000\nlonger     7");
    }
}
