//! The right to change an entry that may be evicted.
//!
//! Owns: when an entry has to count its writers.
//!
//! Must not know: how they are counted, and which entries are evicted.

use std::ops::Deref;

use super::Entry;

/// An entry that its holder may change. While it is held, the entry is not evicted.
#[derive(Debug)]
pub(crate) struct EntryWriter<'e> {
    entry: &'e Entry,
    is_counted: bool,
    /// Whether the entry's copy in the tier was equal and may not be any more.
    outdates_copy: bool,
}

impl<'e> EntryWriter<'e> {
    /// Returns the writer of an entry whose eviction loses what is in it, or that is never evicted.
    pub(super) fn uncounted(entry: &'e Entry) -> Self {
        Self { entry, is_counted: false, outdates_copy: false }
    }

    /// Returns the writer of an entry; `None` if it is evicted.
    pub(super) fn counted(entry: &'e Entry) -> Option<Self> {
        let outdates_copy = entry.writers.enter()?;
        Some(Self { entry, is_counted: true, outdates_copy })
    }

    /// Holds the entry without a change: it is not written to the tier for that.
    pub(crate) fn only_held(mut self) -> Self {
        self.outdates_copy = false;
        self
    }

    /// Ends the writing of an entry that was not changed. The entry can still be read.
    pub(super) fn into_unchanged(self) -> &'e Entry {
        self.only_held().entry
    }
}

impl Deref for EntryWriter<'_> {
    type Target = Entry;

    #[inline]
    fn deref(&self) -> &Entry {
        self.entry
    }
}

impl Drop for EntryWriter<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_counted {
            if self.outdates_copy {
                self.entry.writers.outdate_copy();
            }
            self.entry.writers.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_evicted_when_nobody_writes_and_nobody_writes_to_an_evicted_one() {
        let entry = Entry::default();
        let (first, second) =
            (EntryWriter::counted(&entry).unwrap(), EntryWriter::counted(&entry).unwrap());
        assert!(!entry.writers.close());
        drop(first);
        assert!(!entry.writers.close());
        drop(second);
        assert!(entry.writers.close() && !entry.writers.close());
        assert!(EntryWriter::counted(&entry).is_none() && EntryWriter::counted(&entry).is_none());
        entry.writers.reopen();
        let again = EntryWriter::counted(&entry);
        assert!(again.is_some() && !entry.writers.close());
        drop(again);
        assert!(entry.writers.close());
    }

    #[test]
    fn an_equal_copy_counts_until_somebody_may_have_changed_the_entry() {
        let entry = Entry::default();
        entry.writers.set_copied();
        let held = EntryWriter::counted(&entry).unwrap().only_held();
        assert!(!entry.writers.close());
        drop(held);
        assert!(entry.writers.close() && entry.writers.is_copied());
        entry.writers.reopen();
        let held = EntryWriter::counted(&entry).unwrap().only_held();
        drop(EntryWriter::counted(&entry));
        drop(held);
        assert!(entry.writers.close() && !entry.writers.is_copied());
    }
}
