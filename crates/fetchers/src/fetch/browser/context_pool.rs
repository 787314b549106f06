//! Browser contexts that wait for the next page of their origin, so that its scripts and styles
//! come from their caches.
//!
//! Invariants: a context has one page at a time, and requests each document once: a page is never
//! an earlier fetch's. What a site may know a visitor by, its cookies and storage, is cleared
//! before a context is used again. A bounded number of contexts waits, for a bounded time, with the
//! cache in memory that Chromium bounds.
//!
//! Must not know: how a page is loaded.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use url::Url;

use super::cdp::{CallError, Cdp};
use super::protocol::{
    ClearCookies, CreateBrowserContext, DisposeBrowserContext, SetDownloadBehavior,
};
use crate::fetch::proxy::FilteringProxy;

/// Time for which a context waits for a page.
const MAX_IDLE: Duration = Duration::from_secs(300);
/// Documents after which a context is not used again.
const MAX_DOCUMENTS: usize = 500;

/// A browser context, disposed of with everything in it when this is dropped.
pub(super) struct Context {
    cdp: Cdp,
    pub(super) id: String,
    /// The documents that it has requested.
    documents: HashSet<String>,
    /// The origins of its pages.
    pub(super) origins: Vec<String>,
    since: Instant,
}

impl Context {
    /// Creates a context whose requests go to `proxy`, if there is one.
    pub(super) async fn create(
        cdp: &Cdp,
        proxy: Option<&FilteringProxy>,
    ) -> Result<Self, CallError> {
        let create = CreateBrowserContext {
            dispose_on_detach: true,
            proxy_server: proxy.map(|proxy| format!("http://{}", proxy.addr())),
            // Without this Chromium dials loopback itself, bypassing the proxy.
            proxy_bypass_list: proxy.map(|_| "<-loopback>"),
        };
        let id = cdp.call(None, create).await?.browser_context_id;
        cdp.send(None, SetDownloadBehavior { behavior: "deny", browser_context_id: id.clone() });
        Ok(Self {
            cdp: cdp.clone(),
            id,
            documents: HashSet::new(),
            origins: Vec::new(),
            since: Instant::now(),
        })
    }

    /// Records that a page of it is `url`.
    pub(super) fn record(&mut self, url: &Url) {
        let origin = url.origin().ascii_serialization();
        if !self.origins.contains(&origin) {
            self.origins.push(origin);
        }
        self.documents.insert(without_fragment(url));
    }

    /// Removes all cookies.
    pub(super) async fn clear_cookies(&self) -> Result<(), CallError> {
        self.cdp.call(None, ClearCookies { browser_context_id: self.id.clone() }).await.map(drop)
    }

    fn may_load(&self, url: &Url) -> bool {
        let origin = url.origin().ascii_serialization();
        self.origins.first() == Some(&origin)
            && self.documents.len() < MAX_DOCUMENTS
            && !self.documents.contains(&without_fragment(url))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.cdp.send(None, DisposeBrowserContext { browser_context_id: self.id.clone() });
    }
}

/// The contexts of one browser that wait, the one that has waited longest first.
pub(super) struct ContextPool {
    idle: Mutex<Vec<Context>>,
    most: usize,
}

impl ContextPool {
    /// Creates a pool of at most this number of contexts; with 0, no context is used again.
    pub(super) fn new(most: usize) -> Self {
        Self { idle: Mutex::default(), most }
    }

    /// Takes the context that has last loaded a page of the origin of `url`, and never that page.
    pub(super) fn take(&self, url: &Url) -> Option<Context> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|context| context.since.elapsed() < MAX_IDLE);
        let at = idle.iter().rposition(|context| context.may_load(url))?;
        Some(idle.remove(at))
    }

    /// Keeps a context whose page is closed.
    pub(super) fn put(&self, context: Option<Context>) {
        let Some(mut context) = context else { return };
        context.since = Instant::now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(context);
        if idle.len() > self.most {
            idle.remove(0);
        }
    }
}

fn without_fragment(url: &Url) -> String {
    url.as_str().split('#').next().unwrap_or_default().to_owned()
}
