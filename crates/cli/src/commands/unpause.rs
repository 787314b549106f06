//! `unpause`: an early end of a pause.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::parse::input::read_domain;
use crate::setup::control::{self, ControlRequest};
use crate::setup::server_discovery::server_of;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, plain, shown};
use fetchwise::journal::{JournalError, LogError, ReleaseTarget, maintenance};
use fetchwise::rfc3339;
use fetchwise_present::UnpausedJson;

/// End the pause of a host or a link now
///
/// A host then counts as never paused, and its first request goes out alone. A link stays at risk,
/// so its next pause is the longer one. The learned pace of a host stays. The log records the
/// action.
#[derive(Debug, Args)]
#[command(
    after_help = "If `fetch` or `serve` uses the data directory, the running process ends the pause at once: links \
    that wait for it are fetched. With --server the command asks that server.\n\n\
    Examples:\n  fetchwise unpause example.org\n  fetchwise unpause --link https://example.org/a\n  \
    FETCHWISE_TOKEN=... fetchwise unpause example.org --server http://10.0.0.7:7117"
)]
pub(crate) struct UnpauseArgs {
    /// End the pause of this domain, with or without www.
    #[arg(value_name = "DOMAIN", required_unless_present_any = ["link", "host"], conflicts_with = "link")]
    pub(crate) domain: Option<String>,
    /// The same as DOMAIN
    #[arg(long, visible_alias = "domain", value_name = "DOMAIN", conflicts_with_all = ["domain", "link"])]
    pub(crate) host: Option<String>,
    /// End the pause of this link, as given to fetch: its id or its URL
    #[arg(long, value_name = "LINK")]
    pub(crate) link: Option<String>,
    /// Ask this server instead of writing the log
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// Read the server's token from this file [default: $FETCHWISE_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The time limit of a request to the server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The size limit of a response in bytes.
const MAX_RESPONSE_BYTES: u64 = 64 << 10;

/// The prefix of a token's hash in a server's token file.
const HASHED: &str = "sha256:";

#[derive(Serialize)]
struct UnpauseJson<'a> {
    #[serde(flatten)]
    unpaused: UnpausedJson<'a>,
    /// The server that did it; null if none was asked.
    server: Option<&'a str>,
    /// The id of the running process that did it; null if it was done in the log or by a server.
    pid: Option<u32>,
}

/// Who ended a pause.
enum Actor<'a> {
    /// This command, in the log.
    Command,
    /// A server, at this address.
    Server(&'a str),
    /// The process that uses the data directory: what it is called, and its id.
    Process(String, u32),
}

/// The fields of a server's response that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct UnpauseResponse {
    unpaused: Option<bool>,
    was_paused_until: Option<String>,
    error: Option<String>,
}

/// Runs the command.
pub(crate) fn run(
    args: &UnpauseArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let target = match (args.domain.as_ref().or(args.host.as_ref()), &args.link) {
        (Some(domain), _) => ReleaseTarget::Host(read_domain(domain)?),
        (None, Some(link)) => ReleaseTarget::Link(link.clone()),
        (None, None) => return Err(Failure::usage("missing target: expected DOMAIN or --link L")),
    };
    if let Some(server) = &args.server {
        return ask(server, args, &target, out);
    }
    let dir = settings.existing_dir()?;
    match maintenance::unpause(&dir, settings.empty_selector_with_pace()?, &target, settings.clock.now()) {
        Ok(until) => show(out, &target, (until.is_some(), until.map(rfc3339::format)), &Actor::Command),
        Err(error @ JournalError::Log(LogError::Locked { .. })) => match control::ask(&dir, &request(&target))? {
            Some(answer) => {
                let actor = Actor::Process(answer.actor(), answer.pid);
                let done = answer.done.unwrap_or_default();
                show(out, &target, (done.unpaused, done.was_paused_until), &actor)
            }
            None => match server_of(&dir) {
                Some(server) => ask(&server, args, &target, out),
                None => Err(Failure::from(error).advise(
                    "try again if the process has just started; if it is a server of another machine, give its \
                     address with --server",
                )),
            },
        },
        Err(error) => Err(error.into()),
    }
}

/// Returns the request to a running process.
fn request(target: &ReleaseTarget) -> ControlRequest {
    match target.clone() {
        ReleaseTarget::Host(host) => ControlRequest::Unpause { host: Some(host), link: None },
        ReleaseTarget::Link(link) => ControlRequest::Unpause { host: None, link: Some(link) },
    }
}

