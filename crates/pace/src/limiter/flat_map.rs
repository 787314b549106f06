//! A map with its items in place: open addressing with linear probing, and one byte per slot that
//! tells most look-ups which slot to read.
//!
//! A look-up among a million items reads one line of tags, which are few enough to stay in the
//! processor's cache, and then the item. No pointer lies between the two. Library tables double, so
//! they are a quarter empty on average; with items of 200 bytes that is too much. This one grows by
//! an eighth.
//!
//! Owns: the slots.
//!
//! Invariants: at most nine tenths of the slots are in use, so a search ends. An item stays in its
//! slot until one is added or removed.
//!
//! Must not know: what the items are.

/// The tag of a slot that was never in use since the last rebuild: a search ends there.
const EMPTY: u8 = 0;
/// The tag of a slot whose item was removed: a search goes on.
const REMOVED: u8 = 1;
/// Slots of the smallest table.
const LEAST_SLOTS: usize = 4;

/// An item that knows its key: a hash, so that the map needs no other. Its default fills empty
/// slots.
pub(crate) trait Keyed: Default {
    fn key(&self) -> u64;
}

/// Items by their keys.
#[derive(Debug, Default)]
pub(crate) struct FlatMap<T> {
    tags: Vec<u8>,
    slots: Vec<T>,
    /// Number of items.
    len: usize,
    /// Number of slots without an item that are not empty.
    removed: usize,
}

impl<T: Keyed> FlatMap<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.tags.iter().zip(&self.slots).filter(|(tag, _)| **tag > REMOVED).map(|(_, item)| item)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.tags
            .iter()
            .zip(&mut self.slots)
            .filter(|(tag, _)| **tag > REMOVED)
            .map(|(_, item)| item)
    }

    /// Returns the slot of the item with this key.
    #[inline]
    pub(crate) fn find(&self, key: u64) -> Option<usize> {
        let (wanted, slots) = (tag_of(key), self.tags.len());
        if slots == 0 {
            return None;
        }
        let mut at = home_of(key, slots);
        loop {
            match self.tags[at] {
                EMPTY => return None,
                tag if tag == wanted && self.slots[at].key() == key => return Some(at),
                _ => at = if at + 1 == slots { 0 } else { at + 1 },
            }
        }
    }

    /// Returns the item in a slot that [`find`](Self::find) or [`insert`](Self::insert) returned.
    #[inline]
    pub(crate) fn item_mut(&mut self, at: usize) -> &mut T {
        &mut self.slots[at]
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        self.find(key).map(|at| &mut self.slots[at])
    }

    pub(crate) fn get_or_insert_with(&mut self, key: u64, make: impl FnOnce() -> T) -> &mut T {
        let at = self.find(key).unwrap_or_else(|| self.insert(make()));
        &mut self.slots[at]
    }

    /// Adds an item whose key is new, and returns its slot.
    pub(crate) fn insert(&mut self, item: T) -> usize {
        if (self.len + self.removed + 1) * 10 > self.slots.len() * 9 {
            self.rebuild(self.len + 1);
        }
        self.len += 1;
        let at = self.claim(item.key());
        self.slots[at] = item;
        at
    }

    /// Removes the item in a slot.
    pub(crate) fn remove(&mut self, at: usize) -> T {
        let next = if at + 1 == self.tags.len() { 0 } else { at + 1 };
        // No search passes a slot before an empty one.
        self.tags[at] = if self.tags[next] == EMPTY { EMPTY } else { REMOVED };
        self.removed += usize::from(self.tags[at] == REMOVED);
        self.len -= 1;
        let item = std::mem::take(&mut self.slots[at]);
        if self.len * 3 < self.slots.len() * 2 && self.slots.len() > LEAST_SLOTS {
            self.rebuild(self.len);
        }
        item
    }

    /// Removes the items that `keep` refuses.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        for (tag, slot) in
            self.tags.iter_mut().zip(&mut self.slots).filter(|(tag, _)| **tag > REMOVED)
        {
            if !keep(slot) {
                (*tag, *slot) = (REMOVED, T::default());
                (self.len, self.removed) = (self.len - 1, self.removed + 1);
            }
        }
        if self.removed > 0 {
            self.rebuild(self.len);
        }
    }

    /// Moves the items to a table for `len` of them, with room for an eighth more.
    fn rebuild(&mut self, len: usize) {
        let slots = if len == 0 { 0 } else { (len + len / 4).max(LEAST_SLOTS) };
        let tags = std::mem::replace(&mut self.tags, vec![EMPTY; slots]);
        let mut empty = Vec::new();
        empty.resize_with(slots, T::default);
        let mut items = std::mem::replace(&mut self.slots, empty);
        self.removed = 0;
        for (tag, item) in tags.into_iter().zip(&mut items) {
            if tag > REMOVED {
                let at = self.claim(item.key());
                std::mem::swap(&mut self.slots[at], item);
            }
        }
    }

    /// Returns the first free slot for a key, with its tag.
    fn claim(&mut self, key: u64) -> usize {
        let slots = self.tags.len();
        let mut at = home_of(key, slots);
        while self.tags[at] > REMOVED {
            at = if at + 1 == slots { 0 } else { at + 1 };
        }
        self.removed -= usize::from(self.tags[at] == REMOVED);
        self.tags[at] = tag_of(key);
        at
    }
}

