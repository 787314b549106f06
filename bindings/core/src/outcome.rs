//! Outcomes by name, and what a fetch result adds to an attempt.
//!
//! Must not know: how a language represents either.

use fetchwise::attempt::{Attempt, ErrorType, Tag};
use fetchwise::fetch_result::{FetchResult, Outcome};
use fetchwise::registry::FetcherSpec;

/// Returns the name of an outcome, as both packages spell it.
pub fn name(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Content => "content",
        Outcome::NotModified => "not_modified",
        Outcome::Redirect { .. } => "redirect",
        Outcome::Blocked(_) => "blocked",
        Outcome::Shell { .. } => "shell",
        Outcome::Empty => "empty",
        Outcome::Queued => "queued",
        Outcome::LoginWall => "login_wall",
        Outcome::ServerError => "server_error",
        Outcome::Http(_) => "http",
        Outcome::Timeout => "timeout",
        Outcome::Network => "network",
        Outcome::Dns => "dns",
        Outcome::Tls => "tls",
        Outcome::Proxy => "proxy",
        Outcome::NotHeld => "not_held",
        Outcome::NetworkBlock => "network_block",
        Outcome::Truncated => "truncated",
        Outcome::RedirectLoop => "redirect_loop",
        Outcome::Undecoded => "undecoded",
        Outcome::TooLarge => "too_large",
        Outcome::RefusedAddress => "refused_address",
        Outcome::InvalidUrl => "invalid_url",
        Outcome::RateLimited => "rate_limited",
        Outcome::Disallowed => "disallowed",
        Outcome::PaymentRequired => "payment_required",
        Outcome::Declined => "declined",
        Outcome::IdentityRejected => "identity_rejected",
        Outcome::Reserved => "reserved",
        Outcome::LeftByPolicy => "left_by_policy",
        Outcome::Local => "local",
        Outcome::Other(name) => name,
        _ => "other",
    }
}

/// Returns the failure that `outcome` counts as when a fetcher of this name made the request; none
/// for a success. `renders` overrides whether that fetcher runs scripts.
pub fn error_for(outcome: &Outcome, fetcher: &str, renders: Option<bool>) -> Option<String> {
    let mut by = FetcherSpec::by_name(fetcher);
    by.renders = renders.unwrap_or(by.renders);
    outcome.counts_as(&by).err().map(|error| error.name().to_owned())
}

/// Returns `attempt`, made by the fetcher `by`, with the status, headers, heuristics, outcome and
/// final host of its result.
pub fn with_result(mut attempt: Attempt, result: &FetchResult, by: &FetcherSpec) -> Attempt {
    attempt.http_status = result.status;
    attempt.response_headers = result.recorded_headers();
    if let Some(landed) = &result.final_url
        && let Ok(answered) = attempt.clone().answered_by(landed)
    {
        attempt = answered;
    }
    attempt.heuristics.extend(result.heuristics.iter().cloned().map(Tag::from));
    match result.outcome.counts_as(by) {
        Ok(()) => attempt.delivered(),
        Err(ErrorType::Known(kind)) => attempt.failed(kind),
        Err(other) => {
            attempt.error_type = Some(other);
            attempt
        }
    }
}
