//! One run of the program over a list, and its results.

use std::collections::HashMap;

use serde_json::Value;

use crate::support::{Ran, TestDir};

/// Loopback allowed, no browser, and no robots.txt, since requests are counted.
pub(crate) const PLAIN: [&str; 5] =
    ["--allow-network", "127.0.0.0/8", "--no-browser", "--robots", "ignore"];

/// The output of a run.
pub(crate) struct Crawl {
    pub(crate) results: Vec<Value>,
    pub(crate) stderr: String,
}

impl Crawl {
    /// Fetches `urls` with more options.
    pub(crate) fn run(place: &TestDir, urls: &[String], more: &[&str]) -> Self {
        let input = place.write("urls.txt", urls.join("\n"));
        let ran: Ran =
            place.run(&[&["fetch", "--json", "--input", &input][..], &PLAIN[..], more].concat());
        // A link that a ban costs is not delivered: exit code 4.
        assert!(matches!(ran.code, 0 | 4), "{}: {}", ran.code, ran.stderr);
        Self { results: ran.json(), stderr: ran.stderr }
    }

    pub(crate) fn delivered(&self) -> usize {
        self.results.iter().filter(|result| result["success"] == true).count()
    }

    /// Returns how often each failure occurred.
    pub(crate) fn failures(&self) -> HashMap<&str, usize> {
        let mut failures = HashMap::new();
        for result in &self.results {
            if let Some(error) = result["error_type"].as_str() {
                *failures.entry(error).or_default() += 1;
            }
        }
        failures
    }
}

/// Returns URLs of pages below `base`.
pub(crate) fn pages(base: &str, many: usize) -> Vec<String> {
    (0..many).map(|n| format!("{base}/articles/{n}")).collect()
}
