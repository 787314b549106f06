//! Attempts of other processes and their effect on the host: their blocks pause it as this
//! process's own blocks do.
//!
//! Owns: the translation of an attempt into the end that a visit would have had with it.
//!
//! Must not know: how attempts are recorded, and the states of links. The process that made the
//! attempts keeps both.

use crate::backoff::retry_after;
use crate::selector::Selector;
use crate::state::host_pauses::{LinkFailure, PauseReason, TrialRole};
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{Attempt, ErrorType};
use fetchwise_types::response::header;
use fetchwise_types::time::Timestamp;

impl Selector {
    /// Applies the last recent attempt that another process made at a link to the state of its
    /// host. Blocks of several links and a requested pause pause the host as they do in a visit.
    /// Content clears the link's blocks. An attempt older than
    /// [`host_block_window`](crate::backoff::BackoffSettings::host_block_window) has no effect.
    /// Returns the end of the host's pause if this set one.
    ///
    /// Nothing is recorded: [`record`](Self::record) does that.
    pub fn observe_remote_attempt(&self, attempt: &Attempt, now: Timestamp) -> Option<Timestamp> {
        let age = self.clock().date_of(now).since(attempt.attempted_at);
        let domain = attempt.heuristic("domain")?;
        let hosts = &self.state().hosts;
        if attempt.success {
            hosts.record_link_delivery(domain, &attempt.link);
            return None;
        }
        // A server that responds in place of the site says nothing about the site.
        let kind = attempt.error_type.as_ref().and_then(ErrorType::kind);
        if age > self.backoff().host_block_window || kind.is_some_and(ErrorKind::is_of_intermediary)
        {
            return None;
        }
        let asked = header(&attempt.response_headers, "retry-after")
            .and_then(|value| retry_after(value, attempt.attempted_at))
            .map(|asked| asked.saturating_sub(age));
        let is_limit = kind == Some(ErrorKind::RateLimited)
            || attempt.http_status == Some(429)
            || asked.is_some() && (attempt.is_banned || attempt.http_status == Some(503));
        let why = match (is_limit, attempt.is_banned) {
            _ if kind == Some(ErrorKind::Declined) => PauseReason::Declined,
            (true, _) => PauseReason::Limited(asked),
            // If the host serves other requests, its pace judges its blocks.
            (false, true) if !self.lets_through(domain, now) => PauseReason::Blocked,
            _ => return None,
        };
        let failure =
            LinkFailure { domain, link: &attempt.link, role: TrialRole::Ordinary, why, now };
        hosts.record_failure(self, failure, self.backoff(), |until| {
            self.announce_pause(domain, until, why.cause(), now);
        })
    }

    fn lets_through(&self, domain: &str, now: Timestamp) -> bool {
        self.pace().is_some_and(|pace| pace.has_delivered(domain, None, now))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use fetchwise_types::response::Header;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    fn attempt(link: &str, age_s: u64) -> Attempt {
        let url = url::Url::parse(&format!("https://www.e.org/{link}")).unwrap();
        let at = Timestamp::from_millis(NOW.as_millis() - 1000 * age_s as i64);
        Attempt::new(&url, "direct_access", at).unwrap()
    }

    fn blocked(link: &str, age_s: u64) -> Attempt {
        attempt(link, age_s).failed(ErrorKind::Blocked403)
    }

    #[test]
    fn three_links_that_another_process_saw_blocked_pause_the_host() {
        let selector = Selector::builder().around(NOW).build().unwrap();
        let tell = |attempt: &Attempt| {
            selector.observe_remote_attempt(attempt, NOW).map(|until| until.since(NOW).as_secs())
        };
        assert_eq!(
            [tell(&blocked("a", 5)), tell(&blocked("a", 4)), tell(&blocked("b", 3))],
            [None; 3]
        );
        assert_eq!(tell(&attempt("b", 2).delivered()), None);
        assert_eq!(tell(&blocked("c", 1)), None, "b has been delivered since: that makes two");
        assert_eq!(tell(&blocked("d", 0)), Some(600));
        assert_eq!(
            selector.host_pause("e.org"),
            Some(NOW.saturating_add(Duration::from_secs(600)))
        );
    }

    #[test]
    fn old_attempts_pause_no_host() {
        let selector = Selector::builder().around(NOW).build().unwrap();
        for link in ["a", "b", "c", "d"] {
            assert_eq!(selector.observe_remote_attempt(&blocked(link, 86_400), NOW), None);
        }
        assert_eq!(selector.host_pause("e.org"), None);
    }

    #[test]
    fn a_requested_pause_counts_from_the_time_of_the_response() {
        let selector = Selector::builder().around(NOW).build().unwrap();
        let mut limited = blocked("a", 20);
        limited.http_status = Some(429);
        limited.response_headers = vec![Header::new("Retry-After", "120")];
        assert_eq!(
            selector.observe_remote_attempt(&limited, NOW),
            Some(NOW.saturating_add(Duration::from_secs(100)))
        );
    }
}
