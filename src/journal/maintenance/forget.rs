//! Forgetting of a domain or a link.
//!
//! Owns: the tombstone, and the counts of the report.
//!
//! Invariants: nothing is written if nothing is known of the target.
//!
//! Must not know: how evidence is retracted.

use std::collections::HashSet;
use std::path::Path;

use fetchwise_log::OpenCheck;

use crate::journal::entry::{Entry, Tombstone, TombstoneTarget};
use crate::journal::error::JournalError;
use crate::journal::query_key;
use crate::journal::read::replay;
use crate::journal::recovery_point::FoldStart;
use crate::journal::tombstones::TombstoneSet;
use crate::journal::write::{Journal, JournalOptions};
use crate::selector::Selector;
use fetchwise_types::time::Timestamp;

/// Report of what was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ForgetReport {
    /// Attempts that are still in the log, and go at the next compaction.
    pub attempts: u64,
    /// Records of pauses and risk.
    pub states: u64,
    /// Whether a snapshot had evidence of the domain.
    pub in_snapshot: bool,
}

impl ForgetReport {
    /// Returns whether there was nothing to forget.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Forgets a domain or a link: its evidence at once, its raw attempts at the next compaction.
/// Writes nothing if nothing is known of it.
///
/// # Errors
/// Locked by a crawler, damaged, or an I/O error.
pub fn forget(
    dir: &Path,
    target: TombstoneTarget,
    now: Timestamp,
) -> Result<ForgetReport, JournalError> {
    let (journal, _) = Journal::open(dir, JournalOptions::default().check(OpenCheck::Tail))?;
    let forgot = would_forget(dir, &target)?;
    if !forgot.is_nothing() {
        journal.append_tombstone(&Tombstone { target, at: now })?;
    }
    journal.close()?;
    Ok(forgot)
}

/// Forgets a domain or a link while `selector` crawls and records to `journal`: in the log as
/// [`forget`] does, and in memory. `append` passes the tombstone to the journal; it is not called
/// if nothing is known of the target. Reads the whole log.
///
/// # Errors
/// Damaged, or an I/O error.
pub fn forget_live(
    journal: &Journal,
    selector: &Selector,
    target: &TombstoneTarget,
    at: Timestamp,
    append: &mut dyn FnMut(&Tombstone) -> Result<(), JournalError>,
) -> Result<ForgetReport, JournalError> {
    // Attempts that were accepted a moment ago count too. What the journal cannot write is not
    // there to be counted.
    let _ = journal.settled().wait();
    let mut links = HashSet::new();
    let forgot = would_forget_links(journal.dir(), target, &mut |link| {
        links.insert(link.to_owned());
    })?;
    if !forgot.is_nothing() {
        append(&Tombstone { target: target.clone(), at })?;
    }
    let _ = journal.settled().wait();
    match target {
        TombstoneTarget::Domain(domain) => {
            selector.forget_domain(domain);
            links.iter().for_each(|link| selector.forget_link(link));
        }
        TombstoneTarget::Link(link) => selector.forget_link(link),
    }
    Ok(forgot)
}

/// Returns what a tombstone for a domain or a link would forget, for a caller that has the journal
/// open and writes the tombstone itself. Reads the whole log, alongside its writer.
///
/// # Errors
/// Damaged, or an I/O error.
pub fn would_forget(dir: &Path, target: &TombstoneTarget) -> Result<ForgetReport, JournalError> {
    would_forget_links(dir, target, &mut |_| {})
}

/// Returns the same as [`would_forget`], and calls `link` with the name of each link whose state
/// would go. A name may repeat. The callback is needed because a link's name need not contain its
/// domain.
///
/// # Errors
/// As [`would_forget`].
pub fn would_forget_links(
    dir: &Path,
    target: &TombstoneTarget,
    link: &mut dyn FnMut(&str),
) -> Result<ForgetReport, JournalError> {
    let target = &query_key::forgotten(query_key::query_hash(dir)?.as_ref(), target);
    let mut forgot = ForgetReport::default();
    let mut seen = TombstoneSet::default();
    seen.add(u64::MAX, target.clone());
    replay(dir, |seq, entry| {
        if seen.covers(seq, &entry) {
            match entry {
                Entry::Attempt(_) => forgot.attempts += 1,
                Entry::Link(of) => {
                    forgot.states += 1;
                    link(&of.link);
                }
                _ => forgot.states += 1,
            }
        }
    })?;
    let start = FoldStart::newest(dir)?;
    if let Some(contents) = &start.contents {
        match target {
            TombstoneTarget::Domain(domain) => {
                contents
                    .links
                    .iter()
                    .filter(|of| of.domain == *domain)
                    .for_each(|of| link(&of.link));
                forgot.in_snapshot = start.has_domain(domain)?
                    || contents.hosts.iter().any(|host| host.domain == *domain)
                    || contents.paces.iter().any(|pace| pace.level == 0 && pace.name == *domain)
                    || contents.links.iter().any(|link| link.domain == *domain);
            }
            TombstoneTarget::Link(link) => {
                forgot.in_snapshot = contents.links.iter().any(|known| known.link == *link);
            }
        }
    }
    Ok(forgot)
}
