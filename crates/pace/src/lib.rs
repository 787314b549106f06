//! Adaptive rate limiting for crawlers: how fast, and with how many parallel requests, a host may
//! be requested. The limits are learned from its responses.
//!
//! A [`Pace`] does no I/O, starts no task and reads no clock: the caller passes the time and does
//! its own waiting. It works with any HTTP client, blocking or asynchronous, and in simulated time.
//!
//! # Start here
//!
//! Call [`Pace::admit`] before each request and [`Pace::record_response`] after it:
//!
//! ```
//! use fetchwise_pace::registry::FetcherId;
//! use fetchwise_pace::time::Timestamp;
//! use fetchwise_pace::{Admit, Cost, Pace, PaceSettings, Response, Scope, Signal};
//!
//! let pace = Pace::new(PaceSettings::default());
//! let client = FetcherId(0); // a crawler with several clients numbers them
//! let (scope, mut now) = (Scope::host("example.org"), Timestamp::from_millis(0));
//! for _ in 0..10 {
//!     match pace.admit(scope, Cost::Plain, now) {
//!         Admit::Go(permit) => {
//!             // Send the request here.
//!             let _ = pace.record_response(permit, &Response::new(Signal::Content, client), now);
//!         }
//!         Admit::Wait(until) => now = until, // sleep until then
//!         Admit::AtCapacity => unreachable!("nothing is in flight"),
//!     }
//! }
//! assert_eq!(now.as_millis() / 1000, 2); // two requests per second at first
//! ```
//!
//! A [`Permit`] counts as a request in flight until it is passed to `record_response` or
//! [`Pace::cancel`]. Nothing is reserved for a waiting caller; it calls `admit` again.
//!
//! # What a host says
//!
//! [`Signal`] is the part of a response that matters here: content, 429, 503, a block, an error.
//! `Signal::of` derives it from an [`Outcome`](fetch_result::Outcome); the detector of
//! `fetchwise-detect` returns one. [`Response`] adds what is known besides: `Retry-After`, latency,
//! rate-limit headers ([`RateLimit::read`]).
//!
//! A 429 holds the host. The hold ends with one trial request; if the host refuses it, the hold
//! grows:
//!
//! ```
//! use std::time::Duration;
//!
//! use fetchwise_pace::registry::FetcherId;
//! use fetchwise_pace::time::Timestamp;
//! use fetchwise_pace::{Admit, Cost, Pace, PaceSettings, Response, ResponseEffect, Scope, Signal};
//!
//! let pace = Pace::new(PaceSettings::default());
//! let (scope, now) = (Scope::host("example.org"), Timestamp::from_millis(0));
//! let Admit::Go(permit) = pace.admit(scope, Cost::Plain, now) else { unreachable!("the first request goes out") };
//! let mut response = Response::new(Signal::Limited, FetcherId(0));
//! response.retry_after = Some(Duration::from_secs(20));
//!
//! let effect = pace.record_response(permit, &response, now);
//! let ResponseEffect::LimitHit { hold_until, .. } = effect else { unreachable!("a 429 is a limit hit") };
//! assert_eq!(hold_until.as_millis(), 21_000); // a second more, for differing clocks
//! assert_eq!(pace.admit(scope, Cost::Plain, now), Admit::Wait(hold_until));
//! ```
//!
//! A single block (403, captcha) is ambiguous: it may concern the page only. `record_response` then
//! returns [`ResponseEffect::Doubt`], holds the host for three seconds, and decides by the next URL
//! ([`Pace::doubt_verdict`]).
//!
//! # How limits are learned
//!
//! Requests go out evenly, so every kind of limiter reduces to a rate; limiters differ only in
//! their window. Requests are counted over five windows at once (10 s to 1 h), and a limit hit is
//! charged to one of them. That window's ceiling rises again only by rare probes, whose cost is
//! known beforehand. Hosts of one site, or at one address, share a limit if their blocks show it.
//!
//! # Persistence
//!
//! [`Pace::with_store`] takes a [`PaceStore`], which receives 64 bytes per host whenever something
//! was learned. [`Pace::restore`] reads them in the next process.
//!
//! # Guarantees
//!
//! * A host never has more parallel requests than its limit.
//! * No request goes out while a host is held; after the hold, one goes out alone.
//! * The same calls at the same times have the same results.
//!
//! # Features
//!
//! `metrics` adds `Pace::summary`: the paces of all hosts in a few numbers.
//!
//! Must not know: how requests are sent.
//!

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use fetchwise_types::heuristic::url::site_of;
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

