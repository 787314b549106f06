//! What a running crawl is told of pauses that have ended early and of paces that have changed: by
//! its selector, and by its caller.
//!
//! Invariants: a message names what may be asked again, never what is fetched. A link that is still
//! paused is paused again without a request.
//!
//! Must not know: who ends a pause, and where links wait.

use std::collections::HashSet;

use fetchwise::ended_pauses::{EndedPause, PauseListener};
use tokio::sync::mpsc;

/// What may be asked again before the end of its wait.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Release {
    /// All links of a host, by its domain.
    Host(String),
    /// A link, by its hash.
    Link(u64),
    /// The wait of all links for the pace of their hosts.
    Paces,
}

/// Tells a crawl that the settings of the pace have changed. Clones tell the same crawl, and have
/// no effect once it has ended.
///
/// A crawl learns of pauses that end early from its selector.
#[derive(Clone, Debug)]
pub struct PauseControl(mpsc::UnboundedSender<Release>);

/// What a crawl is told.
#[derive(Debug)]
pub(crate) struct Releases(mpsc::UnboundedReceiver<Release>);

/// All that may be asked again by now.
#[derive(Debug, Default)]
pub(crate) struct Released {
    pub(crate) hosts: HashSet<String>,
    pub(crate) links: HashSet<u64>,
    /// Whether no link has to wait for the pace of its host any longer.
    pub(crate) paces: bool,
}

impl PauseControl {
    /// Returns a handle, and what it says.
    pub(crate) fn new() -> (Self, Releases) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), Releases(receiver))
    }

    /// Lets all links that wait for the pace of their hosts be asked again at once: the settings of
    /// the pace have changed.
    pub fn paces_changed(&self) {
        let _ = self.0.send(Release::Paces);
    }
}

impl PauseListener for PauseControl {
    fn pause_ended(&self, ended: EndedPause<'_>) {
        let release = match ended {
            EndedPause::Host(domain) => Release::Host(domain.to_owned()),
            EndedPause::Link(hash) => Release::Link(hash),
            _ => return,
        };
        let _ = self.0.send(release);
    }
}

impl Releases {
    /// Returns what may be asked again by now; none if nothing was said since the last time.
    pub(crate) fn try_next(&mut self) -> Option<Released> {
        let first = self.0.try_recv().ok()?;
        Some(self.with_rest(first))
    }

    /// Waits until something may be asked again, and returns all of it, so that one search finds
    /// the links of all. None if nobody can say anything any more. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Released> {
        let first = self.0.recv().await?;
        Some(self.with_rest(first))
    }

    fn with_rest(&mut self, first: Release) -> Released {
        let mut released = Released::default();
        released.add(first);
        while let Ok(release) = self.0.try_recv() {
            released.add(release);
        }
        released
    }
}

impl Released {
    fn add(&mut self, release: Release) {
        match release {
            Release::Host(domain) => drop(self.hosts.insert(domain)),
            Release::Link(hash) => drop(self.links.insert(hash)),
            Release::Paces => self.paces = true,
        }
    }
}
