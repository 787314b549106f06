//! Bots that sign their requests by Web Bot Auth: which keys a site knows, and whether a request is
//! theirs.
//!
//! Owns: the verification, with a crate that shares no code with the signer.
//!
//! Invariants: a signature is accepted once, before it expires.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use fetchwise::response::{Header, header};
use web_bot_auth::WebBotAuthVerifier;
use web_bot_auth::components::{CoveredComponent, DerivedComponent, HTTPField};
use web_bot_auth::keyring::{JSONWebKeySet, KeyRing};
use web_bot_auth::message_signatures::SignedMessage;

/// The keys of known bots. Clones share the signatures that were seen.
#[derive(Clone, Debug, Default)]
pub struct VerifiedBots {
    keys: Arc<KeyRing>,
    nonces: Arc<Mutex<HashSet<String>>>,
}

/// The reason why a file has no keys of bots.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadKeys {
    /// It is not a JWK set.
    #[error("not a key directory: {0}")]
    Json(#[from] serde_json::Error),
    /// It has no Ed25519 key.
    #[error("no Ed25519 key in the key directory")]
    Empty,
}

impl VerifiedBots {
    /// Reads the keys of bots from a key directory, as `identity directory` writes it.
    ///
    /// # Errors
    /// [`BadKeys`] if it is none, or has no Ed25519 key.
    pub fn from_directory(text: &str) -> Result<Self, BadKeys> {
        let set: JSONWebKeySet = serde_json::from_str(text)?;
        let mut keys = KeyRing::default();
        let imported = keys.import_jwks(set);
        if imported.iter().all(Option::is_some) {
            return Err(BadKeys::Empty);
        }
        Ok(Self { keys: Arc::new(keys), nonces: Arc::default() })
    }

    /// Returns whether a known bot has signed the request, for the first time.
    pub(super) fn verify(&self, message: &Message<'_>) -> bool {
        let Ok(verifier) = WebBotAuthVerifier::parse(message) else { return false };
        let details = &verifier.get_parsed_label().base.parameters.details;
        let is_expired = details.possibly_insecure(|_| false).is_expired != Some(false);
        let nonce = details.nonce.clone();
        if is_expired || verifier.verify(&self.keys, None).is_err() {
            return false;
        }
        nonce.is_none_or(|nonce| {
            self.nonces.lock().unwrap_or_else(PoisonError::into_inner).insert(nonce)
        })
    }
}

/// A request as the verifier reads it.
pub(super) struct Message<'r> {
    pub(super) method: &'r str,
    pub(super) authority: &'r str,
    /// Path and query.
    pub(super) path: &'r str,
    pub(super) headers: &'r [Header],
}

impl SignedMessage for Message<'_> {
    fn lookup_component(&self, component: &CoveredComponent) -> Vec<String> {
        match component {
            CoveredComponent::Derived(DerivedComponent::Authority { .. }) => {
                vec![self.authority.to_ascii_lowercase()]
            }
            CoveredComponent::Derived(DerivedComponent::Method { .. }) => {
                vec![self.method.to_owned()]
            }
            CoveredComponent::Derived(DerivedComponent::Path { .. }) => {
                vec![self.path.split('?').next().unwrap_or_default().to_owned()]
            }
            CoveredComponent::HTTP(HTTPField { name, parameters }) => match parameters.0.is_empty()
            {
                true => all(self.headers, name),
                // A dictionary with one member.
                false => {
                    let member = header(self.headers, name).and_then(|value| value.split_once('='));
                    member.map(|(_, member)| member.to_owned()).into_iter().collect()
                }
            },
            _ => Vec::new(),
        }
    }
}

fn all(headers: &[Header], name: &str) -> Vec<String> {
    headers
        .iter()
        .filter(|known| known.name.eq_ignore_ascii_case(name))
        .map(|known| known.value.clone())
        .collect()
}
