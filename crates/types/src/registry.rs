//! Fetchers as the decision sees them: a name, a class and the cost of a request. Names become
//! small numbers here.
//!
//! Owns: the built-in names, and the defaults of each class.
//!
//! Invariants: ids are given in order of registration, are never reused, and index fixed slots.
//! Reading a spec takes no lock. A change of costs adds a list of candidates and leaves the older
//! ones in place, so that a reference to a spec stays valid, and a walk over the candidates sees
//! the costs of one moment.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use xxhash_rust::xxh3::xxh3_64;

use crate::unknown_name::UnknownName;

/// Maximum number of candidates of one selector.
pub const MAX_CANDIDATES: usize = 64;

/// Maximum number of fetcher names that a selector knows, with those that only the log has. Every
/// decision walks over the evidence of all of them, so a log with invented names must not make it
/// slow.
pub const MAX_FETCHERS: usize = 256;

/// The class of a fetcher. It sets the defaults of its [`FetcherSpec`].
///
/// ```
/// use fetchwise_types::registry::Class;
///
/// assert_eq!("stealth".parse(), Ok(Class::Stealth));
/// assert_eq!(Class::Rendering.to_string(), "rendering");
/// ```
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownName, parse_err_fn = no_class)]
#[non_exhaustive]
pub enum Class {
    /// A plain HTTP request.
    Plain,
    /// A browser.
    Rendering,
    /// A browser that hides its automation.
    Stealth,
    /// A service that has copies of pages.
    Archive,
    /// A downloader for certain sites.
    Special,
    /// Only its name is known.
    Unknown,
}

fn no_class(name: &str) -> UnknownName {
    UnknownName::new("class", name, Class::ALL.iter().map(|class| class.name()))
}

impl Class {
    /// Every class.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;

    /// Returns the class called `name`.
    #[inline]
    pub fn from_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }

    /// Returns the name in a config.
    #[inline]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One fetcher, as decisions see it.
#[derive(Clone, Debug, PartialEq)]
pub struct FetcherSpec {
    /// The name under which attempts are logged.
    pub name: Box<str>,
    /// Its class.
    pub class: Class,
    /// The cost of a request, in plain requests.
    pub cost: f64,
    /// Whether the cost is measured by the duration of its requests, mainly those on the host.
    /// [`cost`](Self::cost) is then the start value; the measured cost stays between a quarter and
    /// four times of it.
    pub measures_cost: bool,
    /// The worth of what it delivers, as a share of the page itself: an archive's copy is old.
    pub quality: f64,
    /// The chance of success without any evidence.
    pub prior: f64,
    /// The charge for a success that may be false, as a share of a page's worth: a fetcher that
    /// does not render can take a shell for content.
    pub false_success: f64,
    /// Whether it runs scripts.
    pub renders: bool,
    /// Whether it signs its requests: a site can verify which crawler it is.
    pub signed: bool,
    /// Whether the site can tell which crawler it is: by a signature, or by the product token in
    /// its `User-Agent`. A fetcher that does not contact the site declares itself too.
    pub declared: bool,
    /// The name of the fetcher that makes the same requests without a signature. Where a signed
    /// fetcher has no evidence, that of its twin counts, except for blocks.
    pub twin: Option<Box<str>>,
}

impl FetcherSpec {
    /// Returns a fetcher of `class` with that class's defaults.
    #[inline]
    pub fn new(name: &str, class: Class) -> Self {
        let (cost, prior, quality, renders) = match class {
            Class::Plain => (1.0, 0.75, 1.0, false),
            Class::Rendering => (20.0, 0.85, 1.0, true),
            Class::Stealth => (40.0, 0.85, 1.0, true),
            Class::Archive => (6.0, 0.3, 0.5, false),
            Class::Special => (12.0, 0.05, 1.0, false),
            Class::Unknown => (12.0, 0.5, 1.0, false),
        };
        let false_success = if renders { 0.0 } else { 0.05 };
        Self {
            name: canonical(name).into(),
            class,
            cost,
            measures_cost: false,
            quality,
            prior,
            false_success,
            renders,
            signed: false,
            declared: class == Class::Archive,
            twin: None,
        }
    }

    /// Returns a fetcher that makes plain HTTP requests.
    ///
    /// ```
    /// use fetchwise_types::registry::{Class, FetcherSpec};
    /// let dear = FetcherSpec::rendering("my_browser").cost(30.0);
    /// assert_eq!((dear.class, dear.cost, dear.renders), (Class::Rendering, 30.0, true));
    /// assert!(!FetcherSpec::plain("direct_access").renders);
    /// ```
    #[inline]
    pub fn plain(name: &str) -> Self {
        Self::new(name, Class::Plain)
    }

