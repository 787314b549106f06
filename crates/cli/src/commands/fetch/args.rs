//! The arguments of `fetch`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::commands::fetch::report::Lines;
use crate::parse::input::is_stdin;
use crate::setup::decider::read_tag;
use crate::setup::fetcher_availability::BrowserArgs;
use fetchwise::fetch::address_guard;
use fetchwise::heuristic::Heuristic;
use fetchwise::pace::{PaceMode, PaceSettings};
use fetchwise::robots::RobotsUse;
use fetchwise_crawl::{LeftLinks, PauseWait};

/// Fetch pages and learn from every request
///
/// Each URL goes to the fetcher that is most likely to deliver it at the lowest cost; after a
/// failure the next one tries. Every request is recorded as an attempt. A site that blocks is
/// paused. The same command continues an interrupted run where it stopped.
///
/// Results appear as soon as they are available, each with its line of the input. With --ordered
/// they appear in the order of the input, and a URL that hangs delays the results after it.
#[derive(Debug, Args)]
#[command(
    after_help = "Input lines are URLs, or JSON objects {\"url\", \"id\", \"learning\", \"prefer\", \"tags\"}; empty \
    lines and lines that start with # are ignored.\n\n\
    Exit codes: 0 every URL was delivered or is missing (404, 410); 1 failed; 2 invalid usage; 3 refused; 4 some were \
    not delivered (see --fail-on).\n\n\
    Examples:\n  \
    fetchwise fetch https://example.org/ > page.html\n  \
    fetchwise fetch --input urls.txt --out pages\n  \
    fetchwise fetch --input urls.txt --out pages --only paused,failed\n  \
    fetchwise fetch --input urls.txt --warc crawl.warc.gz --concurrency 32 --json > results.jsonl\n  \
    fetchwise fetch --input urls.txt --parquet pages.parquet\n  \
    fetchwise fetch http://127.0.0.1:8080/ --allow-private-network"
)]
pub(crate) struct FetchArgs {
    /// Fetch these URLs; - reads lines from stdin
    #[arg(value_name = "URL")]
    pub(crate) urls: Vec<String>,
    /// Read URLs from a file, one per line
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Fetch the links of an earlier run's results (JSON lines) that were not delivered
    #[arg(long, value_name = "RESULTS", conflicts_with_all = ["input", "urls"])]
    pub(crate) retry: Option<PathBuf>,
    /// Take links from this work queue of the fleet until it is empty; each site goes to one node
    /// at a time
    #[arg(long, value_name = "QUEUE", conflicts_with_all = ["input", "urls", "retry", "only", "ordered", "restart"])]
    pub(crate) queue: Option<String>,
    /// Fetch only what the last run of this command left; missing means 404 and 410. With --retry
    /// [default: failed,paused]
    #[arg(long, value_name = "failed|paused|missing", value_delimiter = ',', value_parser = parse_left)]
    pub(crate) only: Vec<LeftLinks>,
    /// Write each page to a file in this folder; - writes the page of the first URL to stdout
    #[arg(short, long, value_name = "DIR", conflicts_with_all = ["warc", "parquet"])]
    pub(crate) out: Option<PathBuf>,
    /// Write pages to this WARC archive (compressed if the name ends in .gz)
    #[arg(long, value_name = "FILE", conflicts_with = "parquet")]
    pub(crate) warc: Option<PathBuf>,
    /// Write pages to this Parquet file, as a data set with one row per page; large ones continue
    /// in FILE-00001 ..
    #[arg(long, value_name = "FILE")]
    pub(crate) parquet: Option<PathBuf>,
    /// Continue in a new file (crawl-00001.warc.gz ..) at this size, such as 1GB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "warc")]
    pub(crate) warc_size: Option<u64>,
    /// Keep the last pages of each host that failed in this folder, at most 8 of a host and 256 MiB
    /// of all
    #[arg(long, value_name = "DIR")]
    pub(crate) keep_failed: Option<PathBuf>,
    /// Update this CDXJ index of the archive at the end
    #[arg(long, value_name = "FILE", requires = "warc")]
    pub(crate) cdx: Option<PathBuf>,
    /// Fetch at most N URLs at the same time
    #[arg(short, long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,
    /// Print results in the order of the input
    #[arg(long)]
    pub(crate) ordered: bool,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    /// Obey robots.txt, keep its Crawl-delay only, or ignore it [default: obey for the URLs of --input
    /// and stdin, ignore for arguments]
    #[arg(long, value_name = "obey|delay|ignore", value_parser = RobotsUse::from_str)]
    pub(crate) robots: Option<RobotsUse>,
    #[command(flatten)]
    pub(crate) fleet: crate::commands::fleet::FleetArgs,
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    /// Try this fetcher first for every URL
    #[arg(long, value_name = "NAME")]
    pub(crate) prefer: Option<String>,
    /// Add a heuristic to all URLs, such as video_platform=vimeo; repeatable
    #[arg(long, value_name = "TYPE=VALUE", value_parser = read_tag)]
    pub(crate) tag: Vec<Heuristic>,
    /// Show the dashboard of this run at http://ADDR/, for looking only; other machines need the
    /// token in $FETCHWISE_TOKEN [default address: 127.0.0.1:7117]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:7117")]
    pub(crate) serve: Option<String>,
    /// Serve Prometheus metrics at http://ADDR/metrics during the run, such as 127.0.0.1:9117;
    /// other machines need the token in $FETCHWISE_TOKEN
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
    /// Wait this long for paused links once all others are done, such as 15m, forever or 0
    /// [default: pace.max_wait for lists, 0 for named URLs]
    #[arg(long, value_name = "TIME|forever|0", value_parser = parse_wait)]
    pub(crate) wait: Option<PauseWait>,
    /// Exit with 4 if any URL was not delivered, only if none was, or never; a 404 or 410 is not a
    /// failure
    #[arg(long, value_name = "any|all|none", value_enum, hide_possible_values = true, default_value_t = FailOn::Any)]
    pub(crate) fail_on: FailOn,
    /// Print no lines, no progress and no report; --json still prints results
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Print a line for each URL, also on a terminal
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Start from the beginning even if an earlier run was interrupted
    #[arg(long)]
    pub(crate) restart: bool,
}

