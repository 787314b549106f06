//! A handle by which a caller tells a running crawl that pauses have ended early, or that paces
//! have changed.
//!
//! Invariants: a message names what may be asked again, never what is fetched. A link that is still
//! paused is paused again without a request.
//!
//! Must not know: who ends a pause, and where links wait.

use tokio::sync::mpsc;

/// What may be asked again before the end of its pause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndedPause {
    /// All links of a host, by its domain.
    Host(String),
    /// A link, by its id or its URL.
    Link(String),
    /// The wait of all links for the pace of their hosts.
    Paces,
}

/// Tells a crawl that pauses have ended. Clones tell the same crawl, and have no effect once it has
/// ended.
///
/// End the pause itself first, for example with
/// [`Selector::unpause_host`](fetchwise::selector::Selector::unpause_host).
#[derive(Clone, Debug)]
pub struct PauseControl(mpsc::UnboundedSender<EndedPause>);

impl PauseControl {
    /// Returns a handle, and what it says.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<EndedPause>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Lets the waiting links of a host be asked again at once. `domain` is that of evidence: in
    /// lower case, without `www.`.
    pub fn host_unpaused(&self, domain: &str) {
        let _ = self.0.send(EndedPause::Host(domain.to_owned()));
    }

    /// Lets all links that wait for the pace of their hosts be asked again at once: the settings of
    /// the pace have changed.
    pub fn paces_changed(&self) {
        let _ = self.0.send(EndedPause::Paces);
    }

    /// Lets a waiting link be asked again at once, by its id or its URL.
    pub fn link_unpaused(&self, link: &str) {
        let _ = self.0.send(EndedPause::Link(link.to_owned()));
    }
}
