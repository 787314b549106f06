//! `identity init`, `show` and `rotate`.
//!
//! Invariants: no output has a private key.

use fetchwise::identity::{Agent, KeySet, KeySource};
use fetchwise::rfc3339;
use fetchwise::time::Timestamp;
use serde::Serialize;

use super::args::{InitArgs, RotateArgs};
use crate::setup::identity::{agent, failure, key_dir, key_source, profile, seconds};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, Table, note, plain, shown};

#[derive(Serialize)]
struct InitJson<'a> {
    kid: &'a str,
    keys: String,
    agent: &'a str,
    /// The section for the config.
    config: &'a str,
}

#[derive(Serialize)]
struct ShowJson<'a> {
    agent: &'a str,
    directory: &'a str,
    card: String,
    user_agent: String,
    browser_user_agent: String,
    keys: Vec<KeyJson<'a>>,
}

#[derive(Serialize)]
struct KeyJson<'a> {
    kid: &'a str,
    state: &'a str,
    nbf: Option<String>,
    exp: Option<String>,
}

#[derive(Serialize)]
struct RotateJson<'a> {
    kid: &'a str,
    signs_from: String,
    old: &'a [String],
    old_until: Option<String>,
}

/// Runs `init`.
pub(super) fn init(
    args: &InitArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let config = &settings.config.identity;
    let given = |arg: &Option<String>, set: &Option<String>| arg.clone().or_else(|| set.clone());
    let missing = |option: &str| Failure::usage(format_args!("missing option --{option}"));
    let url = given(&args.agent, &config.agent).ok_or_else(|| missing("agent"))?;
    let name = given(&args.name, &config.name).ok_or_else(|| missing("name"))?;
    let contact = given(&args.contact, &config.contact);
    let agent = Agent::parse(&url).map_err(Failure::usage)?;
    if !fetchwise::identity::card::is_product_token(&name) {
        return Err(Failure::usage(format_args!(
            "invalid name {name:?}: expected 1 to 64 letters, digits, - or _, such as ExampleBot"
        )));
    }
    let dir = key_dir(settings)?;
    let now = seconds(settings.clock.now());
    let keys = dir.init(now).map_err(|error| failure(settings, &error))?;
    let kid = keys.entries().first().map_or("", |entry| entry.key.kid());
    let text = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let mut section =
        format!("[identity]\nagent = {}\nname = {}\n", text(agent.origin()), text(&name));
    if let Some(contact) = &contact {
        section += &format!("contact = {}\n", text(contact));
    }
    if let Some(path) = &config.keys {
        section += &format!("keys = {}\n", text(&path.to_string_lossy()));
    }
    if out.json {
        let json = InitJson {
            kid,
            keys: dir.path().display().to_string(),
            agent: agent.origin(),
            config: &section,
        };
        out.object(&json)?;
    } else {
        out.raw(section.as_bytes())?;
    }
    note(format_args!(
        "fetchwise: created key {kid} in {}; add this section to the config, publish {} with `fetchwise identity \
         directory`, then register the crawler",
        shown(dir.path()),
        plain(agent.directory_url())
    ));
    Ok(Exit::Done)
}

/// Runs `show`.
pub(super) fn show(settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    let (agent, profile) = (agent(settings)?, profile(settings)?);
    let source = key_source(settings)?;
    let keys = source.load().map_err(|error| failure(settings, &error))?;
    if let KeySource::Dir(dir) = &source {
        for file in dir.unlisted().map_err(|error| failure(settings, &error))? {
            note(format_args!("warning: {} is not used: keys.toml does not list it", shown(&file)));
        }
    }
    let now = seconds(settings.clock.now());
    let rows: Vec<KeyJson<'_>> = rows(&keys, now);
    if out.json {
        out.object(&ShowJson {
            agent: agent.origin(),
            directory: agent.directory_url(),
            card: agent.url_of(fetchwise::identity::card::CARD_PATH),
            user_agent: profile.user_agent(),
            browser_user_agent: profile.browser_user_agent(),
            keys: rows,
        })?;
        return Ok(Exit::Done);
    }
    out.line(format_args!("agent       {}", plain(agent.origin())))?;
    out.line(format_args!("directory   {}", plain(agent.directory_url())))?;
    out.line(format_args!("User-Agent  {}", plain(&profile.user_agent())))?;
    out.line(format_args!("in browsers {}", plain(&profile.browser_user_agent())))?;
    out.line("")?;
    let mut table = Table::new(&["key", "state", "signs from", "published until"]);
    for row in rows {
        let time = |time: Option<String>| time.unwrap_or_else(|| "-".to_owned());
        table.row([row.kid.to_owned(), row.state.to_owned(), time(row.nbf), time(row.exp)]);
    }
    out.line(table)?;
    Ok(Exit::Done)
}

fn rows(keys: &KeySet, now: i64) -> Vec<KeyJson<'_>> {
    let json = |entry: &'_ fetchwise::identity::KeyEntry| {
        let state = keys.state(entry.key.kid(), now).name();
        (state, entry.nbf.map(time), entry.exp.map(time))
    };
    keys.entries()
        .iter()
        .map(|entry| {
            let (state, nbf, exp) = json(entry);
            KeyJson { kid: entry.key.kid(), state, nbf, exp }
        })
        .collect()
}

/// Runs `rotate`.
pub(super) fn rotate(
    args: &RotateArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let now = seconds(settings.clock.now());
    let rotation = key_dir(settings)?
        .rotate(now, args.compromised)
        .map_err(|error| failure(settings, &error))?;
    if out.json {
        out.object(&RotateJson {
            kid: &rotation.kid,
            signs_from: time(rotation.signs_from),
            old: &rotation.old,
            old_until: rotation.old_until.map(time),
        })?;
    } else {
        out.line(format_args!("key {} signs from {}", rotation.kid, time(rotation.signs_from)))?;
        for kid in &rotation.old {
            match rotation.old_until {
                Some(until) => {
                    out.line(format_args!("key {kid} stays published until {}", time(until)))?
                }
                None => out.line(format_args!("key {kid} is deleted"))?,
            }
        }
    }
    let again = "publish the directory again: `fetchwise identity directory`; running crawlers read the keys within an hour, \
                 or on SIGHUP";
    note(format_args!("fetchwise: {again}"));
    if args.compromised {
        note("fetchwise: verifiers may cache the old key for a day");
    }
    Ok(Exit::Done)
}

fn time(seconds: i64) -> String {
    rfc3339::format(Timestamp::from_millis(seconds.saturating_mul(1000)))
}
