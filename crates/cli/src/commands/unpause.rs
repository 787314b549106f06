//! `release`: ending a pause before its time.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::parse::input::read_domain;
use crate::setup::server_discovery::server_of;
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Out, plain};
use fetchwise::journal::{JournalError, LogError, ReleaseTarget, maintenance};
use fetchwise::rfc3339;
use fetchwise_serve::json::ReleasedJson;

/// End the pause of a host or a link now
///
/// A host is then as if it had never been paused, and its first request goes out alone; a link stays at risk, so that its next pause is the
/// longer one. What was learned of the host's pace stays. It is recorded in the log.
#[derive(Debug, Args)]
#[command(
    after_help = "Beside `fetchwise serve` it asks the server, which ends the pause at once: the one that serves the data directory, or that of \
    --server. Beside another running crawler it cannot be done, since that has the log for itself: exit code 3.\n\n\
    Examples:\n  fetchwise release example.org\n  fetchwise release --link https://example.org/a\n  \
    FETCHWISE_TOKEN=... fetchwise release example.org --server http://10.0.0.7:7117"
)]
pub(crate) struct ReleaseArgs {
    /// The host's domain, with or without www.
    #[arg(value_name = "DOMAIN", required_unless_present = "link", conflicts_with = "link")]
    pub(crate) domain: Option<String>,
    /// The link, as it was given to fetch: its id, or its URL
    #[arg(long, value_name = "LINK")]
    pub(crate) link: Option<String>,
    /// The server to ask in place of the log
    #[arg(long, value_name = "URL")]
    pub(crate) server: Option<String>,
    /// The file with the server's token [default: $FETCHWISE_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// A server answers within this, or it does not.
const PATIENCE: Duration = Duration::from_secs(10);
/// No answer that means anything is longer.
const MAX_ANSWER: u64 = 64 << 10;

/// What the hash of a token begins with, in a file of tokens that a server reads.
const HASHED: &str = "sha256:";

#[derive(Serialize)]
struct ReleaseJson<'a> {
    #[serde(flatten)]
    released: ReleasedJson<'a>,
    /// The server that did it; null where it was done in the log.
    server: Option<&'a str>,
}

/// What a server answers, as far as it matters here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    released: Option<bool>,
    was_paused_until: Option<String>,
    error: Option<String>,
}

/// Runs the command.
pub(crate) fn run(args: &ReleaseArgs, settings: &Settings, out: &mut Out) -> Result<Exit, Failure> {
    let target = match (&args.domain, &args.link) {
        (Some(domain), _) => ReleaseTarget::Host(read_domain(domain)?),
        (None, Some(link)) => ReleaseTarget::Link(link.clone()),
        (None, None) => return Err(Failure::usage("release what? name a DOMAIN, or --link L")),
    };
    if let Some(server) = &args.server {
        return ask(server, args, &target, out);
    }
    let dir = settings.existing_dir()?;
    match maintenance::release(&dir, settings.blank_with_pace()?, &target, settings.clock.now()) {
        Ok(until) => show(out, &target, until.is_some(), until.map(rfc3339::format), None),
        Err(JournalError::Log(LogError::Locked { .. })) if server_of(&dir).is_some() => {
            let server = server_of(&dir).unwrap_or_default();
            ask(&server, args, &target, out)
        }
        Err(error @ JournalError::Log(LogError::Locked { .. })) => Err(Failure::from(error).advise(
            "a running crawler has the log for itself: end it first (it goes on where it stopped), or, if it is a server, name it with --server",
        )),
        Err(error) => Err(error.into()),
    }
}

/// Lets a server do it.
fn ask(server: &str, args: &ReleaseArgs, target: &ReleaseTarget, out: &mut Out) -> Result<Exit, Failure> {
    let base = url::Url::parse(server)
        .map_err(|error| Failure::usage(format_args!("{} is no address of a server: {error}", plain(server))))?;
    let mut address = base.clone();
    // A domain is one segment of the path, whatever is in it; a link would be one that proxies take apart.
    let (path, body) = match target {
        ReleaseTarget::Host(domain) => (vec!["v1", "hosts", domain, "release"], String::new()),
        ReleaseTarget::Link(link) => (vec!["v1", "links", "release"], serde_json::json!({ "link": link }).to_string()),
    };
    match address.path_segments_mut() {
        Ok(mut segments) => drop(segments.pop_if_empty().extend(path)),
        Err(()) => return Err(Failure::usage(format_args!("{} is no address of a server", plain(server)))),
    }
    let config = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false).proxy(None);
    let agent = ureq::Agent::new_with_config(config.build());
    let mut request = agent.post(address.as_str()).header("content-type", "application/json");
    if let Some(token) = token(args)? {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let failed = |what: String| Failure::failed(format_args!("the server at {}: {what}", plain(base.as_str())));
    let mut response = request.send(&body).map_err(|error| {
        failed(error.to_string()).advise("is it running there? without it, this command can do it in the log")
    })?;
    let status = response.status().as_u16();
    let body = response
        .body_mut()
        .with_config()
        .limit(MAX_ANSWER)
        .read_to_string()
        .map_err(|error| failed(error.to_string()))?;
    let answer: Answer = serde_json::from_str(&body).unwrap_or_default();
    match status {
        200..=299 => {
            let released = answer.released.unwrap_or(true);
            show(out, target, released, answer.was_paused_until, Some(server))
        }
        401 | 403 => Err(failed("it wants a token, or another one".to_owned())
            .advise("give it with --token-file, or in FETCHWISE_TOKEN")),
        _ => {
            let why = answer.error.map_or_else(String::new, |error| format!(": {}", plain(&error)));
            Err(failed(format!("it answered {status}{why}")))
        }
    }
}

fn token(args: &ReleaseArgs) -> Result<Option<String>, Failure> {
    let Some(path) = &args.token_file else {
        return Ok(std::env::var("FETCHWISE_TOKEN").ok().filter(|token| !token.trim().is_empty()));
    };
    let text = fs::read_to_string(path)
        .map_err(|error| Failure::usage(format_args!("cannot read {}: {error}", path.display())))?;
    let token = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with(HASHED));
    match token {
        None if text.contains(HASHED) => Err(Failure::usage(format_args!(
            "{} has hashes of tokens, from which no token can be told",
            plain(&path.display().to_string())
        ))
        .advise(
            "put the token itself, as `serve --new-token` has printed it, in FETCHWISE_TOKEN or in a file of its own",
        )),
        token => Ok(token.map(str::to_owned)),
    }
}

fn show(
    out: &mut Out,
    target: &ReleaseTarget,
    released: bool,
    was_paused_until: Option<String>,
    server: Option<&str>,
) -> Result<Exit, Failure> {
    let (host, link) = match target {
        ReleaseTarget::Host(domain) => (Some(domain.as_str()), None),
        ReleaseTarget::Link(link) => (None, Some(link.as_str())),
    };
    if out.json {
        let released = ReleasedJson::new(host, link, released, was_paused_until);
        out.object(&ReleaseJson { released, server })?;
        return Ok(Exit::Done);
    }
    let name = plain(host.or(link).unwrap_or_default());
    match (released, was_paused_until) {
        (true, Some(until)) => out.line(format_args!("{name}: released; it was paused until {}", plain(&until)))?,
        (true, None) => out.line(format_args!("{name}: released"))?,
        (false, _) => out.line(format_args!("{name}: it is not paused"))?,
    }
    Ok(Exit::Done)
}
