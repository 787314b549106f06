//! `identity sign` and `verify`.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};

use fetchwise::identity::verify::{RawRequest, VerifyError};
use fetchwise::identity::{ToSign, verify as verifier};
use serde::Serialize;
use url::Url;

use super::args::{SchemeArg, SignArgs, VerifyArgs};
use crate::parse::input::is_stdin;
use crate::setup::identity::{agent, failure, key_source, seconds, signer_with};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, plain, shown};

/// Longest request that is read, in bytes.
const MAX_REQUEST: u64 = 1 << 20;

#[derive(Serialize)]
struct SignJson<'a> {
    headers: BTreeMap<&'a str, &'a str>,
}

#[derive(Serialize)]
struct VerifyJson<'a> {
    ok: bool,
    error: Option<String>,
    label: Option<&'a str>,
    kid: Option<&'a str>,
    components: Option<&'a [String]>,
}

/// Runs `sign`.
pub(super) fn sign(
    args: &SignArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let url = Url::parse(&args.url).map_err(|error| {
        Failure::usage(format_args!("{} is not a valid URL: {error}", plain(&args.url)))
    })?;
    let is_method = |byte: u8| byte.is_ascii_alphanumeric() || b"-_!#$%&'*+.^`|~".contains(&byte);
    if args.method.is_empty() || !args.method.bytes().all(is_method) {
        return Err(Failure::usage(format_args!("invalid method {:?}", args.method)));
    }
    let now = settings.clock.now();
    let signer = signer_with(settings, now)?;
    let request = ToSign { method: &args.method, ..ToSign::get(&url) };
    if !signer.may_sign(&url) {
        return Err(Failure::usage(format_args!("{} is not signed: only https is", plain(url.as_str()))).advise(
            "use an https URL; for tests, tuning.sign_http = \"loopback\" also signs http to loopback addresses",
        ));
    }
    let signed = signer.sign(&request, seconds(now)).map_err(|error| {
        Failure::usage(error).advise(
            "see `fetchwise identity show`; exchange the key with `fetchwise identity rotate`",
        )
    })?;
    if out.json {
        out.object(&SignJson { headers: signed.iter().into_iter().collect() })?;
    } else {
        for (name, value) in signed.iter() {
            out.line(format_args!("{name}: {value}"))?;
        }
    }
    Ok(Exit::Done)
}

/// Runs `verify`.
pub(super) fn verify(
    args: &VerifyArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut raw = Vec::new();
    let read = match is_stdin(&args.request) {
        true => io::stdin().lock().take(MAX_REQUEST).read_to_end(&mut raw),
        false => fs::File::open(&args.request)
            .and_then(|file| file.take(MAX_REQUEST).read_to_end(&mut raw)),
    };
    read.map_err(|error| {
        Failure::usage(format_args!("cannot read {}: {error}", shown(&args.request)))
    })?;
    let keys = key_source(settings)?.load().map_err(|error| failure(settings, &error))?;
    let own = settings.config.identity.agent.is_some().then(|| agent(settings)).transpose()?;
    let scheme = match args.scheme {
        SchemeArg::Https => "https",
        SchemeArg::Http => "http",
    };
    let now = seconds(settings.clock.now());
    let checked = RawRequest::parse(&raw, scheme)
        .and_then(|request| verifier::verify(&request, &keys, own.as_ref(), now));
    if out.json {
        let valid = checked.as_ref().ok();
        out.object(&VerifyJson {
            ok: valid.is_some(),
            error: checked.as_ref().err().map(VerifyError::to_string),
            label: valid.map(|valid| &*valid.label),
            kid: valid.map(|valid| &*valid.kid),
            components: valid.map(|valid| &*valid.components),
        })?;
        return Ok(if valid.is_some() { Exit::Done } else { Exit::Failed });
    }
    let valid =
        checked.map_err(|error| Failure::failed(format_args!("wrong signature: {error}")))?;
    out.line(format_args!(
        "valid: {} by key {}, covers {}",
        valid.label,
        valid.kid,
        valid.components.join(" ")
    ))?;
    Ok(Exit::Done)
}
