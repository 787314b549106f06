//! Resolved settings: the command line, the environment and the config file together.
//!
//! Owns: their precedence (command line, environment, config, default). Every fault in them is
//! found here, before a command begins.
//!
//! Must not know: what commands build from them.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etcetera::BaseStrategy;

use crate::parse::global::GlobalArgs;
use crate::terminal::exit::Failure;
use crate::terminal::output::shown;
use crate::terminal::warnings::warn_all;
use fetchwise::config::{Config, Layers, Origin, Resolved, read_route_table};
use fetchwise::detect::{Detector, DetectorOptions};
use fetchwise::journal::AsOf;
use fetchwise::router::{Mode, Router, RouterError};
use fetchwise::time::{Clock, Timestamp};

/// The variable that names the config file.
const CONFIG: &str = "FETCHWISE_CONFIG";
/// The variable that switches learning on and off.
const LEARNING: &str = "LEARNING_MODE_ENABLED";
/// The variables that name the browser, in the order of precedence.
const BROWSERS: [&str; 2] = ["FETCHWISE_CHROMIUM", "CHROME"];
/// Variables with our prefix that are not keys of the config: those above, the token of a server,
/// the brokers of a fleet, and the folder that a command fetcher gives its program.
const NO_KEYS: [&str; 5] =
    [CONFIG, BROWSERS[0], "FETCHWISE_TOKEN", "FETCHWISE_FLEET", "FETCHWISE_SCRATCH"];

/// The default share of domains for which `split` lets evidence decide.
pub(crate) const SPLIT_SHARE: f64 = 0.5;

