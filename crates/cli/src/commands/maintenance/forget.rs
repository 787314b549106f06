//! `forget`: what is known of a domain or a link goes.

use clap::Args;

use crate::parse::input::read_domain;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Out, plain};
use fetchwise::journal::TombstoneTarget;
use fetchwise::journal::maintenance;
use fetchwise_serve::json::ForgotJson;

/// Forget a domain or a link
///
/// Its evidence, pauses and risk go at once. Its attempts are not shown any more, and go from the disk at the next compact. Of a fleet all
/// nodes forget a domain.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  fetchwise forget --domain example.org && fetchwise compact\n  fetchwise forget --link https://example.org/a"
)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["domain", "link"])))]
pub(crate) struct ForgetArgs {
    /// The domain, with or without www.; its subdomains are domains of their own
    #[arg(long, value_name = "DOMAIN")]
    pub(crate) domain: Option<String>,
    /// The link, as it was given to fetch: its id, or its URL
    #[arg(long, value_name = "LINK")]
    pub(crate) link: Option<String>,
    #[cfg(feature = "fleet")]
    #[command(flatten)]
    pub(crate) fleet: crate::commands::fleet::FleetArgs,
}

/// Runs the command.
pub(crate) fn run(args: &ForgetArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let target = match (&args.domain, &args.link) {
        (Some(domain), _) => TombstoneTarget::Domain(read_domain(domain)?),
        (None, Some(link)) => TombstoneTarget::Link(link.clone()),
        (None, None) => return Err(Failure::usage("forget what? name --domain D or --link L")),
    };
    let now = settings.clock.now();
    let dir = settings.existing_dir()?;
    let forgot = maintenance::forget(&dir, target.clone(), now)?;
    #[cfg(feature = "fleet")]
    let (foreign, told) = match &target {
        TombstoneTarget::Domain(domain) => {
            // First here: a broker that is away keeps nothing of it here.
            let foreign = crate::commands::fleet::forget_foreign(&dir, domain, now, !forgot.is_nothing())?;
            (foreign, crate::commands::fleet::forget(settings, &args.fleet, domain, now)?)
        }
        TombstoneTarget::Link(_) => (None, false),
    };
    #[cfg(not(feature = "fleet"))]
    let (foreign, told): (Option<(u64, u64)>, bool) = (None, false);
    if out.json {
        let json = ForgotJson::new(&target, &forgot, told);
        out.object(&match foreign {
            Some((attempts, nodes)) => json.with_foreign(attempts, nodes),
            None => json,
        })?;
        return Ok(Exit::Done);
    }
    let (attempts, nodes) = foreign.unwrap_or_default();
    let of_others = match (attempts, nodes) {
        (0, 0) => String::new(),
        _ => {
            format!("; {attempts} attempts that others have told, and what shares of {nodes} nodes say, count no more")
        }
    };
    let (TombstoneTarget::Domain(name) | TombstoneTarget::Link(name)) = &target;
    let name = plain(name);
    let others = if told { "; the other nodes of the fleet are told" } else { "" };
    if forgot.is_nothing() && of_others.is_empty() {
        out.line(format_args!("{name}: nothing is known of it{others}"))?;
    } else {
        out.line(format_args!(
            "{name}: forgotten; its {} attempts go from the disk at the next compact{of_others}{others}",
            forgot.attempts
        ))?;
    }
    Ok(Exit::Done)
}
