//! Options of a crawl, shared by `fetch`, `try`, `serve` and `demo`.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::args::{FetchArgs, PaceArgs};
use crate::parse::input::is_stdin;
use crate::setup::fetcher_availability::BrowserArgs;

/// The options of a crawl.
#[derive(Clone, Debug, Default)]
pub(crate) struct CrawlOptions {
    /// Networks that requests may reach although they are not public.
    pub(crate) allow_network: Vec<IpNet>,
    /// Whether requests may reach loopback and private networks.
    pub(crate) allow_private_network: bool,
    /// The choice of the browser.
    pub(crate) browser: BrowserArgs,
    /// The fetcher that is tried first for every URL.
    pub(crate) prefer: Option<String>,
    /// The user agent of the stealth browser, if it differs from its default.
    pub(crate) stealth_agent: Option<String>,
    /// The time limit of one request.
    pub(crate) timeout: Option<Duration>,
    /// The size limit of a body in bytes.
    pub(crate) max_body: Option<u64>,
    /// A file of certificate authorities to trust in addition to Mozilla's.
    pub(crate) ca_file: Option<PathBuf>,
    /// The folder of pages that failed.
    pub(crate) keep_failed: Option<PathBuf>,
    /// Whether requests and redirects are kept for an archive.
    pub(crate) keep_exchange: bool,
    /// The pace of hosts.
    pub(crate) pace: PaceArgs,
    /// Whether the caller has its own queue, so that the pipeline must not wait.
    pub(crate) has_queue: bool,
    /// Whether pages of an earlier crawl may stand for new ones: nobody waits for their bodies
    /// here.
    pub(crate) uses_cache: bool,
}

impl From<&FetchArgs> for CrawlOptions {
    fn from(args: &FetchArgs) -> Self {
        Self {
            allow_network: args.request.allow_network.clone(),
            allow_private_network: args.request.allow_private_network,
            browser: args.request.browser.clone(),
            prefer: args.prefer.clone(),
            stealth_agent: None,
            timeout: args.request.timeout,
            max_body: args.request.max_body,
            ca_file: args.request.ca_file.clone(),
            keep_failed: args.keep_failed.clone(),
            keep_exchange: args.warc.is_some(),
            pace: args.pace.clone(),
            has_queue: true,
            // The row of a page that has not changed would have no content.
            uses_cache: args.parquet.is_none()
                && (args.warc.is_some()
                    || args.out.as_deref().map_or(args.has_list(), |out| !is_stdin(out))),
        }
    }
}