/// Asks a server to end the pause.
fn ask(
    server: &str,
    args: &UnpauseArgs,
    target: &ReleaseTarget,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let base = url::Url::parse(server).map_err(|error| {
        Failure::usage(format_args!("{} is not a valid server address: {error}", plain(server)))
    })?;
    let mut address = base.clone();
    // A domain is one segment of the path, whatever is in it; a link would be one that proxies take
    // apart.
    let (path, body) = match target {
        ReleaseTarget::Host(domain) => (vec!["v1", "hosts", domain, "unpause"], String::new()),
        ReleaseTarget::Link(link) => {
            (vec!["v1", "links", "unpause"], serde_json::json!({ "link": link }).to_string())
        }
    };
    match address.path_segments_mut() {
        Ok(mut segments) => drop(segments.pop_if_empty().extend(path)),
        Err(()) => {
            return Err(Failure::usage(format_args!(
                "{} is not a valid server address",
                plain(server)
            )));
        }
    }
    let config = ureq::Agent::config_builder()
        .timeout_global(Some(REQUEST_TIMEOUT))
        .http_status_as_error(false)
        .proxy(None);
    let agent = ureq::Agent::new_with_config(config.build());
    let mut request = agent.post(address.as_str()).header("content-type", "application/json");
    if let Some(token) = token(args)? {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let failed = |what: String| {
        Failure::failed(format_args!("the server at {}: {what}", plain(base.as_str())))
    };
    let mut response = request.send(&body).map_err(|error| {
        failed(error.to_string()).advise(
            "check that the server runs; if it has ended, run this command without --server",
        )
    })?;
    let status = response.status().as_u16();
    let body = response
        .body_mut()
        .with_config()
        .limit(MAX_RESPONSE_BYTES)
        .read_to_string()
        .map_err(|error| failed(error.to_string()))?;
    let answer: UnpauseResponse = serde_json::from_str(&body).unwrap_or_default();
    match status {
        200..=299 => {
            let unpaused = answer.unpaused.unwrap_or(true);
            show(out, target, (unpaused, answer.was_paused_until), &Actor::Server(server))
        }
        401 | 403 => Err(failed("it rejected the token, or requires one".to_owned())
            .advise("give it with --token-file, or in FETCHWISE_TOKEN")),
        _ => {
            let why = answer.error.map_or_else(String::new, |error| format!(": {}", plain(&error)));
            Err(failed(format!("it responded with {status}{why}")))
        }
    }
}

fn token(args: &UnpauseArgs) -> Result<Option<String>, Failure> {
    let Some(path) = &args.token_file else {
        return Ok(std::env::var("FETCHWISE_TOKEN").ok().filter(|token| !token.trim().is_empty()));
    };
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::usage(format_args!("cannot read {}: {error}", shown(path))))?;
    let token =
        text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with(HASHED));
    match token {
        None if text.contains(HASHED) => {
            Err(Failure::usage(format_args!("{} contains hashes, not tokens", shown(path))).advise(
                "put the token itself, as `serve --new-token` printed it, into FETCHWISE_TOKEN or a separate file",
            ))
        }
        token => Ok(token.map(str::to_owned)),
    }
}

fn show(
    out: &mut Output,
    target: &ReleaseTarget,
    (unpaused, was_paused_until): (bool, Option<String>),
    actor: &Actor<'_>,
) -> Result<Exit, Failure> {
    let (host, link) = match target {
        ReleaseTarget::Host(domain) => (Some(domain.as_str()), None),
        ReleaseTarget::Link(link) => (None, Some(link.as_str())),
    };
    if out.json {
        let unpaused = UnpausedJson::new(host, link, unpaused, was_paused_until);
        let (server, pid) = match *actor {
            Actor::Command => (None, None),
            Actor::Server(server) => (Some(server), None),
            Actor::Process(_, pid) => (None, Some(pid)),
        };
        out.object(&UnpauseJson { unpaused, server, pid })?;
        return Ok(Exit::Done);
    }
    let name = plain(host.or(link).unwrap_or_default());
    let by = match actor {
        Actor::Process(actor, _) => format!(" (done by {})", plain(actor)),
        Actor::Command | Actor::Server(_) => String::new(),
    };
    match (unpaused, was_paused_until) {
        (true, Some(until)) => {
            out.line(format_args!("{name}: unpaused; it was paused until {}{by}", plain(&until)))?
        }
        (true, None) => out.line(format_args!("{name}: unpaused{by}"))?,
        (false, _) => out.line(format_args!("{name}: not paused{by}"))?,
    }
    Ok(Exit::Done)
}
