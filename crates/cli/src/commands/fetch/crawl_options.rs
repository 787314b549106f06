//! What a crawl needs, whoever asks for it: `fetch`, `try` and `demo` say it here, and a crawler is put together from it.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::args::{FetchArgs, PaceArgs};
use crate::setup::fetcher_availability::BrowserArgs;

/// What a crawl needs, whoever asks for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wishes {
    /// Networks that may be dialled although they are not public.
    pub(crate) allow_network: Vec<IpNet>,
    /// Whether loopback and private networks may.
    pub(crate) allow_private_network: bool,
    /// Which browser.
    pub(crate) browser: BrowserArgs,
    /// The fetcher that is tried first, for every URL.
    pub(crate) fetcher: Option<String>,
    /// What the stealthy browser says it is, unless it says what any browser does.
    pub(crate) stealth_agent: Option<String>,
    /// Time for one request.
    pub(crate) timeout: Option<Duration>,
    /// The longest body.
    pub(crate) max_body: Option<u64>,
    /// Certificate authorities to trust beside Mozilla's.
    pub(crate) ca_file: Option<PathBuf>,
    /// Whether requests and redirects are kept for an archive.
    pub(crate) keep_exchange: bool,
    /// How fast hosts are asked.
    pub(crate) pace: PaceArgs,
    /// Whoever asks has a queue of its own, and wants nothing to wait inside.
    pub(crate) has_queue: bool,
}

impl From<&FetchArgs> for Wishes {
    fn from(args: &FetchArgs) -> Self {
        Self {
            allow_network: args.request.allow_network.clone(),
            allow_private_network: args.request.allow_private_network,
            browser: args.request.browser.clone(),
            fetcher: args.fetcher.clone(),
            stealth_agent: None,
            timeout: args.request.timeout,
            max_body: args.request.max_body,
            ca_file: args.request.ca_file.clone(),
            keep_exchange: args.warc.is_some(),
            pace: args.pace.clone(),
            has_queue: true,
        }
    }
}
