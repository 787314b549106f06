//! The interface of a pacer, and the real [`Pace`] behind it.

use std::time::Duration;

use fetchwise::pace::{
    Admit, Cost, DoubtVerdict, Level, Pace, PaceSettings, Permit, RateLimit, Response,
    ResponseEffect, Scope, Signal,
};
use fetchwise::registry::FetcherId;
use fetchwise::time::Timestamp;

use super::server::{Reply, Status};

/// The time at which worlds begin. It is arbitrary, but the same in each run.
const BEGIN_MS: i64 = 1_767_225_600_000;

/// Whether a request may go out now.
#[derive(Debug)]
pub(super) enum Admission {
    Go(Token),
    Wait(i64),
    Full,
}

/// The pacer's part of a request, returned with the response.
#[derive(Debug, Default)]
pub(super) struct Token(Option<Permit>);

/// The next step of a URL that delivered no content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// It is retried.
    Retry,
    /// It waits for this verdict.
    AwaitVerdict(u32),
    /// It is not retried.
    GiveUp,
}

/// A pacer of the requests to the hosts of one site.
pub(super) trait Pacer {
    /// Returns whether a request to `host` may go out at `now` (ms).
    fn admit(&mut self, host: usize, now: i64) -> Admission;
    /// Reports the response; `tries` is the number of requests for the URL so far.
    fn done(&mut self, host: usize, token: Token, reply: &Reply, tries: u32, now: i64) -> NextStep;
    /// Returns the verdict on a doubt; none while it is open.
    fn verdict(&mut self, _host: usize, _doubt: u32, _now: i64) -> Option<NextStep> {
        Some(NextStep::Retry)
    }
    /// Restarts the process.
    fn restart(&mut self, now: i64);
}

/// Baselines cannot tell a block of one page from a limit: they give up a URL after this number of
/// refusals.
const MAX_TRIES: u32 = 20;

/// Returns the next step of a URL for all baselines.
pub(super) fn again(reply: &Reply, tries: u32) -> NextStep {
    if reply.status == Status::Forbidden && tries >= 3 || tries >= MAX_TRIES * 50 {
        NextStep::GiveUp
    } else {
        NextStep::Retry
    }
}

/// The project's pacer.
pub(super) struct Learned {
    settings: PaceSettings,
    pace: Pace,
    names: Vec<String>,
    /// One for all hosts, or one for each.
    sites: Vec<String>,
    fetcher: FetcherId,
}

impl Learned {
    /// `is_site`: the hosts belong to one site.
    pub(super) fn new(
        settings: PaceSettings,
        hosts: usize,
        is_site: bool,
        fetcher: FetcherId,
    ) -> Self {
        let site = "site.org".to_owned();
        let names = |host: usize| match (hosts, is_site) {
            (1, _) => site.clone(),
            (_, true) => format!("h{host}.{site}"),
            (_, false) => format!("h{host}.org"),
        };
        let names: Vec<String> = (0..hosts).map(names).collect();
        let sites = if is_site { vec![site] } else { names.clone() };
        let pace = Pace::new(settings.clone());
        Self { pace, settings, names, sites, fetcher }
    }

    fn scope(&self, host: usize) -> Scope<'_> {
        let host_name = self.names.get(host).map_or("", String::as_str);
        let site = self.sites.get(host).or(self.sites.first()).map_or("", String::as_str);
        Scope { host: host_name, site, address: None }
    }
}

fn time(now: i64) -> Timestamp {
    Timestamp::from_millis(BEGIN_MS + now)
}

impl Pacer for Learned {
    fn admit(&mut self, host: usize, now: i64) -> Admission {
        match self.pace.admit(self.scope(host), Cost::Plain, time(now)) {
            Admit::Go(permit) => Admission::Go(Token(Some(permit))),
            Admit::Wait(until) => Admission::Wait(until.as_millis() - BEGIN_MS),
            Admit::AtCapacity => Admission::Full,
        }
    }

    fn done(
        &mut self,
        host: usize,
        token: Token,
        reply: &Reply,
        _tries: u32,
        now: i64,
    ) -> NextStep {
        let heard = match reply.status {
            Status::Ok => Signal::Content,
            Status::Limited => Signal::Limited,
            Status::Unavailable | Status::Flaky => Signal::Unavailable,
            Status::Block | Status::Forbidden => Signal::Block,
            Status::Error => Signal::ServerError,
            Status::Reset | Status::Timeout => Signal::Broken,
        };
        let answer = Response {
            retry_after: reply.retry_after_s.map(Duration::from_secs_f64),
            latency: Some(Duration::from_millis(reply.latency_ms.unsigned_abs())),
            local_delay: Some(Duration::from_millis(reply.local_ms.unsigned_abs())),
            policy: reply.declared.map(|declared| RateLimit {
                quota: Some(declared.quota),
                window_s: Some(declared.window_s),
                remaining: Some(declared.remaining),
                reset_s: Some(declared.reset_s),
            }),
            ..Response::new(heard, self.fetcher)
        };
        let Some(permit) = token.0 else { return NextStep::Retry };
        let done = self.pace.record_response(permit, &answer, time(now));
        match (done, heard) {
            (ResponseEffect::Doubt { doubt, .. }, _) => NextStep::AwaitVerdict(doubt),
            // A block without an event or a hold concerns the page only: another fetcher would try
            // it now.
            (ResponseEffect::Nothing, Signal::Block)
                if self.pace.hold(self.scope(host), time(now)).is_none() =>
            {
                NextStep::GiveUp
            }
            _ => NextStep::Retry,
        }
    }

    fn verdict(&mut self, host: usize, doubt: u32, now: i64) -> Option<NextStep> {
        match self.pace.doubt_verdict(&self.names[host], doubt, time(now)) {
            DoubtVerdict::Pending => None,
            DoubtVerdict::Page => Some(NextStep::GiveUp),
            DoubtVerdict::Pace => Some(NextStep::Retry),
        }
    }

    fn restart(&mut self, now: i64) {
        let fresh = Pace::new(self.settings.clone());
        for (level, names) in [(Level::Host, &self.names), (Level::Site, &self.sites)] {
            for name in names {
                if let Some(state) = self.pace.state(level, name) {
                    fresh.restore(level, name, &state, time(now));
                }
            }
        }
        self.pace = fresh;
    }
}
