//! Signatures of requests, with the feature `identity`. Without it nothing can sign.
//!
//! Invariants: without a signer no header is added. A signature is made for one request, and no log or archive gets it.
//!
//! Must not know: keys, and what a signature covers.

use std::collections::BTreeMap;
#[cfg(feature = "identity")]
use std::sync::Arc;

#[cfg(feature = "identity")]
use http::header::{AGE, DATE, HeaderValue};
use http::header::{HeaderMap, HeaderName};
use url::Url;

#[cfg(feature = "identity")]
use fetchwise_identity::{Signer, ToSign};
#[cfg(feature = "identity")]
use fetchwise_types::time::Timestamp;

/// Name of the header that no log and no archive gets.
pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("signature");

/// Signs the requests of a fetcher.
#[cfg(feature = "identity")]
#[derive(Clone, Debug)]
pub struct RequestSigner(Arc<Signer>);

/// Signs the requests of a fetcher. Nothing makes one in this build: the feature `identity` is off.
#[cfg(not(feature = "identity"))]
#[derive(Clone, Debug)]
pub struct RequestSigner(());

#[cfg(feature = "identity")]
impl From<Arc<Signer>> for RequestSigner {
    fn from(signer: Arc<Signer>) -> Self {
        Self(signer)
    }
}

#[cfg(feature = "identity")]
impl RequestSigner {
    /// Adds the signature of a GET of `url` to its headers, unless it is one that is not signed.
    pub(super) fn sign(&self, url: &Url, headers: &mut HeaderMap) {
        let Ok(signed) = self.0.sign(&ToSign::get(url), unix_seconds()) else { return };
        for (name, value) in signed.iter() {
            // The values are ASCII, and the names are valid.
            let (Ok(name), Ok(mut value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) else { return };
            value.set_sensitive(name == SIGNATURE);
            headers.insert(name, value);
        }
    }

    /// Returns the headers of a signature of a GET of `url`, for another client that makes the request; none if it is one
    /// that is not signed.
    pub(crate) fn headers(&self, url: &Url) -> Option<BTreeMap<&'static str, String>> {
        let signed = self.0.sign(&ToSign::get(url), unix_seconds()).ok()?;
        Some(signed.iter().into_iter().map(|(name, value)| (name, value.to_owned())).collect())
    }

    /// Notes the response to a request: whose verifier reads it, and its clock.
    pub(super) fn observe(&self, url: &Url, headers: &HeaderMap) {
        if !self.0.may_sign(url) {
            return;
        }
        let names = headers.keys().map(HeaderName::as_str);
        // A cached response has the date of its origin.
        let date = headers.get(DATE).filter(|_| !headers.contains_key(AGE)).and_then(|value| value.to_str().ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        let date = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
        let date = date.and_then(|date| i64::try_from(date.as_secs()).ok());
        self.0.observe(url, names, date, unix_seconds());
    }
}

#[cfg(not(feature = "identity"))]
impl RequestSigner {
    pub(super) fn sign(&self, _: &Url, _: &mut HeaderMap) {}

    pub(crate) fn headers(&self, _: &Url) -> Option<BTreeMap<&'static str, String>> {
        None
    }

    pub(super) fn observe(&self, _: &Url, _: &HeaderMap) {}
}

#[cfg(feature = "identity")]
fn unix_seconds() -> i64 {
    Timestamp::now().as_millis().div_euclid(1000)
}
