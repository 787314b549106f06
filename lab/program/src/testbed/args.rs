//! The syntax of `testbed`.

use std::path::PathBuf;

use clap::Args;

/// Serve web sites on this machine that any crawler can be tested on
///
/// Each site gets a loopback address. There are sites of many kinds: static, applications,
/// blocking, limited, short, redirecting, drifting, slow, flaky, broken, traps. A server lists
/// their pages: let a crawler fetch the list and submit the content of each page. The sites count
/// requests, blocks and rendered pages; the ledger tells which pages are good. Ctrl-C ends the
/// testbed and prints the score.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise-lab testbed\n  fetchwise-lab testbed --pages 50 --seed 7 --ledger ledger.json\n  \
    fetchwise-lab testbed --tls --bot-keys site/.well-known/http-message-signatures-directory\n  \
    fetchwise-lab testbed --sites sites.toml        [[site]] kind = \"static\", count = 3, pages = 100"
)]
pub(crate) struct TestbedArgs {
    /// Read the sites from tables [[site]]: kind, and optionally count and pages [default: 22 sites
    /// of all kinds]
    #[arg(long, value_name = "FILE.toml")]
    pub(super) sites: Option<PathBuf>,
    /// List N pages of each site
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(super) pages: u32,
    /// Choose the pages by this seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// Write the ledger to this file at the end, as JSON
    #[arg(long, value_name = "FILE")]
    pub(super) ledger: Option<PathBuf>,
    /// Serve the sites over https with HTTP/2, by a certificate of an authority of this run
    #[arg(long)]
    pub(super) tls: bool,
    /// Write the certificate of that authority to this file, for http.ca_file [default: a file in
    /// the temporary folder]
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub(super) ca_file: Option<PathBuf>,
    /// Know the bots of this key directory, as `identity directory` writes it: sites of the kind
    /// verified admit them
    #[arg(long, value_name = "FILE")]
    pub(super) bot_keys: Option<PathBuf>,
}