mod active_settings;
mod admin;
mod explain;
mod limiter;
mod persistence;
#[cfg(test)]
mod proptests;
mod settings;
mod signals;
#[cfg(feature = "metrics")]
mod summary;
#[cfg(test)]
mod tests;

pub use explain::PaceExplanation;
pub use limiter::permit::Permit;
pub use persistence::{PaceRecord, PaceState, PaceStore};
pub use settings::{CrawlDelay, HostPace, PaceMode, PaceSettings};
pub use signals::headers::RateLimit;
pub use signals::response::{Admit, Cause, DoubtVerdict, Level, Response, ResponseEffect, Signal};
#[cfg(feature = "metrics")]
pub use summary::PaceSummary;

pub use fetchwise_types::{fetch_result, registry, response, time};

use crate::active_settings::ActiveSettings;
use crate::limiter::active_state::ActiveState;
use crate::limiter::admission::Admission;
use crate::limiter::host::{HostEntry, HostIdentity};
use crate::limiter::host_map::HostMap;
use crate::limiter::permit::wrapped;
use crate::limiter::shared_levels::{SharedEntry, SharedMap, SharedState, SiteSharing, is_recent};
use crate::persistence::persisted_state::{PersistedState, RENDER_COST};
use crate::signals::local_load::LocalLoad;

/// The target of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope<'s> {
    /// The domain of the host, as [`domain_of`](fetchwise_types::heuristic::url::domain_of) returns
    /// it.
    pub host: &'s str,
    /// Its site: the registrable domain.
    pub site: &'s str,
    /// The dialled address, if hosts of one address share a pace. While a host has requests in
    /// flight, the address of the first of them counts.
    pub address: Option<&'s str>,
}

impl<'s> Scope<'s> {
    /// Creates the scope of a host and its registrable domain.
    pub fn host(host: &'s str) -> Self {
        Self { host, site: site_of(host), address: None }
    }
}

/// Expected number of requests to the host. The [`Response`] has the actual one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cost {
    /// One request.
    #[default]
    Plain,
    /// As many as rendered pages of this host have made so far; twelve while that is unknown.
    Rendered,
}

/// The effect of [`Pace::set_min_interval`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinInterval {
    /// The gap that is kept from now on; `None` if the settings ignore it.
    pub applied: Option<Duration>,
    /// The requested gap was longer than the maximum of the settings.
    pub is_shortened: bool,
    /// The host has not declared this gap before in this process.
    pub is_new: bool,
}

/// The paces of all hosts. See the [crate page](self).
pub struct Pace {
    active: ArcSwap<ActiveSettings>,
    seed: u64,
    /// Whether there is no pace.
    is_off: bool,
    hosts: HostMap,
    sites: SharedMap,
    addresses: SharedMap,
    store: Option<Box<dyn PaceStore>>,
    load: LocalLoad,
    /// Entries created since idle ones were last removed.
    new_entries: AtomicUsize,
    /// Number of new entries after which idle ones are removed again.
    sweep_at: AtomicUsize,
}

/// Minimum of `sweep_at`.
const SWEEP_LEAST: usize = 4096;

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace")
            .field("settings", &self.settings())
            .field("hosts", &self.hosts.len())
            .finish_non_exhaustive()
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self::new(PaceSettings::default())
    }
}

impl Pace {
    /// Creates a pace with nothing learned.
    pub fn new(settings: PaceSettings) -> Self {
        let seed = settings.seed;
        Self {
            seed,
            is_off: settings.mode == PaceMode::Off,
            active: ArcSwap::from_pointee(ActiveSettings::new(settings, |name| key_of(name, seed))),
            hosts: HostMap::default(),
            sites: SharedMap::default(),
            addresses: SharedMap::default(),
            store: None,
            load: LocalLoad::default(),
            new_entries: AtomicUsize::new(0),
            sweep_at: AtomicUsize::new(SWEEP_LEAST),
        }
    }

