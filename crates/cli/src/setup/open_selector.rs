//! The data directory of a command, and selectors built from it.
//!
//! Owns: which candidates a selector has, what is loaded into it, and which snapshots a command
//! takes.
//!
//! Must not know: where settings come from.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::identity;
use super::settings::Settings;
use crate::terminal::exit::Failure;
use crate::terminal::output::{note, plain, shown};
use crate::terminal::progress::ByteBar;
use crate::terminal::warnings::{warn_rejected_snapshots, warn_torn_tail};
use fetchwise::config::{QueryName, SigningMode, built_in_fetchers};
use fetchwise::detect::Detector;
use fetchwise::evidence::decay::{DEFAULT_HALF_LIFE_DAYS, Decay};
use fetchwise::journal::{self, FetcherEntry, LoadReport, LogInfo};
use fetchwise::pace::{Pace, PaceMode, PaceSettings};
use fetchwise::policy::Policy;
use fetchwise::registry::{BUILT_IN, Class, FetcherSpec, MAX_CANDIDATES, canonical};
use fetchwise::rollout::{Event, RolloutState, RolloutStateError};
use fetchwise::router::TableError;
use fetchwise::selector::{Selector, SelectorBuilder};
use fetchwise::time::Timestamp;
use fetchwise::unknown_name::UnknownName;

/// A command that wrote takes a snapshot if the log has this many records since the last one: a
/// start reads that many in well under a second.
const SNAPSHOT_AFTER: u64 = 100_000;

impl Settings {
    /// Applies the router to `selector`, and a rollback to the table that is in force, as a crawler
    /// does.
    pub(crate) fn apply_router(&self, selector: &Selector) -> Result<(), Failure> {
        selector.set_router(self.router()?.clone()).map_err(|error| self.router_failure(error))?;
        let fallen =
            self.rollout()?.and_then(|kept| kept.fallen_back).filter(|_| self.config.guard().is_on);
        if let Some(fallen) = fallen {
            let event = Event::StillFallen(fallen.why());
            if !self.router.table.is_empty() {
                note(format_args!("warning: {}", plain(&event.to_string())));
            }
            selector.fall_back(fallen.why());
        }
        Ok(())
    }

    /// Returns the state of the rollout in the data directory.
    pub(crate) fn rollout(&self) -> Result<Option<RolloutState>, Failure> {
        let dir = self.data_dir()?;
        match RolloutState::read(&dir) {
            Err(error @ RolloutStateError::Content { .. }) => Err(Failure::usage(error)),
            kept => kept.map_err(Failure::failed),
        }
    }

    /// Returns a detector with the built-in rules and those of `--rules`.
    pub(crate) fn detector(&self) -> Result<Detector, Failure> {
        let detector = match &self.rules {
            None => Detector::new(),
            Some(path) => Detector::from_file(path).map_err(Failure::usage)?,
        };
        Ok(self.with_min_chars(detector).with_options(self.detector_options()))
    }

    /// Returns the data directory, which must exist. Commands that only read or maintain it do not
    /// create it: a misspelt name would otherwise look like an empty directory.
    pub(crate) fn existing_dir(&self) -> Result<PathBuf, Failure> {
        let dir = self.data_dir()?;
        if dir.is_dir() {
            return Ok(dir);
        }
        Err(Failure::usage(no_dir(&dir))
            .advise("choose the directory that fetch or import wrote, with --data-dir"))
    }

    /// Warns on stderr if the named data directory does not exist. This is not an error, because a
    /// decision without evidence is useful too.
    pub(crate) fn warn_if_dir_missing(&self) {
        if let Some(dir) = self.data_dir.as_ref().filter(|dir| !dir.exists()) {
            note(format_args!("warning: {}: deciding without evidence", no_dir(dir)));
        }
    }

    /// Returns a selector with all evidence of the log, and the states of links. Its candidates are
    /// those of the config. If the config has none, they are the built-in names and those in the
    /// log.
    pub(crate) fn load_selector(&self) -> Result<(Selector, LoadReport), Failure> {
        let dir = self.data_dir()?;
        self.load_selector_with(|builder| builder.pace(self.inspection_pace()).keep_evicted_in(dir))
    }

