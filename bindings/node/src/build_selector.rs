//! The parts of a selector: its candidates, its journal, and the evidence replayed from it.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use fetchwise::journal::{Journal as Log, load};
use fetchwise::pace::{Pace, PaceSettings};
use fetchwise::policy;
use fetchwise::registry::{Class, FetcherId, FetcherSet, FetcherSpec};
use fetchwise::selector::{Selector as CoreSelector, SelectorBuilder};
use fetchwise::time::Timestamp;
use napi::bindgen_prelude::{ClassInstance, Either};
use napi_derive::napi;

use crate::convert;
use crate::errors::Failure;
use crate::journal::{Journal, JournalOptions, Shared};
use fetchwise_bindings_core::candidates;
use fetchwise_bindings_core::config;
use fetchwise_bindings_core::journal_sink::JournalSink;

/// A selector and the log that it records into.
pub struct Core {
    pub kept: CoreSelector,
    pub log: Option<Arc<Shared>>,
}

/// The handle by which visits hold their selector.
#[derive(Clone)]
pub struct Handle(pub Arc<Core>);

impl Deref for Handle {
    type Target = CoreSelector;

    fn deref(&self) -> &CoreSelector {
        &self.0.kept
    }
}

impl Core {
    /// Refuses to record when the journal is closed, before memory observes what the log will not
    /// have.
    pub fn check(&self) -> std::result::Result<(), Failure> {
        self.log.as_ref().map_or(Ok(()), |log| log.check())
    }

    /// Writes recorded attempts before the process ends, so that none stay in a queue.
    pub fn settle_if_ending(&self) {
        if let Some(log) = &self.log {
            log.settle_if_ending();
        }
    }

    /// Returns the candidates with these names.
    pub fn set(&self, names: &[String]) -> std::result::Result<FetcherSet, Failure> {
        candidates::candidates(&self.kept, names).map_err(Failure::config)
    }

    pub fn candidate(&self, name: &str) -> std::result::Result<FetcherId, Failure> {
        candidates::candidate(&self.kept, name).map_err(Failure::config)
    }
}

/// A fetcher in decisions: its name, the cost of a request, and whether it runs scripts.
#[napi(object)]
#[derive(Clone, Debug)]
pub struct Fetcher {
    /// The name of the fetcher in logged attempts. `direct_access`, `playwright` and
    /// `playwright_stealth` imply their kinds.
    pub name: String,
    /// Sets the defaults of the other fields.
    #[napi(ts_type = "'plain' | 'rendering' | 'stealth' | 'archive' | 'special' | 'unknown'")]
    pub kind: Option<String>,
    /// The cost of a request, in plain requests.
    pub cost: Option<f64>,
    /// Whether the fetcher runs the scripts of a page.
    pub renders: Option<bool>,
}

impl Fetcher {
    fn spec(self) -> std::result::Result<FetcherSpec, Failure> {
        let Self { name, kind, cost, renders } = self;
        let mut spec = match kind {
            Some(kind) => FetcherSpec::new(&name, kind.parse::<Class>().map_err(Failure::config)?),
            None => FetcherSpec::by_name(&name),
        };
        if let Some(cost) = cost {
            if !(cost.is_finite() && cost > 0.0) {
                let why = format!(
                    "invalid cost {cost} of {name}: expected a number of plain requests above 0"
                );
                return Err(Failure::config(why));
            }
            spec.cost = cost;
        }
        if let Some(renders) = renders {
            spec.renders = renders;
            spec.false_success = if renders { 0.0 } else { 0.05 };
        }
        Ok(spec)
    }

    pub fn of(spec: &FetcherSpec) -> Self {
        Self {
            name: spec.name.to_string(),
            kind: Some(spec.class.name().to_owned()),
            cost: Some(spec.cost),
            renders: Some(spec.renders),
        }
    }
}

/// Options of a selector.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct SelectorOptions<'a> {
    /// The candidates: names, or fetchers; defaults to the built-in names.
    #[napi(ts_type = "Array<string | Fetcher>")]
    pub fetchers: Option<Vec<Either<String, Fetcher>>>,
    /// A journal, or a directory, which the selector then opens. It replays its attempts at once
    /// and records into it.
    #[napi(ts_type = "Journal | string")]
    pub journal: Option<Either<ClassInstance<'a, Journal>, String>>,
    /// The options of a journal that the selector opens.
    pub journal_options: Option<JournalOptions>,
    /// A TOML file in the program's format, which replaces the other settings; options given here
    /// override it.
    pub config: Option<String>,
    /// Whether visits keep a learned pace for each host; defaults to true. A host that would keep a
    /// visit waiting for more than two minutes counts as paused.
    pub pace: Option<bool>,
    /// The half-life of an attempt's weight, in days.
    pub half_life_days: Option<f64>,
    /// The name of the policy; defaults to the library's default policy.
    pub policy: Option<String>,
    /// The maximum number of evidence keys in memory. With a journal the others are in files of its
    /// directory; without one they are forgotten.
    pub max_keys: Option<f64>,
}

/// The converted options of a selector, independent of JavaScript.
pub struct Plan {
    builder: SelectorBuilder,
    pace: PaceSettings,
}

impl Plan {
    pub fn of(options: &mut SelectorOptions<'_>) -> std::result::Result<Self, Failure> {
        let (file, names_fetchers) = (options.config.take(), options.fetchers.is_some());
        let (mut builder, pace) =
            config::begin(file.as_deref().map(Path::new), names_fetchers, options.pace)
                .map_err(Failure::config)?;
        for fetcher in options.fetchers.take().into_iter().flatten() {
            builder = builder.fetcher(match fetcher {
                Either::A(name) => FetcherSpec::by_name(&name),
                Either::B(fetcher) => fetcher.spec()?,
            });
        }
        if let Some(days) = options.half_life_days {
            builder = builder.half_life_days(days);
        }
        if let Some(name) = &options.policy {
            builder = builder.policy(policy::by_name(name).map_err(Failure::config)?);
        }
        if let Some(keys) = options.max_keys {
            builder =
                builder.max_keys(convert::count("maxKeys", keys, u64::from(u32::MAX))? as usize);
        }
        Ok(Self { builder, pace })
    }

    /// Builds the selector and replays the log.
    pub fn core(self, log: Option<Arc<Shared>>) -> std::result::Result<Arc<Core>, Failure> {
        let (mut builder, mut pace) = (self.builder, Pace::new(self.pace));
        if let Some(log) = &log {
            pace = pace.with_store(Box::new(JournalSink(Arc::clone(log))));
            builder = log.with(|journal| builder.keep_evicted(journal))?;
        }
        let mut kept = builder.pace(pace).build()?;
        if let Some(log) = &log {
            log.wait(Log::settled)?;
            let registered = load(&log.dir, &kept, Timestamp::now())?.registered;
            log.with(|journal| journal.register_fetchers(&kept, &registered))??;
            kept.set_sink(Box::new(JournalSink(Arc::clone(log))));
        }
        Ok(Arc::new(Core { kept, log }))
    }
}
