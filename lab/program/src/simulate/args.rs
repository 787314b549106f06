//! The syntax of `simulate`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Compare policies in synthetic worlds, with a virtual clock and no network
///
/// Every policy fetches every URL of the world through the calls of a real crawler, with the same
/// random numbers. Regret is the value lost per URL compared with an oracle that knows all
/// probabilities. The same worlds, policies and seeds print the same bytes.
#[derive(Debug, Args)]
#[command(
    after_help = "Policies: default, untagged, index, confident, published, oracle, always_direct, always_browser, \
    ladder, hinted_ladder,\n\
    hinted_breaker, smart, crawlee, tier_tracker, webpeel, one_probe; or all.\n\n\
    Built-in worlds: W1 to W7, newsroom, flaky, restless, scripted, sparse, thrifty, still, captcha-flip, app-drift;\n\
    with vendors: V1 to V4, N1, strict, motley, fickle.\n\n\
    Worlds of rate limits: pace, pace-8h, pace-again, pace-held-out, pace-others, pace-walls. Pacers there: pace, pace20 (with \
    the default\n\
    max_rate), cubic, aimd, none, gradient2, crawlee, autothrottle4, autothrottle1, three_links, one_a_second, storm, \
    heritrix, nutch; or all.\n\n\
    Worlds of fetcher choice and pace, on hosts whose limits depend on the client: joint-1, joint-2. Crawlers there: \
    fetchwise, unpaced,\n\
    oracle, aimd, direct_1s, browser_1s, direct_best, browser_best; or all.\n\n\
    Examples:\n  \
    fetchwise-lab simulate --world W1 --policy default,hinted_breaker --seeds 9001..9005\n  \
    fetchwise-lab simulate --world W1,W4,my-world.toml --policy all --html report.html\n  \
    fetchwise-lab simulate --world pace --policy pace,aimd --html paces.html\n  \
    fetchwise-lab simulate --world joint-1 --policy all --seeds 1 --html joint.html\n  \
    fetchwise-lab simulate --train V1 --world my-start.toml\n  \
    fetchwise-lab simulate --world W1 --fleet 10 --delay 2s,1m\n  \
    fetchwise-lab simulate --show-world W1 > my-world.toml"
)]
pub(crate) struct SimulateArgs {
    /// Use these world files or built-in worlds; repeatable [default: W1 to W7]
    #[arg(long, value_name = "FILE.toml", value_delimiter = ',')]
    pub(crate) world: Vec<PathBuf>,
    /// Compare these policies; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "default")]
    pub(crate) policy: Vec<String>,
    /// Also run `warm`: the default policy, started with the priors of a crawler that was trained
    /// in this world
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) train: Option<PathBuf>,
    /// Use one seed, or the first and the last of several
    #[arg(long, value_name = "A..B", default_value = "9001..9003", value_parser = parse_seeds)]
    pub(crate) seeds: SeedRange,
    /// Write a page with plots too
    #[arg(long, value_name = "FILE.html")]
    pub(crate) html: Option<PathBuf>,
    /// Measure the time of decisions; such results differ from run to run
    #[arg(long)]
    pub(crate) timing: bool,
    /// Use N threads [default: one per processor]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) threads: usize,
    /// Compare one node with fleets of N nodes: separate, divided by site, and learning together
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(2..=10_000))]
    pub(crate) fleet: Vec<u64>,
    /// Set the longest delay of messages between nodes; repeatable [default: 2s]
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = humantime::parse_duration, requires = "fleet")]
    pub(crate) delay: Vec<Duration>,
    /// Give the nodes one IP address together, so that a ban applies to all, or one each
    #[arg(long, value_name = "WHICH", value_parser = ["one", "each"], default_value = "one", requires = "fleet")]
    pub(crate) egress: String,
    /// Run fleets in scope own too: each site has one node, and nodes exchange evidence that
    /// belongs to no site
    ///
    /// Fleets of more than 100 nodes always run in it.
    #[arg(long, value_name = "SCOPE", value_parser = ["all", "own"], default_value = "all", requires = "fleet")]
    pub(crate) scope: String,
    /// Write a fleet's plots into this folder as SVG files
    #[arg(long, value_name = "DIR", requires = "fleet")]
    pub(crate) plots: Option<PathBuf>,
    /// Print a built-in world file and stop
    #[arg(long, value_name = "NAME")]
    pub(crate) show_world: Option<String>,
}

/// Seeds from the first to the last, including both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeedRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Parses `9001` or `9001..9005`, including both ends; `..=` means the same.
fn parse_seeds(text: &str) -> Result<SeedRange, String> {
    const MAX_SEEDS: u64 = 1000;
    let (first, last) =
        text.split_once("..").map_or((text, text), |(a, b)| (a, b.strip_prefix('=').unwrap_or(b)));
    let number = |text: &str| {
        text.trim()
            .parse::<u64>()
            .map_err(|_| format!("{text:?} is not a valid seed: expected A..B, such as 9001..9005"))
    };
    let range = SeedRange { first: number(first)?, last: number(last)? };
    match range.last.checked_sub(range.first) {
        Some(more) if more < MAX_SEEDS => Ok(range),
        _ => Err(format!("invalid seeds {text}: expected between 1 and {MAX_SEEDS} seeds")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_with_both_ends() {
        assert_eq!(parse_seeds("9001..9005"), Ok(SeedRange { first: 9001, last: 9005 }));
        assert_eq!(parse_seeds("1..=2"), Ok(SeedRange { first: 1, last: 2 }));
        assert_eq!(parse_seeds("7"), Ok(SeedRange { first: 7, last: 7 }));
        for bad in ["", "..", "5..4", "a..b", "0..99999", "1,2"] {
            assert!(parse_seeds(bad).is_err(), "{bad}");
        }
    }
}