    /// Does the same for a crawl, which runs the built-in fetchers itself: their costs are those of
    /// the program, whatever other crawlers of the directory have registered.
    pub(crate) fn load_crawler_selector(
        &self,
        more: impl FnOnce(SelectorBuilder) -> SelectorBuilder,
    ) -> Result<(Selector, LoadReport), Failure> {
        self.load(false, more)
    }

    /// Returns the fetchers whose class and cost are known: the candidates of `selector`, then
    /// those that only the log knows.
    pub(crate) fn specs(
        &self,
        selector: &Selector,
        registered: &[FetcherEntry],
    ) -> Vec<FetcherSpec> {
        let candidates: Vec<FetcherSpec> =
            selector.candidates().map(|(_, spec)| spec.clone()).collect();
        match self.config.fetchers.is_empty() {
            true => registered_over(candidates, registered, true),
            false => registered_over(candidates, registered, false),
        }
    }

    /// Returns a pace for reading: it learns even if the pace of crawls is turned off.
    pub(crate) fn inspection_pace(&self) -> Pace {
        Pace::new(PaceSettings { mode: PaceMode::Learn, ..self.config.pace() })
    }

    /// Does the same as [`Settings::load_selector`], with additions to the builder.
    pub(crate) fn load_selector_with(
        &self,
        more: impl FnOnce(SelectorBuilder) -> SelectorBuilder,
    ) -> Result<(Selector, LoadReport), Failure> {
        self.load(true, more)
    }

    /// `is_reader` says whether the log knows the built-in fetchers better than the program does.
    fn load(
        &self,
        is_reader: bool,
        more: impl FnOnce(SelectorBuilder) -> SelectorBuilder,
    ) -> Result<(Selector, LoadReport), Failure> {
        let (dir, mut bar) = (self.data_dir()?, ByteBar::new());
        let mut show = |progress| bar.show("reading the attempt log", progress);
        let (selector, loaded) = if let Some(moment) = self.moment {
            let candidates = match self.config.fetchers.is_empty() {
                true => self.candidates(&journal::survey(&dir)?, is_reader),
                false => Vec::new(),
            };
            let selector = self.selector(candidates, more)?;
            let loaded = journal::load_at(&dir, &selector, moment, self.clock.now(), &mut show)?;
            (selector, loaded)
        } else if self.config.fetchers.is_empty() {
            let survey = journal::inspect_with_progress(&dir, &mut show)?;
            let selector = self.selector(self.candidates(&survey, is_reader), more)?;
            let loaded = survey.load(&dir, &selector, self.clock.now(), &mut show)?;
            (selector, loaded)
        } else {
            let selector = self.selector(Vec::new(), more)?;
            let loaded = journal::load_with_progress(&dir, &selector, self.clock.now(), &mut show)?;
            (selector, loaded)
        };
        drop(bar);
        warn_torn_tail(loaded.replayed.torn_tail.as_ref());
        warn_rejected_snapshots(&loaded);
        self.check_names(&selector)?;
        Ok((selector, loaded))
    }

    /// Checks that the router table and the config's priors name candidates only; other names would
    /// have no effect.
    fn check_names(&self, selector: &Selector) -> Result<(), Failure> {
        let known: Vec<&str> = selector.candidates().map(|(_, spec)| &*spec.name).collect();
        self.router
            .table
            .check(known.iter().copied())
            .map_err(|error| self.route_failure(error))?;
        self.unknown_in_priors(&known).next().map_or(Ok(()), Err)
    }

    /// Returns the failures for fetchers in the router table and the priors that are not in
    /// `known`.
    pub(crate) fn unknown_names(&self, known: &[&str]) -> Vec<Failure> {
        let routes = self
            .router
            .table
            .check(known.iter().copied())
            .map_err(|error| self.route_failure(error));
        routes.err().into_iter().chain(self.unknown_in_priors(known)).collect()
    }

    fn unknown_in_priors(&self, known: &[&str]) -> impl Iterator<Item = Failure> {
        let unknown = |name: &str| !known.contains(&canonical(name));
        self.config.priors.iter().filter(move |prior| unknown(&prior.fetcher)).map(|prior| {
            let name = UnknownName::new("fetcher", &prior.fetcher, known.iter().copied());
            Failure::usage(format_args!(
                "the config's prior for {}={}: {name}",
                prior.kind, prior.value
            ))
        })
    }

