//! Resolved settings: the command line, the environment and the config file together.
//!
//! Owns: their precedence (command line, environment, config, default). Every fault in them is found here, before a
//! command begins.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etcetera::BaseStrategy;

use crate::parse::global::GlobalArgs;
use crate::terminal::exit::Failure;
use crate::terminal::output::{note, plain};
use crate::terminal::progress::ByteBar;
use fetchwise::config::{Config, Layers, Origin, Resolved, built_in_fetchers, read_route_table};
use fetchwise::detect::{Detector, DetectorOptions};
use fetchwise::evidence::decay::{Decay, DEFAULT_HALF_LIFE_DAYS};
use fetchwise::journal::{self, AsOf, LoadReport, TornTail};
use fetchwise::pace::{Pace, PaceMode, PaceSettings};
use fetchwise::policy::Policy;
use fetchwise::registry::{FetcherSpec, MAX_CANDIDATES, canonical};
use fetchwise::rollout::{Event, RolloutState, RolloutStateError};
use fetchwise::router::{Mode, Router, RouterError, TableError};
use fetchwise::selector::{Selector, SelectorBuilder};
use fetchwise::time::{Clock, Timestamp};
use fetchwise::unknown_name::UnknownName;

/// The variable that names the config file.
const CONFIG: &str = "FETCHWISE_CONFIG";
/// The variable that switches learning on and off.
const LEARNING: &str = "LEARNING_MODE_ENABLED";
/// The variables that name the browser, in the order of precedence.
const BROWSERS: [&str; 2] = ["FETCHWISE_CHROMIUM", "CHROME"];
/// Variables with our prefix that are not keys of the config: those above, the token of a server, the brokers of a
/// fleet, and those of this project's tests.
const NO_KEYS: [&str; 13] = [
    CONFIG,
    BROWSERS[0],
    "FETCHWISE_TOKEN",
    "FETCHWISE_BENCH_RECORDS",
    "FETCHWISE_BLESS",
    "FETCHWISE_CORPUS",
    "FETCHWISE_CORPUS2",
    "FETCHWISE_FAULTS",
    "FETCHWISE_FLEET_FAULTS",
    "FETCHWISE_FLEET",
    "FETCHWISE_GOLDEN",
    "FETCHWISE_SCRATCH",
    "FETCHWISE_YT_DLP",
];
/// The prefix of variables of this project's tests.
const OF_TESTS: &str = "FETCHWISE_TEST_";

/// The default share of domains for which `split` lets evidence decide.
pub(crate) const SPLIT_SHARE: f64 = 0.5;

/// A command that wrote takes a snapshot if the log has this many records since the last one: a start reads that many
/// in well under a second.
const SNAPSHOT_AFTER: u64 = 100_000;

/// Resolved settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The options of the command line, for a reload.
    args: GlobalArgs,
    /// The config file, if there is one.
    config_file: Option<PathBuf>,
    /// Whether the command line or the environment sets the mode.
    is_mode_given: bool,
    data_dir: Option<PathBuf>,
    /// Whether the command line names the data directory.
    is_dir_named: bool,
    /// The settings of the config file and the environment.
    pub(crate) config: Config,
    /// The origin of each setting.
    pub(crate) resolved: Resolved,
    router: Router,
    /// The file of the router table.
    table: Option<PathBuf>,
    rules: Option<PathBuf>,
    /// The system's clock, or the one of `--now`.
    pub(crate) clock: Arc<Clock>,
    /// The past moment whose evidence is wanted; none for now.
    moment: Option<AsOf>,
}

impl Settings {
    /// Resolves the command line, the environment and the config file.
    pub(crate) fn resolve(args: &GlobalArgs) -> Result<Self, Failure> {
        let mut layers = Layers::default();
        if let Some(file) = config_file(args)? {
            layers.file(&file)?;
        }
        add_environment(&mut layers)?;
        add_options(&mut layers, args);
        let settings = Self::of(layers.resolve()?, args)?;
        for warning in &settings.resolved.warnings {
            note(format_args!("warning: {}", plain(&warning.to_string())));
        }
        Ok(settings)
    }

