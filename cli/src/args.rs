//! The command line's syntax: what can be written, not what it means. `settings` turns it into what commands work with.
//!
//! Owns names, help texts and the reading of single values. Must not read files, the environment or the clock.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use fetchwise::attempt::Hint;
use fetchwise::fetch::guard;
use fetchwise::response::Header;
use fetchwise::rfc3339;
use fetchwise::router::Mode;
use fetchwise::time::Timestamp;

/// Everything that can be written on the command line.
#[derive(Debug, Parser)]
#[command(
    name = "fetchwise",
    version,
    about = "Learns which fetcher works for which URL, and keeps a crawler from getting its IP address banned",
    long_about = "Learns which fetcher (a plain request, a browser, a stealth browser, an archive, ...) works for which URL, \
        from the attempts it makes or is told of, and keeps a crawler from getting its IP address banned.\n\n\
        Results go to stdout, progress and messages to stderr. With --json every result is one JSON object on one line.",
    after_help = "Examples:\n  \
        fetchwise fetch https://example.org/ --out pages      fetch a page and learn from it\n  \
        fetchwise select https://example.org/a.pdf            which fetcher would be used\n  \
        fetchwise explain https://example.org/a.pdf           why\n  \
        fetchwise import attempts.jsonl                       learn from attempts made elsewhere\n\n\
        Exit codes: 0 done, 1 failed, 2 bad usage or config, 3 refused (data directory locked, damaged, of a newer format).",
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command, before or after its name.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GlobalArgs {
    /// Where the attempt log is [default: $FETCHWISE_DATA_DIR, the config's data_dir, or the system's place for data]
    #[arg(long, global = true, overrides_with = "data_dir", value_name = "DIR", help_heading = "Global options")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Settings
    #[arg(long, global = true, overrides_with = "config", value_name = "FILE.toml", help_heading = "Global options")]
    pub(crate) config: Option<PathBuf>,
    /// The table of domains and fetchers for the modes legacy, shadow and split (TOML or CSV)
    #[arg(long, global = true, overrides_with = "router", value_name = "FILE", help_heading = "Global options")]
    pub(crate) router: Option<PathBuf>,
    /// More detection rules (TOML), beside the shipped ones
    #[arg(long, global = true, overrides_with = "rules", value_name = "FILE", help_heading = "Global options")]
    pub(crate) rules: Option<PathBuf>,
    /// Who decides: evidence, the router table, both, or a share each [default: learning]
    #[arg(long, global = true, overrides_with = "mode", value_name = "MODE", help_heading = "Global options")]
    pub(crate) mode: Option<ModeArg>,
    /// One JSON object a line on stdout
    #[arg(long, global = true, overrides_with = "json", help_heading = "Global options")]
    pub(crate) json: bool,
    /// What time it is, for tests
    #[arg(long, global = true, overrides_with = "now", hide = true, value_name = "RFC3339", value_parser = rfc3339::parse)]
    pub(crate) now: Option<Timestamp>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Fetch(FetchArgs),
    Select(SelectArgs),
    Explain(ExplainArgs),
    Classify(ClassifyArgs),
    Import(ImportArgs),
    Export(ExportArgs),
    BanRate(BanRateArgs),
    Stats(StatsArgs),
    Query(QueryArgs),
    Importance(ImportanceArgs),
    ReplayPolicy(ReplayPolicyArgs),
    Demo(DemoArgs),
    #[command(flatten)]
    Maintain(MaintainCommand),
    Simulate(SimulateArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

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
    after_help = "Input lines are URLs, or JSON objects {\"url\", \"id\", \"learning\", \"fetcher\"}; empty lines and \
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
    /// URLs under way at once
    #[arg(short, long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) concurrency: u16,
    /// Give results in the order of the input, not as they come
    #[arg(long)]
    pub(crate) ordered: bool,
    /// A network that may be dialled although it is not public, as CIDR; repeatable
    #[arg(long, value_name = "CIDR", value_parser = guard::parse_network)]
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
    /// Try this fetcher first, for every URL
    #[arg(long, value_name = "NAME")]
    pub(crate) fetcher: Option<String>,
    /// Start from the beginning, though an earlier run was interrupted
    #[arg(long)]
    pub(crate) restart: bool,
}

/// Which browser there is, for every command that fetches or says how it would.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct BrowserArgs {
    /// The browser [default: $FETCHWISE_CHROMIUM, or the first one on the PATH]
    #[arg(long, value_name = "PATH", conflicts_with = "no_browser")]
    pub(crate) chromium: Option<PathBuf>,
    /// Do without a browser
    #[arg(long)]
    pub(crate) no_browser: bool,
}