    /// Passes what is learned to `store`: at limit hits, when a ceiling moves by a quarter, and by
    /// [`Pace::close`].
    #[must_use]
    pub fn with_store(self, store: Box<dyn PaceStore>) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Returns whether a request may go out now, or when to call again. Call it when the request
    /// could go out at once: nothing is reserved for a waiting caller.
    pub fn admit(&self, scope: Scope<'_>, cost: Cost, now: Timestamp) -> Admit {
        if self.is_off {
            return Admit::Go(Permit::new(0, now.as_millis(), Default::default(), 0, 0));
        }
        self.sweep(now);
        self.with_levels(scope, now, |admission| {
            let cost = cost_at(cost, admission.host.persisted());
            admission.admit(cost)
        })
    }

    /// Books a request that already went out, at `sent`, without admission: its sender learned of
    /// the host only from the response, as a client does that follows redirects by itself.
    pub fn book_sent(
        &self,
        scope: Scope<'_>,
        cost: Cost,
        sent: Timestamp,
        now: Timestamp,
    ) -> Permit {
        if self.is_off {
            return Permit::new(0, now.as_millis(), Default::default(), 0, 0);
        }
        self.sweep(now);
        self.with_levels(scope, now, |admission| {
            let cost = cost_at(cost, admission.host.persisted());
            admission.book_sent(cost, sent.as_millis())
        })
    }

    /// Records the response to a request.
    pub fn record_response(
        &self,
        permit: Permit,
        response: &Response,
        now: Timestamp,
    ) -> ResponseEffect {
        let recorded = self.with_levels_of(&permit, now, |admission| {
            let (effect, cause) = admission.record_response(&permit, response);
            let record = cause.filter(|_| self.store.is_some()).and_then(|(level, cause)| {
                let (name, state) = admission.persisted_state(level)?;
                Some((level, name.to_owned(), state, cause))
            });
            (effect, record)
        });
        let Some((effect, record)) = recorded else { return ResponseEffect::Nothing };
        if let Some((level, name, state, cause)) = record {
            self.keep(level, &name, state, cause, now);
        }
        effect
    }

    /// Records that the request of this permit never went out.
    pub fn cancel(&self, permit: Permit, now: Timestamp) {
        self.with_levels_of(&permit, now, |admission| admission.cancel(&permit));
    }

    /// Sets the minimum gap between requests that the host declares: its `Crawl-delay`. The
    /// settings decide its effect.
    pub fn set_min_interval(&self, scope: Scope<'_>, gap: Duration, now: Timestamp) -> MinInterval {
        let settings = self.settings();
        let most = Duration::from_secs_f64(settings.max_crawl_delay_s);
        let (is_shortened, applied) = (gap > most, gap.min(most));
        if self.is_off || settings.crawl_delay == CrawlDelay::Ignore || applied.is_zero() {
            return MinInterval { applied: None, is_shortened: false, is_new: false };
        }
        self.with_levels(scope, now, |admission| {
            let is_start = settings.crawl_delay == CrawlDelay::Initial;
            admission.wake();
            let is_new = admission
                .gate(Level::Host)
                .is_some_and(|mut gate| gate.apply_min_interval(gap.as_secs_f64(), is_start));
            MinInterval { applied: (!is_start).then_some(applied), is_shortened, is_new }
        })
    }

    /// Returns the end of the hold of the host, its site or its address; `None` without a hold.
    pub fn hold(&self, scope: Scope<'_>, now: Timestamp) -> Option<Timestamp> {
        let mut guard = self.hosts.get(self.key(scope.host))?;
        let host = guard.entry();
        let of = |persisted: &PersistedState, active: Option<&ActiveState>| {
            let hold = match active {
                Some(active) => active.trouble.as_ref().map_or(0, |trouble| trouble.hold),
                None => i64::from(persisted.hold_until) * 1000,
            };
            (hold > now.as_millis()).then_some(hold)
        };
        let own = of(host.persisted(), host.active());
        let identity = &*host.identity;
        let shared = |map: &SharedMap, key: u64| {
            if key == 0 {
                return None;
            }
            let mut entries = map.lock(key);
            let state = entries.get_mut(key)?.state.as_deref()?;
            of(&state.persisted, state.active.as_deref())
        };
        let site = if identity.is_alone(now.as_millis()) {
            None
        } else {
            shared(&self.sites, identity.site)
        };
        let holds = [own, site, shared(&self.addresses, identity.address)];
        holds.into_iter().flatten().max().map(Timestamp::from_millis)
    }

