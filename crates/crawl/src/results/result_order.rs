//! Finished items of a run that are not printed yet, and the order in which they are printed.
//!
//! Invariants: without an order, an item is ready at once. In the order of the input, an item is
//! ready once all earlier ones have been taken. Until then it is in a file, and only its offset
//! takes memory: so one link that hangs does not stop the run. Once it is
//! [saved](ResultOrder::save), a killed run finds it again when it is continued.
//!
//! Must not know: what an item is.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use super::held_results::HeldResults;

/// An item that can be stored.
pub(crate) trait Stored: Sized {
    /// Returns the key by which a continued run finds it; none if such a run makes it again.
    fn key(&self) -> Option<u128>;
    /// Returns its bytes; none if it has to stay in memory.
    fn store(&self) -> Option<Vec<u8>>;
    /// Returns the item with these bytes.
    fn restore(bytes: &[u8]) -> Option<Self>;
}

/// Where an item is that is finished and not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held(u64);

/// Finished items by their number in the order of reading.
#[derive(Debug)]
pub(crate) struct ResultOrder<T> {
    is_ordered: bool,
    /// With an order: the items from number `next` on. Without one: restored items.
    held: VecDeque<Held>,
    /// Items that are not in the file, by number.
    in_memory: BTreeMap<u64, T>,
    /// The number of the first item that is not taken; without an order the number of items that
    /// came in.
    next: u64,
    taken: u64,
    results: HeldResults,
}

impl Held {
    const NOT_FINISHED: Self = Self(0);
    const IN_MEMORY: Self = Self(1);

    fn in_file(offset: u64) -> Self {
        Self(offset + 2)
    }
}

impl<T: Stored> ResultOrder<T> {
    /// Returns an empty order. With `is_ordered` items become ready in the order of their numbers,
    /// which have no gaps, and wait for that among `results`.
    pub(crate) fn new(is_ordered: bool, results: HeldResults) -> Self {
        Self {
            is_ordered,
            held: VecDeque::new(),
            in_memory: BTreeMap::new(),
            next: 0,
            taken: 0,
            results,
        }
    }

    /// Adds the finished item `number`.
    pub(crate) fn insert(&mut self, number: u64, item: T) {
        if !self.is_ordered {
            self.in_memory.insert(self.next, item);
            self.next += 1;
            return;
        }
        // The next item is taken at once.
        let bytes = if number == self.next { None } else { item.store() };
        let held = match bytes {
            Some(bytes) => Held::in_file(self.results.append(item.key(), &bytes)),
            None => {
                self.in_memory.insert(number, item);
                Held::IN_MEMORY
            }
        };
        self.hold(number, held);
    }

    /// Adds the item `number`, which an earlier run finished and left at `offset`.
    pub(crate) fn insert_earlier(&mut self, number: u64, offset: u64) {
        match self.is_ordered {
            true => self.hold(number, Held::in_file(offset)),
            false => self.held.push_back(Held::in_file(offset)),
        }
    }

    fn hold(&mut self, number: u64, held: Held) {
        let Ok(index) = usize::try_from(number.saturating_sub(self.next)) else { return };
        if self.held.len() <= index {
            self.held.resize(index + 1, Held::NOT_FINISHED);
        }
        self.held[index] = held;
    }

    /// Says that no further item of an earlier run comes in.
    pub(crate) fn forget_earlier(&mut self) {
        self.results.forget_earlier();
    }

    /// Returns whether a killed run would lose items that wait.
    pub(crate) fn has_unsaved(&self) -> bool {
        self.results.has_unsaved()
    }

    /// Saves the items that wait. If that fails, they are in memory only.
    pub(crate) fn save(&mut self) {
        self.results.save();
    }

    /// Returns whether an item is ready.
    pub(crate) fn is_ready(&self) -> bool {
        match self.is_ordered {
            true => self.held.front().is_some_and(|held| *held != Held::NOT_FINISHED),
            false => !self.in_memory.is_empty() || !self.held.is_empty(),
        }
    }

