//! The numbers that stored entries have for fetchers. A process gives its fetchers ids in the order
//! in which it meets them, and another process meets them in another order.
//!
//! Owns: the translation between both.
//!
//! Invariants: each id has one number and each number one id, also those that are given out later.
//!
//! Must not know: what is stored.

use fetchwise_types::registry::{Class, FetcherId, MAX_FETCHERS, Registry};

/// A fetcher as stored entries know it. Its place among all is its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredFetcher {
    pub(super) name: String,
    pub(super) class: Class,
    pub(super) signed: bool,
}

/// Numbers by id, and ids by number. Beyond both lists they are equal, as they are in the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FetcherNumbers {
    numbers: Vec<u16>,
    ids: Vec<u16>,
}

impl FetcherNumbers {
    /// Returns the numbers under which `registry` finds these fetchers, which it learns the names
    /// of; `None` if it has no room for them, or if it knows one of them as another kind of
    /// fetcher.
    pub(super) fn of(stored: &[StoredFetcher], registry: &Registry) -> Option<Self> {
        let mut ids = Vec::with_capacity(stored.len());
        for fetcher in stored {
            let id = registry.intern(&fetcher.name)?;
            let spec = registry.spec(id)?;
            if (spec.class, spec.signed) != (fetcher.class, fetcher.signed) || ids.contains(&id.0) {
                return None;
            }
            ids.push(id.0);
        }
        let known = u16::try_from(registry.names().count().min(MAX_FETCHERS)).ok()?;
        ids.extend((0..known).filter(|id| !ids.contains(id)).collect::<Vec<_>>());
        let mut numbers = vec![0; ids.len()];
        for (number, id) in (0..).zip(&ids) {
            *numbers.get_mut(usize::from(*id))? = number;
        }
        Some(Self { numbers, ids })
    }

    /// Returns the fetchers of `registry` by their numbers.
    pub(super) fn fetchers(&self, registry: &Registry) -> Vec<StoredFetcher> {
        let by_number = (0..).map(|number| registry.spec(self.id(number)));
        let stored = by_number.map_while(|spec| {
            spec.map(|spec| StoredFetcher {
                name: spec.name.to_string(),
                class: spec.class,
                signed: spec.signed,
            })
        });
        stored.take(MAX_FETCHERS).collect()
    }

    /// Returns the number of a fetcher.
    pub(super) fn number(&self, id: FetcherId) -> u16 {
        self.numbers.get(id.index()).copied().unwrap_or(id.0)
    }

    /// Returns the fetcher of a number.
    pub(super) fn id(&self, number: u16) -> FetcherId {
        FetcherId(self.ids.get(usize::from(number)).copied().unwrap_or(number))
    }
}

#[cfg(test)]
mod tests {
    use fetchwise_types::registry::FetcherSpec;

    use super::*;

    fn registry(candidates: &[&str], others: &[&str]) -> Registry {
        let registry =
            Registry::new(candidates.iter().map(|name| FetcherSpec::by_name(name)).collect())
                .unwrap();
        others.iter().for_each(|name| assert!(registry.intern(name).is_some()));
        registry
    }

    #[test]
    fn fetchers_are_found_whatever_the_order_of_both_processes() {
        let before = registry(&["direct_access", "playwright", "mine"], &["b", "a"]);
        let stored = FetcherNumbers::default().fetchers(&before);
        assert_eq!(stored.len(), 5);
        let after = registry(&["playwright", "new", "direct_access", "a"], &["newer"]);
        let numbers = FetcherNumbers::of(&stored, &after).unwrap();
        for (number, fetcher) in (0..).zip(&stored) {
            assert_eq!(
                after.spec(numbers.id(number)).map(|spec| &*spec.name),
                Some(&*fetcher.name)
            );
        }
        after.intern("latest").unwrap();
        for id in (0..20).map(FetcherId) {
            assert_eq!(numbers.id(numbers.number(id)), id);
        }
        let all = numbers.fetchers(&after);
        assert_eq!((all.len(), &all[..5]), (8, &stored[..]), "known numbers stay");
        let again = FetcherNumbers::of(&all, &after).unwrap();
        assert!((0..20).all(|number| again.id(number) == numbers.id(number)));
    }

    #[test]
    fn a_fetcher_of_another_kind_is_refused() {
        let stored = FetcherNumbers::default().fetchers(&registry(&["mine"], &[]));
        let other = Registry::new(vec![FetcherSpec::new("mine", Class::Archive)]).unwrap();
        assert_eq!(FetcherNumbers::of(&stored, &other), None);
        let twice = [stored[0].clone(), stored[0].clone()];
        assert_eq!(FetcherNumbers::of(&twice, &registry(&["mine"], &[])), None);
    }
}