/// Returns the slot at which the search for a key begins. Slots are in the order of keys, so that a
/// rebuild reads and writes memory in order.
fn home_of(key: u64, slots: usize) -> usize {
    ((u128::from(key) * slots as u128) >> 64) as usize
}

/// Returns the tag of a key. Neither the slot nor the lock depends on its bits.
fn tag_of(key: u64) -> u8 {
    ((key >> 16) as u8).max(REMOVED + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Default, PartialEq)]
    struct Item(u64, u32);

    impl Keyed for Item {
        fn key(&self) -> u64 {
            self.0
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// Changes the item, or adds it.
        Change(u64),
        Remove(u64),
        /// Removes all items whose value is not a multiple.
        Retain(u32),
    }

    /// Keys with equal tags, equal homes, and homes at the end of the table.
    fn any_key() -> impl Strategy<Value = u64> {
        prop_oneof![0_u64..40, (0_u64..40).prop_map(|key| u64::MAX - key), 0_u64..900].prop_map(
            |key| if key > 39 && key < 900 { key.wrapping_mul(0x9e37_79b9_7f4a_7c15) } else { key },
        )
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            60 => any_key().prop_map(Step::Change),
            40 => any_key().prop_map(Step::Remove),
            1 => (1_u32..4).prop_map(Step::Retain),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.div_ceil(4)))]

        /// The model is a sorted map.
        #[test]
        fn items_are_found_by_their_keys(steps in prop::collection::vec(any_step(), 1..2000)) {
            let (mut map, mut model) = (FlatMap::default(), BTreeMap::<u64, u32>::new());
            for (number, step) in (0..).zip(steps) {
                match step {
                    Step::Change(key) => {
                        map.get_or_insert_with(key, || Item(key, 0)).1 += number;
                        *model.entry(key).or_default() += number;
                    }
                    Step::Remove(key) => {
                        let removed = map.find(key).map(|at| map.remove(at).1);
                        prop_assert_eq!(removed, model.remove(&key));
                    }
                    Step::Retain(multiple) => {
                        map.retain(|item| item.1 % multiple == 0);
                        model.retain(|_, value| *value % multiple == 0);
                    }
                }
                prop_assert_eq!(map.len(), model.len());
                prop_assert!((map.len + map.removed) * 10 <= map.slots.len() * 9, "a search must end");
                prop_assert!(map.slots.len() <= LEAST_SLOTS + 3 * map.len / 2, "memory is given back");
            }
            let found: BTreeMap<u64, u32> = map.iter().map(|item| (item.0, item.1)).collect();
            prop_assert_eq!(&found, &model);
            for (key, value) in model {
                prop_assert_eq!(map.get_mut(key).map(|item| item.1), Some(value));
            }
        }
    }

    #[test]
    fn an_empty_map_takes_no_memory() {
        let mut map = FlatMap::<Item>::default();
        assert_eq!((map.find(1), map.tags.capacity(), map.slots.capacity()), (None, 0, 0));
        let at = map.insert(Item(7, 1));
        assert_eq!((map.remove(at), map.len()), (Item(7, 1), 0));
        map.retain(|_| true);
        assert_eq!(map.iter().count(), 0);
    }
}
