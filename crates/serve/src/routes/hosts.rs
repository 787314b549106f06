//! `GET /v1/hosts?state=paused`: pauses and paces of hosts; `GET /v1/links`: links at risk; and the
//! routes that end a pause early.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Extension, State as Get};
use axum::response::Response;
use serde::Deserialize;

use super::Shared;
use super::extractors::{Path, Query};
use super::forget::read_domain;
use crate::auth::Client;
use crate::json_response;
use crate::problem::Problem;
use crate::request_body;
use crate::routes::decision_context::wrong;
use crate::state::State;
use fetchwise::pace::{Level, PaceExplanation};
use fetchwise::rfc3339;
use fetchwise::selector::{LinkAtRisk, PausedHost};
use fetchwise::time::Timestamp;
use fetchwise::unknown_name::UnknownName;
use fetchwise_present::{ForeignPages, HostJson, LinkJson, UnpausedJson};

described_routes![
    ("/v1/hosts", get(hosts), hosts("listHosts", "List hosts with their pauses and paces"), |of| {
        of.query::<HostsQuery>()
            .ok::<Vec<HostJson<'_>>>("Sorted by name")
            .problem(422, "Unknown state")
    }),
    (
        "/v1/hosts/{domain}/unpause",
        post(unpause_host),
        hosts("unpauseHost", "End the pause of a host"),
        |of| {
            of.parameter("The domain")
                .ok::<UnpausedJson<'_>>("Whether a pause was active; the change is in the log")
                .problem(422, "The domain is not valid")
                .problem(503, "The log cannot store the change now")
        }
    ),
    (
        "/v1/links",
        get(links),
        hosts("listLinks", "List links that are paused or whose last attempt failed"),
        |of| {
            of.query::<WhichLinks>()
                .ok::<Vec<LinkJson<'_>>>("Sorted by name")
                .problem(422, "Unknown state")
        }
    ),
    (
        "/v1/links/unpause",
        post(unpause_link),
        hosts("unpauseLink", "End the pause of a link"),
        |of| {
            of.body::<WhichLink>()
                .ok::<UnpausedJson<'_>>("Whether a pause was active; the change is in the log")
                .problem(503, "The log cannot store the change now")
        }
    ),
];

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct HostsQuery {
    /// `paused` lists only paused hosts.
    state: Option<String>,
    /// Only this host.
    host: Option<String>,
}

async fn hosts(Get(state): Shared, Query(asked): Query<HostsQuery>) -> Result<Response, Problem> {
    let is_paused_only = match asked.state.as_deref() {
        None | Some("") => false,
        Some("paused") => true,
        Some(other) => return Err(wrong(UnknownName::new("state", other, ["paused"]).to_string())),
    };
    let host = asked.host.map(|host| host.to_ascii_lowercase());
    state.run_blocking(move |state| known(state, is_paused_only, host.as_deref())).await
}

/// What is known of a host.
#[derive(Default)]
struct HostState {
    paused: Option<PausedHost>,
    pace: Option<PaceExplanation>,
    foreign: ForeignPages,
}

/// Returns the known hosts. There may be a hundred thousand of them.
fn known(state: &State, is_paused_only: bool, host: Option<&str>) -> Response {
    let now = state.selector.now();
    let is_wanted = |name: &str| host.is_none_or(|host| host == name);
    let mut known: BTreeMap<String, HostState> = BTreeMap::new();
    for paused in
        state.selector.paused_hosts(now).into_iter().filter(|paused| is_wanted(&paused.domain))
    {
        let host = paused.domain.clone();
        known.entry(host).or_default().paused = Some(paused);
    }
    if let Some(pace) = state.selector.pace() {
        for (level, name) in pace.hosts() {
            let is_wanted = level == Level::Host
                && is_wanted(&name)
                && (!is_paused_only || known.contains_key(&*name));
            if is_wanted && let Some(explained) = pace.explain(&name, now) {
                known.entry(name.into()).or_default().pace = Some(explained);
            }
        }
    }
    state.attempts.with_series(|series| {
        for (name, foreign) in series.foreign_pages(state.selector.clock().date_of(now)) {
            if is_wanted(name) && (!is_paused_only || known.contains_key(name)) {
                known.entry(name.to_owned()).or_default().foreign = foreign;
            }
        }
    });
    let hosts: Vec<HostJson<'_>> = known
        .iter()
        .map(|(host, of)| {
            HostJson::new(host, of.paused.as_ref(), of.pace.as_ref(), of.foreign, now)
        })
        .collect();
    json_response::json(&hosts)
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct WhichLinks {
    /// `paused` or `at-risk`.
    state: Option<String>,
    /// Only links of this domain.
    domain: Option<String>,
}

/// Returns the links that are paused or whose last attempt failed.
async fn links(Get(state): Shared, Query(asked): Query<WhichLinks>) -> Result<Response, Problem> {
    let is_paused_only = match asked.state.as_deref() {
        None | Some("" | "at-risk") => false,
        Some("paused") => true,
        Some(other) => {
            return Err(wrong(UnknownName::new("state", other, ["paused", "at-risk"]).to_string()));
        }
    };
    let domain = asked.domain.as_deref().map(read_domain).transpose()?;
    let listed = state.run_blocking(move |state| {
        let now = state.selector.now();
        let mut links = state.selector.links_at_risk();
        links.retain(|link| {
            (!is_paused_only || link.state.pause_at(now).is_some())
                && (domain.is_none() || link.domain == domain)
        });
        let host_pause = |link: &LinkAtRisk| {
            let until = link.domain.as_deref().and_then(|domain| state.selector.host_pause(domain));
            until.filter(|until| *until > now)
        };
        json_response::json(
            &links
                .iter()
                .map(|link| LinkJson::new(link, host_pause(link), now))
                .collect::<Vec<_>>(),
        )
    });
    listed.await
}

/// Ends a host's pause. Responds once the change is in the log.
async fn unpause_host(Get(state): Shared, Path(domain): Path<String>) -> Result<Response, Problem> {
    let domain = read_domain(&domain)?;
    let until = state.selector.unpause_host(&domain, state.selector.now());
    unpaused(&state, Some(&domain), None, until).await
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "UnpauseLink"))]
struct WhichLink {
    link: String,
}

/// Ends a link's pause. Responds once the change is in the log.
async fn unpause_link(
    Get(state): Shared,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Problem> {
    let body = state.bodies.read(client, body).await?;
    let WhichLink { link } = state.with_body(body, |_, body| request_body::parse(body)).await??;
    let until = state.selector.unpause_link(&link, state.selector.now());
    unpaused(&state, None, Some(&link), until).await
}

async fn unpaused(
    state: &State,
    host: Option<&str>,
    link: Option<&str>,
    until: Option<Timestamp>,
) -> Result<Response, Problem> {
    state.journal().settled().await.map_err(|error| {
        Problem::unavailable(
            "log_degraded",
            format!("unpaused in memory but not in the log yet: {error}"),
        )
    })?;
    let (unpaused, was_paused_until) = (until.is_some(), until.map(rfc3339::format_time));
    Ok(json_response::json(&UnpausedJson::new(host, link, unpaused, was_paused_until)))
}
