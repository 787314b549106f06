//! The keys of an agent, and which of them signs at a time.
//!
//! Invariants: times decide, so a rotation completes without another command. A key signs only
//! where its signature's whole lifetime lies within the key's.
//!
//! Must not know: files.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::key::SigningKey;
use crate::lifetime::{UnixSeconds, lifetime};

/// The part that a key has at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyState {
    /// Published, and not in use yet.
    Next,
    /// It signs.
    Active,
    /// Published, and no longer in use.
    Retiring,
    /// Neither published nor in use.
    Expired,
}

impl KeyState {
    /// Returns the name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Next => "next",
            Self::Active => "active",
            Self::Retiring => "retiring",
            Self::Expired => "expired",
        }
    }
}

/// A key and the time for which it is valid.
#[derive(Clone, Debug)]
pub struct KeyEntry {
    /// The key.
    pub key: Arc<SigningKey>,
    /// Start of its use; none if it is valid since ever.
    pub nbf: Option<UnixSeconds>,
    /// End of its publication; none if it never ends.
    pub exp: Option<UnixSeconds>,
}

/// The keys of an agent.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    entries: Vec<KeyEntry>,
}

impl KeySet {
    /// Returns a set of these keys.
    pub fn new(entries: Vec<KeyEntry>) -> Self {
        Self { entries }
    }

    /// Returns all keys.
    pub fn entries(&self) -> &[KeyEntry] {
        &self.entries
    }

    /// Returns the key with this id.
    pub fn by_id(&self, kid: &str) -> Option<&KeyEntry> {
        self.entries.iter().find(|entry| entry.key.kid() == kid)
    }

    /// Returns the newest key that is valid from `created` to `expires`.
    pub fn signing_key(&self, created: UnixSeconds, expires: UnixSeconds) -> Option<&KeyEntry> {
        let is_valid = |entry: &&KeyEntry| {
            entry.nbf.is_none_or(|nbf| nbf <= created) && entry.exp.is_none_or(|exp| expires <= exp)
        };
        self.entries.iter().filter(is_valid).max_by_key(|entry| entry.nbf)
    }

    /// Returns the keys that the directory has at `now`.
    pub fn published(&self, now: UnixSeconds) -> impl Iterator<Item = &KeyEntry> {
        self.entries.iter().filter(move |entry| entry.exp.is_none_or(|exp| now < exp))
    }

    /// Returns the state of one of its keys at `now`.
    pub fn state(&self, kid: &str, now: UnixSeconds) -> KeyState {
        let (created, expires) = lifetime(now);
        let signing = self.signing_key(created, expires).map(|entry| entry.key.kid());
        match self.by_id(kid) {
            None => KeyState::Expired,
            Some(entry) if entry.exp.is_some_and(|exp| exp <= now) => KeyState::Expired,
            Some(_) if signing == Some(kid) => KeyState::Active,
            Some(entry) if entry.nbf.is_some_and(|nbf| nbf > created) => KeyState::Next,
            Some(_) => KeyState::Retiring,
        }
    }
}
