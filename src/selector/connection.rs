//! This machine's own connection, as the results of all requests show it.
//!
//! Must not know: what follows for a visit, or for a request of robots.txt.

use url::Url;

use super::Selector;
use crate::state::uplink::{Sign, Silence};
use crate::trace;
use fetchwise_types::time::Timestamp;

impl Selector {
    /// Returns since when no site answers this machine; `None` while its connection is good.
    ///
    /// Visits see it when five sites that answered within the last ten minutes fall silent and no
    /// site answers in between: they time out, their connections fail, or their names do not
    /// resolve. Until one answers again, such failures count against nobody, and one request goes
    /// out every five seconds. After an hour they count as before.
    pub fn connection_lost_since(&self) -> Option<Timestamp> {
        self.state.uplink.lost_since(self.now())
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
        silence
    }
}