    /// Returns a fetcher that is a browser.
    #[inline]
    pub fn rendering(name: &str) -> Self {
        Self::new(name, Class::Rendering)
    }

    /// Returns a fetcher that is a browser and hides it.
    #[inline]
    pub fn stealth(name: &str) -> Self {
        Self::new(name, Class::Stealth)
    }

    /// Returns the spec with another cost of a request, in plain requests.
    #[must_use]
    #[inline]
    pub fn cost(self, cost: f64) -> Self {
        Self { cost, ..self }
    }

    /// Returns the spec with a cost that is measured by the duration of its requests.
    #[must_use]
    #[inline]
    pub fn measured_cost(self) -> Self {
        Self { measures_cost: true, ..self }
    }

    /// Returns the spec of a fetcher that signs its requests and otherwise makes those of `twin`.
    ///
    /// ```
    /// use fetchwise_types::registry::FetcherSpec;
    /// let signed = FetcherSpec::plain("my_signed").signed_twin_of("my_plain");
    /// assert!(signed.signed && signed.declared);
    /// assert_eq!(signed.twin.as_deref(), Some("my_plain"));
    /// ```
    #[must_use]
    #[inline]
    pub fn signed_twin_of(self, twin: &str) -> Self {
        Self { twin: Some(canonical(twin).into()), ..self.signed() }
    }

    /// Returns the spec of a fetcher that signs its requests.
    #[must_use]
    #[inline]
    pub fn signed(self) -> Self {
        Self { signed: true, declared: true, ..self }
    }

    /// Returns the default spec of `name`: the built-in names have their class, any other is
    /// [`Class::Unknown`].
    #[inline]
    pub fn by_name(name: &str) -> Self {
        let name = canonical(name);
        if let Some((_, twin)) = SIGNED.iter().find(|(signed, _)| *signed == name) {
            let Self { class, .. } = Self::by_name(twin);
            return Self::new(name, class).signed_twin_of(twin);
        }
        let class =
            BUILT_IN.iter().find(|(n, _)| *n == name).map_or(Class::Unknown, |&(_, class)| class);
        Self::new(name, class)
    }
}

/// The fetcher that probes, unless one that signs does: the cheapest one.
pub const PROBE_FETCHER: &str = "direct_access";

/// The names of the fetchers that sign, each with its twin. They are candidates only for a crawler
/// with an identity.
pub const SIGNED: [(&str, &str); 2] =
    [("direct_signed", PROBE_FETCHER), ("browser_signed", "playwright")];

/// The built-in names, cheapest first within their kind.
pub const BUILT_IN: &[(&str, Class)] = &[
    (PROBE_FETCHER, Class::Plain),
    ("playwright", Class::Rendering),
    ("playwright_stealth", Class::Stealth),
    ("archive_proxy", Class::Archive),
    ("youtube_downloader", Class::Special),
    ("nytime_searcher", Class::Special),
];

/// Returns `name` with its alias resolved: `simple_http` is `direct_access`.
#[inline]
pub fn canonical(name: &str) -> &str {
    if name == "simple_http" { PROBE_FETCHER } else { name }
}

/// The reason why fetchers cannot be candidates together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Two fetchers have the same name.
    #[error("duplicate fetcher {name}")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// There are more fetchers than one decision can tell apart.
    #[error("too many fetchers: {name} exceeds the limit of {MAX_CANDIDATES} candidates")]
    TooMany {
        /// The first fetcher beyond the limit.
        name: String,
    },
}

/// A fetcher's number within one selector.
///
/// Ids are meaningful only with the selector, or the [`Registry`], that gave them out. Ids below
/// [`MAX_CANDIDATES`] can be in a [`FetcherSet`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetcherId(
    /// The position in the order of registration, from 0 on.
    pub u16,
);

impl FetcherId {
    /// Returns its position in the order of registration, as an index.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the id that a place of the index holds, if there is one.
    fn at_place(place: u16) -> Option<Self> {
        place.checked_sub(1).map(Self)
    }
}

/// A set of candidates, by id. Fetchers that are not candidates are never in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetcherSet(u64);

impl FetcherSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Adds a candidate.
    #[inline]
    pub fn insert(&mut self, id: FetcherId) {
        if id.index() < MAX_CANDIDATES {
            self.0 |= 1 << id.0;
        }
    }

    /// Returns the union of both sets.
    #[must_use]
    #[inline]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns whether it contains `id`.
    #[inline]
    pub fn contains(self, id: FetcherId) -> bool {
        id.index() < MAX_CANDIDATES && self.0 & (1 << id.0) != 0
    }

    /// Returns the number of candidates in it.
    #[inline]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Returns whether it is empty.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// All fetchers that a selector knows, by id. Candidates come first.
