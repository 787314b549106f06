//! A region of lines at the bottom of the terminal that changes while a command works.
//!
//! Invariants: each line is cut to the width of the terminal, so the region never leaves torn
//! lines. Nothing is drawn if stderr is not a terminal.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The width if the terminal does not tell its own.
const DEFAULT_WIDTH: usize = 80;

/// A live region on stderr.
pub(crate) struct LiveRegion {
    bar: ProgressBar,
}

impl LiveRegion {
    /// Returns a region; a hidden one if it is not wanted or stderr is not a terminal.
    pub(crate) fn new(is_wanted: bool) -> Self {
        let bar = match is_wanted && std::io::stderr().is_terminal() {
            true => ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()),
            false => ProgressBar::hidden(),
        };
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            bar.set_style(style);
        }
        Self { bar }
    }

    /// Returns whether the region is drawn.
    pub(crate) fn is_visible(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Returns the width to which lines are cut: the last column stays free, because some terminals
    /// wrap there.
    pub(crate) fn width(&self) -> usize {
        let width = terminal_size::terminal_size_of(std::io::stderr())
            .map_or(DEFAULT_WIDTH, |(width, _)| usize::from(width.0));
        if width == 0 { DEFAULT_WIDTH } else { width.max(2) - 1 }
    }

    /// Draws these lines instead of the last ones.
    pub(crate) fn draw(&self, lines: &[String]) {
        let width = self.width();
        let lines: Vec<String> = lines.iter().map(|line| cut(line, width)).collect();
        self.bar.set_message(lines.join("\n"));
        self.bar.tick();
    }

    /// Hides the region while `print` writes lines above it.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.bar.suspend(print)
    }

    /// Removes the region.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// Returns `text` in at most `width` characters. A cut text ends in three dots.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let dots = width.min(3);
    text.chars().take(width - dots).chain(std::iter::repeat_n('.', dots)).collect()
}

/// Returns a bar of `width` characters; ASCII only if the locale has no UTF-8.
pub(crate) fn bar(done: u64, total: u64, width: usize, is_utf8: bool) -> String {
    let share = if total == 0 { 0.0 } else { done.min(total) as f64 / total as f64 };
    let full = (share * width as f64) as usize;
    let (on, off) = if is_utf8 { ('█', '░') } else { ('#', '-') };
    std::iter::repeat_n(on, full).chain(std::iter::repeat_n(off, width - full)).collect()
}

/// Returns whether the locale of the environment has UTF-8.
pub(crate) fn is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    locale.is_some_and(|name| {
        let name = name.to_ascii_lowercase();
        name.contains("utf-8") || name.contains("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_to_the_width() {
        assert_eq!(
            [cut("abcdef", 6), cut("abcdef", 5), cut("abcdef", 2)],
            ["abcdef", "ab...", ".."]
        );
        assert_eq!(cut("größer als", 6), "grö...");
    }

    #[test]
    fn a_bar_shows_the_share_in_any_locale() {
        assert_eq!([bar(1, 4, 8, true), bar(1, 4, 8, false)], ["██░░░░░░", "##------"]);
        assert_eq!([bar(9, 4, 3, false), bar(0, 0, 3, false)], ["###", "---"]);
    }
}
