//! `forget`: what is known of a domain or a link goes.

use clap::Args;

use crate::failure::{Exit, Failure};
use crate::input::read_domain;
use crate::out::{Out, plain};
use crate::settings::Settings;
use fetchwise::journal::TombstoneTarget;
use fetchwise::journal::maintain;
use fetchwise_serve::shape::ForgotJson;

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
    pub(crate) fleet: crate::fleet::FleetArgs,
}

/// Runs the command.
pub(crate) fn run(args: &ForgetArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let target = match (&args.domain, &args.link) {
        (Some(domain), _) => TombstoneTarget::Domain(read_domain(domain)?),
        (None, Some(link)) => TombstoneTarget::Link(link.clone()),
        (None, None) => return Err(Failure::usage("forget what? name --domain D or --link L")),
    };
    let now = settings.clock.now();
    let forgot = maintain::forget(&settings.existing_dir()?, target.clone(), now)?;
    #[cfg(feature = "fleet")]
    let told = match &target {
        TombstoneTarget::Domain(domain) => crate::fleet::forget(settings, &args.fleet, domain, now)?,
        TombstoneTarget::Link(_) => false,
    };
    #[cfg(not(feature = "fleet"))]
    let told = false;
    if out.json {
        out.object(&ForgotJson::new(&target, &forgot, told))?;
        return Ok(Exit::Done);
    }
    let (TombstoneTarget::Domain(name) | TombstoneTarget::Link(name)) = &target;
    let name = plain(name);
    let others = if told { "; the other nodes of the fleet are told" } else { "" };
    if forgot.is_nothing() {
        out.line(format_args!("{name}: nothing is known of it{others}"))?;
    } else {
        out.line(format_args!(
            "{name}: forgotten; its {} attempts go from the disk at the next compact{others}",
            forgot.attempts
        ))?;
    }
    Ok(Exit::Done)
}
