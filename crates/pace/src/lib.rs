//! Pace: how fast, and how many at once, a host lets itself be asked; learned from what it answers.
//!
//! Requests go out evenly, so that every kind of limiter comes down to one number, a rate; what differs is the window that it counts
//! over. Requests are counted over five windows at once, and a block is charged to one of them. The ceiling that comes of it is raised
//! by rare looks only, whose cost is known beforehand.
//!
//! No I/O, no clock, no task: whoever asks hands in the time, and waits by itself. Invariants: never more than `par` requests of a
//! host at once; nothing while it is held, and then one alone; the same calls at the same times have the same results. Files:
//! `window` counts, `live` is the gate, `hear` what single answers add up to, `event` what a block does, `look` growth, `latency`,
//! `told` what the host says by itself, `host`, `levels` and `round` host, site and address together, `remembered` what is kept.
//!
//! ```
//! use fetchwise_pace::{Admit, Response, Cost, Signal, Pace, PaceSettings, Scope};
//! use fetchwise_types::time::Timestamp;
//!
//! # let selector = fetchwise::Selector::builder().build()?;
//! # let fetcher = selector.fetcher_id("direct_access").unwrap();
//! let pace = Pace::new(PaceSettings::default());
//! let (scope, mut now) = (Scope::host("example.org"), Timestamp::from_millis(0));
//! for _ in 0..10 {
//!     match pace.admit(scope, Cost::Plain, now) {
//!         Admit::Go(permit) => {
//!             // Here the host is asked.
//!             let _ = pace.record_response(permit, &Response::new(Signal::Content, fetcher), now);
//!         }
//!         Admit::Wait(until) => now = until,
//!         Admit::AtCapacity => unreachable!("nothing is under way"),
//!     }
//! }
//! assert_eq!(now.as_millis() / 1000, 2); // two requests a second at first
//! # Ok::<(), fetchwise::Error>(())
//! ```

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use fetchwise_types::heuristic::url::site_of;
use fetchwise_types::registry::FetcherId;
use fetchwise_types::time::Timestamp;

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

pub use crate::limiter::permit::Permit;
pub use crate::persistence::{PaceStore, PaceRecord, State};
pub use crate::signals::headers::RateLimit;
pub use crate::signals::response::{Admit, Response, Cause, Done, Signal, Level, DoubtVerdict};
pub use explain::Explained;
pub use settings::{CrawlDelay, HostPace, PaceMode, PaceSettings};
#[cfg(feature = "metrics")]
pub use summary::Summary;

use crate::limiter::active_state::Hot;
use crate::limiter::admission::Round;
use crate::limiter::host::HostEntry;
use crate::limiter::shared_levels::{Company, Kept, SharedEntry, is_remembered};
use crate::persistence::persisted_state::{RENDER_COST, Remembered};

/// Whom a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope<'s> {
    /// The host, as evidence knows it ([`domain_of`](fetchwise_types::heuristic::url::domain_of)).
    pub host: &'s str,
    /// What it belongs to: its registrable domain.
    pub site: &'s str,
    /// The address that is dialled, if the caller wants hosts of one address paced together. While requests of a host are under way,
    /// the address of the first of them counts.
    pub address: Option<&'s str>,
}

impl<'s> Scope<'s> {
    /// A host with its registrable domain.
    pub fn host(host: &'s str) -> Self {
        Self { host, site: site_of(host), address: None }
    }
}

/// How many requests to the host a request will be. What it was in the end is said with the [`Response`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cost {
    /// One.
    #[default]
    Plain,
    /// As many as rendered pages of this host have made so far; twelve while that is not known.
    Rendered,
}

/// What a [`Pace::set_min_interval`] came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Floor {
    /// The gap that is kept from now on; none when the settings say that it is not.
    pub kept: Option<Duration>,
    /// The gap asked for was longer than the settings believe.
    pub is_cut: bool,
    /// The host had not asked for this gap before, since this was made.
    pub is_new: bool,
}

/// The paces of all hosts. See the [module](self).
pub struct Pace {
    settings: PaceSettings,
    hosts: Map<HostEntry>,
    sites: Map<SharedEntry>,
    addresses: Map<SharedEntry>,
    keeper: Option<Box<dyn PaceStore>>,
    /// Entries made since whoever is not asked any more was looked for.
    made: AtomicUsize,
    /// So many make it worth looking again.
    sweep_at: AtomicUsize,
}

type Map<V> = DashMap<u64, V, BuildHasherDefault<Unhashed>>;

