//! What somebody else's attempts mean for their host: blocks that no visit of this process has met pause it all the same.
//!
//! Owns the reading of an attempt as the end that a visit would have had with it. Must not record anything, nor touch the state of a
//! link: whoever made the attempts keeps that.

use crate::backoff::retry_after;
use crate::selector::Selector;
use crate::state::host_pauses::{Standing, PauseReason};
use crate::trace;
use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{Attempt, ErrorType};
use fetchwise_types::response::header;
use fetchwise_types::time::Timestamp;

impl Selector {
    /// Hears of the last of the attempts that somebody else has made at a link lately, for the sake of its host: blocks of several
    /// links, and a wish to be left alone, pause it as they would had visits met them; content takes the link off the count. What is
    /// older than [`host_block_window`](crate::backoff::BackoffSettings::host_block_window) says nothing of now. Returns until when the host is
    /// paused, where this has set a pause.
    ///
    /// Nothing is recorded: that is [`record`](Self::record)'s.
    pub fn observe_remote_attempt(&self, attempt: &Attempt, now: Timestamp) -> Option<Timestamp> {
        let age = now.since(attempt.attempted_at);
        let domain = attempt.heuristic("domain")?;
        let hosts = &self.state().hosts;
        if attempt.success {
            hosts.link_delivered(domain, &attempt.link);
            return None;
        }
        // Who was asked in the site's place has said nothing of the site.
        let kind = attempt.error_type.as_ref().and_then(ErrorType::kind);
        if age > self.backoff().host_block_window || kind.is_some_and(ErrorKind::is_of_go_between) {
            return None;
        }
        let asked = header(&attempt.response_headers, "retry-after")
            .and_then(|value| retry_after(value, attempt.attempted_at))
            .map(|asked| asked.saturating_sub(age));
        let is_limit = kind == Some(ErrorKind::RateLimited)
            || attempt.http_status == Some(429)
            || asked.is_some() && (attempt.is_banned || attempt.http_status == Some(503));
        let why = match (is_limit, attempt.is_banned) {
            (true, _) => PauseReason::Limited(asked),
            // Where the host lets others through, its pace judges its blocks.
            (false, true) if !self.lets_through(domain, now) => PauseReason::Blocked,
            _ => return None,
        };
        hosts.failed(self, domain, &attempt.link, Standing::Ordinary, why, self.backoff(), now, |until| {
            trace::host_paused(domain, until);
            self.meter().host_paused(why.cause());
            if let Some(sink) = self.sink() {
                sink.host_pause(domain, Some(until), now);
            }
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
    fn three_links_that_were_blocked_elsewhere_pause_the_host() {
        let selector = Selector::builder().around(NOW).build().unwrap();
        let tell = |attempt: &Attempt| selector.observe_remote_attempt(attempt, NOW).map(|until| until.since(NOW).as_secs());
        assert_eq!([tell(&blocked("a", 5)), tell(&blocked("a", 4)), tell(&blocked("b", 3))], [None; 3]);
        assert_eq!(tell(&attempt("b", 2).delivered()), None);
        assert_eq!(tell(&blocked("c", 1)), None, "b has been delivered since: that makes two");
        assert_eq!(tell(&blocked("d", 0)), Some(600));
        assert_eq!(selector.host_pause("e.org"), Some(NOW.saturating_add(Duration::from_secs(600))));
    }

    #[test]
    fn what_is_long_past_pauses_nobody() {
        let selector = Selector::builder().around(NOW).build().unwrap();
        for link in ["a", "b", "c", "d"] {
            assert_eq!(selector.observe_remote_attempt(&blocked(link, 86_400), NOW), None);
        }
        assert_eq!(selector.host_pause("e.org"), None);
    }

    #[test]
    fn a_wish_to_be_left_alone_counts_from_when_it_was_said() {
        let selector = Selector::builder().around(NOW).build().unwrap();
        let mut limited = blocked("a", 20);
        limited.http_status = Some(429);
        limited.response_headers = vec![Header::new("Retry-After", "120")];
        assert_eq!(selector.observe_remote_attempt(&limited, NOW), Some(NOW.saturating_add(Duration::from_secs(100))));
    }
}
