//! The identity of a crawler: who signs its requests, and how it names itself.
//!
//! `from_config` builds it with the feature `identity`, and `for_server` what a server does with
//! it. `without_identity` refuses a config that asks for it. `host_headers` are what owners of
//! hosts have issued for the crawler, in every build.

#[cfg(feature = "identity")]
mod for_server;
#[cfg(feature = "identity")]
mod from_config;
mod host_headers;
#[cfg(not(feature = "identity"))]
mod without_identity;

use fetchwise::robots::DEFAULT_AGENT;

use crate::setup::settings::Settings;

#[cfg(feature = "identity")]
pub(crate) use for_server::{publisher, request_signer};
#[cfg(feature = "identity")]
pub(crate) use from_config::{
    Identity, agent, failure, key_dir, key_source, profile, registrations, seconds, signer_with,
    signing_mode,
};
pub(crate) use host_headers::host_headers;
#[cfg(not(feature = "identity"))]
pub(crate) use without_identity::{
    Identity, publisher, registrations, request_signer, signing_mode,
};

/// Returns the name by which groups of robots.txt are selected.
pub(crate) fn robots_agent(settings: &Settings) -> &str {
    let config = &settings.config;
    config.robots.agent.as_deref().or(config.identity.name.as_deref()).unwrap_or(DEFAULT_AGENT)
}