/// Resolved settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The options of the command line, for a reload.
    args: GlobalArgs,
    /// The config file, if there is one.
    config_file: Option<PathBuf>,
    /// Whether the command line or the environment sets the mode.
    is_mode_given: bool,
    pub(super) data_dir: Option<PathBuf>,
    /// The settings of the config file and the environment.
    pub(crate) config: Config,
    /// The origin of each setting.
    pub(crate) resolved: Resolved,
    pub(super) router: Router,
    /// The file of the router table.
    pub(super) table: Option<PathBuf>,
    pub(super) rules: Option<PathBuf>,
    /// The system's clock, or the one of `--now`.
    pub(crate) clock: Arc<Clock>,
    /// The past moment whose evidence is wanted; `None` for the present.
    pub(super) moment: Option<AsOf>,
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
        let settings = Self::from_resolved(layers.resolve()?, args)?;
        warn_all(&settings.resolved.warnings);
        Ok(settings)
    }

    /// Returns the settings for layers that are already resolved, and reads the router table that
    /// they name.
    pub(crate) fn from_resolved(resolved: Resolved, args: &GlobalArgs) -> Result<Self, Failure> {
        let config = resolved.config.clone();
        let mode = args.mode.map(Mode::from).or(config.mode).unwrap_or_default();
        let is_mode_given =
            args.mode.is_some() || matches!(resolved.origin(&["mode"]), Origin::Variable(_));
        let table = args.router.clone().or_else(|| config.router.clone());
        let routes = table.as_deref().map(read_route_table).transpose()?;
        let routes = routes.map(|(routes, warnings)| {
            warn_all(&warnings);
            routes
        });
        let routes = routes.unwrap_or_default();
        let split_share = config.split_share.unwrap_or(SPLIT_SHARE);
        Ok(Self {
            args: args.clone(),
            is_mode_given,
            config_file: config_file(args)?,
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

    /// Returns the browser that the config, or the variable of its key, names. The other variables
    /// take precedence over a config file, and the discovery of the browser reads them itself.
    pub(crate) fn browser_path(&self) -> Option<&Path> {
        let is_elsewhere = matches!(
            self.resolved.origin(&["browser", "path"]),
            Origin::Variable(name) if BROWSERS.contains(&name.as_str())
        );
        self.config.browser.path.as_deref().filter(|_| !is_elsewhere)
    }

    /// Returns the file of `--priors`.
    pub(super) fn priors_option(&self) -> Option<&Path> {
        self.args.priors.as_deref()
    }

    /// Resolves the same command line again, and reads its files again.
    pub(crate) fn resolve_again(&self) -> Result<Self, Failure> {
        Self::resolve(&self.args)
    }

    /// Returns whether the command line or the environment sets the mode, so that the config's has
    /// no effect.
    pub(crate) fn is_mode_given(&self) -> bool {
        self.is_mode_given
    }

    /// Returns the files that can be reloaded: config, router table and rules.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Path> {
        [self.config_file.as_deref(), self.table.as_deref(), self.rules.as_deref()]
            .into_iter()
            .flatten()
    }

    /// Returns the failure for an error of the router, with the file of the table.
    pub(crate) fn router_failure(&self, error: RouterError) -> Failure {
        match (&self.table, &error) {
            (Some(path), RouterError::Table(_)) => {
                Failure::usage(format_args!("{}, {error}", shown(path)))
            }
            _ => Failure::usage(error),
        }
    }

    /// Returns the data directory, which may not exist.
    pub(crate) fn data_dir(&self) -> Result<PathBuf, Failure> {
        if let Some(dir) = &self.data_dir {
            if dir.exists() && !dir.is_dir() {
                return Err(Failure::usage(format_args!(
                    "the data directory {} is not a directory",
                    shown(dir)
                )));
            }
            return Ok(dir.clone());
        }
        let base = etcetera::choose_base_strategy().map_err(|_| {
            Failure::usage("no place for the attempt log: there is no home directory")
                .advise("choose a directory with --data-dir")
        })?;
        Ok(base.data_dir().join("fetchwise"))
    }

    /// Returns the same settings with this data directory.
    pub(crate) fn with_dir(&self, dir: &Path) -> Self {
        Self { data_dir: Some(dir.to_owned()), ..self.clone() }
    }

    /// Returns the same settings at an earlier moment, which was at the time `now`. Evidence is
    /// that of the moment.
    pub(crate) fn as_of(&self, moment: AsOf, now: Timestamp) -> Self {
        Self { moment: Some(moment), clock: Arc::new(Clock::fixed(now)), ..self.clone() }
    }

    /// Returns whether the settings are those of an earlier moment.
    pub(crate) fn is_historical(&self) -> bool {
        self.moment.is_some()
    }

    /// Returns the file of rules in addition to the built-in ones.
    pub(crate) fn rules(&self) -> Option<&Path> {
        self.rules.as_deref()
    }

    /// Returns the options of the detector.
    pub(crate) fn detector_options(&self) -> DetectorOptions {
        let options = DetectorOptions::default();
        self.config
            .tuning
            .block_threshold
            .map_or(options, |sure| options.with_block_threshold(sure as f32))
    }

    /// Returns the detector with the corrections for single hosts.
    pub(crate) fn with_min_chars(&self, detector: Detector) -> Detector {
        let hosts =
            self.config.detect.host.iter().filter_map(|(host, of)| Some((host, of.min_chars?)));
        hosts.fold(detector, |detector, (host, chars)| detector.with_min_chars(host, chars))
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

/// Returns the config file: `--config`, or `FETCHWISE_CONFIG`.
pub(crate) fn config_file(args: &GlobalArgs) -> Result<Option<PathBuf>, Failure> {
    match &args.config {
        Some(file) => Ok(Some(file.clone())),
        None => Ok(variable(CONFIG)?.map(PathBuf::from)),
    }
}

/// Adds the environment. A variable that is named after a key (`FETCHWISE_...`) takes precedence
/// over the others.
pub(crate) fn add_environment(layers: &mut Layers) -> Result<(), Failure> {
    if let Some(text) = variable(LEARNING)? {
        let mode = Mode::resolve(None, Some(&text), None).map_err(Failure::usage)?;
        layers.set(&["mode"], mode.name(), &Origin::Variable(LEARNING.to_owned()));
    }
    for name in BROWSERS.into_iter().rev() {
        if let Some(path) = env::var_os(name).filter(|path| !path.is_empty()) {
            // Recorded only to show the origin of the setting: the discovery of the browser reads
            // the environment itself.
            layers.set(
                &["browser", "path"],
                &*path.to_string_lossy(),
                &Origin::Variable(name.to_owned()),
            );
        }
    }
    let is_ours =
        |name: &OsString| name.to_str().is_some_and(|name| name.starts_with("FETCHWISE_"));
    let mut ours = Vec::new();
    for (name, _) in env::vars_os().filter(|(name, _)| is_ours(name)) {
        let name = name.to_string_lossy().into_owned();
        if let Some(text) =
            (!NO_KEYS.contains(&&*name)).then(|| variable(&name)).transpose()?.flatten()
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
        Err(env::VarError::NotUnicode(_)) => {
            Err(Failure::usage(format_args!("{name} is not valid UTF-8")))
        }
    }
}
