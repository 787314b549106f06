//! `forget`: removal of everything about a domain or a link.

use std::path::Path;

use clap::Args;
use serde::Serialize;

use crate::parse::input::read_domain;
use crate::setup::control::{self, ControlAnswer, ControlRequest};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, plain};
use fetchwise::journal::maintenance::{self, ForgetReport};
use fetchwise::journal::{
    Journal, JournalError, JournalOptions, LogError, Tombstone, TombstoneTarget,
};
use fetchwise_present::ForgetReportJson;

/// Forget a domain or a link
///
/// Removes its evidence, pauses and risk at once. Its attempts are no longer shown, and the next
/// compact removes them from disk. In a fleet, all nodes forget a domain.
#[derive(Debug, Args)]
#[command(
    after_help = "If `fetch` or `serve` uses the data directory, the running process does it.\n\nExamples:\n  fetchwise forget --domain example.org && fetchwise compact\n  fetchwise forget --link \
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
pub(crate) fn run(
    args: &ForgetArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    crate::commands::fleet::check(settings, &args.fleet)?;
    let target = match (&args.domain, &args.link) {
        (Some(domain), _) => TombstoneTarget::Domain(read_domain(domain)?),
        (None, Some(link)) => TombstoneTarget::Link(link.clone()),
        (None, None) => {
            return Err(Failure::usage("missing target: expected --domain D or --link L"));
        }
    };
    let now = settings.clock.now();
    let dir = settings.existing_dir()?;
    let mut forgot = match maintenance::forget(&dir, target.clone(), now) {
        Ok(report) => {
            let peers = match &target {
                TombstoneTarget::Domain(domain) => {
                    let append = |stone: &Tombstone| match report.is_nothing() {
                        true => append_alone(&dir, stone),
                        false => Ok(()),
                    };
                    crate::commands::fleet::forget_peer_evidence(&dir, domain, now, append)?
                }
                TombstoneTarget::Link(_) => None,
            };
            ForgetOutcome { report, peers, ..ForgetOutcome::default() }
        }
        Err(error @ JournalError::Log(LogError::Locked { .. })) => {
            match control::ask(&dir, &request(&target))? {
                Some(answer) => ForgetOutcome::by(&answer),
                None => return Err(error.into()),
            }
        }
        Err(error) => return Err(error.into()),
    };
    if let (false, TombstoneTarget::Domain(domain)) = (forgot.is_fleet_notified, &target) {
        // The local part came first, so that it happened even if the broker is unavailable.
        forgot.is_fleet_notified =
            crate::commands::fleet::forget(settings, &args.fleet, domain, now)?;
    }
    forgot.show(&target, out)
}

/// Writes a tombstone to a log that no process has open.
fn append_alone(dir: &Path, stone: &Tombstone) -> Result<(), Failure> {
    let (journal, _) = Journal::open(dir, JournalOptions::default())?;
    journal.append_tombstone(stone)?;
    Ok(journal.close()?)
}

/// Returns the request to a running process.
fn request(target: &TombstoneTarget) -> ControlRequest {
    match target.clone() {
        TombstoneTarget::Domain(domain) => {
            ControlRequest::Forget { domain: Some(domain), link: None }
        }
        TombstoneTarget::Link(link) => ControlRequest::Forget { domain: None, link: Some(link) },
    }
}

/// What was forgotten.
#[derive(Default)]
struct ForgetOutcome {
    report: ForgetReport,
    /// The attempts of peers, and the peers with older evidence; none if no peer has sent anything.
    peers: Option<(u64, u64)>,
    is_fleet_notified: bool,
    /// The process that did it, with its id; none if it was done in the log.
    actor: Option<(String, u32)>,
}

#[derive(Serialize)]
struct ForgetOutcomeJson<'a> {
    #[serde(flatten)]
    forgot: ForgetReportJson<'a>,
    /// The process that did it; null if it was done in the log.
    pid: Option<u32>,
}

impl ForgetOutcome {
    /// Returns what a running process has forgotten.
    fn by(answer: &ControlAnswer) -> Self {
        let done = answer.done.clone().unwrap_or_default();
        let mut report = ForgetReport::default();
        (report.attempts, report.states, report.in_snapshot) =
            (done.attempts, done.states, done.in_snapshot);
        let actor = Some((answer.actor(), answer.pid));
        Self { report, peers: done.peers, is_fleet_notified: done.fleet_notified, actor }
    }

    fn show(&self, target: &TombstoneTarget, out: &mut Output) -> Result<Exit, Failure> {
        if out.json {
            let json = ForgetReportJson::new(target, &self.report, self.is_fleet_notified);
            let forgot = match self.peers {
                Some((attempts, nodes)) => json.with_peers(attempts, nodes),
                None => json,
            };
            out.object(&ForgetOutcomeJson {
                forgot,
                pid: self.actor.as_ref().map(|(_, pid)| *pid),
            })?;
            return Ok(Exit::Done);
        }
        let (attempts, nodes) = self.peers.unwrap_or_default();
        let of_others = match (attempts, nodes) {
            (0, 0) => String::new(),
            _ => format!(
                "; {attempts} attempts of peers, and evidence of {nodes} nodes, no longer count"
            ),
        };
        let (TombstoneTarget::Domain(name) | TombstoneTarget::Link(name)) = target;
        let name = plain(name);
        let others =
            if self.is_fleet_notified { "; the other nodes of the fleet are notified" } else { "" };
        let by = self
            .actor
            .as_ref()
            .map_or_else(String::new, |(actor, _)| format!(" (done by {})", plain(actor)));
        if self.report.is_nothing() && of_others.is_empty() {
            out.line(format_args!("{name}: nothing to forget{others}{by}"))?;
        } else {
            out.line(format_args!(
                "{name}: forgotten; the next compact removes its {} attempts from disk{of_others}{others}{by}",
                self.report.attempts
            ))?;
        }
        Ok(Exit::Done)
    }
}
