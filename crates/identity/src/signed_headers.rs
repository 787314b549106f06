//! The headers of one signed request.
//!
//! Invariants: no dump shows a signature.

use std::fmt;

use crate::forms::Form;

/// The values of a signature's headers.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedHeaders {
    /// `Signature-Agent`.
    pub agent: String,
    /// `Signature-Input`.
    pub input: String,
    /// `Signature`.
    pub signature: String,
    /// The form of `Signature-Agent`.
    pub form: Form,
}

impl SignedHeaders {
    /// Returns the headers, in the order in which they are sent.
    pub fn iter(&self) -> [(&'static str, &str); 3] {
        [
            ("Signature-Agent", &self.agent),
            ("Signature-Input", &self.input),
            ("Signature", &self.signature),
        ]
    }
}

impl fmt::Debug for SignedHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A signature lets others replay the request for a minute.
        f.debug_struct("SignedHeaders").field("input", &self.input).finish_non_exhaustive()
    }
}
