//! What the result of a fetch means for its visit.
//!
//! Owns: the table of results and meanings, which a test lists.
//!
//! Invariants: pure. The same result in the same circumstances has the same meaning.
//!
//! Must not know: selectors, records, the states of links and hosts.

use std::time::Duration;

use super::pace::PaceEffect;
use fetchwise_types::attempt::ErrorType;
use fetchwise_types::attempt::error_kind::{ErrorKind, FailureAction};
use fetchwise_types::fetch_result::{FetchResult, Outcome};
use fetchwise_types::registry::FetcherSpec;

/// What a result means for its visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Content: the visit ends with it.
    Delivered,
    /// The failure may pass: the same fetcher goes once more.
    Retry,
    /// The failure is this fetcher's: another one goes next.
    OtherFetcher,
    /// The host says "not now" to every client, with whatever status: it is paused, and the visit
    /// ends.
    Limit,
    /// The host has refused the request because of a limit that its pace knows of, and nothing more
    /// follows for the host: the visit ends.
    Refused,
    /// No other fetcher would get further: the visit ends.
    End,
}

/// What a result means beyond what it says: what its visit and its host were like when it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Circumstances {
    /// The pause that the response asks for.
    pub(super) asked: Option<Duration>,
    /// The effect on the host's pace.
    pub(super) effect: PaceEffect,
    /// The host served this fetcher a moment ago, or served a moment before it began to refuse
    /// everything: a refusal concerns the crawl's speed.
    pub(super) was_served: bool,
    /// The host blocks some pages at any rate and serves others to this fetcher, which one more
    /// block would exclude.
    pub(super) is_page_block: bool,
    /// The fetcher may go once more.
    pub(super) may_retry: bool,
    /// Timeouts, if this is one, have taken all the time that the visit may spend on them.
    pub(super) is_out_of_time: bool,
    /// A block ends the visit.
    pub(super) ends_after_block: bool,
    /// A browser showed the same doubtful words for the site a while ago.
    pub(super) is_settled: bool,
    /// The hand-written table has chosen the fetcher, and does not escalate.
    pub(super) is_by_table: bool,
}

/// A result with its meaning.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Classified {
    pub(super) meaning: Meaning,
    /// The error that is recorded; `None` for content.
    pub(super) error: Option<ErrorType>,
    /// The weight of the attempt in evidence.
    pub(super) weight: f64,
}

/// Returns the error of a result; `None` for content. A 429 is a limit, whatever its page shows: a
/// cache or a firewall that limits puts its own name on it.
pub(super) fn error_of(result: &FetchResult, by: &FetcherSpec) -> Option<ErrorType> {
    let error = result.outcome.counts_as(by).err()?;
    let is_limit = result.status == Some(429) && error.kind().is_some_and(ErrorKind::is_banned);
    Some(if is_limit { ErrorType::Known(ErrorKind::RateLimited) } else { error })
}

/// Returns the meaning of a result.
pub(super) fn classify(result: &FetchResult, by: &FetcherSpec, case: &Circumstances) -> Classified {
    let Some(error) = error_of(result, by) else {
        // An unchanged page is the one that an earlier attempt brought: its cost and time are not
        // those of a page. A page of no site says nothing about the fetcher.
        let is_evidence = result.outcome != Outcome::NotModified && !result.is_default_page();
        let weight = if is_evidence { 1.0 } else { 0.0 };
        return Classified { meaning: Meaning::Delivered, error: None, weight };
    };
    if case.is_settled && error.kind() == Some(ErrorKind::WrongTool) {
        // The render was one request of another address, whose attempts were the evidence.
        let error = Some(ErrorType::Known(ErrorKind::EmptyContent));
        return Classified { meaning: Meaning::End, error, weight: 0.0 };
    }
    let is_block = error.kind().is_some_and(ErrorKind::is_banned);
    // A host that fails from the first request on may be out of order. One that has just served
    // refuses, however it puts it: by an error, a connection that it cuts, or silence.
    let is_refusal =
        is_block || case.was_served && error.kind().is_some_and(ErrorKind::is_transient);
    let is_held = matches!(case.effect, PaceEffect::Held(_) | PaceEffect::Refused(_));
    let is_limit = says_not_now(result, is_block, case.asked) || is_refusal && is_held;
    let error =
        if is_limit && case.was_served { ErrorType::Known(ErrorKind::RateLimited) } else { error };
    let kind = error.kind();
    let meaning = meaning_of(kind, is_limit, result.is_of_client, case);
    let weight = match kind {
        // Not final yet.
        _ if meaning == Meaning::Retry || case.effect == PaceEffect::Doubt => 0.0,
        // About pages. As many in a row come by chance.
        _ if is_block && case.is_page_block => 0.0,
        // Not about the fetcher: the host says "not now" to every client.
        Some(ErrorKind::ServerError) if is_limit => 0.0,
        // The host may refuse this fetcher with a 429 at any rate, and serve another one.
        Some(ErrorKind::RateLimited)
            if !case.was_served && result.outcome != Outcome::RateLimited =>
        {
            1.0
        }
        // The server says that it failed where the status says something else, so no fetcher caused
        // it.
        _ if result.outcome == Outcome::ServerError
            && result.status.is_none_or(|status| status < 500) =>
        {
            0.0
        }
        kind => kind.map_or(1.0, ErrorKind::weight),
    };
    Classified { meaning, error: Some(error), weight }
}

