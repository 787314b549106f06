//! The options of every command.
//!
//! Must not read files, the environment or the clock.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fetchwise::rfc3339;
use fetchwise::router::Mode;
use fetchwise::time::Timestamp;

/// Options of every command, before or after its name.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GlobalArgs {
    /// Where the attempt log is [default: $FETCHWISE_DATA_DIR, the config's data_dir, or the system's place for data]
    #[arg(long, global = true, overrides_with = "data_dir", value_name = "DIR", help_heading = "Global options")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Settings [default: $FETCHWISE_CONFIG]
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
    /// Send traces to this collector by OTLP over HTTP, such as http://127.0.0.1:4318 [default: $OTEL_EXPORTER_OTLP_ENDPOINT, else
    /// nowhere]
    #[cfg(feature = "otlp")]
    #[arg(long, global = true, overrides_with = "otlp", value_name = "URL", help_heading = "Global options")]
    pub(crate) otlp: Option<String>,
    /// What time it is, for tests
    #[arg(long, global = true, overrides_with = "now", hide = true, value_name = "RFC3339", value_parser = rfc3339::parse)]
    pub(crate) now: Option<Timestamp>,
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
