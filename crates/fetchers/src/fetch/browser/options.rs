//! The settings of a [`BrowserFetcher`](super::BrowserFetcher): its tabs, its timeouts, and its
//! user agent.

use std::time::Duration;

use crate::fetch::host_headers::HostHeaders;
use crate::fetch::signing::RequestSigner;

/// Settings of a [`BrowserFetcher`](super::BrowserFetcher). Start from [`BrowserOptions::default`]
/// or [`BrowserOptions::stealth`].
#[derive(Clone, Debug)]
pub struct BrowserOptions {
    /// Name under which attempts are logged.
    pub name: String,
    /// Maximum number of open pages; further fetches wait, and that wait does not count against
    /// their deadline.
    pub tabs: usize,
    /// A page is done when no request was in flight for this long after its load event.
    pub quiet: Duration,
    /// A page whose network is never quiet (it polls), or that has nothing to read yet, is read as
    /// it is this long after its load event.
    pub max_settle: Duration,
    /// Share of the deadline, in percent, after which a page without a load event is read as it is.
    pub give_in_percent: u32,
    /// Further command line flags for Chromium.
    pub extra_args: Vec<String>,
    /// User agent of the browser.
    pub user_agent: UserAgent,
    /// Script that runs in each document before the page's own scripts.
    pub init_script: Option<String>,
    /// Whether pages of one origin share a cache, so that their scripts and styles are requested
    /// once. Documents are requested each time, and no page has the cookies or the storage of
    /// another.
    pub shares_cache: bool,
    /// Signs requests of the pages. None: no request is signed.
    pub signing: Option<BrowserSigning>,
    /// Headers of requests to some hosts: those for the page's document, each redirect included,
    /// and those of a page to its own site. They replace others of the same names.
    pub host_headers: HostHeaders,
}

/// Signatures of a browser's requests.
#[derive(Clone, Debug)]
pub struct BrowserSigning {
    /// Signs them: https only.
    pub signer: RequestSigner,
    /// Requests to sign.
    pub scope: SignatureScope,
}

/// The requests of a page that are signed. The page's document is, with its redirects, whatever
/// their site is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignatureScope {
    /// The page's document only. No further request is paused.
    Document,
    /// Those to the page's registrable domain. Third parties get none, so they cannot track the
    /// crawler by its key.
    #[default]
    Site,
    /// All, third parties included.
    All,
}

/// The user agent of the browser.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UserAgent {
    /// The default of a headless Chromium.
    #[default]
    Chromium,
    /// The default without the word that reveals that it is headless.
    NotHeadless,
    /// This text.
    Custom(String),
    /// This text, with Chromium's version in place of `W.X.Y.Z`.
    Versioned(String),
}

impl UserAgent {
    /// The part of [`UserAgent::Versioned`] that is replaced.
    pub const VERSION: &str = "W.X.Y.Z";
}

impl Default for BrowserOptions {
    fn default() -> Self {
        Self {
            name: "playwright".to_owned(),
            tabs: 4,
            quiet: Duration::from_millis(500),
            max_settle: Duration::from_secs(10),
            give_in_percent: 75,
            extra_args: Vec::new(),
            user_agent: UserAgent::default(),
            init_script: None,
            shares_cache: true,
            signing: None,
            host_headers: HostHeaders::default(),
        }
    }
}

impl BrowserOptions {
    /// Returns the options of `playwright_stealth`: the browser does not announce that a program
    /// controls it.
    pub fn stealth() -> Self {
        Self {
            name: "playwright_stealth".to_owned(),
            extra_args: vec![
                "--disable-blink-features=AutomationControlled".to_owned(),
                "--window-size=1920,1080".to_owned(),
            ],
            user_agent: UserAgent::NotHeadless,
            // A cache without the cookies of its visits is no person's.
            shares_cache: false,
            ..Self::default()
        }
    }
}

/// Options with which no page can be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// [`BrowserOptions::tabs`] is 0.
    #[error("invalid tabs 0: a browser needs at least one")]
    NoTabs,
    /// The address of a running browser is not a valid socket address.
    #[error(
        "invalid browser address: expected ws://host:port/... or wss://, as Chromium prints it"
    )]
    NoAddress,
}
