//! How a [`BrowserFetcher`](super::BrowserFetcher) behaves: its tabs, its patience, and what the browser says it is.

use std::time::Duration;

/// How a [`BrowserFetcher`](super::BrowserFetcher) behaves. Start from [`BrowserOptions::default`] or [`BrowserOptions::stealth`].
#[derive(Clone, Debug)]
pub struct BrowserOptions {
    /// The name that attempts are logged under.
    pub name: String,
    /// Pages open at a time; further fetches wait for their turn, and that wait is no part of their deadline.
    pub tabs: usize,
    /// A page is done when no request was in flight for so long after its load event.
    pub quiet: Duration,
    /// A page that is never quiet (it polls) is taken as it is so long after its load event.
    pub max_settle: Duration,
    /// The share of the deadline, in percent, after which a page whose load event never comes is taken as it is.
    pub give_in_percent: u32,
    /// Further command line flags for Chromium.
    pub extra_args: Vec<String>,
    /// What the browser says it is; none: what Chromium says of itself.
    pub user_agent: UserAgent,
    /// A script that runs in each document before the page's own.
    pub init_script: Option<String>,
}

/// What the browser says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum UserAgent {
    /// What a headless Chromium says.
    #[default]
    Chromium,
    /// The same without the word that says that it is headless.
    NotHeadless,
    /// This text.
    Custom(String),
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
        }
    }
}

impl BrowserOptions {
    /// The options of `playwright_stealth`: the browser does not announce that a program drives it.
    pub fn stealth() -> Self {
        Self {
            name: "playwright_stealth".to_owned(),
            extra_args: vec![
                "--disable-blink-features=AutomationControlled".to_owned(),
                "--window-size=1920,1080".to_owned(),
            ],
            user_agent: UserAgent::NotHeadless,
            ..Self::default()
        }
    }
}

/// Options with which no page can be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// [`BrowserOptions::tabs`] is 0.
    #[error("a browser needs one tab at least: tabs is 0")]
    NoTabs,
    /// The address of a browser that runs already is none.
    #[error("the address of a browser is ws://host:port/... or wss://, as it says itself when it starts")]
    NoAddress,
}