///
/// Threads share it by reference: registering a name takes no lock, and of a registered fetcher
/// only the cost can change. It has room for [`MAX_FETCHERS`] names.
#[derive(Debug)]
pub struct Registry {
    /// The candidates, once for each change of their costs. There is one list at least.
    lists: boxcar::Vec<Box<[FetcherSpec]>>,
    /// The list in effect.
    list: AtomicUsize,
    /// The names that are no candidates, by id; those of candidates stay empty.
    slots: Box<[OnceLock<FetcherSpec>]>,
    candidates: usize,
    len: AtomicUsize,
    /// The candidates that sign and have a twin, each with its twin, which need not be a candidate.
    twins: Box<[(FetcherId, FetcherId)]>,
    /// The candidates that sign.
    signed: FetcherSet,
    /// The candidate that probes.
    probe: Option<FetcherId>,
    /// The places of the names that are no candidates, by hash: one more than the slot, or 0. A
    /// name lies at its hash, or in the next free place.
    index: Box<[AtomicU16]>,
}

/// Places of the index. Half of them stay free.
const INDEX_PLACES: usize = 2 * MAX_FETCHERS;

impl Registry {
    /// Returns a registry whose first fetchers, in this order, are the candidates.
    ///
    /// # Errors
    /// [`RegistryError`] if two have the same name, or if there are more than [`MAX_CANDIDATES`].
    #[inline]
    pub fn new(specs: Vec<FetcherSpec>) -> Result<Self, RegistryError> {
        if let Some(extra) = specs.get(MAX_CANDIDATES) {
            return Err(RegistryError::TooMany { name: extra.name.to_string() });
        }
        let is_duplicate = |(place, spec): &(usize, &FetcherSpec)| {
            specs[..*place].iter().any(|known| known.name == spec.name)
        };
        if let Some((_, duplicate)) = specs.iter().enumerate().find(is_duplicate) {
            return Err(RegistryError::Duplicate { name: duplicate.name.to_string() });
        }
        let count = specs.len();
        let mut signed = FetcherSet::EMPTY;
        (0..)
            .zip(&specs)
            .filter(|(_, spec)| spec.signed)
            .for_each(|(place, _)| signed.insert(FetcherId(place)));
        let is_probe = |spec: &FetcherSpec| match signed.is_empty() {
            true => &*spec.name == PROBE_FETCHER,
            false => spec.class == Class::Plain,
        };
        let probe = specs.iter().position(is_probe).map(|place| FetcherId(place as u16));
        let with_twins: Vec<(FetcherId, Box<str>)> = (0..)
            .zip(&specs)
            .filter_map(|(place, spec)| Some((FetcherId(place), spec.twin.clone()?)))
            .collect();
        let slots = std::iter::repeat_with(OnceLock::new).take(MAX_FETCHERS).collect();
        let index = std::iter::repeat_with(|| AtomicU16::new(0)).take(INDEX_PLACES).collect();
        let mut registry = Self {
            lists: std::iter::once(specs.into_boxed_slice()).collect(),
            list: AtomicUsize::new(0),
            slots,
            candidates: count,
            len: AtomicUsize::new(count),
            twins: Box::default(),
            signed,
            probe,
            index,
        };
        let twins =
            with_twins.into_iter().filter_map(|(id, twin)| Some((id, registry.intern(&twin)?)));
        let twins = twins.filter(|(id, twin)| id != twin).collect();
        registry.twins = twins;
        Ok(registry)
    }

    /// Returns the candidates that sign and have a twin, each with its twin. The twin need not be a
    /// candidate.
    #[inline]
    pub fn twins(&self) -> &[(FetcherId, FetcherId)] {
        &self.twins
    }

    /// Returns the candidates that sign.
    #[inline]
    pub fn signed(&self) -> FetcherSet {
        self.signed
    }

    /// Returns the candidate that probes: the first plain one if any candidate signs, else the one
    /// of this name.
    #[inline]
    pub fn probe(&self) -> Option<FetcherId> {
        self.probe
    }

    /// Returns the number of candidates: smaller ids are theirs.
    #[inline]
    pub fn candidates_len(&self) -> usize {
        self.candidates
    }

    /// Returns the candidates in order of registration.
    #[inline]
    pub fn candidates(&self) -> impl Iterator<Item = (FetcherId, &FetcherSpec)> {
        (0..).map(FetcherId).zip(self.list())
    }