/// When a run in which a URL was not delivered exits with 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FailOn {
    None,
    Any,
    All,
}

impl FetchArgs {
    /// Returns whether the command has a list of links, rather than only URLs that a person named.
    pub(crate) fn has_list(&self) -> bool {
        self.input.is_some()
            || self.retry.is_some()
            || self.queue.is_some()
            || self.urls.iter().any(|url| url == "-")
    }
}

impl FetchArgs {
    /// Returns whether stdout gets the page of the first URL: with `--out -`, and for one URL
    /// without any output.
    pub(super) fn prints_page(&self, json: bool) -> bool {
        match &self.out {
            Some(out) => is_stdin(out),
            None => {
                !json
                    && self.warc.is_none()
                    && self.parquet.is_none()
                    && !self.has_list()
                    && self.urls.len() == 1
            }
        }
    }

    /// Returns which results get a line; none for the default.
    pub(super) fn lines(&self) -> Option<Lines> {
        match (self.quiet, self.verbose) {
            (true, _) => Some(Lines::None),
            (false, true) => Some(Lines::All),
            (false, false) => None,
        }
    }
}

/// The pace of hosts. Each host has its own pace.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PaceArgs {
    /// Learn the rate of each host, use the config's initial_rate for all, or use no limit
    /// [default: learn]
    #[arg(id = "pace", long = "pace", value_name = "learn|fixed|off", value_parser = parse_mode)]
    pub(crate) mode: Option<PaceMode>,
    /// Make N requests per second and host, without learning the rate
    #[arg(long, value_name = "N", value_parser = parse_rate, conflicts_with_all = ["pace", "delay"])]
    pub(crate) rate: Option<f64>,
    /// Wait this long between two requests to a host, such as 5s, without learning the rate
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "pace")]
    pub(crate) delay: Option<Duration>,
    /// Make at most N parallel requests per host
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) per_host: Option<u8>,
}

impl PaceArgs {
    /// Returns the time between two requests, if the command line says it.
    pub(crate) fn gap(&self) -> Option<Duration> {
        self.delay.or(self.rate.map(|rate| Duration::from_secs_f64(1.0 / rate)))
    }

    /// Returns the pace of the config with the changes of the command line.
    pub(crate) fn over(&self, base: PaceSettings) -> PaceSettings {
        let given = self.rate.or(self.delay.map(|delay| 1.0 / delay.as_secs_f64()));
        let max_parallel = self.per_host.unwrap_or(base.max_parallel);
        match given {
            // An explicit rate applies to all hosts, also to those with a rate in the config.
            Some(rate) => PaceSettings {
                mode: PaceMode::Fixed,
                initial_rate: rate,
                max_rate: base.max_rate.max(rate),
                max_parallel,
                hosts: HashMap::new(),
                ..base
            },
            None => PaceSettings { mode: self.mode.unwrap_or(base.mode), max_parallel, ..base },
        }
    }
}