    /// Returns whether this fetcher (any fetcher, if `None`) had a success at the host in the last
    /// ten minutes.
    pub fn has_delivered(&self, host: &str, fetcher: Option<FetcherId>, now: Timestamp) -> bool {
        let now = now.as_millis();
        self.hosts.get(self.key(host)).is_some_and(|mut guard| {
            guard.entry().active().is_some_and(|active| match fetcher {
                Some(fetcher) => active.has_success(fetcher.0, now),
                None => active.has_any_success(now),
            })
        })
    }

    /// Returns whether the host has given a good response after `since`, within the last hour.
    pub fn has_served_since(&self, host: &str, since: Timestamp, now: Timestamp) -> bool {
        let age_ms = self.hosts.get(self.key(host)).and_then(|mut guard| {
            let last = guard.entry().active()?.last_good_response()?;
            Some(i64::from(wrapped(now.as_millis()).wrapping_sub(last)))
        });
        age_ms.is_some_and(|age_ms| now.as_millis() - age_ms > since.as_millis())
    }

    /// Returns since when the host has refused all requests, if that is about the pace as far as
    /// anyone knows: it had served a moment before, no trial of its hold has passed yet, and it has
    /// not refused for long. The refusal of such a trial says nothing of the page or the fetcher.
    pub fn refusing_since(&self, host: &str, now: Timestamp) -> Option<Timestamp> {
        let mut guard = self.hosts.get(self.key(host))?;
        let entry = guard.entry();
        let trouble = entry.active()?.trouble.as_deref()?;
        trouble
            .refusing_since(entry.persisted().cause(), now.as_millis())
            .map(Timestamp::from_millis)
    }

    /// Returns the share of a host's responses that are errors at any rate, if it is known to give
    /// such errors.
    pub fn error_noise(&self, host: &str) -> Option<f64> {
        self.hosts.get(self.key(host))?.entry().active()?.trouble.as_ref()?.noise.share()
    }

    /// Returns the share of a host's responses that are blocks of single pages at any rate, if it
    /// is known to give such blocks.
    pub fn page_blocks(&self, host: &str) -> Option<f64> {
        self.hosts.get(self.key(host))?.entry().active()?.trouble.as_ref()?.block_noise.share()
    }

    /// Returns the result of a doubt that [`Pace::record_response`] reported.
    pub fn doubt_verdict(&self, host: &str, doubt: u32, now: Timestamp) -> DoubtVerdict {
        let key = self.key(host);
        let Some(mut guard) = self.hosts.get(key) else { return DoubtVerdict::Page };
        let active = self.active.load();
        let mut admission = self.admission(&active, key, guard.entry(), now.as_millis());
        admission.gate(Level::Host).map_or(DoubtVerdict::Page, |gate| gate.verdict(doubt))
    }

    /// Returns the pace of the host for a person; `None` for an unknown host.
    pub fn explain(&self, host: &str, now: Timestamp) -> Option<PaceExplanation> {
        let key = self.key(host);
        let mut guard = self.hosts.get(key)?;
        let host = guard.active_entry();
        let HostIdentity { site, address, .. } = *host.identity;
        let (mut sites, mut addresses) = (self.sites.lock(site), self.addresses.lock(address));
        let (site, address) = (sites.get_mut(site), addresses.get_mut(address));
        let active = self.active.load();
        Some(
            Admission { site, address, ..self.admission(&active, key, host, now.as_millis()) }
                .explain(),
        )
    }

    /// Returns the persisted state of a host, a site or an address; `None` if it is unknown.
    pub fn state(&self, level: Level, name: &str) -> Option<PaceState> {
        let key = self.key(name);
        let state = match level {
            Level::Host => self.hosts.get(key)?.entry().persisted_state(),
            Level::Site => self.sites.lock(key).get_mut(key)?.state.as_ref()?.persisted_state(),
            Level::Address => {
                self.addresses.lock(key).get_mut(key)?.state.as_ref()?.persisted_state()
            }
        };
        Some(PaceState(state.to_bytes()))
    }

