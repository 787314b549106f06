//! What a selector has learned that belongs to no host, for another crawler to start with.
//!
//! Invariants: the result has no host, no path and no heuristic of the caller. A signal counts if
//! several hosts showed it. The rates over all hosts are not in it: they say more about the choice
//! of hosts than about fetchers. Pseudo-attempts that the selector started with are not in it, so
//! nothing grows by being passed on.

use super::Selector;
use crate::evidence::{ANY_BLOCK, ANY_PAGE, Entry, Key};
use crate::score::priors::PortablePrior;
use fetchwise_types::attempt::Hint;
use fetchwise_types::heuristic::HOST_SHOWED;
use fetchwise_types::heuristic::url::{ContentKind, FILE_SUFFIXES, FLAGS};
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

/// The share of a crawler's attempts that it passes on as pseudo-attempts.
const SHARE: f64 = 0.5;
/// The decayed attempts below which a cell is not passed on.
const MIN_ATTEMPTS: f64 = 8.0;
/// The number of hosts below which a signal is not passed on.
const MIN_HOSTS: u32 = 3;
/// Suffixes of pages. Other suffixes than these and those of files may be a site's own.
const PAGE_SUFFIXES: [&str; 12] =
    ["html", "htm", "xhtml", "shtml", "php", "asp", "aspx", "jsp", "jspx", "cgi", "do", "md"];
/// The starts of signals that a vendor, a framework or a server shows.
const SIGNALS: [&str; 4] = ["block_", "waf_", "server_", "spa_framework="];

impl Selector {
    /// Returns what the selector has learned that belongs to no host: after each kind of failure,
    /// by suffix, by flag of the URL, and behind each vendor, framework and server. Cost: some
    /// hundred look-ups.
    pub fn portable_priors(&self, now: Timestamp) -> Vec<PortablePrior> {
        let mut found = Vec::new();
        let guard = self.learned.evidence.guard();
        for hint in Hint::ALL {
            self.add_entry(
                &mut found,
                ("hint", hint.name()),
                self.learned.evidence.hint(*hint),
                now,
            );
        }
        for (index, flag) in FLAGS.iter().enumerate() {
            self.add_entry(&mut found, (flag, "true"), self.learned.evidence.flag(index), now);
        }
        for suffix in PAGE_SUFFIXES.iter().chain(FILE_SUFFIXES).map(|name| format!(".{name}")) {
            if let Some(entry) = self.learned.evidence.known(Key::suffix(&suffix), &guard) {
                self.add_entry(&mut found, ("suffix", &suffix), entry, now);
            }
        }
        let down = self.learned.evidence.decay().down(now);
        self.learned.evidence.each_signal_cell(|name, id, content, cell| {
            let weights = cell.read(down);
            if weights.hosts >= MIN_HOSTS && is_general(name) {
                self.add(
                    &mut found,
                    (HOST_SHOWED, name),
                    content,
                    id,
                    (weights.success, weights.total),
                );
            }
        });
        found
    }

    fn add_entry(
        &self,
        to: &mut Vec<PortablePrior>,
        heuristic: (&str, &str),
        entry: &Entry,
        now: Timestamp,
    ) {
        let down = self.learned.evidence.decay().down(now);
        for content in [ContentKind::Page, ContentKind::File] {
            entry.each_shared_weights(
                content,
                down,
                |_| 0.0,
                |id, weights| {
                    self.add(to, heuristic, content, id, (weights.success, weights.total));
                },
            );
        }
    }

    fn add(
        &self,
        to: &mut Vec<PortablePrior>,
        heuristic: (&str, &str),
        content: ContentKind,
        fetcher: FetcherId,
        (success, total): (f64, f64),
    ) {
        let Some(spec) = self
            .learned
            .registry
            .spec(fetcher)
            .filter(|spec| is_name(&spec.name) && total >= MIN_ATTEMPTS)
        else {
            return;
        };
        let rate = ((success + 0.5) / (total + 1.0)).clamp(0.0, 1.0);
        let samples = (SHARE * total).min(PortablePrior::max_samples(heuristic.0));
        to.extend(PortablePrior::new(heuristic, content, &spec.name, rate, samples));
    }
}

/// Returns whether a signal names a vendor, a framework or a server, and no host.
fn is_general(signal: &str) -> bool {
    let rest = SIGNALS.iter().find_map(|start| signal.strip_prefix(start));
    rest.map_or([ANY_BLOCK, ANY_PAGE].contains(&signal), is_name)
}

/// Returns whether a name cannot be that of a host or of a path.
fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}