fn meaning_of(
    kind: Option<ErrorKind>,
    is_limit: bool,
    is_of_client: bool,
    case: &Circumstances,
) -> Meaning {
    let is_last_timeout = kind == Some(ErrorKind::Timeout) && case.is_out_of_time;
    // Only an empty page goes on to the browser of the table.
    let ends_by_table = case.is_by_table && kind != Some(ErrorKind::WrongTool);
    let ends_by_block = case.ends_after_block && kind.is_some_and(ErrorKind::is_banned);
    let next = match kind {
        // Another kind of client may not have this error of TLS.
        Some(ErrorKind::TlsError) if is_of_client => FailureAction::OtherFetcher,
        kind => kind.map_or(FailureAction::OtherFetcher, ErrorKind::next),
    };
    match next {
        _ if is_limit && matches!(case.effect, PaceEffect::Refused(_)) => Meaning::Refused,
        _ if is_limit => Meaning::Limit,
        _ if kind.is_some_and(ErrorKind::is_transient) && case.may_retry && !is_last_timeout => {
            Meaning::Retry
        }
        FailureAction::End | FailureAction::RetryThenEnd => Meaning::End,
        _ if ends_by_table || ends_by_block || case.is_out_of_time => Meaning::End,
        _ => Meaning::OtherFetcher,
    }
}