    /// Restores a persisted state as of `now`: counts are empty, holds continue. It has no effect
    /// while requests are in flight, or if the state is older than ninety days.
    pub fn restore(&self, level: Level, name: &str, state: &PaceState, now: Timestamp) {
        let persisted = PersistedState::from_bytes(&state.0);
        if !is_recent(&persisted, now.as_millis()) {
            return;
        }
        let key = self.key(name);
        let take = |known: &mut SharedState| {
            if known.active.as_ref().is_none_or(|active| active.in_flight == 0) {
                *known = SharedState { persisted, active: None };
            }
        };
        match level {
            Level::Host => self
                .hosts
                .get_or_insert_with(key, false, || self.new_host(key, name))
                .restore(persisted),
            Level::Site => {
                let mut sites = self.sites.lock(key);
                let site = sites.get_or_insert_with(key, || SharedEntry::new(key, name));
                take(site.state.get_or_insert_default());
                let alone = site.mark_shared();
                drop(sites);
                if let Some(alone) = alone {
                    self.mark_not_alone(key, alone);
                }
            }
            Level::Address => {
                let mut addresses = self.addresses.lock(key);
                let address = addresses.get_or_insert_with(key, || SharedEntry::new(key, name));
                take(address.state.get_or_insert_default());
            }
        }
    }

    /// Returns every host, site and address with a state.
    pub fn hosts(&self) -> Vec<(Level, Box<str>)> {
        let mut all = Vec::new();
        self.hosts.for_each(|entry| all.push((Level::Host, entry.identity.name.clone())));
        for (level, map) in [(Level::Site, &self.sites), (Level::Address, &self.addresses)] {
            for entries in map.shards() {
                let known = entries.iter().filter(|entry| entry.state.is_some());
                all.extend(known.map(|entry| (level, entry.name.clone())));
            }
        }
        all
    }

    /// Passes the state of every host used in this process to the store, for the next process.
    pub fn close(&self, now: Timestamp) {
        if self.store.is_some() {
            for ((level, name), state) in self.active_states() {
                self.keep(level, &name, PersistedState::from_bytes(&state.0), Cause::Close, now);
            }
        }
    }

    /// Returns the state of every host, site and address with a request in the last hour.
    pub fn active_states(&self) -> HashMap<(Level, Box<str>), PaceState> {
        let mut all = HashMap::new();
        self.hosts.for_each(|entry| {
            if entry.active().is_some() {
                all.insert(
                    (Level::Host, entry.identity.name.clone()),
                    PaceState(entry.persisted_state().to_bytes()),
                );
            }
        });
        for (level, map) in [(Level::Site, &self.sites), (Level::Address, &self.addresses)] {
            for entries in map.shards() {
                for entry in entries.iter() {
                    if let Some(state) = entry.state.as_ref().filter(|state| state.active.is_some())
                    {
                        all.insert(
                            (level, entry.name.clone()),
                            PaceState(state.persisted_state().to_bytes()),
                        );
                    }
                }
            }
        }
        all
    }

    fn keep(&self, level: Level, name: &str, state: PersistedState, cause: Cause, at: Timestamp) {
        if let Some(store) = &self.store {
            store.keep(&PaceRecord { level, name, state: PaceState(state.to_bytes()), cause, at });
        }
    }

