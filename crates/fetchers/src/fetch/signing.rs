//! Signatures of requests, with the feature `identity`. Without it nothing can sign.
//!
//! Owns: whether a refused request is signed once more, and which refusal rejects the signature.
//!
//! Invariants: a fetcher that signs makes no request without a signature, except one that is never
//! signed. A signature is made for one request, and no log or archive gets it. A request is signed
//! at most once more. A host that refuses that too gets no second signature for an hour.
//!
//! Must not know: keys, what a signature covers, and how requests are sent.

use std::collections::BTreeMap;
#[cfg(feature = "identity")]
use std::net::IpAddr;
#[cfg(feature = "identity")]
use std::num::NonZeroUsize;
#[cfg(feature = "identity")]
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(feature = "identity")]
use std::time::Duration;

use http::StatusCode;
#[cfg(feature = "identity")]
use http::header::{AGE, DATE};
use http::header::{HeaderMap, HeaderName, HeaderValue};
#[cfg(feature = "identity")]
use lru::LruCache;
use url::Url;

#[cfg(feature = "identity")]
use fetchwise_identity::{NotSigned, ServerDate, SignatureRequest, SignedHeaders, Signer, ToSign};
#[cfg(feature = "identity")]
use fetchwise_types::time::Timestamp;

/// Name of the header that no log and no archive gets.
pub(super) const SIGNATURE: HeaderName = HeaderName::from_static("signature");
/// Header by which a server asks for a signature.
#[cfg(feature = "identity")]
const ACCEPT_SIGNATURE: HeaderName = HeaderName::from_static("accept-signature");
/// Time for which a host that refused a second signature gets no further one.
#[cfg(feature = "identity")]
const IN_VAIN_FOR: Duration = Duration::from_secs(3600);
/// Largest number of such hosts that are kept; beyond it, the least recently asked ones cost one
/// request each.
#[cfg(feature = "identity")]
const MAX_HOSTS: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// Signs the requests of fetchers. Clones share what they have seen of hosts.
#[cfg(feature = "identity")]
#[derive(Clone, Debug)]
pub struct RequestSigner {
    signer: Arc<Signer>,
    /// Authorities that refused a second signature.
    in_vain: Arc<Mutex<LruCache<String, SecondRefusal>>>,
}

/// A response that refused a second signature.
#[cfg(feature = "identity")]
#[derive(Clone, Copy, Debug)]
struct SecondRefusal {
    at: Timestamp,
    /// Whether it asks for a signature again.
    asks: bool,
}

/// Signs the requests of fetchers. Nothing makes one in this build: the feature `identity` is off.
#[cfg(not(feature = "identity"))]
#[derive(Clone, Debug)]
pub struct RequestSigner(Never);

/// No value.
#[cfg(not(feature = "identity"))]
#[derive(Clone, Copy, Debug)]
enum Never {}

#[cfg(feature = "identity")]
impl From<Arc<Signer>> for RequestSigner {
    fn from(signer: Arc<Signer>) -> Self {
        Self { signer, in_vain: Arc::new(Mutex::new(LruCache::sparse(MAX_HOSTS))) }
    }
}

/// The signature of one request.
#[cfg(feature = "identity")]
pub(super) struct RequestSignature(SignedHeaders);

/// The signature of one request.
#[cfg(not(feature = "identity"))]
pub(super) struct RequestSignature(Never);

/// How to sign a refused request once more.
#[cfg(feature = "identity")]
pub(super) struct SecondSignature(Option<SignatureRequest>);

/// How to sign a refused request once more.
#[cfg(not(feature = "identity"))]
pub(super) struct SecondSignature(Never);

impl RequestSignature {
    /// Adds the signature to the headers of its request.
    pub(super) fn add_to(&self, headers: &mut HeaderMap) {
        for (name, value) in self.headers() {
            // The values are ASCII, and the names are valid.
            let (Ok(name), Ok(mut value)) =
                (HeaderName::try_from(name), HeaderValue::try_from(value))
            else {
                return;
            };
            value.set_sensitive(name == SIGNATURE);
            headers.insert(name, value);
        }
    }
}

#[cfg(feature = "identity")]
impl RequestSignature {
    /// Returns the headers.
    pub(super) fn headers(&self) -> [(&'static str, &str); 3] {
        self.0.iter()
    }
}

#[cfg(feature = "identity")]
impl RequestSigner {
    /// Signs a request; none if it is one that is not signed.
    ///
    /// # Errors
    /// The reason why nothing can be signed now.
    pub(super) fn sign(
        &self,
        method: &str,
        url: &Url,
        second: Option<&SecondSignature>,
    ) -> Result<Option<RequestSignature>, String> {
        let wanted = second.and_then(|second| second.0.as_ref());
        let request = ToSign { method, wanted, ..ToSign::get(url) };
        match self.signer.sign(&request, unix_seconds()) {
            Ok(signed) => Ok(Some(RequestSignature(signed))),
            Err(NotSigned::NotHttps) => Ok(None),
            Err(error) => Err(format!("cannot sign: {error}")),
        }
    }

    /// Returns the headers of a signature of a GET of `url`, for another client that makes the
    /// request; none if it is one that is not signed.
    ///
    /// # Errors
    /// The reason why nothing can be signed now.
    pub(crate) fn headers(
        &self,
        url: &Url,
    ) -> Result<Option<BTreeMap<&'static str, String>>, String> {
        let text = |(name, value): (&'static str, &str)| (name, value.to_owned());
        let signed = self.sign("GET", url, None)?;
        Ok(signed.map(|signed| signed.headers().into_iter().map(text).collect()))
    }

