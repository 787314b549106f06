//! What a running crawl or server does when another process asks it to: it ends pauses and forgets,
//! in memory and in its log, and reads its settings again.
//!
//! Invariants: a request takes the same path as the command without a running process, so that the
//! log has the same.
//!
//! Must not know: how requests arrive.

use std::sync::Arc;

use tokio::sync::Mutex;

use crate::parse::input::read_domain;
use crate::setup::control::{ControlRequest, ControlResult, ControlSocket, Controlled};
use crate::setup::reload::{Reloaded, Reloader};
use crate::terminal::exit::Failure;
use fetchwise::journal::{Journal, Tombstone, TombstoneTarget, maintenance};
use fetchwise::rfc3339;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_crawl::PauseControl;
use fetchwise_serve::{Handle, Membership};

/// A process that can be asked.
pub(crate) struct LiveControl {
    pub(crate) selector: Arc<Selector>,
    pub(crate) journal: Arc<Journal>,
    /// The fleet of the process, if any.
    pub(crate) fleet: Option<Arc<dyn Membership>>,
    /// The crawl, if links of this process wait for paces that may change.
    pub(crate) pauses: Option<PauseControl>,
    /// The server whose figures come from the log, if any.
    pub(crate) server: Option<Handle>,
    /// What reads the settings again, if they can change.
    pub(crate) reloader: Option<Arc<Reloader>>,
    /// Held while the log is read: one request at a time does that.
    pub(crate) reading: Mutex<()>,
}

impl LiveControl {
    /// Listens in the data directory of the log, until the result is closed. Called within a
    /// runtime.
    pub(crate) fn listen(self, process: &'static str) -> Option<ControlSocket> {
        let (pauses, server, tasks) =
            (self.pauses.clone(), self.server.clone(), tokio::runtime::Handle::current());
        let told = move |reloaded: &Reloaded| {
            if reloaded.changed_pace {
                pauses.iter().for_each(PauseControl::paces_changed);
            }
            let Some(server) = server.clone() else { return };
            server.mark_reload(&reloaded.words);
            if reloaded.changed_costs {
                tasks.spawn(async move { server.costs_changed().await });
            }
        };
        self.reloader.iter().for_each(|reloader| reloader.tell(told.clone()));
        let dir = self.journal.dir().to_owned();
        ControlSocket::open(&dir, process, self)
    }

    /// Returns a process with this selector and log.
    pub(crate) fn new(
        selector: &Arc<Selector>,
        journal: &Arc<Journal>,
        fleet: Option<Arc<dyn Membership>>,
    ) -> Self {
        let (selector, journal) = (Arc::clone(selector), Arc::clone(journal));
        Self {
            selector,
            journal,
            fleet,
            pauses: None,
            server: None,
            reloader: None,
            reading: Mutex::new(()),
        }
    }
}

impl Controlled for LiveControl {
    async fn perform(&self, request: ControlRequest) -> Result<ControlResult, String> {
        match request {
            ControlRequest::Unpause { host: Some(host), link: None } => {
                let domain = domain(&host)?;
                let until = self.selector.unpause_host(&domain, self.selector.now());
                self.unpaused(until).await
            }
            ControlRequest::Unpause { host: None, link: Some(link) } => {
                let until = self.selector.unpause_link(&link, self.selector.now());
                self.unpaused(until).await
            }
            ControlRequest::Unpause { .. } => {
                Err("expected either a host or a link to unpause".to_owned())
            }
            ControlRequest::Forget { domain: Some(name), link: None } => {
                self.forget(TombstoneTarget::Domain(domain(&name)?)).await
            }
            ControlRequest::Forget { domain: None, link: Some(link) } if !link.is_empty() => {
                self.forget(TombstoneTarget::Link(link)).await
            }
            ControlRequest::Reload {} => self.reload().await,
            ControlRequest::Forget { .. } => {
                Err("expected either a domain or a link to forget".to_owned())
            }
        }
    }
}

impl LiveControl {
    /// Returns the result of ending a pause once the log has it.
    async fn unpaused(&self, until: Option<Timestamp>) -> Result<ControlResult, String> {
        if until.is_some() {
            let settled = self.journal.settled().await;
            settled
                .map_err(|error| format!("unpaused in memory but not in the log yet: {error}"))?;
        }
        let was_paused_until = until.map(rfc3339::format);
        Ok(ControlResult {
            unpaused: until.is_some(),
            was_paused_until,
            ..ControlResult::default()
        })
    }

    /// Reads the settings again. Reading files blocks, so another thread does it.
    async fn reload(&self) -> Result<ControlResult, String> {
        let reloader = self.reloader.clone().ok_or("its settings cannot change while it runs")?;
        let reloaded = tokio::task::spawn_blocking(move || reloader.reload())
            .await
            .map_err(|error| error.to_string())?;
        let reloaded =
            reloaded.map_err(|failure| format!("all settings are unchanged: {failure}"))?;
        Ok(ControlResult { reloaded: Some(reloaded.words), ..ControlResult::default() })
    }

    async fn forget(&self, target: TombstoneTarget) -> Result<ControlResult, String> {
        let _reading = self.reading.lock().await;
        let at = self.selector.clock().date();
        let (selector, journal) = (Arc::clone(&self.selector), Arc::clone(&self.journal));
        let (wanted, is_alone) = (target.clone(), self.fleet.is_none());
        // Reading the log blocks, so another thread does it.
        let work =
            tokio::task::spawn_blocking(move || forget(&selector, &journal, &wanted, at, is_alone));
        let mut done = work.await.map_err(|error| error.to_string())??;
        if let Some(server) = &self.server {
            server.forget_marks(Some(&target));
            server.recount().await;
        }
        if let (Some(fleet), TombstoneTarget::Domain(domain)) = (&self.fleet, target) {
            fleet.forget(domain, at).await.map_err(|why| {
                format!("forgotten on this node, but the other nodes were not notified: {why}; repeat the command")
            })?;
            done.fleet_notified = true;
        }
        Ok(done)
    }
}

/// Forgets in memory, in the log, and, without a fleet that does it, in what peers sent.
fn forget(
    selector: &Selector,
    journal: &Journal,
    target: &TombstoneTarget,
    at: Timestamp,
    is_alone: bool,
) -> Result<ControlResult, String> {
    let mut append = |stone: &Tombstone| journal.append_tombstone(stone).map(drop);
    let forgot = maintenance::forget_live(journal, selector, target, at, &mut append)
        .map_err(|e| e.to_string())?;
    let peers = match target {
        TombstoneTarget::Domain(domain) if is_alone => {
            let append = |stone: &Tombstone| match forgot.is_nothing() {
                true => journal.append_tombstone(stone).map(drop).map_err(Failure::from),
                false => Ok(()),
            };
            let found = super::fleet::forget_peer_evidence(journal.dir(), domain, at, append);
            found.map_err(|failure| failure.to_string())?
        }
        _ => None,
    };
    let _ = journal.settled().wait();
    Ok(ControlResult {
        attempts: forgot.attempts,
        states: forgot.states,
        in_snapshot: forgot.in_snapshot,
        peers,
        ..ControlResult::default()
    })
}

fn domain(text: &str) -> Result<String, String> {
    read_domain(text)
        .map_err(|_| "the domain is not valid: expected a name such as example.org".to_owned())
}
