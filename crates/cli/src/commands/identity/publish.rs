//! `identity directory` and `check`: what the agent publishes.
//!
//! Invariants: `check` follows no redirect, connects only where the address guard allows it, and
//! reads at most [`MAX_BODY`] bytes within [`DEADLINE`].

use std::fs;
use std::path::Path;
use std::time::Duration;

use fetchwise::fetch::http::HttpFetcher;
use fetchwise::fetch::{Fetcher, Limits, Request, Response};
use fetchwise::identity::card::{CARD_PATH, RANGES_PATH};
use fetchwise::identity::{KeySet, UnixSeconds, directory, verify};
use fetchwise::rfc3339;
use serde::Serialize;
use url::Url;

use super::args::DirectoryArgs;
use crate::commands::fetch::build_crawler::guard;
use crate::commands::fetch::crawl_options::CrawlOptions;
use crate::setup::identity::{failure, key_source, profile, seconds};
use crate::setup::settings::Settings;
use crate::terminal::exit::{Exit, Failure};
use crate::terminal::output::{Output, note, plain, shown};

/// Longest document that is read.
const MAX_BODY: u64 = 64 << 10;
/// Time for one document.
const DEADLINE: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct CheckJson<'a> {
    ok: bool,
    directory: &'a str,
    card: &'a str,
    problems: &'a [String],
    warnings: &'a [String],
}

/// Runs `directory`.
pub(super) fn directory(
    args: &DirectoryArgs,
    settings: &Settings,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let profile = profile(settings)?;
    let keys = key_source(settings)?.load().map_err(|error| failure(settings, &error))?;
    let now = settings.clock.now();
    let files = [
        (directory::WELL_KNOWN, directory::body(&keys, seconds(now))),
        (CARD_PATH, profile.card()),
        (RANGES_PATH, profile.ranges(&rfc3339::format(now))),
    ];
    for (path, text) in files {
        let file = args.out.join(path.trim_start_matches('/'));
        write(&file, &text).map_err(|error| {
            Failure::failed(format_args!("cannot write {}: {error}", shown(&file)))
        })?;
        if !out.json {
            out.line(shown(&file))?;
        }
    }
    if out.json {
        out.object(&serde_json::json!({ "out": args.out.display().to_string() }))?;
    }
    note(format_args!(
        "fetchwise: serve the directory as {} at {}, without a redirect",
        directory::MEDIA_TYPE,
        plain(profile.agent.directory_url())
    ));
    Ok(Exit::Done)
}

fn write(file: &Path, text: &str) -> std::io::Result<()> {
    if let Some(parent) = file.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(file, text)
}

/// Runs `check`.
pub(super) fn check(settings: &Settings, out: &mut Output) -> Result<Exit, Failure> {
    let profile = profile(settings)?;
    let keys = key_source(settings)?.load().map_err(|error| failure(settings, &error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::failed)?;
    let mut http = HttpFetcher::builder().guard(guard(settings, &CrawlOptions::default())?);
    if let Some(file) = &settings.config.http.ca_file {
        http = http.ca_file(file).map_err(Failure::usage)?;
    }
    let http = http.build().map_err(Failure::usage)?;
    let (directory_url, card_url) =
        (profile.agent.directory_url().to_owned(), profile.agent.url_of(CARD_PATH));
    let got =
        runtime.block_on(async { (get(&http, &directory_url).await, get(&http, &card_url).await) });
    // A name lookup blocks a thread that cannot be stopped.
    runtime.shutdown_timeout(Duration::from_millis(500));
    let mut findings = Findings::default();
    match got.0 {
        Err(problem) => findings.problems.push(format!("{directory_url}: {problem}")),
        Ok(response) => {
            findings.add_directory(
                &response,
                &keys,
                &profile.agent.authority(),
                seconds(settings.clock.now()),
            );
        }
    }
    match got.1 {
        Err(problem) => findings.problems.push(format!("{card_url}: {problem}")),
        Ok(response) => findings.add_card(&response, &card_url, &directory_url),
    }
    let Findings { problems, warnings } = findings;
    let ok = problems.is_empty();
    if out.json {
        out.object(&CheckJson {
            ok,
            directory: &directory_url,
            card: &card_url,
            problems: &problems,
            warnings: &warnings,
        })?;
    } else {
        for problem in &problems {
            out.line(format_args!("error: {}", plain(problem)))?;
        }
        for warning in &warnings {
            out.line(format_args!("warning: {}", plain(warning)))?;
        }
        if ok {
            out.line(format_args!("{}: verifiers find the own keys", plain(&directory_url)))?;
            note(
                "fetchwise: a signature without a registration changes nothing at most vendors: docs/guides/identity.md",
            );
        }
    }
    Ok(if ok { Exit::Done } else { Exit::Failed })
}

/// What is wrong with the published documents.
#[derive(Default)]
struct Findings {
    problems: Vec<String>,
    warnings: Vec<String>,
}

impl Findings {
    /// Compares the published directory with the own keys.
    fn add_directory(
        &mut self,
        response: &Response,
        keys: &KeySet,
        authority: &str,
        now: UnixSeconds,
    ) {
        let media = header(response, "content-type").unwrap_or_default();
        if media.split(';').next().unwrap_or_default().trim() != directory::MEDIA_TYPE {
            let problem = format!(
                "the directory has the content type {media:?}, expected {}",
                directory::MEDIA_TYPE
            );
            self.problems.push(problem);
        }
        let body = response.body.head();
        self.problems.extend(directory::compare(body, keys, now));
        if header(response, "signature").is_none() {
            self.warnings.push("the directory is not signed; some vendors expect that".to_owned());
            return;
        }
        let lower = response
            .headers
            .iter()
            .map(|header| (header.name.to_ascii_lowercase(), header.value.to_string()));
        let headers: Vec<(String, String)> = lower.collect();
        let proof = verify::is_directory_signed(keys, authority, body, &headers, now);
        self.problems.extend(proof.err().map(|error| error.to_string()));
    }

    /// Compares the published card with its own URL and that of the directory.
    fn add_card(&mut self, response: &Response, card_url: &str, directory_url: &str) {
        let card =
            serde_json::from_slice::<serde_json::Value>(response.body.head()).unwrap_or_default();
        for (key, expected) in [("client_id", card_url), ("jwks_uri", directory_url)] {
            if card[key] != expected {
                self.problems
                    .push(format!("the card's {key} is {}, expected {expected:?}", card[key]));
            }
        }
    }
}

/// Requests a document of the agent.
async fn get(http: &HttpFetcher, url: &str) -> Result<Response, String> {
    let url: Url = url.parse().map_err(|error| format!("{error}"))?;
    let limits =
        Limits { deadline: DEADLINE, max_body: MAX_BODY, max_redirects: 0, ..Limits::default() };
    let response = http.fetch(Request::new(&url, &limits)).await.map_err(|error| error.message)?;
    match response.status {
        200 => Ok(response),
        status => Err(format!("status {status}, expected 200")),
    }
}

fn header<'r>(response: &'r Response, name: &str) -> Option<&'r str> {
    response
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case(name))
        .map(|header| &*header.value)
}
