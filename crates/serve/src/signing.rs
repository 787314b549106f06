//! The interface between a server and the identity whose signatures it hands out.
//!
//! Must not know: keys, and what a signature covers.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use url::Url;

/// The headers of a signature, by name.
pub type SignatureHeaders = BTreeMap<&'static str, String>;

/// The schema of these headers.
#[cfg(test)]
pub(crate) struct SignatureHeadersSchema;

#[cfg(test)]
impl schemars::JsonSchema for SignatureHeadersSchema {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SignatureHeaders".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Names and values of the headers to add",
            "type": "object",
            "properties": {
                "Signature-Agent": { "type": "string" },
                "Signature-Input": { "type": "string" },
                "Signature": { "type": "string" },
            },
            "additionalProperties": { "type": "string" },
        })
    }
}

/// Signs requests that others make.
pub trait RequestSigner: Debug + Send + Sync {
    /// Returns the headers that a request with this method to `url` gets.
    ///
    /// # Errors
    /// [`Unsigned`] if the request cannot be signed.
    fn sign(&self, method: &str, url: &Url) -> Result<SignatureHeaders, Unsigned>;

    /// Notes the names of a response's headers, in lower case. They may show which form of
    /// signature the host of `url` reads.
    fn observe(&self, url: &Url, headers: &[&str]);
}

/// The reason why a request is not signed, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unsigned {
    /// Requests like it are never signed.
    Request(String),
    /// Nothing can be signed now.
    Now(String),
}

/// Signs the requests of some fetchers.
#[derive(Clone, Debug)]
pub(crate) struct StepSigner {
    pub(crate) signer: Arc<dyn RequestSigner>,
    /// Names of the fetchers whose requests are signed.
    pub(crate) fetchers: Vec<Box<str>>,
}

impl StepSigner {
    /// Returns the signature of a GET of `url` by a fetcher; none if its requests are not signed.
    pub(crate) fn sign(&self, fetcher: &str, url: &Url) -> Option<SignatureHeaders> {
        self.fetchers
            .iter()
            .any(|name| **name == *fetcher)
            .then(|| self.signer.sign("GET", url).ok())
            .flatten()
    }
}
