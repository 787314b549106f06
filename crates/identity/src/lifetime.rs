//! Times of signatures and keys.
//!
//! Owns: how long a signature is valid, and how long verifiers may cache the directory.

/// Seconds since the Unix epoch.
pub type UnixSeconds = i64;

/// Seconds from `created` to now. Clocks differ.
pub const CREATED_BEFORE: i64 = 5;
/// Seconds from now to `expires`.
pub const VALID_FOR: i64 = 60;
/// Seconds for which a verifier may cache the directory, and so the time that a new key is
/// published before it signs.
pub(crate) const OVERLAP: i64 = 86_400;

/// Returns `created` and `expires` of a signature made at `now`.
pub(crate) fn lifetime(now: UnixSeconds) -> (UnixSeconds, UnixSeconds) {
    (now.saturating_sub(CREATED_BEFORE), now.saturating_add(VALID_FOR))
}
