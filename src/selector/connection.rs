//! This machine's own connection, as the results of all requests show it.
//!
//! Must not know: what follows for a visit, or for a request of robots.txt.

use url::Url;

use super::Selector;
use crate::state::uplink::{Sign, Silence};
use crate::trace;
use fetchwise_types::heuristic::url::domain_of;
use fetchwise_types::time::Timestamp;

/// Time for which a host that has answered is waited for.
const LATELY_MS: i64 = 600_000;

impl Selector {
    /// Returns since when no site answers this machine; `None` while its connection is good.
    ///
    /// Visits see it when five sites that answered within the last ten minutes fall silent and no
    /// site answers in between: they time out, their connections fail, or their names do not
    /// resolve. Until one answers again, such failures count against nobody, and one request goes
    /// out every five seconds. After an hour they count as before.
    ///
    /// The connection also counts as lost, for up to a quarter of an hour, while visits wait for a
    /// proxy that passes nothing any more.
    pub fn connection_lost_since(&self) -> Option<Timestamp> {
        let now = self.now();
        self.state.uplink.lost_since(now).or_else(|| self.state.proxies.waited_for(now))
    }

    /// Takes what a request of `url` says about this machine's connection. Returns whose silence it
    /// is, if it is one.
    pub(crate) fn take_sign(&self, url: &Url, sign: Sign, now: Timestamp) -> Option<Silence> {
        let uplink = &self.state.uplink;
        let was_lost = uplink.lost_since(now).is_some();
        let silence = uplink.take(url, sign, now);
        let is_lost = uplink.lost_since(now).is_some();
        if is_lost != was_lost {
            trace::connection(is_lost);
        }
        self.take_sign_of_host(url, sign, silence, now);
        silence
    }

    /// Notes whether the host of `url` answers. One that has done so lately may be overloaded, and
    /// its pace waits for it; without a pace nothing does.
    fn take_sign_of_host(&self, url: &Url, sign: Sign, whose: Option<Silence>, now: Timestamp) {
        let host = domain_of(url.host_str().unwrap_or_default());
        match (sign, whose) {
            (Sign::Answered, _) => self.state.silent_hosts.answered(host),
            (Sign::Silence, Some(Silence::AnsweringSite | Silence::OtherSite)) => {
                let lately = now.moved_by(-LATELY_MS);
                if self.pace().is_some_and(|pace| !pace.has_served_since(host, lately, now)) {
                    self.state.silent_hosts.add(host, now);
                }
            }
            _ => {}
        }
    }
}
