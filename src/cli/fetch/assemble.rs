//! Putting a crawler together from settings: journal, selector, fetchers, store, pipeline.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::backoff::LinkState;
use crate::cli::args::FetchArgs;
use crate::cli::failure::Failure;
use crate::cli::settings::{Settings, say_torn};
use crate::fetch::Limits;
use crate::fetch::guard::{AddressGuard, parse_network};
use crate::fetch::http::HttpFetcher;
use crate::journal::{Check, Durability, Journal, Options};
use crate::pipeline::{Pipeline, PipelineBuilder, PipelineSettings};
use crate::registry::PROBE_FETCHER;
use crate::selector::Selector;
use crate::store::Store;
use crate::store::files::Files;
use crate::store::warc::Warc;

/// What a crawl needs, whoever asks for it.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct Wishes {
    /// Networks that may be dialled although they are not public.
    pub(in crate::cli) allow_network: Vec<IpNet>,
    /// Whether loopback and private networks may.
    pub(in crate::cli) allow_private_network: bool,
    /// Where Chromium is.
    pub(in crate::cli) chromium: Option<PathBuf>,
    /// Whether to do without it.
    pub(in crate::cli) no_browser: bool,
    /// Time for one request.
    pub(in crate::cli) timeout: Option<Duration>,
    /// The longest body.
    pub(in crate::cli) max_body: Option<u64>,
}

impl From<&FetchArgs> for Wishes {
    fn from(args: &FetchArgs) -> Self {
        Self {
            allow_network: args.allow_network.clone(),
            allow_private_network: args.allow_private_network,
            chromium: args.chromium.clone(),
            no_browser: args.no_browser,
            timeout: args.timeout,
            max_body: args.max_body,
        }
    }
}

/// A crawler, ready to go.
pub(in crate::cli) struct Crawler {
    pub(in crate::cli) pipeline: Arc<Pipeline>,
    pub(in crate::cli) journal: Arc<Journal>,
}

impl Crawler {
    /// Opens the data directory for writing, learns what is in it, and puts everything together. Called within a runtime.
    pub(in crate::cli) fn open(
        settings: &Settings,
        wishes: &Wishes,
        store: Option<Arc<dyn Store>>,
    ) -> Result<Self, Failure> {
        let router = settings.router()?.clone();
        let detector = Arc::new(settings.detector()?);
        let limits = pipeline_settings(settings, wishes);
        let guard = guard(settings, wishes)?;
        let (journal, recovery) = Journal::open(&settings.data_dir()?, journal_options(settings))?;
        say_torn(recovery.torn.as_ref());
        let journal = Arc::new(journal);
        let (mut selector, loaded) = settings.learned()?;
        selector.set_sink(Box::new(Arc::clone(&journal)));
        let builder = builder(selector, loaded.links).settings(limits).router(router).detector(detector);
        let builder = builder.states(Arc::clone(&journal) as _).clock(Arc::clone(&settings.clock));
        let builder = fetchers(builder, settings, guard)?;
        let builder = match store {
            Some(store) => builder.store(store),
            None => builder,
        };
        Ok(Self { pipeline: Arc::new(builder.build()), journal })
    }

    /// Writes and syncs what is left.
    pub(in crate::cli) fn close(self) -> Result<(), Failure> {
        drop(self.pipeline);
        match Arc::try_unwrap(self.journal) {
            Ok(journal) => Ok(journal.close()?),
            // A task that was abandoned still holds it for a moment; dropping the last one closes it.
            Err(journal) => journal.flush().wait().map_err(Failure::failed),
        }
    }
}

fn builder(selector: Selector, links: HashMap<String, LinkState>) -> PipelineBuilder {
    Pipeline::builder(Arc::new(selector)).links(links)
}

/// Where delivered pages go, if anywhere.
pub(super) fn store(args: &FetchArgs) -> Result<Option<Arc<dyn Store>>, Failure> {
    let cannot = |path: &Path, error| Failure::failed(format_args!("cannot write {}: {error}", path.display()));
    Ok(match (&args.out, &args.warc) {
        (Some(dir), _) => Some(Arc::new(Files::new(dir).map_err(|error| cannot(dir, error))?)),
        (None, Some(path)) => {
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                fs::create_dir_all(parent).map_err(|error| cannot(parent, error))?;
            }
            Some(Arc::new(Warc::open(path).map_err(|error| cannot(path, error))?))
        }
        (None, None) => None,
    })
}

fn pipeline_settings(settings: &Settings, wishes: &Wishes) -> PipelineSettings {
    let (http, base) = (&settings.config.http, PipelineSettings::default());
    let seconds = |value: Option<f64>| value.and_then(|value| Duration::try_from_secs_f64(value).ok());
    let limits = Limits {
        deadline: wishes.timeout.or(seconds(http.timeout_s)).unwrap_or(base.limits.deadline),
        max_body: wishes.max_body.or(http.max_body).unwrap_or(base.limits.max_body),
        max_redirects: http.max_redirects.unwrap_or(base.limits.max_redirects),
        ..base.limits
    };
    let probe_limits = Limits {
        deadline: seconds(http.probe_timeout_s).unwrap_or(base.probe_limits.deadline).min(limits.deadline),
        max_body: limits.max_body,
        max_redirects: base.probe_limits.max_redirects.min(limits.max_redirects),
        ..base.probe_limits
    };
    let escalate_after_block = settings.config.backoff.escalate_after_block.unwrap_or(base.escalate_after_block);
    PipelineSettings { limits, probe_limits, escalate_after_block }
}

fn guard(settings: &Settings, wishes: &Wishes) -> Result<AddressGuard, Failure> {
    let network = &settings.config.network;
    let mut guard =
        AddressGuard::new(wishes.allow_network.clone(), wishes.allow_private_network || network.allow_private);
    for text in &network.allow {
        guard.allow_network(
            parse_network(text).map_err(|error| Failure::usage(format_args!("network.allow: {error}")))?,
        );
    }
    Ok(guard)
}

fn journal_options(settings: &Settings) -> Options {
    let log = &settings.config.log;
    let interval = log.interval_ms.map(Duration::from_millis).map(Durability::Interval).unwrap_or_default();
    let durability = match log.durability.as_deref() {
        Some("memory") => Durability::Memory,
        Some("os") => Durability::Os,
        Some("sync") => Durability::Sync,
        _ => interval,
    };
    // Everything is replayed right after the open, which reads it all.
    Options { durability, segment_bytes: log.segment_bytes, check: Check::Tail, ..Options::default() }
}

/// Adds every fetcher that is to be had, and why the others are not.
fn fetchers(builder: PipelineBuilder, settings: &Settings, guard: AddressGuard) -> Result<PipelineBuilder, Failure> {
    let mut http = HttpFetcher::builder().guard(guard).name(PROBE_FETCHER);
    if let Some(agent) = &settings.config.http.user_agent {
        http = http.user_agent(agent);
    }
    let http = http.build().map_err(Failure::usage)?;
    Ok(builder.fetcher(Arc::new(http)))
}
