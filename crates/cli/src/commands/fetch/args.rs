//! What can be written behind `fetch`.

use std::collections::HashMap;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;

use crate::setup::decider::read_tag;
use crate::setup::fetcher_availability::BrowserArgs;
use fetchwise::fetch::address_guard;
use fetchwise::heuristic::Heuristic;
use fetchwise::pace::{PaceMode, PaceSettings};
use fetchwise::robots::RobotsUse;

/// Fetch pages, learning on the way
///
/// Each URL is given to the fetcher that is likeliest to bring it for the least cost; a failure moves on to the next one. Every
/// request is recorded as an attempt. A site that blocks is left alone for a while. A run that was interrupted is taken up
/// where it stopped when the same command is given again.
///
/// Results come as they are there, not in the order of the input: each says which line of the input it belongs to. With --ordered
/// they come in the order of the input, and a URL that hangs holds back the results of those after it.
#[derive(Debug, Args)]
#[command(
    after_help = "Input lines are URLs, or JSON objects {\"url\", \"id\", \"learning\", \"fetcher\", \"tags\"}; empty lines and \
    lines that start with # are left out.\n\n\
    Examples:\n  \
    fetchwise fetch https://example.org/ --out pages\n  \
    fetchwise fetch --input urls.txt --warc crawl.warc.gz --concurrency 32 --json > results.jsonl\n  \
    fetchwise fetch http://127.0.0.1:8080/ --allow-private-network"
)]
pub(crate) struct FetchArgs {
    /// What to fetch; - reads lines from stdin
    #[arg(value_name = "URL", required_unless_present = "input")]
    pub(crate) urls: Vec<String>,
    /// Read what to fetch from a file, a line each
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Keep pages in this folder, a file each
    #[arg(short, long, value_name = "DIR", conflicts_with = "warc")]
    pub(crate) out: Option<PathBuf>,
    /// Keep pages in this WARC archive (compressed when the name ends in .gz)
    #[arg(long, value_name = "FILE")]
    pub(crate) warc: Option<PathBuf>,
    /// Go on in a new file (crawl-00001.warc.gz ..) once one is so long, such as 1GB
    #[arg(long, value_name = "SIZE", value_parser = parse_size, requires = "warc")]
    pub(crate) warc_size: Option<u64>,
    /// When done, bring this CDXJ index of the archive up to date
    #[arg(long, value_name = "FILE", requires = "warc")]
    pub(crate) cdx: Option<PathBuf>,
    /// URLs under way at once
    #[arg(short, long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,
    /// Give results in the order of the input, not as they come
    #[arg(long)]
    pub(crate) ordered: bool,
    #[command(flatten)]
    pub(crate) pace: PaceArgs,
    /// What is done about robots.txt: obey it, keep its Crawl-delay only, or ignore it [default: obey for the URLs of --input and
    /// stdin, ignore for those on the command line]
    #[arg(long, value_name = "obey|delay|ignore", value_parser = RobotsUse::from_str)]
    pub(crate) robots: Option<RobotsUse>,
    #[cfg(feature = "fleet")]
    #[command(flatten)]
    pub(crate) fleet: crate::commands::fleet::FleetArgs,
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    /// Try this fetcher first, for every URL
    #[arg(long, value_name = "NAME")]
    pub(crate) fetcher: Option<String>,
    /// What is known of the URLs beside themselves, such as video_platform=vimeo: learned from, and decided by; repeatable
    #[arg(long, value_name = "TYPE=VALUE", value_parser = read_tag)]
    pub(crate) tag: Vec<Heuristic>,
    /// While it runs, answer Prometheus at http://ADDR/metrics, such as 127.0.0.1:9117. Others than this machine want the token in
    /// $FETCHWISE_TOKEN
    #[arg(long, value_name = "ADDR")]
    pub(crate) metrics: Option<String>,
    /// Start from the beginning, though an earlier run was interrupted
    #[arg(long)]
    pub(crate) restart: bool,
}