    /// Returns the admission of a host without shared levels.
    fn admission<'a>(
        &'a self,
        active: &'a ActiveSettings,
        key: u64,
        host: HostEntry<'a>,
        now: i64,
    ) -> Admission<'a> {
        Admission {
            settings: &active.settings,
            rules: &active.rules,
            load: &self.load,
            key,
            configured: active.rules.configured(key),
            host,
            site: None,
            address: None,
            now,
        }
    }

    /// Locks the levels of a request, the host first. Code that locks several levels uses this
    /// order. Only the host is locked if it is alone.
    fn with_levels<T>(
        &self,
        scope: Scope<'_>,
        now: Timestamp,
        run: impl FnOnce(&mut Admission<'_>) -> T,
    ) -> T {
        let (key, now) = (self.key(scope.host), now.as_millis());
        loop {
            let mut guard =
                self.hosts.get_or_insert_with(key, true, || self.new_host(key, scope.host));
            // Under the lock: a change of the settings comes to this host later, or was there
            // before.
            let (host, active) = (guard.active_entry(), self.active.load());
            if scope.address.is_none() && host.identity.is_alone(now) {
                return run(&mut self.admission(&active, key, host, now));
            }
            let site_key = self.key(scope.site);
            host.identity.site = site_key;
            // Requests in flight will return to the address to which they were sent.
            if host.active().is_none_or(|active| active.in_flight == 0) {
                host.identity.address = scope.address.map_or(0, |address| self.key(address));
            }
            let mut sites = self.sites.lock(site_key);
            let site =
                sites.get_or_insert_with(site_key, || SharedEntry::new(site_key, scope.site));
            match site.register(key, now) {
                SiteSharing::Alone => host.identity.set_alone(Some(now)),
                SiteSharing::Shared => host.identity.set_alone(None),
                SiteSharing::With(other) => {
                    // No lock is held while the other host is locked: it may be on its way here
                    // itself.
                    host.identity.set_alone(None);
                    drop(sites);
                    drop(guard);
                    self.mark_not_alone(site_key, other);
                    continue;
                }
            }
            let address_key = host.identity.address;
            let mut addresses = (address_key != 0).then(|| self.addresses.lock(address_key));
            let address = match (
                &mut addresses,
                scope.address.filter(|name| self.key(name) == address_key),
            ) {
                (Some(entries), Some(name)) => Some(
                    entries.get_or_insert_with(address_key, || SharedEntry::new(address_key, name)),
                ),
                (Some(entries), None) => entries.get_mut(address_key),
                (None, _) => None,
            };
            return run(&mut Admission {
                site: Some(site),
                address,
                ..self.admission(&active, key, host, now)
            });
        }
    }

    /// Does the same for a request in flight.
    fn with_levels_of<T>(
        &self,
        permit: &Permit,
        now: Timestamp,
        run: impl FnOnce(&mut Admission<'_>) -> T,
    ) -> Option<T> {
        if self.is_off {
            return None;
        }
        let mut guard = self.hosts.get(permit.host)?;
        let (host, active) = (guard.entry(), self.active.load());
        let (key, now) = (permit.host, now.as_millis());
        if host.identity.is_alone(now) {
            return Some(run(&mut self.admission(&active, key, host, now)));
        }
        let HostIdentity { site, address, .. } = *host.identity;
        let mut sites = self.sites.lock(site);
        let mut addresses = (address != 0).then(|| self.addresses.lock(address));
        let (site, address) =
            (sites.get_mut(site), addresses.as_mut().and_then(|entries| entries.get_mut(address)));
        Some(run(&mut Admission { site, address, ..self.admission(&active, key, host, now) }))
    }

    /// Tells `other` that its site has another host, or has a state, so that it reads the site from
    /// now on. No lock may be held.
    fn mark_not_alone(&self, site: u64, other: u64) {
        let Some(mut guard) = self.hosts.get(other) else { return };
        let host = guard.entry();
        host.identity.set_alone(None);
        let Some((last_request, blocked)) = host.active().map(|active| {
            let blocked = active
                .trouble
                .as_ref()
                .map(|trouble| trouble.limit_hit_at)
                .filter(|limit_hit_at| *limit_hit_at > 0);
            (active.at, blocked)
        }) else {
            return;
        };
        drop(guard);
        if let Some(site) = self.sites.lock(site).get_mut(site) {
            site.merge_activity(other, last_request, blocked);
        }
    }

    fn new_host(&self, key: u64, name: &str) -> HostIdentity {
        self.new_entries.fetch_add(1, Ordering::Relaxed);
        HostIdentity::new(key, name)
    }

    fn key(&self, name: &str) -> u64 {
        key_of(name, self.seed)
    }

    /// Removes idle entries once their number has doubled. No lock may be held.
    fn sweep(&self, now: Timestamp) {
        // Relaxed: any thread may do it, and some entries later is fine.
        let new_entries = self.new_entries.load(Ordering::Relaxed);
        if new_entries < self.sweep_at.load(Ordering::Relaxed)
            || self
                .new_entries
                .compare_exchange(new_entries, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        let now = now.as_millis();
        self.hosts.drop_idle(now);
        for map in [&self.sites, &self.addresses] {
            map.shards().for_each(|mut entries| entries.retain(|entry| entry.drop_idle(now)));
        }
        self.sweep_at.store(self.hosts.len().max(SWEEP_LEAST), Ordering::Relaxed);
    }
}

fn cost_at(cost: Cost, persisted: &PersistedState) -> u16 {
    match cost {
        Cost::Plain => 1,
        Cost::Rendered => render_cost(persisted),
    }
}

fn render_cost(persisted: &PersistedState) -> u16 {
    u16::from(if persisted.render_cost == 0 { RENDER_COST } else { persisted.render_cost })
}

/// Returns the hash of a name. Zero means no host.
fn key_of(name: &str, seed: u64) -> u64 {
    xxh3_64_with_seed(name.as_bytes(), seed).max(1)
}
