//! `POST /v1/forget`: removal of all evidence about a domain or a link.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, State as Get};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use super::Shared;
use crate::auth::Client;
use crate::json_response;
use crate::problem::Problem;
use crate::request_body;
use crate::routes::decision_context::wrong;
use crate::state::State;
use fetchwise::heuristic::url::{UrlFeatures, parse};
use fetchwise::journal::maintenance;
use fetchwise::journal::maintenance::ForgetReport;
use fetchwise::journal::{JournalError, TombstoneTarget};
use fetchwise::time::Timestamp;
use fetchwise_present::ForgetReportJson;

described_routes![(
    "/v1/forget",
    post(forget),
    hosts("forget", "Forget a domain or a link"),
    |of| {
        of.body::<ForgetRequest>()
                .ok::<ForgetReportJson<'_>>("What was forgotten")
                .problem(422, "The body names neither a domain nor a link")
                .problem(
                    503,
                    "This node has forgotten it but could not notify the other nodes of the fleet (`fleet_not_notified`); repeat \
                     the request to notify them",
                )
    }
)];

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(rename = "Forget"))]
struct ForgetRequest {
    domain: Option<String>,
    link: Option<String>,
}

async fn forget(
    Get(state): Shared,
    Extension(client): Extension<Client>,
    body: Body,
) -> Result<Response, Problem> {
    let body = state.bodies.read(client, body).await?;
    let target = match state.with_body(body, |_, body| request_body::parse(body)).await?? {
        ForgetRequest { domain: Some(domain), link: None } => {
            TombstoneTarget::Domain(read_domain(&domain)?)
        }
        ForgetRequest { domain: None, link: Some(link) } if !link.is_empty() => {
            TombstoneTarget::Link(link)
        }
        _ => return Err(wrong("nothing to forget: send a `domain` or a `link`")),
    };
    let place =
        state.reader.acquire().await.map_err(|_| Problem::internal("the server is stopping"))?;
    let (own, wanted, at) = (Arc::clone(&state), target.clone(), state.selector.clock().date());
    let forgot = tokio::task::spawn_blocking(move || append_tombstone(&own, &wanted, at)).await;
    drop(place);
    let forgot = match forgot {
        Ok(Ok(forgot)) => forgot,
        Ok(Err(error)) => return Err(Problem::internal(error.to_string())),
        Err(error) => return Err(Problem::internal(error.to_string())),
    };
    if let Some(end) = forgot.1 {
        state.rescan(end);
    }
    let told = tell_fleet(&state, &target, at).await?;
    Ok(json_response::json(&ForgetReportJson::new(&target, &forgot.0, told)))
}

/// Makes the other nodes of a fleet forget a domain.
async fn tell_fleet(
    state: &State,
    target: &TombstoneTarget,
    until: Timestamp,
) -> Result<bool, Problem> {
    let (Some(fleet), TombstoneTarget::Domain(domain)) = (state.fleet(), target) else {
        return Ok(false);
    };
    let told = fleet.forget(domain.clone(), until).await;
    told.map(|()| true).map_err(|why| {
        let words = format!(
            "forgotten on this node, but the other nodes were not notified: {why}; repeat the request to notify them"
        );
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "fleet_not_notified", words)
    })
}

/// Counts what there is, writes a tombstone, and forgets it in memory. Returns the position up to
/// which the log has to be counted again.
fn append_tombstone(
    state: &State,
    target: &TombstoneTarget,
    at: Timestamp,
) -> Result<(ForgetReport, Option<u64>), JournalError> {
    let mut end = None;
    let forgot =
        maintenance::forget_live(state.journal(), &state.selector, target, at, &mut |stone| {
            end = Some(state.attempts.append_tombstone(stone)?);
            Ok(())
        })?;
    state.attempts.marks().forget(Some(target));
    state.dashboard.forget();
    Ok((forgot, end))
}

/// Returns a domain as evidence stores it: in lower case, without `www.`.
pub(super) fn read_domain(text: &str) -> Result<String, Problem> {
    let text = text.trim();
    let bad = || wrong(format!("invalid domain {text:?}: expected a name such as example.org"));
    let url = if text.contains("://") { text.to_owned() } else { format!("http://{text}/") };
    let url = parse(&url).map_err(|_| bad())?;
    Ok(UrlFeatures::extract(&url).map_err(|_| bad())?.domain.to_owned())
}