    fn route_failure(&self, error: TableError) -> Failure {
        match &self.table {
            Some(path) => Failure::usage(format_args!("{}, {error}", shown(path))),
            None => Failure::usage(error),
        }
    }

    /// Takes a snapshot if many records follow the last one, so that the next start is fast, or
    /// makes a checkpoint if the config has a limit on keys. Reports a failure on stderr and goes
    /// on, because nothing is lost.
    pub(crate) fn snapshot_if_due(&self, dir: &Path) {
        if self.config.max_keys.is_some() {
            let made = self.maintenance_selector().and_then(|blank| {
                Ok(journal::maintenance::checkpoint(dir, &blank, self.clock.date())?)
            });
            if let Err(failure) = made {
                note(format_args!(
                    "fetchwise: warning: cannot make a checkpoint of evidence: {failure}"
                ));
            }
            return;
        }
        if !journal::maintenance::unsnapshotted_records(dir)
            .is_ok_and(|records| records >= SNAPSHOT_AFTER)
        {
            return;
        }
        let mut bar = ByteBar::new();
        let mut show = |_, progress| bar.show("taking a snapshot", progress);
        let snapshot = self.maintenance_selector().and_then(|blank| {
            Ok(journal::maintenance::snapshot(dir, &blank, self.clock.date(), &mut show)?)
        });
        drop(bar);
        if let Err(failure) = snapshot {
            note(format_args!("fetchwise: warning: cannot take a snapshot: {failure}"));
        }
    }

    /// Returns a selector without evidence that keeps every key in memory.
    pub(crate) fn empty_selector(&self) -> Result<Selector, Failure> {
        let builder = self.config.selector_with_built_in().around(self.clock.date()).max_keys(None);
        without_evidence(builder, &identity::registrations(self)?).map_err(Failure::usage)
    }

    /// Returns a selector without evidence, for maintenance: it keeps every key, those beyond
    /// `max_keys` on disk.
    pub(crate) fn maintenance_selector(&self) -> Result<Selector, Failure> {
        let builder = self.config.selector_with_built_in().around(self.clock.date());
        without_evidence(builder, &identity::registrations(self)?).map_err(Failure::usage)
    }

    /// Returns a function that does the same as [`Settings::maintenance_selector`], for later use
    /// in another thread.
    pub(crate) fn maintenance_selector_factory(
        &self,
    ) -> impl Fn() -> Result<Selector, fetchwise::error::Error> + Send + use<> {
        let (config, clock) = (self.config.clone(), Arc::clone(&self.clock));
        let registrations = identity::registrations(self).unwrap_or_default();
        move || {
            without_evidence(config.selector_with_built_in().around(clock.date()), &registrations)
        }
    }

    /// Does the same as [`Settings::empty_selector`], with the paces of hosts.
    pub(crate) fn empty_selector_with_pace(&self) -> Result<Selector, Failure> {
        let builder = self
            .config
            .selector_with_built_in()
            .around(self.clock.now())
            .max_keys(None)
            .pace(self.inspection_pace());
        builder.build().map_err(Failure::usage)
    }

    /// Returns a selector without evidence that decides by `policy`, with the candidates of
    /// [`Settings::load_selector`].
    pub(crate) fn selector_with_policy(
        &self,
        policy: Box<dyn Policy>,
    ) -> Result<Selector, Failure> {
        let mut candidates = Vec::new();
        if self.config.fetchers.is_empty() {
            candidates = self.candidates(&journal::survey(&self.existing_dir()?)?, true);
        }
        let builder = self.config.selector().around(self.clock.now()).policy(policy).without_pace();
        let builder = builder.portable_priors(self.portable_priors()?);
        candidates
            .into_iter()
            .fold(builder, SelectorBuilder::fetcher)
            .build()
            .map_err(Failure::usage)
    }

    /// Returns the half-life by which evidence decays.
    pub(crate) fn decay(&self) -> Result<Decay, Failure> {
        let days = self.config.tuning.half_life_days.unwrap_or(DEFAULT_HALF_LIFE_DAYS);
        Decay::new(days, self.clock.now()).map_err(Failure::usage)
    }

