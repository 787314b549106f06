//! `GET /v1/hosts?state=paused`: which hosts are paused, and how fast each may be asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State as Get};
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;

use super::Shared;
use super::situation::wrong;
use crate::answer;
use crate::problem::Problem;
use crate::shape::HostJson;
use crate::state::State;
use fetchwise::names::UnknownName;
use fetchwise::pace::{Explained, Level};
use fetchwise::time::Timestamp;

pub(super) fn routes() -> Router<Arc<State>> {
    Router::new().route("/v1/hosts", get(hosts))
}

#[derive(Deserialize)]
struct Asked {
    state: Option<String>,
    host: Option<String>,
}

async fn hosts(Get(state): Shared, Query(asked): Query<Asked>) -> Result<Response, Problem> {
    let is_paused_only = match asked.state.as_deref() {
        None | Some("") => false,
        Some("paused") => true,
        Some(other) => return Err(wrong(UnknownName::new("state", other, ["paused"]).to_string())),
    };
    let now = state.selector.now();
    let mut known: BTreeMap<String, (Option<Timestamp>, Option<Explained>)> = BTreeMap::new();
    for (host, until) in state.kept.paused(now) {
        known.entry(host).or_default().0 = Some(until);
    }
    if let Some(pace) = state.selector.pace() {
        for (level, name) in pace.known() {
            let is_wanted = level == Level::Host && (!is_paused_only || known.contains_key(&*name));
            if is_wanted && let Some(explained) = pace.explain(&name, now) {
                known.entry(name.into()).or_default().1 = Some(explained);
            }
        }
    }
    if let Some(host) = asked.host.map(|host| host.to_ascii_lowercase()) {
        known.retain(|name, _| *name == host);
    }
    let hosts: Vec<HostJson<'_>> =
        known.iter().map(|(host, (until, pace))| HostJson::new(host, *until, pace.as_ref())).collect();
    Ok(answer::json(&hosts))
}
