//! The options of every command.
//!
//! Must not know: files, the environment and the clock.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fetchwise::rfc3339;
use fetchwise::router::Mode;
use fetchwise::time::Timestamp;

/// The options of every command, which work before and after its name.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GlobalArgs {
    /// Use this data directory [default: $FETCHWISE_DATA_DIR, data_dir of the config, or the
    /// system's place for data]
    #[arg(
        long,
        global = true,
        overrides_with = "data_dir",
        value_name = "DIR",
        help_heading = "Global options"
    )]
    pub(crate) data_dir: Option<PathBuf>,
    /// Read settings from this config file [default: $FETCHWISE_CONFIG]
    #[arg(
        long,
        global = true,
        overrides_with = "config",
        value_name = "FILE.toml",
        help_heading = "Global options"
    )]
    pub(crate) config: Option<PathBuf>,
    /// Read the router table for the modes legacy, shadow and split (TOML or CSV)
    #[arg(
        long,
        global = true,
        overrides_with = "router",
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub(crate) router: Option<PathBuf>,
    /// Add detection rules (TOML) to the built-in ones
    #[arg(
        long,
        global = true,
        overrides_with = "rules",
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub(crate) rules: Option<PathBuf>,
    /// Start with these priors of another crawler [default: priors.json in the data directory]
    #[arg(
        long,
        global = true,
        overrides_with = "priors",
        value_name = "FILE",
        help_heading = "Global options"
    )]
    pub(crate) priors: Option<PathBuf>,
    /// Choose who decides: evidence, the router table, or each for a share [default: learning]
    #[arg(
        long,
        global = true,
        overrides_with = "mode",
        value_name = "MODE",
        help_heading = "Global options"
    )]
    pub(crate) mode: Option<ModeArg>,
    /// Print one JSON object per line on stdout
    #[arg(long, global = true, overrides_with = "json", help_heading = "Global options")]
    pub(crate) json: bool,
    /// Colour the output: auto means on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, overrides_with = "color", value_name = "auto|always|never", value_enum,
        hide_possible_values = true, default_value_t = ColorArg::Auto, help_heading = "Global options")]
    pub(crate) color: ColorArg,
    /// Send traces to this collector by OTLP over HTTP, such as http://127.0.0.1:4318
    /// [default: $OTEL_EXPORTER_OTLP_ENDPOINT]
    #[cfg(feature = "otlp")]
    #[arg(
        long,
        global = true,
        overrides_with = "otlp",
        value_name = "URL",
        help_heading = "Global options"
    )]
    pub(crate) otlp: Option<String>,
    /// Use this time instead of the system's clock, for tests
    #[arg(long, global = true, overrides_with = "now", hide = true, value_name = "RFC3339", value_parser = rfc3339::parse)]
    pub(crate) now: Option<Timestamp>,
}

/// When the output has colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorArg {
    #[default]
    Auto,
    Always,
    Never,
}

/// What makes the decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    /// Evidence, with probes if there is none
    Learning,
    /// Only the router table
    Legacy,
    /// The router table decides; the decision by evidence is logged
    Shadow,
    /// Each for a share of the domains
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