/// Say which fetcher would be used, without any network
///
/// Considers the fetchers that `fetch` could use: those of the config, or, without any there, a plain request and the browser if one
/// is found. When the log speaks for a fetcher that is not to be had, the answer names both. Answers come in the order of the URLs.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    fetchwise select https://example.org/docs/a.pdf\n  \
    fetchwise select --json --tried direct_access --last-failure blocked https://example.org/\n  \
    fetchwise select - < urls.txt")]
pub(crate) struct SelectArgs {
    /// What would be fetched; - reads lines from stdin
    #[arg(value_name = "URL", required = true)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) situation: SituationArgs,
}

/// Say why a fetcher would be used: evidence, candidates, every step of the score
///
/// Considers the fetchers that `fetch` could use, as `select` does.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fetchwise explain https://example.org/docs/a.pdf\n  \
    fetchwise explain --last-failure empty https://example.org/app")]
pub(crate) struct ExplainArgs {
    /// What would be fetched
    #[arg(value_name = "URL")]
    pub(crate) url: String,
    #[command(flatten)]
    pub(crate) situation: SituationArgs,
}

/// What a decision depends on beside URL and evidence.
#[derive(Debug, Args)]
pub(crate) struct SituationArgs {
    /// The fetcher that the caller wants
    #[arg(long, value_name = "NAME")]
    pub(crate) fetcher: Option<String>,
    /// What the last failure of the URL looked like
    #[arg(long, value_name = "KIND")]
    pub(crate) last_failure: Option<HintArg>,
    /// A fetcher that was tried for the URL already; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) tried: Vec<String>,
    /// Consider every fetcher by name, also those that `fetch` could not use here: the built-in names, and those in the log
    #[arg(long, conflicts_with_all = ["chromium", "no_browser"])]
    pub(crate) all_fetchers: bool,
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
}

/// Read a response: blocked, an application's shell, empty, or content
#[derive(Debug, Args)]
#[command(
    after_help = "A line of a batch is {\"url\", \"status\", \"headers\", \"body_path\"}; a relative body_path is relative \
    to the batch file.\n\n\
    Examples:\n  \
    fetchwise classify page.html --status 403 --header 'Server: cloudflare' --explain\n  \
    curl -s https://example.org/ | fetchwise classify -\n  \
    fetchwise classify --batch responses.jsonl --json\n  \
    fetchwise classify --batch labelled.jsonl --evaluate"
)]
pub(crate) struct ClassifyArgs {
    /// The body; - reads stdin
    #[arg(value_name = "FILE", required_unless_present_any = ["batch", "show_rules"], conflicts_with = "batch")]
    pub(crate) file: Option<PathBuf>,
    /// The status that came with it
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(100..1000))]
    pub(crate) status: u16,
    /// A response header; repeatable
    #[arg(long, value_name = "'K: V'", value_parser = parse_header, conflicts_with = "batch")]
    pub(crate) header: Vec<Header>,
    /// The URL that was asked for
    #[arg(long, value_name = "URL", conflicts_with = "batch")]
    pub(crate) url: Option<String>,
    /// Read many responses; - reads the lines from stdin
    #[arg(long, value_name = "FILE.jsonl")]
    pub(crate) batch: Option<PathBuf>,
    /// Judge the detector itself: the batch has a `label` on each line
    #[arg(long, requires = "batch")]
    pub(crate) evaluate: bool,
    /// Show all that matched, and where
    #[arg(long)]
    pub(crate) explain: bool,
    /// Judge by seven keywords anywhere in the text, for comparison
    #[arg(long, conflicts_with = "rules")]
    pub(crate) keywords: bool,
    /// Print the shipped rules and stop
    #[arg(long)]
    pub(crate) show_rules: bool,
}

