//! Finished items of a run that are not printed yet, and the order in which they are printed.
//!
//! Invariants: without an order, an item is ready at once. In the order of the input, an item is ready once all earlier
//! ones have been taken.
//!
//! Must not know: what an item is.

use std::collections::BTreeMap;

/// Finished items by their number in the order of reading.
#[derive(Debug)]
pub(super) struct ResultOrder<T> {
    items: BTreeMap<u64, T>,
    is_ordered: bool,
    taken: u64,
}

impl<T> ResultOrder<T> {
    /// Returns an empty order; with `is_ordered` items become ready in the order of their numbers.
    pub(super) fn new(is_ordered: bool) -> Self {
        Self { items: BTreeMap::new(), is_ordered, taken: 0 }
    }

    /// Adds the finished item `number`.
    pub(super) fn insert(&mut self, number: u64, item: T) {
        self.items.insert(number, item);
    }

    /// Returns whether an item is ready.
    pub(super) fn is_ready(&self) -> bool {
        self.next_number().is_some()
    }

    /// Removes and returns the next item that is ready.
    pub(super) fn take(&mut self) -> Option<T> {
        let item = self.next_number().and_then(|number| self.items.remove(&number))?;
        self.taken += 1;
        Some(item)
    }

    /// Makes all items ready, at the end of a run that is incomplete.
    pub(super) fn release_all(&mut self) {
        self.is_ordered = false;
    }

    /// Returns the number of items taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns how many of `read` items the order holds back: all that are not taken; none without an order.
    pub(super) fn held_back(&self, read: u64) -> u64 {
        if self.is_ordered { read - self.taken } else { 0 }
    }

    fn next_number(&self) -> Option<u64> {
        let (&first, _) = self.items.first_key_value()?;
        (!self.is_ordered || first == self.taken).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(order: &mut ResultOrder<u64>) -> Vec<u64> {
        std::iter::from_fn(|| order.take()).collect()
    }

    #[test]
    fn without_an_order_every_item_is_ready() {
        let mut order = ResultOrder::new(false);
        order.insert(2, 2);
        assert_eq!((taken(&mut order), order.held_back(3)), (vec![2], 0));
        order.insert(0, 0);
        assert_eq!((taken(&mut order), order.taken()), (vec![0], 2));
    }

    #[test]
    fn an_ordered_item_waits_for_the_earlier_ones() {
        let mut order = ResultOrder::new(true);
        order.insert(1, 1);
        order.insert(3, 3);
        assert!(!order.is_ready());
        order.insert(0, 0);
        assert_eq!((taken(&mut order), order.held_back(4)), (vec![0, 1], 2));
        order.release_all();
        assert_eq!((taken(&mut order), order.held_back(4)), (vec![3], 0));
    }
}
