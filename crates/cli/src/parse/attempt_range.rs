//! Options for a range of attempts: `--domain`, `--since` and `--until`. Several commands share
//! them.

use clap::Args;

use crate::parse::input::read_domain;
use crate::parse::time_arg::{TimeArg, parse_time_arg};
use crate::terminal::exit::Failure;
use fetchwise::journal::AttemptQuery;
use fetchwise::time::Clock;

/// A choice of attempts.
#[derive(Debug, Default, Args)]
pub(crate) struct AttemptRange {
    /// Take only attempts of this domain, with or without www.
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
    /// Take only attempts from this time on: a time, a day or an age (2h, 7d)
    #[arg(long, value_name = "TIME", value_parser = parse_time_arg)]
    pub(crate) since: Option<TimeArg>,
    /// Take only attempts up to this time
    #[arg(long, value_name = "TIME", value_parser = parse_time_arg)]
    pub(crate) until: Option<TimeArg>,
}

impl AttemptRange {
    /// Returns the query for these attempts.
    pub(crate) fn query(&self, clock: &Clock) -> Result<AttemptQuery, Failure> {
        let mut query = AttemptQuery::default();
        query.domain = self.domain.as_deref().map(read_domain).transpose()?;
        query.since = self.since.map(|when| when.resolve(clock));
        query.until = self.until.map(|when| when.resolve(clock));
        if query.since.zip(query.until).is_some_and(|(since, until)| since > until) {
            return Err(Failure::usage("--since is later than --until"));
        }
        Ok(query)
    }
}
