//! Hints for results: what a user can do about a failure.
//!
//! Must not know: how results are printed.

use std::path::Path;

use crate::parse::input::scheme_hint;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::heuristic::url::without_user;
use fetchwise::pipeline::Report;

/// Returns a hint for a link that was not delivered.
pub(super) fn hint(report: &Report) -> Option<String> {
    if report.success {
        return None;
    }
    let message = report.message.as_deref().unwrap_or_default();
    match ErrorKind::from_name(report.error_type?)? {
        ErrorKind::RefusedAddress if message.contains("loopback") || message.contains("private") => Some(
            "if you trust it, allow it with --allow-network CIDR (such as 127.0.0.0/8), or all private networks with \
             --allow-private-network"
                .to_owned(),
        ),
        ErrorKind::InvalidUrl if Path::new(report.url.trim()).is_file() => {
            Some(format!("{0} is a file; to fetch the URLs in it: --input {0}", report.url.trim()))
        }
        ErrorKind::InvalidUrl => scheme_hint(&without_user(&report.url)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hint_for(url: &str, error_type: &'static str, message: &str) -> String {
        let report = Report {
            url: url.to_owned(),
            error_type: Some(error_type),
            message: Some(message.to_owned()),
            ..Report::default()
        };
        hint(&report).unwrap_or_default()
    }

    #[test]
    fn a_refusal_names_the_way_out() {
        let refused =
            hint_for("http://127.0.0.1/", "refused_address", "127.0.0.1 is a loopback address");
        assert!(
            refused.contains("--allow-network") && refused.contains("--allow-private-network"),
            "{refused}"
        );
        assert!(hint_for("e.org/a", "invalid_url", "").contains("https://e.org/a"));
        assert!(
            hint_for("Cargo.toml", "invalid_url", "")
                .contains("Cargo.toml is a file; to fetch the URLs in it: --input")
        );
        assert_eq!(hint_for("ftp://e.org/a", "invalid_url", ""), "");
        assert_eq!(hint_for("http://e.org/a", "timeout", ""), "");
    }
}
