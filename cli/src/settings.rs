//! What a command works with: the command line, the environment and the config file brought together.
//!
//! Owns their precedence: the command line, then the environment, then the config, then the default. Everything that can be
//! wrong with them is found here, before a command begins.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etcetera::BaseStrategy;

use super::failure::Failure;
use super::global::GlobalArgs;
use super::out::{note, plain};
use super::progress::ByteBar;
use fetchwise::config::{Config, built_in_fetchers, load_route_table};
use fetchwise::detect::{Detector, DetectorOptions};
use fetchwise::evidence::decay::{Decay, HALF_LIFE_DAYS_DEFAULT};
use fetchwise::journal::{self, Loaded, TornTail};
use fetchwise::names::UnknownName;
use fetchwise::pace::{Pace, PaceMode, PaceSettings};
use fetchwise::policy::Policy;
use fetchwise::registry::{CANDIDATES_MAX, FetcherSpec, canonical};
use fetchwise::router::{Mode, Router};
use fetchwise::selector::{Selector, SelectorBuilder};
use fetchwise::time::Clock;

/// The variable that names the data directory.
const DATA_DIR: &str = "FETCHWISE_DATA_DIR";
/// The variable that switches learning on and off.
const LEARNING: &str = "LEARNING_MODE_ENABLED";

/// A command that wrote takes a snapshot when there are so many records behind the last one: a start reads those in well under a
/// second.
const SNAPSHOT_AFTER: u64 = 100_000;

/// Resolved settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    data_dir: Option<PathBuf>,
    /// Whether the command line names it.
    is_dir_named: bool,
    /// What the config file says.
    pub(crate) config: Config,
    router: Router,
    /// The file of the router table.
    table: Option<PathBuf>,
    rules: Option<PathBuf>,
    /// The system's clock, or the one of `--now`.
    pub(crate) clock: Arc<Clock>,
}

impl Settings {
    /// Brings everything together.
    pub(crate) fn resolve(args: &GlobalArgs) -> Result<Self, Failure> {
        let config = args.config.as_deref().map(Config::load).transpose()?.unwrap_or_default();
        let variable = variable(LEARNING)?;
        let mode =
            Mode::resolve(args.mode.map(Mode::from), variable.as_deref(), config.mode).map_err(Failure::usage)?;
        let table = args.router.as_ref().or(config.router.as_ref());
        let table = table.map(|path| load_route_table(path)).transpose()?;
        let split_share = config.split_share.unwrap_or(0.5);
        Ok(Self {
            is_dir_named: args.data_dir.is_some(),
            data_dir: args
                .data_dir
                .clone()
                .or(self::variable(DATA_DIR)?.map(PathBuf::from))
                .or_else(|| config.data_dir.clone()),
            table: args.router.clone().or_else(|| config.router.clone()),
            router: Router { mode, table: table.unwrap_or_default(), split_share },
            rules: args.rules.clone().or_else(|| config.rules.clone()),
            clock: Arc::new(args.now.map_or(Clock::System, Clock::fixed)),
            config,
        })
    }

    /// Where the log is.
    pub(crate) fn data_dir(&self) -> Result<PathBuf, Failure> {
        if let Some(dir) = &self.data_dir {
            if dir.exists() && !dir.is_dir() {
                return Err(Failure::usage(format_args!("the data directory {} is no directory", dir.display())));
            }
            return Ok(dir.clone());
        }
        let base = etcetera::choose_base_strategy().map_err(|_| {
            Failure::usage("there is no home directory to keep the attempt log in")
                .advise("name a directory with --data-dir")
        })?;
        Ok(base.data_dir().join("fetchwise"))
    }

    /// The same settings with another data directory, unless the command line named one.
    pub(crate) fn in_dir_unless_named(&self, dir: &Path) -> Self {
        let data_dir = if self.is_dir_named { self.data_dir.clone() } else { Some(dir.to_owned()) };
        Self { data_dir, ..self.clone() }
    }

    /// The file of rules that are used beside the shipped ones.
    pub(crate) fn rules(&self) -> Option<&Path> {
        self.rules.as_deref()
    }

    /// The detector: the shipped rules, and those of `--rules`.
    pub(crate) fn detector(&self) -> Result<Detector, Failure> {
        let detector = match &self.rules {
            None => Detector::new(),
            Some(path) => Detector::from_file(path).map_err(Failure::usage)?,
        };
        Ok(detector.with_options(self.detector_options()))
    }