    /// Returns the candidates as they are now.
    #[inline]
    fn list(&self) -> &[FetcherSpec] {
        // Acquire pairs with the Release in `set_costs`.
        self.lists.get(self.list.load(Ordering::Acquire)).map_or(&[], |list| list)
    }

    /// Sets the cost of a request for each candidate by `cost`, which returns it in plain requests,
    /// and whether it is measured; `None` leaves a candidate as it is. Returns whether any cost has
    /// changed.
    ///
    /// A decision sees the old costs or the new ones. Each change keeps a list of candidates until
    /// the registry is dropped. Concurrent changes are the caller's to avoid: the later one wins.
    pub fn set_costs(&self, cost: impl Fn(&FetcherSpec) -> Option<(f64, bool)>) -> bool {
        let before = self.list();
        let with_cost = |spec: &FetcherSpec| {
            let (cost, measures_cost) = cost(spec).unwrap_or((spec.cost, spec.measures_cost));
            FetcherSpec { cost, measures_cost, ..spec.clone() }
        };
        let after: Box<[FetcherSpec]> = before.iter().map(with_cost).collect();
        let is_changed = *after != *before;
        if is_changed {
            // Release pairs with the Acquire in `list`.
            self.list.store(self.lists.push(after), Ordering::Release);
        }
        is_changed
    }

    /// Returns all names, by id.
    #[inline]
    pub fn names(&self) -> impl Iterator<Item = &str> {
        // Acquire pairs with the Release in `intern`.
        let len = self.len.load(Ordering::Acquire).min(MAX_FETCHERS);
        let others = self.slots[self.candidates..len].iter().map_while(OnceLock::get);
        self.list().iter().chain(others).map(|spec| &*spec.name)
    }

    /// Returns the spec of `id`, which this registry gave out.
    #[inline]
    pub fn spec(&self, id: FetcherId) -> Option<&FetcherSpec> {
        self.list().get(id.index()).or_else(|| self.slots.get(id.index())?.get())
    }

    /// Returns the id of `name`, or of the name that it is an alias of, if it is known. Cost:
    /// linear in the number of candidates, and a hash for other names.
    #[inline]
    pub fn find(&self, name: &str) -> Option<FetcherId> {
        let name = canonical(name);
        let candidate = self.list().iter().position(|spec| &*spec.name == name);
        candidate.map(|place| FetcherId(place as u16)).or_else(|| self.find_other(name))
    }

    /// Returns the id of a name that is no candidate, if it is known.
    fn find_other(&self, name: &str) -> Option<FetcherId> {
        // Acquire pairs with the Release in `intern`: a name that was counted is in the index.
        if self.len.load(Ordering::Acquire) == self.candidates {
            return None;
        }
        self.places(name)
            .map_while(|place| FetcherId::at_place(place.load(Ordering::Acquire)))
            .find(|id| self.spec(*id).is_some_and(|spec| &*spec.name == name))
    }

    /// Returns the places of the index at which a name can be, in order.
    fn places(&self, name: &str) -> impl Iterator<Item = &AtomicU16> {
        let first = xxh3_64(name.as_bytes()) as usize % INDEX_PLACES;
        self.index[first..].iter().chain(&self.index[..first])
    }

    /// Adds the name of a slot to the index, unless another thread has.
    fn add_to_index(&self, name: &str, id: FetcherId) {
        for place in self.places(name) {
            // Release pairs with the Acquire in `find_other`.
            match place.compare_exchange(0, id.0 + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(taken) if taken == id.0 + 1 => return,
                Err(_) => {}
            }
        }
    }

