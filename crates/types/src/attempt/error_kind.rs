//! The table of attribution: how an attempt can end, and what each end means for learning.
//!
//! Only failures that the fetcher caused move its evidence. A missing page, an unknown host name or
//! too many redirects say nothing about the fetcher.

use std::fmt;

macro_rules! error_kinds {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// The reason why an attempt delivered no content.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])* $variant,)+
        }

        impl ErrorKind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the name in JSON and in the log.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// Returns the kind called `name`, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

error_kinds! {
    /// A captcha or another challenge page came instead of the content.
    BlockedCaptcha = "blocked_captcha",
    /// Refused with 403 or 429.
    Blocked403 = "blocked_403",
    /// An empty page or an SPA shell, from a fetcher that does not render.
    WrongTool = "wrong_tool",
    /// An empty page from a fetcher that renders.
    EmptyContent = "empty_content",
    /// The deadline passed.
    Timeout = "timeout",
    /// The connection failed or broke, or no name server answered.
    NetworkError = "network_error",
    /// 5xx or an unknown status above it; 408, 421 or 425.
    ServerError = "server_error",
    /// The body ended before its announced length.
    Truncated = "truncated",
    /// 404 or 410; 204 or 205, which have nothing to get.
    NotFound = "not_found",
    /// Another 4xx.
    ClientError = "client_error",
    /// 401 or 407.
    AuthRequired = "auth_required",
    /// The name does not exist, or has no address.
    DnsError = "dns_error",
    /// The TLS handshake failed.
    TlsError = "tls_error",
    /// A server between the crawler and the site failed, not the site: a proxy, an archive, a
    /// service.
    ProxyError = "proxy_error",
    /// Too many redirects, or a redirect that goes nowhere.
    RedirectLoop = "redirect_loop",
    /// The body (or the headers) passed a limit.
    TooLarge = "too_large",
    /// The address may not be dialled.
    RefusedAddress = "refused_address",
    /// Not a URL that can be fetched.
    InvalidUrl = "invalid_url",
    /// A waiting room.
    Queued = "queued",
    /// The crawler's own machine was at its limits, or had no connection. Such an attempt is not recorded.
    LocalFault = "local_fault",
    /// The host said "not now" to this address: with a 429, or with a block that says for how long,
    /// after it had served the same fetcher. It is about the crawler's speed, and not attributed to
    /// a fetcher that the host had served.
    RateLimited = "rate_limited",
    /// The host's robots.txt asks crawlers not to fetch it.
    Disallowed = "disallowed",
    /// A source that serves in place of the site (an archive, a search service) does not have the
    /// page.
    NotHeld = "not_held",
    /// The network of the crawler put a page in place of the site: a provider, a filter, a captive
    /// portal. The site was not reached.
    NetworkBlock = "network_block",
    /// 402: the site asks for a price.
    PaymentRequired = "payment_required",
    /// The site declines this crawler by name: a 403 with `crawler-error: CrawlerForbidden`.
    Declined = "declined",
    /// The site does not accept the crawler's signature, or asks for a stronger one.
    IdentityRejected = "identity_rejected",
    /// The site reserves the page against every purpose of the crawl.
    Reserved = "reserved",
    /// The crawl's own policy leaves the page: no fetcher that it permits remains.
    LeftByPolicy = "left_by_policy",
}

/// The next step after an attempt that ended with an [`ErrorKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureAction {
    /// Another fetcher, if its index is worth it.
    OtherFetcher,
    /// The same fetcher once more, then as [`FailureAction::OtherFetcher`].
    RetryThenOther,
    /// The same fetcher once more, then the URL ends.
    RetryThenEnd,
    /// The URL ends.
    End,
}

impl ErrorKind {
    /// Returns whether the site blocked the request: the address is at risk.
    pub const fn is_banned(self) -> bool {
        matches!(self, Self::BlockedCaptcha | Self::Blocked403 | Self::RateLimited)
    }

    /// Returns whether it may pass by itself, so that one retry with the same fetcher is
    /// worthwhile.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Timeout | Self::NetworkError | Self::ServerError | Self::Truncated)
    }

    /// Returns whether neither a fetcher nor a pause can help: it is logged, without learning and
    /// without a pause.
    pub const fn is_neutral(self) -> bool {
        matches!(
            self,
            Self::NotFound
                | Self::ClientError
                | Self::AuthRequired
                | Self::DnsError
                | Self::TlsError
                | Self::ProxyError
                | Self::RedirectLoop
                | Self::TooLarge
                | Self::RefusedAddress
                | Self::InvalidUrl
                | Self::LocalFault
                | Self::Disallowed
                | Self::PaymentRequired
                | Self::Declined
                | Self::IdentityRejected
                | Self::Reserved
                | Self::LeftByPolicy
        )
    }

    /// Returns whether the site, or the crawl's own policy, has said no for now: the link is left
    /// for one day, and its risk does not rise.
    pub const fn leaves_link(self) -> bool {
        matches!(self, Self::PaymentRequired | Self::Declined | Self::LeftByPolicy)
    }

    /// Returns whether it says nothing about the site because another server was contacted. Another
    /// fetcher may do better, and the site's own earlier response stays decisive.
    pub const fn is_of_intermediary(self) -> bool {
        matches!(self, Self::ProxyError | Self::NotHeld | Self::NetworkBlock)
    }

    /// Returns its weight in the fetcher's evidence once it is final (for a transient failure:
    /// after its retry).
    pub const fn weight(self) -> f64 {
        match self {
            Self::Timeout => 0.5,
            Self::Queued | Self::RateLimited | Self::NetworkBlock => 0.0,
            _ if self.is_neutral() => 0.0,
            _ => 1.0,
        }
    }

    /// Returns the next step after it.
    pub const fn next(self) -> FailureAction {
        match self {
            Self::BlockedCaptcha
            | Self::Blocked403
            | Self::WrongTool
            | Self::EmptyContent
            | Self::ProxyError
            | Self::NotHeld
            | Self::NetworkBlock => FailureAction::OtherFetcher,
            Self::Timeout | Self::NetworkError | Self::Truncated => FailureAction::RetryThenOther,
            Self::ServerError => FailureAction::RetryThenEnd,
            _ => FailureAction::End,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back() {
        for &kind in ErrorKind::ALL {
            assert_eq!(ErrorKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(ErrorKind::from_name("gremlins"), None);
    }
}