    /// Returns the settings for layers that are already resolved, and reads the router table that they name.
    pub(crate) fn of(resolved: Resolved, args: &GlobalArgs) -> Result<Self, Failure> {
        let config = resolved.config.clone();
        let mode = args.mode.map(Mode::from).or(config.mode).unwrap_or_default();
        let is_mode_given = args.mode.is_some() || matches!(resolved.origin(&["mode"]), Origin::Variable(_));
        let table = args.router.clone().or_else(|| config.router.clone());
        let routes = table.as_deref().map(read_route_table).transpose()?;
        let routes = routes.map(|(routes, warnings)| {
            warnings.iter().for_each(|warning| note(format_args!("warning: {}", plain(warning))));
            routes
        });
        let routes = routes.unwrap_or_default();
        let split_share = config.split_share.unwrap_or(SPLIT_SHARE);
        Ok(Self {
            args: args.clone(),
            is_mode_given,
            config_file: config_file(args)?,
            is_dir_named: args.data_dir.is_some(),
            data_dir: args.data_dir.clone().or_else(|| config.data_dir.clone()),
            table,
            router: Router { mode, table: routes, split_share },
            rules: args.rules.clone().or_else(|| config.rules.clone()),
            clock: Arc::new(args.now.map_or(Clock::System, Clock::fixed)),
            moment: None,
            config,
            resolved,
        })
    }

    /// Returns the browser that the config, or the variable of its key, names. The other variables take precedence over
    /// a config file, and the discovery of the browser reads them itself.
    pub(crate) fn browser_path(&self) -> Option<&Path> {
        let is_elsewhere = matches!(
            self.resolved.origin(&["browser", "path"]),
            Origin::Variable(name) if BROWSERS.contains(&name.as_str())
        );
        self.config.browser.path.as_deref().filter(|_| !is_elsewhere)
    }

    /// Resolves the same command line again, and reads its files again.
    pub(crate) fn again(&self) -> Result<Self, Failure> {
        Self::resolve(&self.args)
    }

    /// Returns whether the command line or the environment sets the mode, so that the config's has no effect.
    pub(crate) fn is_mode_given(&self) -> bool {
        self.is_mode_given
    }