    /// How the detector reads.
    pub(crate) fn detector_options(&self) -> DetectorOptions {
        let options = DetectorOptions::default();
        self.config.detect.block_threshold.map_or(options, |sure| options.with_block_threshold(sure as f32))
    }

    /// The data directory, which must be there: what only reads or looks after it makes none, and would take a name that is
    /// misspelt for a directory in which nothing has been learned yet.
    pub(crate) fn existing_dir(&self) -> Result<PathBuf, Failure> {
        let dir = self.data_dir()?;
        if dir.is_dir() {
            return Ok(dir);
        }
        Err(Failure::usage(no_dir(&dir)).advise("name the one that fetch or import wrote, with --data-dir"))
    }

    /// Says on stderr when the data directory that somebody named is not there. A decision without evidence is worth having,
    /// so it is no error.
    pub(crate) fn warn_if_no_dir(&self) {
        if let Some(dir) = self.data_dir.as_ref().filter(|dir| !dir.exists()) {
            note(format_args!("warning: {}: deciding without any evidence", no_dir(dir)));
        }
    }

    /// A selector that knows everything in the log, and the states of links. Candidates are those of the config; without
    /// any, the built-in names and those seen in the log.
    pub(crate) fn learned(&self) -> Result<(Selector, Loaded), Failure> {
        // A pace that is switched off for crawls is still one that can be looked at.
        let pace = PaceSettings { mode: PaceMode::Learn, ..self.config.pace() };
        self.learned_with(|builder| builder.pace(Pace::new(pace)))
    }

    /// As [`Settings::learned`], built with more than the config says.
    pub(crate) fn learned_with(
        &self,
        more: impl FnOnce(SelectorBuilder) -> SelectorBuilder,
    ) -> Result<(Selector, Loaded), Failure> {
        let (dir, mut bar) = (self.data_dir()?, ByteBar::new());
        let mut tell = |progress| bar.tell("reading the attempt log", progress);
        let (selector, loaded) = if self.config.fetchers.is_empty() {
            let survey = journal::survey_showing(&dir, &mut tell)?;
            let selector = self.selector(self.candidates(&survey.fetchers), more)?;
            let loaded = survey.load(&dir, &selector, self.clock.now(), &mut tell)?;
            (selector, loaded)
        } else {
            let selector = self.selector(Vec::new(), more)?;
            let loaded = journal::load_showing(&dir, &selector, self.clock.now(), &mut tell)?;
            (selector, loaded)
        };
        drop(bar);
        say_torn(loaded.replayed.torn_tail.as_ref());
        say_rejected(&loaded);
        self.check_names(&selector)?;
        Ok((selector, loaded))
    }

    /// Whether the router table and the config's priors name candidates only: what they say of others would have no effect.
    fn check_names(&self, selector: &Selector) -> Result<(), Failure> {
        let known: Vec<&str> = selector.candidates().map(|(_, spec)| &*spec.name).collect();
        self.router.table.check(known.iter().copied()).map_err(|error| match &self.table {
            Some(path) => Failure::usage(format_args!("{}, {error}", path.display())),
            None => Failure::usage(error),
        })?;
        let unknown = |name: &str| !known.contains(&canonical(name));
        match self.config.priors.iter().find(|prior| unknown(&prior.fetcher)) {
            Some(prior) => Err(Failure::usage(format_args!(
                "the config's prior for {}={}: {}",
                prior.kind,
                prior.value,
                UnknownName::new("fetcher", &prior.fetcher, known)
            ))),
            None => Ok(()),
        }
    }

    /// Takes a snapshot when many records have come since the last one, so that the next start is fast. That it could not be
    /// taken is worth a word, no more: nothing is lost by it.
    pub(crate) fn snapshot_if_due(&self, dir: &Path) {
        let due = journal::maintain::unfolded(dir).is_ok_and(|records| records >= SNAPSHOT_AFTER);
        if !due {
            return;
        }
        let mut bar = ByteBar::new();
        let mut tell = |_, progress| bar.tell("taking a snapshot", progress);
        let taken =
            self.blank().and_then(|blank| Ok(journal::maintain::snapshot(dir, &blank, self.clock.now(), &mut tell)?));
        drop(bar);
        if let Err(failure) = taken {
            note(format_args!("fetchwise: no snapshot was taken: {failure}"));
        }
    }

