//! The classification of Chromium's network errors (`net::ERR_...`).

use fetchwise_types::attempt::error_kind::ErrorKind;

/// Error name prefixes and their kinds: the longest match counts. Other errors are a
/// `network_error`.
const KINDS: &[(&str, ErrorKind)] = &[
    ("ERR_NAME_", ErrorKind::DnsError),
    // No name server answered, or none that knows the name.
    ("ERR_NAME_RESOLUTION_FAILED", ErrorKind::NetworkError),
    ("ERR_ICANN_NAME_COLLISION", ErrorKind::DnsError),
    ("ERR_CERT_", ErrorKind::TlsError),
    ("ERR_CERTIFICATE_TRANSPARENCY_REQUIRED", ErrorKind::TlsError),
    ("ERR_SSL_", ErrorKind::TlsError),
    ("ERR_BAD_SSL_CLIENT_AUTH_CERT", ErrorKind::TlsError),
    ("ERR_ECH_", ErrorKind::TlsError),
    ("ERR_TUNNEL_CONNECTION_FAILED", ErrorKind::ProxyError),
    ("ERR_PROXY_", ErrorKind::ProxyError),
    ("ERR_NO_SUPPORTED_PROXIES", ErrorKind::ProxyError),
    ("ERR_MANDATORY_PROXY_CONFIGURATION_FAILED", ErrorKind::ProxyError),
    ("ERR_UNEXPECTED_PROXY_AUTH", ErrorKind::ProxyError),
    ("ERR_TOO_MANY_REDIRECTS", ErrorKind::RedirectLoop),
    ("ERR_UNSAFE_REDIRECT", ErrorKind::RedirectLoop),
    ("ERR_INVALID_REDIRECT", ErrorKind::RedirectLoop),
    ("ERR_TIMED_OUT", ErrorKind::Timeout),
    ("ERR_CONNECTION_TIMED_OUT", ErrorKind::Timeout),
    ("ERR_RESPONSE_HEADERS_TOO_BIG", ErrorKind::TooLarge),
    ("ERR_FILE_TOO_BIG", ErrorKind::TooLarge),
    ("ERR_CONTENT_LENGTH_MISMATCH", ErrorKind::Truncated),
    ("ERR_INCOMPLETE_CHUNKED_ENCODING", ErrorKind::Truncated),
    ("ERR_BLOCKED_BY_PRIVATE_NETWORK_ACCESS_CHECKS", ErrorKind::RefusedAddress),
    ("ERR_BLOCKED_BY_LOCAL_NETWORK_ACCESS_CHECKS", ErrorKind::RefusedAddress),
    ("ERR_ADDRESS_INVALID", ErrorKind::RefusedAddress),
    ("ERR_INVALID_URL", ErrorKind::InvalidUrl),
    ("ERR_DISALLOWED_URL_SCHEME", ErrorKind::InvalidUrl),
    ("ERR_UNKNOWN_URL_SCHEME", ErrorKind::InvalidUrl),
];

/// Errors of Chromium itself, or of this machine. Chromium's only proxy is ours and on this
/// machine.
const LOCAL: &[&str] = &[
    "ERR_INSUFFICIENT_RESOURCES",
    "ERR_OUT_OF_MEMORY",
    "ERR_FILE_NO_SPACE",
    "ERR_NO_BUFFER_SPACE",
    "ERR_NETWORK_IO_SUSPENDED",
    "ERR_PROXY_CONNECTION_FAILED",
];

/// Returns whether this machine caused the error.
pub(super) fn is_local(error_text: &str) -> bool {
    LOCAL.contains(&error_text.trim().trim_start_matches("net::"))
}

/// Returns the kind of a failed navigation's error text, e.g. `dns_error` for
/// `net::ERR_NAME_NOT_RESOLVED`.
pub(super) fn kind_of(error_text: &str) -> ErrorKind {
    let name = error_text.trim().trim_start_matches("net::");
    KINDS
        .iter()
        .filter(|(prefix, _)| name.starts_with(prefix))
        .max_by_key(|(prefix, _)| prefix.len())
        .map_or(ErrorKind::NetworkError, |&(_, kind)| kind)
}

/// Returns whether Chromium refuses the URL by itself, and other fetchers may fetch it: a port of
/// another protocol.
pub(super) fn is_own_refusal(error_text: &str) -> bool {
    error_text.contains("ERR_UNSAFE_PORT")
}

/// Returns whether the navigation was cancelled rather than failed: another one replaced it, or it
/// had nothing to show.
pub(super) fn is_abort(error_text: &str) -> bool {
    error_text.contains("ERR_ABORTED")
}

/// Returns whether the error is a refusal of the proxy, which then knows the reason.
pub(super) fn is_from_proxy(error_text: &str) -> bool {
    kind_of(error_text) == ErrorKind::ProxyError
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortages_of_the_browser_are_local_faults() {
        assert!(
            is_local("net::ERR_INSUFFICIENT_RESOURCES")
                && is_local("net::ERR_PROXY_CONNECTION_FAILED")
        );
        assert!(
            is_own_refusal("net::ERR_UNSAFE_PORT")
                && !is_own_refusal("net::ERR_CONNECTION_REFUSED")
        );
        assert!(
            !is_local("net::ERR_CONNECTION_REFUSED")
                && !is_local("net::ERR_TUNNEL_CONNECTION_FAILED")
        );
    }

    #[test]
    fn network_errors_are_classified() {
        for (text, kind) in [
            ("net::ERR_NAME_NOT_RESOLVED", ErrorKind::DnsError),
            ("net::ERR_NAME_RESOLUTION_FAILED", ErrorKind::NetworkError),
            ("net::ERR_DNS_TIMED_OUT", ErrorKind::NetworkError),
            ("net::ERR_CERT_AUTHORITY_INVALID", ErrorKind::TlsError),
            ("net::ERR_SSL_PROTOCOL_ERROR", ErrorKind::TlsError),
            ("net::ERR_TUNNEL_CONNECTION_FAILED", ErrorKind::ProxyError),
            ("net::ERR_PROXY_CONNECTION_FAILED", ErrorKind::ProxyError),
            ("net::ERR_TOO_MANY_REDIRECTS", ErrorKind::RedirectLoop),
            ("net::ERR_TIMED_OUT", ErrorKind::Timeout),
            ("net::ERR_CONNECTION_TIMED_OUT", ErrorKind::Timeout),
            ("net::ERR_CONNECTION_REFUSED", ErrorKind::NetworkError),
            ("net::ERR_CONNECTION_RESET", ErrorKind::NetworkError),
            ("net::ERR_EMPTY_RESPONSE", ErrorKind::NetworkError),
            ("net::ERR_SOMETHING_OF_NEXT_YEAR", ErrorKind::NetworkError),
            ("", ErrorKind::NetworkError),
        ] {
            assert_eq!(kind_of(text), kind, "{text}");
        }
    }
}