/// Learn from attempts in a JSON lines file
///
/// Needs `url`, `fetcher`, `success` and `attempted_at` (RFC 3339, or milliseconds since 1970) on each line; everything else may
/// be left out. A line that cannot be used is named and the rest imported. Importing twice changes nothing.
#[derive(Debug, Args)]
#[command(after_help = "Example line:\n  \
    {\"url\": \"https://example.org/\", \"fetcher\": \"playwright\", \"success\": true, \"attempted_at\": \"2026-01-31T12:00:00Z\"}\n\n\
    Examples:\n  fetchwise import attempts.jsonl\n  zcat old.jsonl.gz | fetchwise import -")]
pub(crate) struct ImportArgs {
    /// The attempts; - reads stdin
    #[arg(value_name = "FILE.jsonl")]
    pub(crate) file: PathBuf,
}

/// Write all attempts to stdout
///
/// What `importance --write` has worked out stands beside each heuristic. Parquet has response_headers and heuristics as lists
/// of records, attempted_at as a UTC timestamp.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    fetchwise export > attempts.jsonl\n  \
    fetchwise export --format csv > attempts.csv\n  \
    fetchwise export --format parquet > attempts.parquet")]
pub(crate) struct ExportArgs {
    /// jsonl, csv (headers and heuristics as JSON text), or parquet
    #[arg(long, value_enum, default_value_t = ExportFormat::Jsonl)]
    pub(crate) format: ExportFormat,
}

/// Say how often a domain blocked, in whole UTC days
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fetchwise ban-rate example.org --days 7 --json")]
pub(crate) struct BanRateArgs {
    /// The domain, with or without www.
    #[arg(value_name = "DOMAIN")]
    pub(crate) domain: String,
    /// The last so many days, today included
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) days: u32,
}

/// Add up success, blocks and how decisions were made
#[derive(Debug, Args)]
#[command(
    after_help = "success_rate and ban_rate are shares of all attempts; learned, inferred, probed and explored are shares of \
    the attempts whose decision is known. By day or week they show how learning gets on: probes give way to what was \
    learned, and requests for a delivered page fall towards one.\n\n\
    Examples:\n  fetchwise stats --by domain\n  fetchwise stats --by day --json"
)]
pub(crate) struct StatsArgs {
    /// A row for each; without it one row for all
    #[arg(long, value_enum)]
    pub(crate) by: Option<ByArg>,
}

/// The commands that look after the data directory.
#[derive(Debug, Subcommand)]
pub(crate) enum MaintainCommand {
    Snapshot(SnapshotArgs),
    Compact(CompactArgs),
    Verify(VerifyArgs),
    Repair(RepairArgs),
    Forget(ForgetArgs),
}

/// Write down what all attempts have taught, so that the next start is fast
///
/// A start reads the newest snapshot and the attempts that came later. Two snapshots are kept; when the newest one is damaged the
/// one before it is used, and nothing is lost. Works beside a running crawler.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fetchwise snapshot")]
pub(crate) struct SnapshotArgs {}