/// With fewer entries than this nobody is looked for who could go.
const SWEEP_LEAST: usize = 4096;

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pace")
            .field("settings", &self.settings)
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
    /// With nothing learned.
    pub fn new(settings: PaceSettings) -> Self {
        Self {
            settings: settings.clamped(),
            hosts: Map::default(),
            sites: Map::default(),
            addresses: Map::default(),
            keeper: None,
            made: AtomicUsize::new(0),
            sweep_at: AtomicUsize::new(SWEEP_LEAST),
        }
    }

    /// The same, and what is learned is given to `keeper`: at events, when a ceiling moves by a quarter, and by [`Pace::close`].
    #[must_use]
    pub fn with_keeper(self, keeper: Box<dyn PaceStore>) -> Self {
        Self { keeper: Some(keeper), ..self }
    }

    /// The settings, as they are used.
    pub fn settings(&self) -> &PaceSettings {
        &self.settings
    }

    /// Whether a request may go out now, or when to ask again. Ask when it could go out at once: nothing is reserved for who waits.
    pub fn admit(&self, scope: Scope<'_>, cost: Cost, now: Timestamp) -> Admit {
        if self.settings.mode == PaceMode::Off {
            return Admit::Go(Permit::new(0, now.as_millis(), Default::default(), 0, 0, 0));
        }
        self.sweep(now);
        self.round(scope, now, |round| {
            let cost = match cost {
                Cost::Plain => 1,
                Cost::Rendered => render_cost(round.host.cold()),
            };
            round.admit(cost)
        })
    }

    /// What came of a request.
    pub fn record_response(&self, permit: Permit, answer: &Response, now: Timestamp) -> Done {
        let round = self.round_of(&permit, now, |round| {
            let let_through = if answer.renders { render_cost(round.host.cold()) } else { permit.cost() };
            let (done, kept) = round.done(&permit, answer, let_through);
            let note = kept.filter(|_| self.keeper.is_some()).and_then(|(level, cause)| {
                let (name, state) = round.remembered(level)?;
                Some((level, name.to_owned(), state, cause))
            });
            (done, note)
        });
        let Some((done, note)) = round else { return Done::Nothing };
        if let Some((level, name, state, cause)) = note {
            self.keep(level, &name, state, cause, now);
        }
        done
    }

    /// The request of this permit never went out.
    pub fn cancel(&self, permit: Permit, now: Timestamp) {
        self.round_of(&permit, now, |round| round.give_back(&permit));
    }

    /// The host wants a gap between requests: its `Crawl-delay`. What is done about it is a setting.
    pub fn set_min_interval(&self, scope: Scope<'_>, gap: Duration, now: Timestamp) -> Floor {
        let most = Duration::from_secs_f64(self.settings.max_crawl_delay_s);
        let (is_cut, kept) = (gap > most, gap.min(most));
        if self.settings.mode == PaceMode::Off || self.settings.crawl_delay == CrawlDelay::Ignore || kept.is_zero() {
            return Floor { kept: None, is_cut: false, is_new: false };
        }
        self.round(scope, now, |round| {
            let is_start = self.settings.crawl_delay == CrawlDelay::Initial;
            round.wake();
            let is_new = round.live(Level::Host).is_some_and(|mut live| live.floor(gap.as_secs_f64(), is_start));
            Floor { kept: (!is_start).then_some(kept), is_cut, is_new }
        })
    }

    /// Until when the host is held, by itself or with others; none when it is not.
    pub fn hold(&self, scope: Scope<'_>, now: Timestamp) -> Option<Timestamp> {
        let host = self.hosts.get(&self.key(scope.host))?;
        let of = |cold: &Remembered, hot: Option<&Hot>| {
            let hold = match hot {
                Some(hot) => hot.trouble.as_ref().map_or(0, |trouble| trouble.hold),
                None => i64::from(cold.hold_until) * 1000,
            };
            (hold > now.as_millis()).then_some(hold)
        };
        let own = of(host.cold(), host.hot());
        let who = host.who();
        let shared = |map: &Map<SharedEntry>, key: u64| {
            let entry = map.get(&key).filter(|_| key != 0)?;
            entry.kept.as_deref().and_then(|kept| of(&kept.cold, kept.hot.as_deref()))
        };
        let site = if who.is_alone(now.as_millis()) { None } else { shared(&self.sites, who.site) };
        let holds = [own, site, shared(&self.addresses, who.address)];
        holds.into_iter().flatten().max().map(Timestamp::from_millis)
    }

    /// Whether the host has let this fetcher through within the last ten minutes, or, without one, any fetcher.
    pub fn has_delivered(&self, host: &str, fetcher: Option<FetcherId>, now: Timestamp) -> bool {
        let now = now.as_millis();
        self.hosts.get(&self.key(host)).is_some_and(|entry| {
            entry.hot().is_some_and(|hot| match fetcher {
                Some(fetcher) => hot.delivers(fetcher.0, now),
                None => hot.delivers_any(now),
            })
        })
    }

    /// How a doubt came out that [`Pace::record_response`] told of.
    pub fn doubt_verdict(&self, host: &str, doubt: u32, now: Timestamp) -> DoubtVerdict {
        let Some(mut entry) = self.hosts.get_mut(&self.key(host)) else { return DoubtVerdict::Page };
        let entry = &mut *entry;
        let (key, now) = (self.key(host), now.as_millis());
        let mut round = Round { settings: &self.settings, key, host: entry, site: None, address: None, now };
        round.live(Level::Host).map_or(DoubtVerdict::Page, |live| live.verdict(doubt))
    }

    /// The pace of a host in words and numbers; none for one that was never asked.
    pub fn explain(&self, host: &str, now: Timestamp) -> Option<Explained> {
        let mut entry = self.hosts.get_mut(&self.key(host))?;
        let mut site = self.sites.get_mut(&entry.who().site);
        let mut address = self.addresses.get_mut(&entry.who().address);
        let (key, entry) = (self.key(host), &mut *entry);
        let (site, address) = (site.as_deref_mut(), address.as_deref_mut());
        let mut round = Round { settings: &self.settings, key, host: entry, site, address, now: now.as_millis() };
        Some(round.explain())
    }

    /// What is remembered of a host, a site or an address; none when nothing is.
    pub fn state(&self, level: Level, name: &str) -> Option<State> {
        let key = self.key(name);
        let state = match level {
            Level::Host => self.hosts.get(&key)?.remembered(),
            Level::Site => self.sites.get(&key)?.kept.as_ref()?.remembered(),
            Level::Address => self.addresses.get(&key)?.kept.as_ref()?.remembered(),
        };
        Some(State(state.to_bytes()))
    }

    /// Takes up what was remembered, as of `now`: counts are empty, holds go on. For whom requests are under way nothing changes, nor
    /// does it for whom nothing is remembered any more because it was not asked for ninety days.
    pub fn restore(&self, level: Level, name: &str, state: &State, now: Timestamp) {
        let cold = Remembered::from_bytes(&state.0);
        if !is_remembered(&cold, now.as_millis()) {
            return;
        }
        let key = self.key(name);
        let take = |known: &mut Kept| {
            if known.hot.as_ref().is_none_or(|hot| hot.in_flight == 0) {
                *known = Kept { cold, hot: None };
            }
        };
        match level {
            Level::Host => self.hosts.entry(key).or_insert_with(|| self.new_host(name)).restore(cold),
            Level::Site => {
                let mut site = self.sites.entry(key).or_insert_with(|| SharedEntry::new(name));
                take(site.kept.get_or_insert_default());
                let alone = site.part();
                drop(site);
                if let Some(alone) = alone {
                    self.join(key, alone);
                }
            }
            Level::Address => {
                take(self.addresses.entry(key).or_insert_with(|| SharedEntry::new(name)).kept.get_or_insert_default());
            }
        }
    }

    /// Everybody of whom something is remembered.
    pub fn hosts(&self) -> Vec<(Level, Box<str>)> {
        let mut all: Vec<_> = self.hosts.iter().map(|entry| (Level::Host, entry.who().name.clone())).collect();
        for (level, map) in [(Level::Site, &self.sites), (Level::Address, &self.addresses)] {
            all.extend(map.iter().filter(|entry| entry.kept.is_some()).map(|entry| (level, entry.name.clone())));
        }
        all
    }

    /// Gives the keeper what is remembered of everybody who was asked in this process, for the next one.
    pub fn close(&self, now: Timestamp) {
        if self.keeper.is_some() {
            for ((level, name), state) in self.active_states() {
                self.keep(level, &name, Remembered::from_bytes(&state.0), Cause::Close, now);
            }
        }
    }

    /// What is remembered of everybody who was asked within the hour.
    pub fn active_states(&self) -> HashMap<(Level, Box<str>), State> {
        let mut all = HashMap::new();
        for entry in self.hosts.iter().filter(|entry| entry.hot().is_some()) {
            all.insert((Level::Host, entry.who().name.clone()), State(entry.remembered().to_bytes()));
        }
        for (level, map) in [(Level::Site, &self.sites), (Level::Address, &self.addresses)] {
            for entry in map {
                if let Some(kept) = entry.kept.as_ref().filter(|kept| kept.hot.is_some()) {
                    all.insert((level, entry.name.clone()), State(kept.remembered().to_bytes()));
                }
            }
        }
        all
    }

    fn keep(&self, level: Level, name: &str, state: Remembered, cause: Cause, at: Timestamp) {
        if let Some(keeper) = &self.keeper {
            keeper.keep(&PaceRecord { level, name, state: State(state.to_bytes()), cause, at });
        }
    }

    /// Locks a request's levels, the host first: whoever locks several of them does so in this order. A host that is alone is locked
    /// alone.
    fn round<T>(&self, scope: Scope<'_>, now: Timestamp, run: impl FnOnce(&mut Round<'_>) -> T) -> T {
        let (key, settings, now) = (self.key(scope.host), &self.settings, now.as_millis());
        loop {
            let mut guard = self.hosts.entry(key).or_insert_with(|| self.new_host(scope.host));
            let host = &mut *guard;
            if scope.address.is_none() && host.who().is_alone(now) {
                return run(&mut Round { settings, key, host, site: None, address: None, now });
            }
            let site_key = self.key(scope.site);
            host.who_mut().site = site_key;
            // Requests under way will come back to the address that they went out to.
            if host.hot().is_none_or(|hot| hot.in_flight == 0) {
                host.who_mut().address = scope.address.map_or(0, |address| self.key(address));
            }
            let mut site = self.sites.entry(site_key).or_insert_with(|| SharedEntry::new(scope.site));
            match site.come(key, now) {
                Company::Alone => host.who_mut().set_alone(Some(now)),
                Company::Shared => host.who_mut().set_alone(None),
                Company::With(other) => {
                    // Nobody is locked while the other one is: it may be on its way here itself.
                    host.who_mut().set_alone(None);
                    drop(site);
                    drop(guard);
                    self.join(site_key, other);
                    continue;
                }
            }
            let address = host.who().address;
            let mut address = match scope.address.filter(|name| self.key(name) == address) {
                Some(name) => Some(self.addresses.entry(address).or_insert_with(|| SharedEntry::new(name))),
                None if address != 0 => self.addresses.get_mut(&address),
                None => None,
            };
            return run(&mut Round {
                settings,
                key,
                host,
                site: Some(&mut site),
                address: address.as_deref_mut(),
                now,
            });
        }
    }

    /// The same for a request that is under way.
    fn round_of<T>(&self, permit: &Permit, now: Timestamp, run: impl FnOnce(&mut Round<'_>) -> T) -> Option<T> {
        if self.settings.mode == PaceMode::Off {
            return None;
        }
        let mut host = self.hosts.get_mut(&permit.host)?;
        let host = &mut *host;
        let (settings, key, now) = (&self.settings, permit.host, now.as_millis());
        if host.who().is_alone(now) {
            return Some(run(&mut Round { settings, key, host, site: None, address: None, now }));
        }
        let mut site = self.sites.get_mut(&host.who().site);
        let address = host.who().address;
        let mut address = if address == 0 { None } else { self.addresses.get_mut(&address) };
        let (site, address) = (site.as_deref_mut(), address.as_deref_mut());
        Some(run(&mut Round { settings, key, host, site, address, now }))
    }

    /// Another host of its site has come, or something is known of the site: `other` looks there from now on. Nothing may be locked.
    fn join(&self, site: u64, other: u64) {
        let Some(mut host) = self.hosts.get_mut(&other) else { return };
        host.who_mut().set_alone(None);
        let Some((asked, blocked)) = host.hot().map(|hot| {
            let blocked = hot.trouble.as_ref().map(|trouble| trouble.event).filter(|event| *event > 0);
            (hot.at, blocked)
        }) else {
            return;
        };
        drop(host);
        if let Some(mut site) = self.sites.get_mut(&site) {
            site.catch_up(other, asked, blocked);
        }
    }

    fn new_host(&self, name: &str) -> HostEntry {
        self.made.fetch_add(1, Ordering::Relaxed);
        HostEntry::new(name)
    }

    fn key(&self, name: &str) -> u64 {
        // Zero stands for nobody.
        xxh3_64_with_seed(name.as_bytes(), self.settings.seed).max(1)
    }

    /// Once there are twice as many as there were, looks for those who are not asked any more. Nothing may be locked.
    fn sweep(&self, now: Timestamp) {
        // Relaxed: it does not matter which thread does it, nor whether it is late by some entries.
        let made = self.made.load(Ordering::Relaxed);
        if made < self.sweep_at.load(Ordering::Relaxed)
            || self.made.compare_exchange(made, 0, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return;
        }
        let now = now.as_millis();
        self.hosts.retain(|_, entry| entry.cool(now));
        for map in [&self.sites, &self.addresses] {
            map.retain(|_, entry| entry.cool(now));
        }
        self.sweep_at.store(self.hosts.len().max(SWEEP_LEAST), Ordering::Relaxed);
    }
}

fn render_cost(cold: &Remembered) -> u16 {
    u16::from(if cold.render_cost == 0 { RENDER_COST } else { cold.render_cost })
}

/// Keys are hashes already.
#[derive(Debug, Default)]
struct Unhashed(u64);

impl Hasher for Unhashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, 0);
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}
