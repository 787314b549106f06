//! Rule tables: the compiled-in rules, alone or with custom rules on top.
//!
//! Invariants: a file with an error is rejected as a whole.

pub(crate) mod compile;
pub(crate) mod compiled;
pub(crate) mod concepts;
pub(crate) mod condition;
pub(crate) mod file;
pub(crate) mod pattern;
pub(crate) mod prefilter;
pub(crate) mod scan;
pub(crate) mod strength;
pub(crate) mod vocabulary;
pub(crate) mod word_scan;

use std::sync::{Arc, LazyLock};

use crate::rules::compile::compile;
use crate::rules::compiled::RuleTable;
use crate::rules::file::{RuleError, RuleFile, read, value};

/// The TOML of the compiled-in rules.
pub(crate) const SHIPPED: &str = concat!(
    include_str!("rules.toml"),
    include_str!("concepts.toml"),
    include_str!("networks.toml")
);

/// Returns the shipped rules. They are compiled once.
pub(crate) fn shipped() -> Arc<RuleTable> {
    static TABLE: LazyLock<Arc<RuleTable>> = LazyLock::new(|| compiled_in(with(None)));
    Arc::clone(&TABLE)
}

/// Returns the shipped rules that name no vendor. They are compiled once.
pub(crate) fn shipped_generic() -> Arc<RuleTable> {
    static TABLE: LazyLock<Arc<RuleTable>> = LazyLock::new(|| compiled_in(generic()));
    Arc::clone(&TABLE)
}

/// Returns an empty table.
pub(crate) fn none() -> Arc<RuleTable> {
    compiled_in(compile(RuleFile::default()))
}

/// Compiles the shipped rules with custom rules on top. A custom rule with the id of a shipped rule
/// replaces it.
pub(crate) fn with(user: Option<&str>) -> Result<RuleTable, RuleError> {
    let mut written = shipped_lines()?;
    if let Some(user) = user {
        let mut more = read(user)?;
        let disabled = std::mem::take(&mut more.disable);
        if let Some(unknown) = disabled.iter().find(|id| !written.knows(id)) {
            return Err(value(1, unknown, "disable", "no shipped rule or concept has this id"));
        }
        written.rules.retain(|(_, w)| {
            !disabled.contains(&w.id) && !more.rules.iter().any(|(_, m)| m.id == w.id)
        });
        written.rules.append(&mut more.rules);
        for (_, concept) in &mut written.concepts {
            if disabled.contains(&concept.id)
                || more.concepts.iter().any(|(_, m)| m.id == concept.id)
            {
                concept.silence();
            }
        }
        written.concepts.append(&mut more.concepts);
        written.words.append(&mut more.words);
    }
    compile(written)
}

fn generic() -> Result<RuleTable, RuleError> {
    let mut written = shipped_lines()?;
    written.rules.retain(|(_, w)| w.vendor.is_none());
    compile(written)
}

/// Unwraps a compiled-in table: it compiles, or no test of this crate passes.
fn compiled_in(table: Result<RuleTable, RuleError>) -> Arc<RuleTable> {
    match table {
        Ok(table) => Arc::new(table),
        Err(error) => unreachable!("the rules that are compiled in: {error}"),
    }
}

/// Returns the shipped rules in their TOML form, read once. A reload compiles them again, together
/// with custom rules.
fn shipped_lines() -> Result<RuleFile, RuleError> {
    static LINES: LazyLock<Result<RuleFile, RuleError>> = LazyLock::new(|| read(SHIPPED));
    LINES.clone()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn error(toml: &str) -> String {
        with(Some(toml)).unwrap_err().to_string()
    }

    #[test]
    fn the_shipped_table_compiles() {
        let table = with(None).unwrap_or_else(|e| panic!("{e}"));
        assert!(table.rules.len() > 100);
        assert!(generic().unwrap().rules.iter().all(|r| r.vendor.is_none()));
    }

    #[test]
    fn an_error_names_line_rule_and_field() {
        let short = "\n\n[[rule]]\nid = 'mine'\ngrade = 'strong'\nfind = ['abc']\nnote = 'x'\n";
        assert_eq!(
            error(short),
            "line 3: rule `mine`, field `find`: `abc` needs at least four bytes before any wildcard"
        );
        let unknown =
            error("[[rule]]\nid = 'mine'\ngrade = 'strong'\nfinds = ['abcd']\nnote = 'x'\n");
        assert!(unknown.contains("line 4") && unknown.contains("finds"), "{unknown}");
        let grade = error("[[rule]]\nid = 'mine'\ngrade = 'sure'\nfind = ['abcd']\nnote = 'x'\n");
        assert!(grade.contains("line 3") && grade.contains("sure"), "{grade}");
        assert!(
            error("[[rule]]\nid='a'\ngrade='weak'\nnote='x'\n")
                .contains("field `find`: missing evidence")
        );
        assert!(
            error("[[rule]]\nid='a'\ngrade='weak'\nfind=['abcd']\nnote=' '\n")
                .contains("field `note`")
        );
        assert!(
            error("[[rule]]\nid='a'\nvendor='A B'\ngrade='weak'\nfind=['abcd']\nnote='x'\n")
                .contains("field `vendor`")
        );
        let status =
            error("[[rule]]\nid='a'\ngrade='weak'\nfind=['abcd']\nstatus=[200, 99]\nnote='x'\n");
        assert_eq!(status, "line 1: rule `a`, field `status`: must be from 100 to 999");
        assert!(error("disable = ['nobody']\n").contains("nobody"));
        let twice = "[[rule]]\nid='a'\ngrade='weak'\nfind=['abcd']\nnote='x'\n".repeat(2);
        assert!(
            error(&twice).contains("line 6") && error(&twice).contains("line 1 has"),
            "{}",
            error(&twice)
        );
    }

    #[test]
    fn a_custom_rule_replaces_the_shipped_rule_with_its_id() {
        let shipped = with(None).unwrap().rules.len();
        let same = "[[rule]]\nid='cloudflare-title'\ngrade='title'\ntitle=['Mine']\nnote='x'\n";
        assert_eq!(with(Some(same)).unwrap().rules.len(), shipped);
        assert_eq!(with(Some("disable=['cloudflare-title']")).unwrap().rules.len(), shipped - 1);
    }
}