/// Drop raw attempts that are too old, keeping what they taught
///
/// Takes snapshots first, so that evidence is the same before and after. Attempts that were forgotten go too, and small segments
/// are merged. Works beside a running crawler, whose newest segment is left alone; it can be stopped at any point.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fetchwise compact --dry-run\n  fetchwise compact --retain 30 --json")]
pub(crate) struct CompactArgs {
    /// Keep raw attempts for so many days [default: the config's log.retain_days, or 90]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(..=36_500))]
    pub(crate) retain: Option<u32>,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Believe the clock although the newest record is more than two days old
    #[arg(long)]
    pub(crate) trust_clock: bool,
}

/// Check every byte of the data directory, changing nothing
///
/// Reads every record, checks every checksum, link and sequence number, and folds the records behind the older snapshot anew to
/// see whether the newer one is what they teach. Exit code 3 when anything is damaged.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fetchwise verify --json")]
pub(crate) struct VerifyArgs {}

/// Keep what is good of a damaged data directory
///
/// Every damaged range is copied to quarantine/ first. Without an option nothing else is done. A torn tail, which a crash leaves,
/// is no damage: the next start mends it.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise verify\n  fetchwise repair --salvage\n  fetchwise repair --rebuild-manifest"
)]
pub(crate) struct RepairArgs {
    /// Write damaged segments anew from their good records, and name the sequence numbers that are lost
    #[arg(long)]
    pub(crate) salvage: bool,
    /// Make SEGMENTS and SNAPSHOT anew from what is there, when they are damaged
    #[arg(long)]
    pub(crate) rebuild_manifest: bool,
}

/// Forget a domain or a link
///
/// Its evidence, pauses and risk go at once. Its attempts are not shown any more, and go from the disk at the next compact.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise forget --domain example.org && fetchwise compact\n  fetchwise forget --link https://example.org/a"
)]
#[group(required = true, multiple = false)]
pub(crate) struct ForgetArgs {
    /// The domain, with or without www.; its subdomains are domains of their own
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
    /// The link, as it was given to fetch: its id, or its URL
    #[arg(long, value_name = "LINK")]
    pub(crate) link: Option<String>,
}

/// Say how often each fetcher delivered, given all of some heuristics
///
/// Counts the attempts in the log that are tagged with every one of them: exact, where `explain` shows what evidence, which
/// is kept by single heuristics, makes of it.
#[derive(Debug, Args)]
#[command(
    after_help = "success_rate is a share of all matching attempts. decayed_success_rate is what evidence goes by: an attempt \
    weighs half as much after each half-life, a timeout half of others, and what the fetcher is not to blame for (a 404, say) \
    nothing.\n\n\
    Examples:\n  \
    fetchwise query --where domain=example.org --where suffix=.pdf\n  \
    fetchwise query --where status_403=true --json"
)]
pub(crate) struct QueryArgs {
    /// A heuristic that attempts must have, as TYPE=VALUE; repeatable
    #[arg(long = "where", value_name = "T=V", required = true, value_parser = parse_heuristic)]
    pub(crate) all_of: Vec<(String, String)>,
}

/// Say how much each heuristic tells about success
///
/// For each type, and each value, that more than ten attempts are tagged with: how far the success rate there is from the rate
/// of all attempts (gain), and how many bits of the uncertainty about success it takes away. Meant to be run now and then, by
/// a timer.
#[derive(Debug, Args)]
#[command(
    after_help = "The row of a type has no value; its gain is the mean over its attempts, each by its value. With --write the \
    gains are recorded as importance; the config's [importance] says whether they prune or scale evidence.\n\n\
    Examples:\n  fetchwise importance --limit 20\n  fetchwise importance --write --json > importance.jsonl"
)]
pub(crate) struct ImportanceArgs {
    /// Record the gains as importance
    #[arg(long)]
    pub(crate) write: bool,
    /// Show the first so many types, and the first so many values
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
}