fn parse_left(text: &str) -> Result<LeftLinks, String> {
    match text {
        "failed" => Ok(LeftLinks::Failed),
        "paused" => Ok(LeftLinks::Paused),
        "missing" => Ok(LeftLinks::Missing),
        _ => Err("expected failed, paused or missing".to_owned()),
    }
}

fn parse_mode(text: &str) -> Result<PaceMode, String> {
    text.parse().map_err(|_| "expected learn, fixed or off".to_owned())
}

/// Parses `2` or `0.5`.
fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (1e-4..=1e4).contains(&rate) => Ok(rate),
        _ => Err("expected requests per second, from 0.0001 to 10000".to_owned()),
    }
}

/// The limits of requests, shared by all commands that make some.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RequestArgs {
    /// Allow requests to this network although it is not public, as CIDR; repeatable
    #[arg(long, value_name = "CIDR", value_parser = address_guard::parse_network)]
    pub(crate) allow_network: Vec<ipnet::IpNet>,
    /// Allow requests to loopback and private networks
    #[arg(long)]
    pub(crate) allow_private_network: bool,
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
    /// Limit the time of one request, such as 30s or 1500ms [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,
    /// Limit a decoded body, such as 10MB or 10MiB [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_body: Option<u64>,
    /// Trust the certificate authorities in this file (PEM) in addition to Mozilla's; does not
    /// affect the browser
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// Parses `30s`, `1500ms`, `2m` or `1h 30m`, and a bare number as seconds.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let time = match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?,
        Err(_) => humantime::parse_duration(text)
            .map_err(|error| format!("{error}: expected a time, such as 1500ms or 30s"))?,
    };
    match time {
        time if (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&time) => {
            Ok(time)
        }
        _ => Err(format!("{text} is not between 1ms and a day")),
    }
}

/// Parses `forever`, `0` or a time.
fn parse_wait(text: &str) -> Result<PauseWait, String> {
    match text {
        "forever" => Ok(PauseWait::Forever),
        "0" => Ok(PauseWait::AtMost(Duration::ZERO)),
        text => parse_time(text).map(PauseWait::AtMost),
    }
}

/// Parses `500`, `64KiB`, `10MB` or `1.5GiB`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let size: bytesize::ByteSize =
        text.parse().map_err(|error| format!("{error}: expected a size, such as 10MB or 10MiB"))?;
    if size.as_u64() == 0 {
        Err("expected at least one byte".to_owned())
    } else {
        Ok(size.as_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::pace::HostPace;

    #[test]
    fn an_explicit_rate_takes_precedence_over_configured_ones() {
        let known =
            HashMap::from([("e.org".to_owned(), HostPace { rate: Some(9.0), parallel: None })]);
        let base = PaceSettings { hosts: known, ..PaceSettings::default() };
        let args = PaceArgs {
            delay: Some(Duration::from_secs(5)),
            per_host: Some(3),
            ..PaceArgs::default()
        };
        let fixed = args.over(base.clone());
        assert_eq!(
            (fixed.mode, fixed.initial_rate, fixed.max_parallel, fixed.hosts.len()),
            (PaceMode::Fixed, 0.2, 3, 0)
        );
        let fast = PaceArgs { rate: Some(50.0), ..PaceArgs::default() }.over(base.clone());
        assert_eq!((fast.initial_rate, fast.max_rate), (50.0, 50.0));
        assert_eq!(PaceArgs::default().over(base.clone()), base);
        let off = PaceArgs { mode: Some(PaceMode::Off), ..PaceArgs::default() };
        assert_eq!(off.over(base).mode, PaceMode::Off);
    }

    #[test]
    fn a_selection_has_a_name() {
        let parsed = ["failed", "paused", "missing"].map(|name| parse_left(name).unwrap());
        assert_eq!(parsed, [LeftLinks::Failed, LeftLinks::Paused, LeftLinks::Missing]);
        assert!(parse_left("delivered").is_err());
    }

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!(parse_time("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_size("10M"), Ok(10_000_000));
        assert_eq!(
            (parse_size("10MiB"), parse_size("7"), parse_size("1.5 kB")),
            (Ok(10 << 20), Ok(7), Ok(1500))
        );
        for bad in ["", "s", "-1s", "0", "0s", "1e99", "5 parsecs", "NaN", "2days"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
        assert_eq!((parse_rate("2"), parse_rate("0.5")), (Ok(2.0), Ok(0.5)));
        assert!(["", "0", "-1", "NaN", "inf", "1e9"].iter().all(|bad| parse_rate(bad).is_err()));
        for bad in ["", "M", "-1", "0", "5 parsecs"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }
}