    /// Removes and returns the next item that is ready.
    ///
    /// # Errors
    /// The item is in the file and cannot be read again.
    pub(crate) fn take(&mut self) -> io::Result<Option<T>> {
        if !self.is_ready() {
            return Ok(None);
        }
        self.taken += 1;
        if !self.is_ordered
            && let Some((_, item)) = self.in_memory.pop_first()
        {
            return Ok(Some(item));
        }
        let (held, number) = (self.held.pop_front(), self.next);
        self.next += u64::from(self.is_ordered);
        let item = match held {
            None | Some(Held::NOT_FINISHED) => return Ok(None),
            Some(Held::IN_MEMORY) => self.in_memory.remove(&number),
            Some(Held(at)) => T::restore(&self.results.read(at.saturating_sub(2))?),
        };
        if self.held.is_empty() {
            self.results.clear();
        }
        item.ok_or_else(|| io::ErrorKind::InvalidData.into()).map(Some)
    }

    /// Gives up the next item if it is not finished and others are, at the end of a run that is
    /// incomplete. Returns whether any is ready.
    pub(crate) fn skip_gap(&mut self) -> bool {
        if self.is_ordered {
            while self.held.front() == Some(&Held::NOT_FINISHED) {
                self.held.pop_front();
                self.next += 1;
            }
        }
        self.is_ready()
    }

    /// Returns the number of items taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Stored for u64 {
        fn key(&self) -> Option<u128> {
            Some(u128::from(*self) + 1)
        }

        fn store(&self) -> Option<Vec<u8>> {
            // Every seventh one stays in memory.
            (!self.is_multiple_of(7)).then(|| self.to_le_bytes().to_vec())
        }

        fn restore(bytes: &[u8]) -> Option<Self> {
            bytes.try_into().ok().map(Self::from_le_bytes)
        }
    }

    /// Returns an order, and the folder of its file.
    fn order(is_ordered: bool) -> (ResultOrder<u64>, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        (ResultOrder::new(is_ordered, HeldResults::new(&dir.path().join("held"))), dir)
    }

    fn taken(order: &mut ResultOrder<u64>) -> Vec<u64> {
        std::iter::from_fn(|| order.take().unwrap()).collect()
    }

    #[test]
    fn without_an_order_every_item_is_ready() {
        let (mut order, _dir) = order(false);
        order.insert(2, 2);
        assert_eq!(taken(&mut order), [2]);
        order.insert(0, 0);
        assert_eq!((taken(&mut order), order.taken()), (vec![0], 2));
    }

    #[test]
    fn an_ordered_item_waits_for_the_earlier_ones() {
        let (mut order, _dir) = order(true);
        order.insert(1, 1);
        order.insert(3, 3);
        assert!(!order.is_ready());
        order.insert(0, 0);
        assert_eq!(taken(&mut order), [0, 1]);
        assert!(!order.is_ready() && order.skip_gap());
        assert_eq!((taken(&mut order), order.taken()), (vec![3], 3));
        assert!(!order.skip_gap());
    }

    #[test]
    fn items_that_wait_are_not_in_memory() {
        let (mut order, _dir) = order(true);
        // Backwards, so that each waits for the last one.
        for number in (1..100_000).rev() {
            order.insert(number, number);
            order.save();
        }
        assert!(!order.has_unsaved());
        assert!(order.in_memory.len() <= 100_000 / 7 && !order.is_ready());
        order.insert(0, 0);
        assert!(taken(&mut order).into_iter().eq(0..100_000));
        assert_eq!(order.held.len() + order.in_memory.len(), 0);
    }
    #[test]
    fn items_of_a_killed_run_come_back_in_either_order() {
        let dir = tempfile::tempdir().unwrap();
        let open = || HeldResults::open(dir.path().join("held"), 1).unwrap();
        let mut killed = ResultOrder::<u64>::new(true, open().0);
        (1..4).for_each(|number| killed.insert(number, number));
        killed.save();
        drop(killed);
        for (is_ordered, want) in [(true, vec![0, 1, 2, 3]), (false, vec![0, 1, 3, 2])] {
            let (results, mut earlier, _) = open();
            let mut order = ResultOrder::<u64>::new(is_ordered, results);
            for number in [1, 3] {
                order.insert_earlier(
                    number,
                    earlier.take(u128::from(number) + 1, |_| true).unwrap(),
                );
            }
            order.forget_earlier();
            assert_eq!(order.is_ready(), !is_ordered);
            order.insert(0, 0);
            let mut all = taken(&mut order);
            order.insert(2, 2);
            all.extend(taken(&mut order));
            assert_eq!(all, want);
        }
    }
}