    /// Returns the files that can be reloaded: config, router table and rules.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        [self.config_file.as_deref(), self.table.as_deref(), self.rules.as_deref()].into_iter().flatten()
    }

    /// Returns the failure for an error of the router, with the file of the table.
    pub(crate) fn about_table(&self, error: RouterError) -> Failure {
        match (&self.table, &error) {
            (Some(path), RouterError::Table(_)) => Failure::usage(format_args!("{}, {error}", path.display())),
            _ => Failure::usage(error),
        }
    }

    /// Applies the router to `selector`, and a rollback to the table that is in force, as a crawler does.
    pub(crate) fn put_in_force(&self, selector: &Selector) -> Result<(), Failure> {
        selector.set_router(self.router()?.clone()).map_err(|error| self.about_table(error))?;
        let fallen = self.rollout()?.and_then(|kept| kept.fallen_back).filter(|_| self.config.guard().is_on);
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

    /// Returns the data directory, which may not exist.
    pub(crate) fn data_dir(&self) -> Result<PathBuf, Failure> {
        if let Some(dir) = &self.data_dir {
            if dir.exists() && !dir.is_dir() {
                return Err(Failure::usage(format_args!("the data directory {} is not a directory", dir.display())));
            }
            return Ok(dir.clone());
        }
        let base = etcetera::choose_base_strategy().map_err(|_| {
            Failure::usage("no place for the attempt log: there is no home directory")
                .advise("choose a directory with --data-dir")
        })?;
        Ok(base.data_dir().join("fetchwise"))
    }

    /// Returns the same settings with another data directory, unless the command line names one.
    pub(crate) fn in_dir_unless_named(&self, dir: &Path) -> Self {
        let data_dir = if self.is_dir_named { self.data_dir.clone() } else { Some(dir.to_owned()) };
        Self { data_dir, ..self.clone() }
    }

    /// Returns the same settings at an earlier moment, which was at the time `now`. Evidence is that of the moment.
    pub(crate) fn at(&self, moment: AsOf, now: Timestamp) -> Self {
        Self { moment: Some(moment), clock: Arc::new(Clock::fixed(now)), ..self.clone() }
    }

    /// Returns whether the settings are those of an earlier moment.
    pub(crate) fn is_past(&self) -> bool {
        self.moment.is_some()
    }

    /// Returns the file of rules in addition to the built-in ones.
    pub(crate) fn rules(&self) -> Option<&Path> {
        self.rules.as_deref()
    }

    /// Returns a detector with the built-in rules and those of `--rules`.
    pub(crate) fn detector(&self) -> Result<Detector, Failure> {
        let detector = match &self.rules {
            None => Detector::new(),
            Some(path) => Detector::from_file(path).map_err(Failure::usage)?,
        };
        Ok(detector.with_options(self.detector_options()))
    }

    /// Returns the options of the detector.
    pub(crate) fn detector_options(&self) -> DetectorOptions {
        let options = DetectorOptions::default();
        self.config.detect.block_threshold.map_or(options, |sure| options.with_block_threshold(sure as f32))
    }

    /// Returns the data directory, which must exist. Commands that only read or maintain it do not create it: a
    /// misspelt name would otherwise look like an empty directory.
    pub(crate) fn existing_dir(&self) -> Result<PathBuf, Failure> {
        let dir = self.data_dir()?;
        if dir.is_dir() {
            return Ok(dir);
        }
        Err(Failure::usage(no_dir(&dir)).advise("choose the directory that fetch or import wrote, with --data-dir"))
    }

    /// Warns on stderr if the named data directory does not exist. This is not an error, because a decision without
    /// evidence is useful too.
    pub(crate) fn warn_if_no_dir(&self) {
        if let Some(dir) = self.data_dir.as_ref().filter(|dir| !dir.exists()) {
            note(format_args!("warning: {}: deciding without evidence", no_dir(dir)));
        }
    }

    /// Returns a selector with all evidence of the log, and the states of links. Its candidates are those of the
    /// config. If the config has none, they are the built-in names and those in the log.
    pub(crate) fn learned(&self) -> Result<(Selector, LoadReport), Failure> {
        self.learned_with(|builder| builder.pace(self.seen_pace()))
    }

    /// Returns a pace for reading: it learns even if the pace of crawls is turned off.
    pub(crate) fn seen_pace(&self) -> Pace {
        Pace::new(PaceSettings { mode: PaceMode::Learn, ..self.config.pace() })
    }

    /// Does the same as [`Settings::learned`], with additions to the builder.
    pub(crate) fn learned_with(
        &self,
        more: impl FnOnce(SelectorBuilder) -> SelectorBuilder,
    ) -> Result<(Selector, LoadReport), Failure> {
        let (dir, mut bar) = (self.data_dir()?, ByteBar::new());
        let mut tell = |progress| bar.tell("reading the attempt log", progress);
        let (selector, loaded) = if let Some(moment) = self.moment {
            let seen = if self.config.fetchers.is_empty() { journal::survey(&dir)?.fetchers } else { Vec::new() };
            let candidates = if self.config.fetchers.is_empty() { self.candidates(&seen) } else { Vec::new() };
            let selector = self.selector(candidates, more)?;
            let loaded = journal::load_at(&dir, &selector, moment, self.clock.now(), &mut tell)?;
            (selector, loaded)
        } else if self.config.fetchers.is_empty() {
            let survey = journal::inspect_with_progress(&dir, &mut tell)?;
            let selector = self.selector(self.candidates(&survey.fetchers), more)?;
            let loaded = survey.load(&dir, &selector, self.clock.now(), &mut tell)?;
            (selector, loaded)
        } else {
            let selector = self.selector(Vec::new(), more)?;
            let loaded = journal::load_with_progress(&dir, &selector, self.clock.now(), &mut tell)?;
            (selector, loaded)
        };
        drop(bar);
        say_torn(loaded.replayed.torn_tail.as_ref());
        say_rejected(&loaded);
        self.check_names(&selector)?;
        Ok((selector, loaded))
    }

    /// Checks that the router table and the config's priors name candidates only; other names would have no effect.
    fn check_names(&self, selector: &Selector) -> Result<(), Failure> {
        let known: Vec<&str> = selector.candidates().map(|(_, spec)| &*spec.name).collect();
        self.router.table.check(known.iter().copied()).map_err(|error| self.of_table(error))?;
        self.unknown_in_priors(&known).next().map_or(Ok(()), Err)
    }

    /// Returns the failures for fetchers in the router table and the priors that are not in `known`.
    pub(crate) fn unknown_names(&self, known: &[&str]) -> Vec<Failure> {
        let routes = self.router.table.check(known.iter().copied()).map_err(|error| self.of_table(error));
        routes.err().into_iter().chain(self.unknown_in_priors(known)).collect()
    }

    fn unknown_in_priors(&self, known: &[&str]) -> impl Iterator<Item = Failure> {
        let unknown = |name: &str| !known.contains(&canonical(name));
        self.config.priors.iter().filter(move |prior| unknown(&prior.fetcher)).map(|prior| {
            let name = UnknownName::new("fetcher", &prior.fetcher, known.iter().copied());
            Failure::usage(format_args!("the config's prior for {}={}: {name}", prior.kind, prior.value))
        })
    }

    fn of_table(&self, error: TableError) -> Failure {
        match &self.table {
            Some(path) => Failure::usage(format_args!("{}, {error}", path.display())),
            None => Failure::usage(error),
        }
    }

    /// Takes a snapshot if many records follow the last one, so that the next start is fast. Reports a failure on
    /// stderr and goes on, because nothing is lost.
    pub(crate) fn snapshot_if_due(&self, dir: &Path) {
        let due = journal::maintenance::unsnapshotted_records(dir).is_ok_and(|records| records >= SNAPSHOT_AFTER)
            || journal::maintenance::needs_snapshot(dir).is_ok_and(|needs_snapshot| needs_snapshot);
        if !due {
            return;
        }
        let mut bar = ByteBar::new();
        let mut tell = |_, progress| bar.tell("taking a snapshot", progress);
        let taken = self
            .blank()
            .and_then(|blank| Ok(journal::maintenance::snapshot(dir, &blank, self.clock.now(), &mut tell)?));
        drop(bar);
        if let Err(failure) = taken {
            note(format_args!("fetchwise: warning: cannot take a snapshot: {failure}"));
        }
    }

    /// Returns a selector without evidence, for maintenance. It keeps every key, because its evidence goes into a
    /// snapshot.
    pub(crate) fn blank(&self) -> Result<Selector, Failure> {
        let builder = self.config.selector().around(self.clock.now()).max_keys(None);
        builder.build().map_err(Failure::usage)
    }

    /// Returns a function that does the same as [`Settings::blank`], for later use in another thread.
    pub(crate) fn blank_maker(&self) -> impl Fn() -> Result<Selector, fetchwise::error::Error> + Send + use<> {
        let (config, clock) = (self.config.clone(), Arc::clone(&self.clock));
        move || config.selector().around(clock.now()).max_keys(None).build()
    }

    /// Does the same as [`Settings::blank`], with the paces of hosts.
    pub(crate) fn blank_with_pace(&self) -> Result<Selector, Failure> {
        let builder = self.config.selector().around(self.clock.now()).max_keys(None).pace(self.seen_pace());
        builder.build().map_err(Failure::usage)
    }

    /// Returns a selector without evidence that decides by `policy`, with the candidates of [`Settings::learned`].
    pub(crate) fn unlearned(&self, policy: Box<dyn Policy>) -> Result<Selector, Failure> {
        let mut candidates = Vec::new();
        if self.config.fetchers.is_empty() {
            candidates = self.candidates(&journal::survey(&self.existing_dir()?)?.fetchers);
        }
        let builder = self.config.selector().around(self.clock.now()).policy(policy);
        candidates.into_iter().fold(builder, SelectorBuilder::fetcher).build().map_err(Failure::usage)
    }

    /// Returns the half-life by which evidence decays.
    pub(crate) fn decay(&self) -> Result<Decay, Failure> {
        let days = self.config.half_life_days.unwrap_or(DEFAULT_HALF_LIFE_DAYS);
        Decay::new(days, self.clock.now()).map_err(Failure::usage)
    }

    /// Returns the candidates for a config without any: the built-in names, those in `seen` that the router table
    /// names, and the rest of `seen`.
    fn candidates(&self, seen: &[String]) -> Vec<FetcherSpec> {
        let mut candidates = built_in_fetchers();
        let routed: Vec<&str> = self.router.table.fetchers().collect();
        let (first, rest): (Vec<&String>, Vec<&String>) = seen.iter().partition(|name| routed.contains(&name.as_str()));
        for name in first.into_iter().chain(rest) {
            if !candidates.iter().any(|known| *known.name == *canonical(name)) {
                candidates.push(FetcherSpec::by_name(name));
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

    /// Returns a selector without evidence. Its candidates are those of the config, then `candidates`.
    fn selector(
        &self,
        candidates: Vec<FetcherSpec>,
        more: impl FnOnce(SelectorBuilder) -> SelectorBuilder,
    ) -> Result<Selector, Failure> {
        let builder = more(self.config.selector().around(self.clock.now()));
        candidates.into_iter().fold(builder, SelectorBuilder::fetcher).build().map_err(Failure::usage)
    }

    /// Returns mode and router table, for a command that decides.
    pub(crate) fn router(&self) -> Result<&Router, Failure> {
        if self.table.is_none() && self.router.mode != Mode::Learning {
            return Err(Failure::usage(format_args!("mode {} needs a router table", self.router.mode.name()))
                .advise("give one with --router FILE (TOML or CSV: domain, fetcher), or use --mode learning"));
        }
        Ok(&self.router)
    }
}

fn no_dir(dir: &Path) -> String {
    format!("data directory {} does not exist", dir.display())
}

/// Reports on stderr that the last writer crashed, and how many records were kept.
pub(crate) fn say_torn(torn: Option<&TornTail>) {
    if let Some(torn) = torn {
        note(format_args!("fetchwise: {torn}"));
    }
}

/// Reports on stderr that a snapshot is damaged, and that nothing was lost.
fn say_rejected(loaded: &LoadReport) {
    let Some(started) = &loaded.snapshot else { return };
    for damage in &started.rejected {
        note(format_args!(
            "fetchwise: {}; read the records from {} on instead ({} records)",
            plain(&damage.to_string()),
            started.covers_seq + 1,
            loaded.replayed.entries
        ));
    }
}

/// Returns the config file: `--config`, or `FETCHWISE_CONFIG`.
pub(crate) fn config_file(args: &GlobalArgs) -> Result<Option<PathBuf>, Failure> {
    match &args.config {
        Some(file) => Ok(Some(file.clone())),
        None => Ok(variable(CONFIG)?.map(PathBuf::from)),
    }
}

/// Adds the environment. A variable that is named after a key (`FETCHWISE_...`) takes precedence over the others.
pub(crate) fn add_environment(layers: &mut Layers) -> Result<(), Failure> {
    if let Some(text) = variable(LEARNING)? {
        let mode = Mode::resolve(None, Some(&text), None).map_err(Failure::usage)?;
        layers.set(&["mode"], mode.name(), &Origin::Variable(LEARNING.to_owned()));
    }
    for name in BROWSERS.into_iter().rev() {
        if let Some(path) = env::var_os(name).filter(|path| !path.is_empty()) {
            // Recorded only to show the origin of the setting: the discovery of the browser reads the environment
            // itself.
            layers.set(&["browser", "path"], &*path.to_string_lossy(), &Origin::Variable(name.to_owned()));
        }
    }
    let is_ours = |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("FETCHWISE_"));
    let mut ours = Vec::new();
    for (name, _) in env::vars_os().filter(|(name, _)| is_ours(name)) {
        let name = name.to_string_lossy().into_owned();
        if let Some(text) =
            (!NO_KEYS.contains(&&*name) && !name.starts_with(OF_TESTS)).then(|| variable(&name)).transpose()?.flatten()
        {
            ours.push((name, text));
        }
    }
    layers.variables(ours, &NO_KEYS);
    Ok(())
}

/// Adds the global options.
pub(crate) fn add_options(layers: &mut Layers, args: &GlobalArgs) {
    let paths = [
        ("data_dir", "--data-dir", &args.data_dir),
        ("router", "--router", &args.router),
        ("rules", "--rules", &args.rules),
    ];
    for (key, flag, path) in paths {
        if let Some(path) = path {
            layers.set(&[key], &*path.to_string_lossy(), &Origin::Flag(flag));
        }
    }
    if let Some(mode) = args.mode {
        layers.set(&["mode"], Mode::from(mode).name(), &Origin::Flag("--mode"));
    }
}

/// Returns an environment variable; none if it is empty.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(Failure::usage(format_args!("{name} is not valid UTF-8"))),
    }
}