/// How fast hosts are asked. Each host has a pace of its own.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PaceArgs {
    /// Learn how fast each host may be asked, ask all equally fast (start in the config), or as fast as can be [default: learn]
    #[arg(id = "pace", long = "pace", value_name = "learn|fixed|off", value_parser = parse_mode)]
    pub(crate) mode: Option<PaceMode>,
    /// Requests a second of each host; nothing is learned then
    #[arg(long, value_name = "N", value_parser = parse_rate, conflicts_with_all = ["pace", "delay"])]
    pub(crate) rate: Option<f64>,
    /// Time between two requests of a host, such as 5s; nothing is learned then
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "pace")]
    pub(crate) delay: Option<Duration>,
    /// Requests of a host at once, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) per_host: Option<u8>,
}

impl PaceArgs {
    /// What the config says, with what the command line says in its place.
    pub(crate) fn over(&self, base: PaceSettings) -> PaceSettings {
        let given = self.rate.or(self.delay.map(|delay| 1.0 / delay.as_secs_f64()));
        let max_parallel = self.per_host.unwrap_or(base.max_parallel);
        match given {
            // Nobody who names a rate wants another one, not even for hosts that the config knows.
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

fn parse_mode(text: &str) -> Result<PaceMode, String> {
    text.parse().map_err(|_| "expected learn, fixed or off".to_owned())
}

/// Reads `2` or `0.5`.
fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if (1e-4..=1e4).contains(&rate) => Ok(rate),
        _ => Err("expected requests a second, from 0.0001 to 10000".to_owned()),
    }
}

/// What a request may cost and whom it may ask: the same for every command that makes some.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct RequestArgs {
    /// A network that may be dialled although it is not public, as CIDR; repeatable
    #[arg(long, value_name = "CIDR", value_parser = address_guard::parse_network)]
    pub(crate) allow_network: Vec<ipnet::IpNet>,
    /// Loopback and private networks may be dialled
    #[arg(long)]
    pub(crate) allow_private_network: bool,
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
    /// Time for one request, such as 30s or 1500ms [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub(crate) timeout: Option<Duration>,
    /// The longest body, decoded, such as 10MB or 10MiB [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub(crate) max_body: Option<u64>,
    /// Trust the certificate authorities in this file (PEM) beside Mozilla's; the browser trusts what its system does
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
}

/// Reads `30s`, `1500ms`, `2m` or `1h 30m`, and a bare number as seconds.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let time = match text.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?,
        Err(_) => {
            humantime::parse_duration(text).map_err(|error| format!("{error}: expected a time, as in 1500ms or 30s"))?
        }
    };
    match time {
        time if (Duration::from_millis(1)..=Duration::from_secs(86_400)).contains(&time) => Ok(time),
        _ => Err(format!("{text} is not between 1ms and a day")),
    }
}

/// Reads `500`, `64KiB`, `10MB` or `1.5GiB`.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let size: bytesize::ByteSize =
        text.parse().map_err(|error| format!("{error}: expected a size, as in 10MB or 10MiB"))?;
    if size.as_u64() == 0 { Err("expected at least one byte".to_owned()) } else { Ok(size.as_u64()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise::pace::HostPace;

    #[test]
    fn a_rate_that_is_named_goes_before_everything_that_is_known() {
        let known = HashMap::from([("e.org".to_owned(), HostPace { rate: Some(9.0), parallel: None })]);
        let base = PaceSettings { hosts: known, ..PaceSettings::default() };
        let args = PaceArgs { delay: Some(Duration::from_secs(5)), per_host: Some(3), ..PaceArgs::default() };
        let fixed = args.over(base.clone());
        assert_eq!((fixed.mode, fixed.initial_rate, fixed.max_parallel, fixed.hosts.len()), (PaceMode::Fixed, 0.2, 3, 0));
        let fast = PaceArgs { rate: Some(50.0), ..PaceArgs::default() }.over(base.clone());
        assert_eq!((fast.initial_rate, fast.max_rate), (50.0, 50.0));
        assert_eq!(PaceArgs::default().over(base.clone()), base);
        let off = PaceArgs { mode: Some(PaceMode::Off), ..PaceArgs::default() };
        assert_eq!(off.over(base).mode, PaceMode::Off);
    }

    #[test]
    fn times_and_sizes_have_units() {
        assert_eq!(parse_time("1500ms"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse_time("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_time("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_size("10M"), Ok(10_000_000));
        assert_eq!((parse_size("10MiB"), parse_size("7"), parse_size("1.5 kB")), (Ok(10 << 20), Ok(7), Ok(1500)));
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