    /// Returns the id of `name`, and registers it if it is unknown. `None` if there is no room for
    /// another name.
    #[inline]
    pub fn intern(&self, name: &str) -> Option<FetcherId> {
        // Counted before the search: a name that another thread registers meanwhile lies behind it,
        // where the loop finds it. Acquire pairs with the Release below.
        let from = self.len.load(Ordering::Acquire);
        if let Some(id) = self.find(name) {
            return Some(id);
        }
        let name = canonical(name);
        for (index, slot) in self.slots.iter().enumerate().skip(from) {
            // The first thread takes the slot; a loser reads its name and goes on.
            let spec = slot.get_or_init(|| FetcherSpec::by_name(name));
            // Before the count, so that a name that was counted is in the index.
            self.add_to_index(&spec.name, FetcherId(index as u16));
            // Release pairs with the Acquire in `names`, in `find_other` and above.
            self.len.fetch_max(index + 1, Ordering::Release);
            if &*spec.name == name {
                return Some(FetcherId(index as u16));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_registration_and_aliases_resolve() {
        let registry = Registry::new(vec![
            FetcherSpec::by_name("direct_access"),
            FetcherSpec::by_name("playwright"),
        ])
        .unwrap();
        assert_eq!(registry.find("simple_http"), Some(FetcherId(0)));
        assert_eq!(registry.intern("yt"), Some(FetcherId(2)));
        assert_eq!(registry.intern("yt"), Some(FetcherId(2)));
        assert_eq!(registry.candidates().count(), 2);
        assert_eq!(registry.spec(FetcherId(2)).map(|s| s.class), Some(Class::Unknown));
        assert_eq!(registry.find("nobody"), None);
    }

    #[test]
    fn changed_costs_are_those_of_later_readers_and_leave_earlier_ones_theirs() {
        let names = ["direct_access", "playwright", "stealth"];
        let registry = Registry::new(names.map(FetcherSpec::by_name).to_vec()).unwrap();
        registry.intern("other");
        let costs = || {
            registry
                .candidates()
                .map(|(_, spec)| (spec.cost, spec.measures_cost))
                .collect::<Vec<_>>()
        };
        let (before, old) = (costs(), registry.spec(FetcherId(1)).unwrap());
        assert!(
            !registry.set_costs(|_| None) && !registry.set_costs(|spec| Some((spec.cost, false)))
        );
        for cost in [3.5, 7.0, 3.5] {
            assert!(
                registry.set_costs(|spec| (&*spec.name == "playwright").then_some((cost, true)))
            );
            assert_eq!(costs(), [before[0], (cost, true), before[2]]);
        }
        assert_eq!((old.cost, registry.spec(FetcherId(1)).unwrap().cost), (20.0, 3.5));
        assert_eq!(
            registry.names().collect::<Vec<_>>(),
            ["direct_access", "playwright", "stealth", "other"]
        );
        assert_eq!(registry.find("playwright"), Some(FetcherId(1)));
        assert_eq!(registry.find("other"), Some(FetcherId(3)));
    }

    #[test]
    fn a_signed_fetcher_has_the_class_of_its_twin_and_probes() {
        let names = ["direct_signed", "playwright", "browser_signed"];
        let registry = Registry::new(names.map(FetcherSpec::by_name).to_vec()).unwrap();
        // The first twin is no candidate, the second one is.
        assert_eq!(registry.twins(), [(FetcherId(0), FetcherId(3)), (FetcherId(2), FetcherId(1))]);
        assert_eq!(registry.names().last(), Some("direct_access"));
        assert_eq!((registry.probe(), registry.signed().len()), (Some(FetcherId(0)), 2));
        let spec = registry.spec(FetcherId(2)).unwrap();
        assert_eq!((spec.class, spec.cost, spec.renders), (Class::Rendering, 20.0, true));
        let unsigned =
            Registry::new(["playwright", "direct_access"].map(FetcherSpec::by_name).to_vec())
                .unwrap();
        assert_eq!((unsigned.probe(), unsigned.twins().len()), (Some(FetcherId(1)), 0));
    }

    #[test]
    fn a_duplicate_or_excess_fetcher_is_named() {
        let duplicate = ["a", "b", "a"].map(FetcherSpec::by_name).to_vec();
        assert_eq!(
            Registry::new(duplicate).unwrap_err(),
            RegistryError::Duplicate { name: "a".to_owned() }
        );
        let many: Vec<_> =
            (0..=MAX_CANDIDATES).map(|n| FetcherSpec::by_name(&format!("f{n}"))).collect();
        assert_eq!(
            Registry::new(many).unwrap_err(),
            RegistryError::TooMany { name: "f64".to_owned() }
        );
    }

    #[test]
    fn a_full_registry_says_so() {
        let registry = Registry::new(Vec::new()).unwrap();
        for n in 0..MAX_FETCHERS {
            assert!(registry.intern(&format!("f{n}")).is_some());
        }
        assert_eq!(registry.intern("one more"), None);
        assert_eq!(registry.intern("f7"), Some(FetcherId(7)));
    }

    #[test]
    fn racing_threads_agree_on_ids() {
        // Regression: a name got two ids if another thread registered it between a thread's search
        // and that thread's read of the count.
        for _ in 0..200 {
            let registry = Registry::new(Vec::new()).unwrap();
            let ids = |registry: &Registry| {
                (0..50).map(|n| registry.intern(&format!("f{n}"))).collect::<Vec<_>>()
            };
            let (a, b) = std::thread::scope(|scope| {
                let other = scope.spawn(|| ids(&registry));
                (ids(&registry), other.join().unwrap())
            });
            assert_eq!(a, b);
        }
    }
}
