//! `forget`: removal of everything about a domain or a link.

use clap::Args;

use crate::parse::input::read_domain;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, plain};
use fetchwise::journal::TombstoneTarget;
use fetchwise::journal::maintenance;
use fetchwise_present::ForgetReportJson;

/// Forget a domain or a link
///
/// Removes its evidence, pauses and risk at once. Its attempts are no longer shown, and the next compact removes them
/// from disk. In a fleet, all nodes forget a domain.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise forget --domain example.org && fetchwise compact\n  fetchwise forget --link \
                  https://example.org/a"
)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["domain", "link"])))]
pub(crate) struct ForgetArgs {
    /// Forget this domain, with or without www.; subdomains are separate domains
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
    /// Forget this link, as given to fetch: its id or its URL
    #[arg(long, value_name = "LINK")]
    pub(crate) link: Option<String>,
    #[command(flatten)]
    pub(crate) fleet: crate::commands::fleet::FleetArgs,
}

/// Runs the command.
pub(crate) fn run(args: &ForgetArgs, settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    crate::commands::fleet::check(settings, &args.fleet)?;
    let target = match (&args.domain, &args.link) {
        (Some(domain), _) => TombstoneTarget::Domain(read_domain(domain)?),
        (None, Some(link)) => TombstoneTarget::Link(link.clone()),
        (None, None) => return Err(Failure::usage("missing target: expected --domain D or --link L")),
    };
    let now = settings.clock.now();
    let dir = settings.existing_dir()?;
    let forgot = maintenance::forget(&dir, target.clone(), now)?;
    let (foreign, told) = match &target {
        TombstoneTarget::Domain(domain) => {
            // The local part comes first, so that it happens even if the broker is unavailable.
            let foreign = crate::commands::fleet::forget_peer_evidence(&dir, domain, now, !forgot.is_nothing())?;
            (foreign, crate::commands::fleet::forget(settings, &args.fleet, domain, now)?)
        }
        TombstoneTarget::Link(_) => (None, false),
    };
    if out.json {
        let json = ForgetReportJson::new(&target, &forgot, told);
        out.object(&match foreign {
            Some((attempts, nodes)) => json.with_peers(attempts, nodes),
            None => json,
        })?;
        return Ok(Exit::Done);
    }
    let (attempts, nodes) = foreign.unwrap_or_default();
    let of_others = match (attempts, nodes) {
        (0, 0) => String::new(),
        _ => {
            format!("; {attempts} attempts of peers, and evidence of {nodes} nodes, no longer count")
        }
    };
    let (TombstoneTarget::Domain(name) | TombstoneTarget::Link(name)) = &target;
    let name = plain(name);
    let others = if told { "; the other nodes of the fleet are notified" } else { "" };
    if forgot.is_nothing() && of_others.is_empty() {
        out.line(format_args!("{name}: nothing to forget{others}"))?;
    } else {
        out.line(format_args!(
            "{name}: forgotten; the next compact removes its {} attempts from disk{of_others}{others}",
            forgot.attempts
        ))?;
    }
    Ok(Exit::Done)
}