    /// A selector without evidence, for maintenance: one that keeps every key, as what it learns goes into a snapshot.
    pub(crate) fn blank(&self) -> Result<Selector, Failure> {
        let builder = self.config.selector().around(self.clock.now()).keys_max(None);
        builder.build().map_err(Failure::usage)
    }

    /// A selector without evidence that decides by `policy`, with the candidates that [`Settings::learned`] has.
    pub(crate) fn unlearned(&self, policy: Box<dyn Policy>) -> Result<Selector, Failure> {
        let mut candidates = Vec::new();
        if self.config.fetchers.is_empty() {
            candidates = self.candidates(&journal::survey(&self.existing_dir()?)?.fetchers);
        }
        let builder = self.config.selector().around(self.clock.now()).policy(policy);
        candidates.into_iter().fold(builder, SelectorBuilder::fetcher).build().map_err(Failure::usage)
    }

    /// The scale that evidence fades by.
    pub(crate) fn decay(&self) -> Result<Decay, Failure> {
        let days = self.config.half_life_days.unwrap_or(HALF_LIFE_DAYS_DEFAULT);
        Decay::new(days, self.clock.now()).map_err(Failure::usage)
    }

    /// The candidates where the config names none: the built-in names, those of `seen` that the router table names, and the
    /// rest of `seen`.
    fn candidates(&self, seen: &[String]) -> Vec<FetcherSpec> {
        let mut candidates = built_in_fetchers();
        let routed: Vec<&str> = self.router.table.fetchers().collect();
        let (first, rest): (Vec<&String>, Vec<&String>) = seen.iter().partition(|name| routed.contains(&name.as_str()));
        for name in first.into_iter().chain(rest) {
            if !candidates.iter().any(|known| *known.name == *canonical(name)) {
                candidates.push(FetcherSpec::by_name(name));
            }
        }
        if let Some(first) = candidates.get(CANDIDATES_MAX) {
            let more = candidates.len() - CANDIDATES_MAX;
            note(format_args!(
                "warning: {more} of the fetchers in the log are no candidates, {} among them: there can be \
                 {CANDIDATES_MAX}; list those that you use as [[fetcher]] in a config",
                plain(&first.name)
            ));
            candidates.truncate(CANDIDATES_MAX);
        }
        candidates
    }

    /// A selector without evidence. Its candidates are those of the config, then `more`.
    fn selector(
        &self,
        candidates: Vec<FetcherSpec>,
        more: impl FnOnce(SelectorBuilder) -> SelectorBuilder,
    ) -> Result<Selector, Failure> {
        let builder = more(self.config.selector().around(self.clock.now()));
        candidates.into_iter().fold(builder, SelectorBuilder::fetcher).build().map_err(Failure::usage)
    }

    /// Mode and table, for a command that decides.
    pub(crate) fn router(&self) -> Result<&Router, Failure> {
        if self.table.is_none() && self.router.mode != Mode::Learning {
            return Err(Failure::usage(format_args!("mode {} needs a router table", self.router.mode.name()))
                .advise("name one with --router FILE (TOML or CSV: domain, fetcher), or use --mode learning"));
        }
        Ok(&self.router)
    }
}

fn no_dir(dir: &Path) -> String {
    format!("there is no data directory {}", dir.display())
}

/// Says on stderr that the last writer died, and that nothing which counts was lost by it.
pub(crate) fn say_torn(torn: Option<&TornTail>) {
    if let Some(torn) = torn {
        note(format_args!("fetchwise: {torn}"));
    }
}

/// Says on stderr that a snapshot is damaged, and that nothing was lost by it.
fn say_rejected(loaded: &Loaded) {
    let Some(started) = &loaded.snapshot else { return };
    for damage in &started.rejected {
        note(format_args!(
            "fetchwise: {}; began with the records from {} on instead, {} of them",
            plain(&damage.to_string()),
            started.covers_seq + 1,
            loaded.replayed.entries
        ));
    }
}

/// A variable of the environment; empty counts as absent.
fn variable(name: &str) -> Result<Option<String>, Failure> {
    match env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(Failure::usage(format_args!("{name} is not valid UTF-8"))),
    }
}
