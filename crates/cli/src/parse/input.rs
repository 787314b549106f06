//! Files and stdin that the command line names, and the URLs in them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::terminal::exit::Failure;
use crate::terminal::output::shown;
use fetchwise::heuristic::url::{UrlFeatures, parse};
use fetchwise_crawl::input::lines::Lines;

/// Opens the lines of the file at `path`, or of stdin for `-`. The limit of a line is `max` bytes.
pub(crate) fn open_lines(path: &Path, max: usize) -> Result<Lines, Failure> {
    let from: Box<dyn Read + Send> =
        if is_stdin(path) { Box::new(io::stdin()) } else { Box::new(open(path)?) };
    Ok(Lines::new(from, max))
}

/// Returns whether a path stands for stdin.
pub(crate) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Opens a file that the command line names.
pub(crate) fn open(path: &Path) -> Result<File, Failure> {
    File::open(path)
        .map_err(|error| Failure::usage(format_args!("cannot read {}: {error}", shown(path))))
}

/// Returns the failure for a file that could not be read to its end.
pub(crate) fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format_args!("cannot read {}: {error}", shown(path)))
}

/// Returns a hint for a URL without a scheme.
pub(crate) fn scheme_hint(text: &str) -> Option<String> {
    let text = text.trim();
    if text.contains("://") || text.contains('@') || text.contains(char::is_whitespace) {
        return None;
    }
    let url = parse(&format!("https://{text}")).ok()?;
    let host = url.host_str()?;
    let is_likely = host.contains(['.', ':']) || host == "localhost";
    is_likely.then(|| format!("did you mean https://{text}?"))
}

/// Returns the domain, as the heuristic defines it, of a name or a URL.
pub(crate) fn read_domain(text: &str) -> Result<String, Failure> {
    let text = text.trim();
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}/") };
    let bad = || {
        Failure::usage(format_args!("{text:?} is not a valid domain"))
            .advise("expected a name such as example.org")
    };
    let url = parse(&url).map_err(|_| bad())?;
    Ok(UrlFeatures::extract(&url).map_err(|_| bad())?.domain.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_scheme_gets_one() {
        assert_eq!(scheme_hint("e.org/a").as_deref(), Some("did you mean https://e.org/a?"));
        assert_eq!(
            scheme_hint("localhost:8080/a").as_deref(),
            Some("did you mean https://localhost:8080/a?")
        );
        for text in ["ftp://e.org/", "", "a b.org", "nonsense", "mailto:a@e.org "] {
            assert_eq!(scheme_hint(text), None, "{text}");
        }
    }

    #[test]
    fn a_domain_is_the_one_of_the_heuristic() {
        for text in
            ["example.org", "WWW.Example.ORG", "https://www.example.org:8080/a", "example.org."]
        {
            assert_eq!(read_domain(text).unwrap(), "example.org", "{text}");
        }
        assert!(read_domain("a b").is_err() && read_domain("").is_err());
    }
}
