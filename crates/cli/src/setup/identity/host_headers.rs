//! Headers that owners of hosts have issued for the crawler, from the variables that the config
//! names.
//!
//! Invariants: no message has a value. A variable that is not set, or has no headers, ends the
//! command before its first request.

use std::env;

use fetchwise::fetch::host_headers::HostHeaders;

use crate::setup::settings::Settings;
use crate::terminal::exit::Failure;

/// Returns the headers of requests to some hosts.
pub(crate) fn host_headers(settings: &Settings) -> Result<HostHeaders, Failure> {
    let mut headers = HostHeaders::default();
    for (host, config) in &settings.config.identity.hosts {
        let Some(name) = &config.headers_env else { continue };
        let key = format!("identity.host.{host:?}.headers_env");
        let text = env::var(name).map_err(|_| {
            Failure::usage(format_args!(
                "missing headers of {host}: the variable {name} ({key}) is not set, or is no text"
            ))
            .advise("set it to lines such as \"Name: value\", or remove the setting")
        })?;
        headers.set(host, &text).map_err(|error| {
            Failure::usage(format_args!(
                "invalid headers of {host} in the variable {name} ({key}): {error}"
            ))
        })?;
    }
    Ok(headers)
}
