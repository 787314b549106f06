//! Text from outside without what a terminal would obey.
//!
//! Must not know: where the text goes.

use std::path::Path;

/// Returns `text` without control characters, for a terminal. Invisible characters and marks that
/// reverse text are escaped.
pub fn plain(text: &str) -> String {
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

/// Returns a text of several lines for a terminal, each as [`plain`] returns it. Further lines are
/// indented, so that a name with a line break cannot pass for a message.
pub fn plain_lines(text: &str) -> String {
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
pub fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

/// Returns whether a text has characters that [`plain`] replaces.
pub fn is_plain(text: &str) -> bool {
    !text.chars().any(|c| c.is_control() || is_deceptive(c))
}

/// Returns whether a terminal draws nothing for the character although it changes how others
/// appear: direction marks, joiners, line separators and tags.
fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
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
        assert_eq!(
            plain_lines("cannot read a\nerror: b\x1b[2J"),
            "cannot read a\n  error: b\u{fffd}[2J"
        );
        assert_eq!(plain_lines("one\n  hint: two"), "one\n  hint: two");
        assert_eq!(shown(Path::new("a\nb")), "a\u{fffd}b");
    }
}