    /// Returns the candidates for a config without any: the built-in names, those in the log that
    /// the router table names, and the rest of those in the log, with the class and the cost that
    /// the log has.
    fn candidates(&self, log: &LogInfo, is_reader: bool) -> Vec<FetcherSpec> {
        let LogInfo { fetchers: seen, registered, .. } = log;
        let registered_here: &[FetcherEntry] = if is_reader { registered } else { &[] };
        let built_in = registered_over(built_in_fetchers(), registered_here, true);
        let mut candidates =
            self.config.with_signed_arms(built_in.into_iter().take(BUILT_IN.len()).collect());
        let routed: Vec<&str> = self.router.table.fetchers().collect();
        let (first, rest): (Vec<&String>, Vec<&String>) =
            seen.iter().partition(|name| routed.contains(&name.as_str()));
        for name in first.into_iter().chain(rest) {
            let known = registered.iter().find(|of| of.name == *name);
            let spec = known.map_or_else(|| FetcherSpec::by_name(name), FetcherEntry::spec);
            // A fetcher that signs, and the twin that it replaces, are candidates by the config
            // only.
            let is_replaced = |known: &FetcherSpec| {
                known.name == spec.name || known.twin.as_ref() == Some(&spec.name)
            };
            if !spec.signed && !candidates.iter().any(is_replaced) && self.may_be_candidate(&spec) {
                candidates.push(spec);
            }
        }
        if let Some(first) = candidates.get(MAX_CANDIDATES) {
            let more = candidates.len() - MAX_CANDIDATES;
            note(format_args!(
                "warning: {more} of the fetchers in the log cannot be candidates, such as {}: the limit is \
                 {MAX_CANDIDATES}; list the ones in use as [[fetcher]] in a config",
                plain(&first.name)
            ));
            candidates.truncate(MAX_CANDIDATES);
        }
        candidates
    }

    /// Returns whether the config's mode of signing permits a fetcher that only the log names.
    fn may_be_candidate(&self, spec: &FetcherSpec) -> bool {
        self.config.signing != Some(SigningMode::Always) || spec.class != Class::Stealth
    }

    /// Returns a selector without evidence. Its candidates are those of the config, then
    /// `candidates`.
    fn selector(
        &self,
        candidates: Vec<FetcherSpec>,
        more: impl FnOnce(SelectorBuilder) -> SelectorBuilder,
    ) -> Result<Selector, Failure> {
        let builder = self
            .config
            .selector()
            .around(self.clock.now())
            .portable_priors(self.portable_priors()?);
        let hash = match self.config.log.query {
            Some(QueryName::Keep) => None,
            _ => journal::query_hash(&self.data_dir()?)?,
        };
        let builder = more(builder.query_hash(hash));
        let selector = candidates
            .into_iter()
            .fold(builder, SelectorBuilder::fetcher)
            .build()
            .map_err(Failure::usage)?;
        // Before evidence is loaded, so that the attempts since the registration count.
        register(&selector, &identity::registrations(self)?);
        Ok(selector)
    }
}

/// Returns `specs`, then what `registered` knows besides. With `replaces`, its costs replace those
/// of `specs`.
fn registered_over(
    mut specs: Vec<FetcherSpec>,
    registered: &[FetcherEntry],
    replaces: bool,
) -> Vec<FetcherSpec> {
    for entry in registered {
        match specs.iter_mut().find(|spec| *spec.name == *entry.name) {
            Some(spec) if replaces => *spec = FetcherSpec { signed: spec.signed, ..entry.spec() },
            Some(_) => {}
            None => specs.push(entry.spec()),
        }
    }
    specs
}

/// Builds a selector that knows no pace and whose identities are registered.
fn without_evidence(
    builder: SelectorBuilder,
    registrations: &[(String, Timestamp)],
) -> Result<Selector, fetchwise::error::Error> {
    let selector = builder.without_pace().build()?;
    register(&selector, registrations);
    Ok(selector)
}

fn register(selector: &Selector, registrations: &[(String, Timestamp)]) {
    for (vendor, at) in registrations {
        selector.register_at_vendor(vendor, *at);
    }
}

fn no_dir(dir: &Path) -> String {
    format!("data directory {} does not exist", shown(dir))
}