    /// Returns whether plain http to this machine is signed, for tests.
    #[cfg(feature = "browser")]
    pub(super) fn signs_loopback(&self) -> bool {
        self.signer.signs_loopback()
    }

    /// Notes the response to a request: whose verifier reads it, and its clock.
    pub(super) fn observe(&self, url: &Url, peer: Option<IpAddr>, headers: &HeaderMap) {
        if !self.signer.may_sign(url) {
            return;
        }
        let names = headers.keys().map(HeaderName::as_str);
        // A cached response has the date of its origin.
        let date = headers
            .get(DATE)
            .filter(|_| !headers.contains_key(AGE))
            .and_then(|value| value.to_str().ok());
        let date = date.and_then(|date| httpdate::parse_http_date(date).ok());
        let date = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
        let date = date.and_then(|date| i64::try_from(date.as_secs()).ok());
        let date = date.map(|date| ServerDate { date, peer });
        self.signer.observe(url, names, date, unix_seconds());
    }

    /// Returns how to sign a request once more, if the response to the signed one is a refusal that
    /// asks for another signature, or shows that another form was due.
    pub(super) fn second(
        &self,
        url: &Url,
        first: &RequestSignature,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Option<SecondSignature> {
        if !is_refusal(status) || self.is_in_vain(url) {
            return None;
        }
        let lines: Vec<&HeaderValue> = headers.get_all(ACCEPT_SIGNATURE).iter().collect();
        let wanted = match lines.is_empty() {
            true => None,
            false => {
                let lines =
                    lines.into_iter().map(|line| line.to_str().ok()).collect::<Option<Vec<_>>>()?;
                // A request that cannot be met, or is hostile, gets no second try at all.
                Some(SignatureRequest::read(&lines.join(", "))?)
            }
        };
        let is_other = wanted.as_ref().is_some_and(|wanted| !wanted.is_met_by(&first.0));
        let is_other_form = self.signer.form_for(url) != first.0.form;
        let second = (is_other || is_other_form).then_some(SecondSignature(wanted))?;
        // The refusal is final if there can be no other signature.
        self.sign("GET", url, Some(&second)).ok()?.map(|_| second)
    }

    /// Notes the response to a request that was signed a second time.
    pub(super) fn observe_second(&self, url: &Url, status: StatusCode, headers: &HeaderMap) {
        let mut in_vain = self.in_vain.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_refusal(status) {
            in_vain.pop(authority(url));
            return;
        }
        let refusal =
            SecondRefusal { at: Timestamp::now(), asks: headers.contains_key(ACCEPT_SIGNATURE) };
        in_vain.put(authority(url).to_owned(), refusal);
    }

    /// Returns whether the response to a signed request rejects the crawler's signature: it asks
    /// for one, and the host has refused the one that it asked for.
    pub(super) fn is_rejected(&self, url: &Url, status: StatusCode, headers: &HeaderMap) -> bool {
        is_refusal(status)
            && headers.contains_key(ACCEPT_SIGNATURE)
            && self.second_refusal(url).is_some_and(|refusal| refusal.asks)
    }

    fn is_in_vain(&self, url: &Url) -> bool {
        self.second_refusal(url).is_some()
    }

    /// Returns the refusal of a second signature within the last hour.
    fn second_refusal(&self, url: &Url) -> Option<SecondRefusal> {
        let mut in_vain = self.in_vain.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = in_vain.get(authority(url)).copied()?;
        (Timestamp::now().since(refusal.at) < IN_VAIN_FOR).then_some(refusal)
    }
}

#[cfg(not(feature = "identity"))]
impl RequestSignature {
    pub(super) fn headers(&self) -> [(&'static str, &str); 3] {
        match self.0 {}
    }
}

#[cfg(not(feature = "identity"))]
impl RequestSigner {
    pub(super) fn sign(
        &self,
        _: &str,
        _: &Url,
        _: Option<&SecondSignature>,
    ) -> Result<Option<RequestSignature>, String> {
        match self.0 {}
    }

    pub(crate) fn headers(
        &self,
        _: &Url,
    ) -> Result<Option<BTreeMap<&'static str, String>>, String> {
        match self.0 {}
    }

    #[cfg(feature = "browser")]
    pub(super) fn signs_loopback(&self) -> bool {
        match self.0 {}
    }

    pub(super) fn observe(&self, _: &Url, _: Option<std::net::IpAddr>, _: &HeaderMap) {
        match self.0 {}
    }

    pub(super) fn second(
        &self,
        _: &Url,
        _: &RequestSignature,
        _: StatusCode,
        _: &HeaderMap,
    ) -> Option<SecondSignature> {
        match self.0 {}
    }

    pub(super) fn observe_second(&self, _: &Url, _: StatusCode, _: &HeaderMap) {
        match self.0 {}
    }

    pub(super) fn is_rejected(&self, _: &Url, _: StatusCode, _: &HeaderMap) -> bool {
        match self.0 {}
    }
}

/// Returns whether a response asks for a signature, if it has the header for it.
#[cfg(feature = "identity")]
fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::FORBIDDEN | StatusCode::TOO_MANY_REQUESTS)
}

#[cfg(feature = "identity")]
fn authority(url: &Url) -> &str {
    &url[url::Position::BeforeHost..url::Position::AfterPort]
}

#[cfg(feature = "identity")]
fn unix_seconds() -> i64 {
    Timestamp::date().as_millis().div_euclid(1000)
}