/// Returns whether the response says "not now" for the whole host: a 429, or a 503 or a block that
/// says for how long.
fn says_not_now(result: &FetchResult, is_block: bool, asked: Option<Duration>) -> bool {
    match result.status {
        _ if result.outcome == Outcome::RateLimited => true,
        // A 429 that rejects the crawler's signature is about its key, unless it says for how long.
        _ if result.outcome == Outcome::IdentityRejected && asked.is_none() => false,
        Some(429) => true,
        Some(503) => asked.is_some(),
        _ => is_block && asked.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fetchwise_types::fetch_result::{Block, BlockKind};
    use fetchwise_types::time::Timestamp;

    const MINUTE: Option<Duration> = Some(Duration::from_secs(60));
    /// The first request of a visit at a host without a pace.
    const FIRST: Circumstances = Circumstances {
        asked: None,
        effect: PaceEffect::None,
        was_served: false,
        is_page_block: false,
        may_retry: true,
        is_out_of_time: false,
        ends_after_block: false,
        is_settled: false,
        is_by_table: false,
    };
    const LAST: Circumstances = Circumstances { may_retry: false, ..FIRST };
    const ASKED: Circumstances = Circumstances { asked: MINUTE, ..FIRST };
    const HELD: Circumstances =
        Circumstances { effect: PaceEffect::Held(Timestamp::from_millis(1)), ..FIRST };
    const SERVED: Circumstances = Circumstances { was_served: true, ..HELD };
    const SERVED_LAST: Circumstances = Circumstances { may_retry: false, ..SERVED };
    const SERVED_LATE: Circumstances = Circumstances { is_out_of_time: true, ..SERVED };
    const SERVED_ASKED: Circumstances = Circumstances { was_served: true, ..ASKED };
    const UNKNOWN: Circumstances =
        Circumstances { effect: PaceEffect::Refused(Timestamp::from_millis(1)), ..FIRST };
    const KNOWN: Circumstances = Circumstances { was_served: true, ..UNKNOWN };
    const OPEN: Circumstances = Circumstances { was_served: true, ..FIRST };
    const PAGES: Circumstances = Circumstances { was_served: true, is_page_block: true, ..FIRST };
    const DOUBT: Circumstances =
        Circumstances { effect: PaceEffect::Doubt, was_served: true, ..FIRST };
    const LATE: Circumstances = Circumstances { is_out_of_time: true, ..FIRST };
    const STRICT: Circumstances = Circumstances { ends_after_block: true, ..FIRST };
    const TABLE: Circumstances = Circumstances { is_by_table: true, ..FIRST };

    fn status(status: u16) -> FetchResult {
        let outcome = if status == 429 { Outcome::RateLimited } else { Outcome::Http(status) };
        FetchResult::from(outcome).with_status(status)
    }

    fn captcha() -> FetchResult {
        FetchResult::from(Outcome::Blocked(Block::new(BlockKind::Challenge, None, None)))
            .with_status(200)
    }

    /// A 429 whose page names a product.
    fn named_limit(kind: BlockKind) -> FetchResult {
        FetchResult::from(Outcome::Blocked(Block::new(kind, Some("varnish".into()), None)))
            .with_status(429)
    }

    fn of_client() -> FetchResult {
        let mut result = FetchResult::from(Outcome::Tls);
        result.is_of_client = true;
        result
    }

    /// What came, the circumstances, and what it means: with the error and the weight of the
    /// attempt.
    type Row = (&'static str, FetchResult, Circumstances, Meaning, Option<&'static str>, f64);

    #[test]
    fn each_result_has_its_meaning() {
        use Meaning::{Delivered, End, Limit, OtherFetcher, Refused, Retry};
        let of = FetchResult::from;
        let rows: [Row; 58] = [
            ("content", of(Outcome::Content), FIRST, Delivered, None, 1.0),
            ("unchanged", of(Outcome::NotModified), FIRST, Delivered, None, 0.0),
            (
                "a page without text",
                of(Outcome::Empty),
                FIRST,
                OtherFetcher,
                Some("wrong_tool"),
                1.0,
            ),
            (
                "the same, by the table",
                of(Outcome::Empty),
                TABLE,
                OtherFetcher,
                Some("wrong_tool"),
                1.0,
            ),
            ("a missing page", status(404), FIRST, End, Some("not_found"), 0.0),
            ("nothing to get", status(204), FIRST, End, Some("not_found"), 0.0),
            ("another client error", status(400), FIRST, End, Some("client_error"), 0.0),
            ("a log-in", status(401), FIRST, End, Some("auth_required"), 0.0),
            ("a price", status(402), FIRST, End, Some("payment_required"), 0.0),
            ("a block", status(403), FIRST, OtherFetcher, Some("blocked_403"), 1.0),
            ("a block for a minute", status(403), ASKED, Limit, Some("blocked_403"), 1.0),
            ("a block in doubt", status(403), DOUBT, OtherFetcher, Some("blocked_403"), 0.0),
            ("one of several pages", status(403), PAGES, OtherFetcher, Some("blocked_403"), 0.0),
            ("a block of a host that is held", status(403), HELD, Limit, Some("blocked_403"), 1.0),
            (
                "the same, that served a moment ago",
                status(403),
                SERVED,
                Limit,
                Some("rate_limited"),
                0.0,
            ),
            ("a block that ends the visit", status(403), STRICT, End, Some("blocked_403"), 1.0),
            ("a block, by the table", status(403), TABLE, End, Some("blocked_403"), 1.0),
            ("a captcha", captcha(), FIRST, OtherFetcher, Some("blocked_captcha"), 1.0),
            (
                "a captcha of a host that is held",
                captcha(),
                SERVED,
                Limit,
                Some("rate_limited"),
                0.0,
            ),
            ("a limit", status(429), FIRST, Limit, Some("rate_limited"), 0.0),
            ("a limit for a minute", status(429), ASKED, Limit, Some("rate_limited"), 0.0),
            (
                "a limit by status alone",
                FetchResult::from(Outcome::Http(429)).with_status(429),
                FIRST,
                Limit,
                Some("rate_limited"),
                1.0,
            ),
            (
                "one that names a product",
                named_limit(BlockKind::Refusal),
                FIRST,
                Limit,
                Some("rate_limited"),
                1.0,
            ),
            (
                "the same, of a host that is held",
                named_limit(BlockKind::Refusal),
                HELD,
                Limit,
                Some("rate_limited"),
                1.0,
            ),
            (
                "one that shows a challenge",
                named_limit(BlockKind::Challenge),
                ASKED,
                Limit,
                Some("rate_limited"),
                1.0,
            ),
            (
                "one of a host that served",
                named_limit(BlockKind::Refusal),
                SERVED,
                Limit,
                Some("rate_limited"),
                0.0,
            ),
            ("an overloaded host", status(503), FIRST, Retry, Some("server_error"), 0.0),
            ("the same once more", status(503), LAST, End, Some("server_error"), 1.0),
            (
                "a failure that the page states",
                of(Outcome::ServerError).with_status(200),
                LAST,
                End,
                Some("server_error"),
                0.0,
            ),
            ("an overload for a minute", status(503), ASKED, Limit, Some("server_error"), 0.0),
            (
                "the same, of a host that served a moment ago",
                status(503),
                SERVED_ASKED,
                Limit,
                Some("rate_limited"),
                0.0,
            ),
            (
                "an overload of a host that is held",
                status(503),
                HELD,
                Retry,
                Some("server_error"),
                0.0,
            ),
            (
                "the same, that served a moment ago",
                status(503),
                SERVED,
                Limit,
                Some("rate_limited"),
                0.0,
            ),
            (
                "an error of a host that served and is held",
                status(500),
                SERVED,
                Limit,
                Some("rate_limited"),
                0.0,
            ),
            ("the same after a retry", status(502), SERVED_LAST, Limit, Some("rate_limited"), 0.0),
            (
                "an error of a host that served and is not held",
                status(500),
                OPEN,
                Retry,
                Some("server_error"),
                0.0,
            ),
            (
                "a stated failure of a host that is held",
                of(Outcome::ServerError),
                SERVED,
                Limit,
                Some("rate_limited"),
                0.0,
            ),
            (
                "silence of a host that is held",
                of(Outcome::Timeout),
                SERVED,
                Limit,
                Some("rate_limited"),
                0.0,
            ),
            (
                "the same, out of time",
                of(Outcome::Timeout),
                SERVED_LATE,
                Limit,
                Some("rate_limited"),
                0.0,
            ),
            (
                "a cut connection of a host that is held",
                of(Outcome::Network),
                SERVED_LAST,
                Limit,
                Some("rate_limited"),
                0.0,
            ),
            (
                "a cut page of a host that is held",
                of(Outcome::Truncated),
                SERVED,
                Limit,
                Some("rate_limited"),
                0.0,
            ),
            ("a block of a known limit", status(403), KNOWN, Refused, Some("rate_limited"), 0.0),
            ("an error of a known limit", status(500), KNOWN, Refused, Some("rate_limited"), 0.0),
            ("a limit that is known", status(429), KNOWN, Refused, Some("rate_limited"), 0.0),
            (
                "an error of a host that never served",
                status(500),
                UNKNOWN,
                Retry,
                Some("server_error"),
                0.0,
            ),
            (
                "a missing page of a host that is held",
                status(404),
                SERVED,
                End,
                Some("not_found"),
                0.0,
            ),
            (
                "a page without text of one",
                of(Outcome::Empty),
                SERVED,
                OtherFetcher,
                Some("wrong_tool"),
                1.0,
            ),
            ("a timeout", of(Outcome::Timeout), FIRST, Retry, Some("timeout"), 0.0),
            ("the last timeout", of(Outcome::Timeout), LATE, End, Some("timeout"), 0.5),
            ("a cut connection", of(Outcome::Network), FIRST, Retry, Some("network_error"), 0.0),
            (
                "the same once more",
                of(Outcome::Network),
                LAST,
                OtherFetcher,
                Some("network_error"),
                1.0,
            ),
            (
                "a cut page, out of time",
                of(Outcome::Truncated),
                LATE,
                Retry,
                Some("truncated"),
                0.0,
            ),
            ("an untrusted certificate", of(Outcome::Tls), FIRST, End, Some("tls_error"), 0.0),
            (
                "one that a browser may trust",
                of_client(),
                FIRST,
                OtherFetcher,
                Some("tls_error"),
                0.0,
            ),
            ("no such name", of(Outcome::Dns), FIRST, End, Some("dns_error"), 0.0),
            (
                "a page of the network",
                of(Outcome::NetworkBlock),
                FIRST,
                OtherFetcher,
                Some("network_block"),
                0.0,
            ),
            (
                "an archive without a copy",
                of(Outcome::NotHeld),
                FIRST,
                OtherFetcher,
                Some("not_held"),
                1.0,
            ),
            (
                "a signature refused",
                of(Outcome::IdentityRejected),
                FIRST,
                End,
                Some("identity_rejected"),
                0.0,
            ),
        ];
        let by = FetcherSpec::plain("direct_access");
        for (what, result, case, meaning, error, weight) in rows {
            let found = classify(&result, &by, &case);
            let name = found.error.as_ref().map(ErrorType::name);
            assert_eq!((found.meaning, name, found.weight), (meaning, error, weight), "{what}");
        }
    }
}