/// Judge a policy on the log that another one made
///
/// The log is replayed; at each first attempt of a fetch the policy is asked what it would have taken. What the log knows about
/// that choice is weighed by how likely its own policy was to make it. The estimate is the worth of a fetch, in plain requests.
#[derive(Debug, Args)]
#[command(
    after_help = "estimate is doubly robust: the selector's own expectation, corrected by the log where both agree on the \
    fetcher. ips is by inverse propensity alone; logged is what the log itself came to. The interval is one of 95 %. Warnings \
    say why the log cannot support the question: a policy that was never tried at anything cannot be judged by what it did \
    not do.\n\n\
    Policies: default, index, confident, published.\n\n\
    Examples:\n  fetchwise replay-policy --policy index\n  fetchwise replay-policy --policy default,published --json"
)]
pub(crate) struct ReplayPolicyArgs {
    /// Who is judged; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',', required = true)]
    pub(crate) policy: Vec<String>,
}

/// Crawl a small town of web sites on this machine and watch learning happen
///
/// Sites of every temper (static, a React app, behind a challenge, PDF, flaky, drifting, closed, rate-limited) are served on
/// loopback and crawled for real, round after round. What is learned is thrown away at the end, unless --data-dir says where to
/// keep it.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Pages of each site
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) rounds: u16,
    #[command(flatten)]
    pub(crate) browser: BrowserArgs,
}

/// Compare policies in invented worlds, under a virtual clock and without any network
///
/// Every policy fetches every URL of the world through the calls that a crawler makes, and meets the same luck. Regret is worth
/// lost a URL against an oracle that knows all chances. The same seeds print the same bytes.
#[derive(Debug, Args)]
#[command(
    after_help = "Policies: default, index, confident, published, oracle, always_direct, always_browser, ladder, hinted_ladder,\n\
    hinted_breaker, smart, crawlee, tier_tracker, webpeel, one_probe; or all.\n\n\
    Shipped worlds: W1 to W7, newsroom, flaky, restless, scripted, sparse, thrifty, still, captcha-flip, app-drift.\n\n\
    Examples:\n  \
    fetchwise simulate --world W1 --policy default,hinted_breaker --seeds 9001..9005\n  \
    fetchwise simulate --world W1,W4,my-world.toml --policy all --html report.html\n  \
    fetchwise simulate --show-world W1 > my-world.toml"
)]
pub(crate) struct SimulateArgs {
    /// World files, or names of shipped worlds; repeatable [default: W1 to W7]
    #[arg(long, value_name = "FILE.toml", value_delimiter = ',')]
    pub(crate) world: Vec<PathBuf>,
    /// Who takes part; repeatable
    #[arg(long, value_name = "NAME", value_delimiter = ',', default_value = "default")]
    pub(crate) policy: Vec<String>,
    /// One seed, or the first and the last of several
    #[arg(long, value_name = "A..B", default_value = "9001..9003", value_parser = parse_seeds)]
    pub(crate) seeds: SeedRange,
    /// Write a page with plots too
    #[arg(long, value_name = "FILE.html")]
    pub(crate) html: Option<PathBuf>,
    /// Measure how long decisions take; such results differ from run to run
    #[arg(long)]
    pub(crate) timing: bool,
    /// Threads [default: as many as there are]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) threads: usize,
    /// Print a shipped world file and stop
    #[arg(long, value_name = "NAME")]
    pub(crate) show_world: Option<String>,
}

/// Seeds from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeedRange {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  fetchwise completions bash > ~/.local/share/bash-completion/completions/fetchwise")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: Shell,
}

/// Print the manual page, or write one for each command
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fetchwise man | man -l -\n  fetchwise man --out ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// Write all pages into this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// Evidence, with probes where there is none
    Learning,
    /// The router table only
    Legacy,
    /// The router table serves; what evidence would have said is logged
    Shadow,
    /// A share of the domains each
    Split,
}

impl From<ModeArg> for Mode {
    fn from(arg: ModeArg) -> Self {
        match arg {
            ModeArg::Learning => Self::Learning,
            ModeArg::Legacy => Self::Legacy,
            ModeArg::Shadow => Self::Shadow,
            ModeArg::Split => Self::Split,
        }
    }
}

/// What the last failure looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum HintArg {
    /// A captcha, 403 or 429
    Blocked,
    /// An empty page or an application's shell
    Empty,
    /// No answer in time
    Timeout,
    /// Anything else
    Unknown,
}

impl From<HintArg> for Hint {
    fn from(arg: HintArg) -> Self {
        match arg {
            HintArg::Blocked => Self::Blocked,
            HintArg::Empty => Self::Empty,
            HintArg::Timeout => Self::Timeout,
            HintArg::Unknown => Self::Unknown,
        }
    }
}

/// How attempts are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    /// One JSON object a line: what import reads
    Jsonl,
    /// Comma-separated values with a head line
    Csv,
    /// Apache Parquet, for SQL tools
    Parquet,
}

/// What a row of statistics is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ByArg {
    /// A row a domain
    Domain,
    /// A row a fetcher
    Fetcher,
    /// A row a UTC day
    Day,
    /// A row a UTC week, by its Monday
    Week,
}

/// Reads `30s`, `1500ms`, `2m` or `1h 30m`, and a bare number as seconds.
fn parse_time(text: &str) -> Result<Duration, String> {
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
fn parse_size(text: &str) -> Result<u64, String> {
    let size: bytesize::ByteSize =
        text.parse().map_err(|error| format!("{error}: expected a size, as in 10MB or 10MiB"))?;
    if size.as_u64() == 0 { Err("expected at least one byte".to_owned()) } else { Ok(size.as_u64()) }
}

/// Reads `9001` or `9001..9005`, both ends included; `..=` means the same.
fn parse_seeds(text: &str) -> Result<SeedRange, String> {
    const SEEDS_MAX: u64 = 1000;
    let (first, last) = text.split_once("..").map_or((text, text), |(a, b)| (a, b.strip_prefix('=').unwrap_or(b)));
    let number = |text: &str| {
        text.trim().parse::<u64>().map_err(|_| format!("{text:?} is no seed: expected A..B, as in 9001..9005"))
    };
    let range = SeedRange { first: number(first)?, last: number(last)? };
    match range.last.checked_sub(range.first) {
        Some(more) if more < SEEDS_MAX => Ok(range),
        _ => Err(format!("{text} are not between 1 and {SEEDS_MAX} seeds")),
    }
}

/// Reads `type=value`.
fn parse_heuristic(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((kind, value)) if !kind.trim().is_empty() => Ok((kind.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("{text:?} is no heuristic: expected TYPE=VALUE, as in domain=example.org")),
    }
}

/// Reads `Name: value`.
fn parse_header(text: &str) -> Result<Header, String> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => Ok(Header::new(name.trim(), value.trim())),
        _ => Err(format!("{text:?} is no header: expected 'Name: value'")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_syntax_holds_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_options_stand_before_or_after_the_command() {
        for line in
            ["fetchwise --json --data-dir d select http://e.org", "fetchwise select http://e.org --data-dir d --json"]
        {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert!(cli.global.json && cli.global.data_dir == Some(PathBuf::from("d")), "{line}");
        }
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
        for bad in ["", "M", "-1", "0", "5 parsecs"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seeds_are_a_range_with_both_ends() {
        assert_eq!(parse_seeds("9001..9005"), Ok(SeedRange { first: 9001, last: 9005 }));
        assert_eq!(parse_seeds("1..=2"), Ok(SeedRange { first: 1, last: 2 }));
        assert_eq!(parse_seeds("7"), Ok(SeedRange { first: 7, last: 7 }));
        for bad in ["", "..", "5..4", "a..b", "0..99999", "1,2"] {
            assert!(parse_seeds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_header_needs_a_name() {
        assert_eq!(parse_header("Server:  nginx "), Ok(Header::new("Server", "nginx")));
        assert!(parse_header(": x").is_err() && parse_header("x").is_err());
    }
}
