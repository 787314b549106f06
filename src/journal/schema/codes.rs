//! Numeric codes of the log's records: for kinds, and for names.
//!
//! Owns: every number that a record may hold, and its meaning.
//!
//! Invariants: a released number keeps its meaning. Lists only grow.
//!
//! Must not know: the layout of records.

use rkyv::rancor::Error as RkyvError;

use fetchwise_types::attempt::error_kind::ErrorKind;
use fetchwise_types::attempt::{Arm, Hint};
use fetchwise_types::decision::{Rule, Source};
use fetchwise_types::heuristic::url::FLAGS;
use fetchwise_types::registry::Class;

/// Numbers of the record kinds.
pub(crate) mod kind {
    pub(crate) const ATTEMPT: u16 = 1;
    pub(crate) const LINK_STATE: u16 = 2;
    pub(crate) const HOST_STATE: u16 = 3;
    pub(crate) const IMPORTANCE: u16 = 4;
    pub(crate) const TOMBSTONE: u16 = 5;
    pub(crate) const PACE: u16 = 6;
    pub(crate) const RELEASE: u16 = 7;
    pub(crate) const FETCHER: u16 = 8;
}

/// Schema version of the records of every kind, and of blocks of attempts.
pub(crate) const VERSION: u16 = 1;

/// Error of a record that does not match its kind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A newer release wrote the record.
    #[error("unknown version {schema} of record kind {kind}: a newer release wrote it")]
    Newer {
        /// Kind of the record.
        kind: u16,
        /// Schema version of the record.
        schema: u16,
    },
    /// The bytes are not a valid archive.
    #[error("not a valid record: {0}")]
    Invalid(RkyvError),
    /// A number has no meaning that this release knows.
    #[error("unknown number {code} of {what}")]
    Code {
        /// Field of the number.
        what: &'static str,
        /// The number.
        code: u8,
    },
}

/// Code of an absent value.
pub(super) const NONE: u8 = 0;
/// Code of every value without a number. Its name is stored next to it.
pub(super) const OTHER: u8 = 255;

/// Error types by number, from 1 on. The list only grows.
pub(super) const ERROR_CODES: [ErrorKind; 29] = [
    ErrorKind::BlockedCaptcha,
    ErrorKind::Blocked403,
    ErrorKind::WrongTool,
    ErrorKind::EmptyContent,
    ErrorKind::Timeout,
    ErrorKind::NetworkError,
    ErrorKind::ServerError,
    ErrorKind::Truncated,
    ErrorKind::NotFound,
    ErrorKind::ClientError,
    ErrorKind::AuthRequired,
    ErrorKind::DnsError,
    ErrorKind::TlsError,
    ErrorKind::ProxyError,
    ErrorKind::RedirectLoop,
    ErrorKind::TooLarge,
    ErrorKind::RefusedAddress,
    ErrorKind::InvalidUrl,
    ErrorKind::Queued,
    ErrorKind::LocalFault,
    ErrorKind::RateLimited,
    ErrorKind::Disallowed,
    ErrorKind::NotHeld,
    ErrorKind::NetworkBlock,
    ErrorKind::PaymentRequired,
    ErrorKind::Declined,
    ErrorKind::IdentityRejected,
    ErrorKind::Reserved,
    ErrorKind::LeftByPolicy,
];

/// Sources by number, from 1 on. The list only grows.
pub(super) const SOURCE_CODES: [Source; 7] = [
    Source::Learned,
    Source::Inferred,
    Source::Explore,
    Source::Probe,
    Source::HardCoded,
    Source::Requested,
    Source::Paused,
];

/// Rules by number, from 1 on. The list only grows.
pub(super) const RULE_CODES: [Rule; 14] = [
    Rule::Index,
    Rule::DomainConfident,
    Rule::LastAttempt,
    Rule::Explore,
    Rule::LastDitch,
    Rule::CheapestConfident,
    Rule::ProbeFirst,
    Rule::Published,
    Rule::Requested,
    Rule::RouterTable,
    Rule::SharedProbe,
    Rule::Paused,
    Rule::Custom,
    Rule::ImpassableTry,
];

/// Arms by number, from 1 on. The list only grows.
pub(super) const ARM_CODES: [Arm; 2] = [Arm::Learning, Arm::Legacy];

/// Hints by number, from 1 on. The list only grows.
pub(super) const HINT_CODES: [Hint; 4] = [Hint::Blocked, Hint::Empty, Hint::Timeout, Hint::Unknown];

/// Classes of fetchers by number, from 1 on. The list only grows.
pub(super) const CLASS_CODES: [Class; 6] = [
    Class::Plain,
    Class::Rendering,
    Class::Stealth,
    Class::Archive,
    Class::Special,
    Class::Unknown,
];

/// Returns the number of a class.
pub(crate) fn class_code(class: Class) -> u8 {
    code_of(&CLASS_CODES, &class)
}

/// Returns the class with a number.
pub(crate) fn class_of(code: u8) -> Result<Class, SchemaError> {
    from_code(&CLASS_CODES, code, "a class")
}

/// Types of heuristics by number, from 1 on. The list only grows.
pub(super) const TAG_KINDS: [&str; 18] = [
    "domain",
    "site",
    "suffix",
    "domain_suffix",
    "domain_path",
    "path_depth",
    FLAGS[0],
    FLAGS[1],
    FLAGS[2],
    FLAGS[3],
    "content_type",
    "has_captcha",
    "has_spa",
    "spa_framework",
    "has_paywall",
    "empty_body",
    "high_script_ratio",
    "status_200",
];

pub(super) fn code_of<T: PartialEq>(table: &[T], value: &T) -> u8 {
    table.iter().position(|known| known == value).map_or(OTHER, |index| index as u8 + 1)
}

pub(super) fn from_code<T: Copy>(
    table: &[T],
    code: u8,
    what: &'static str,
) -> Result<T, SchemaError> {
    usize::from(code)
        .checked_sub(1)
        .and_then(|index| table.get(index).copied())
        .ok_or(SchemaError::Code { what, code })
}

/// Returns the number of a hint.
pub(crate) fn hint_code(hint: Option<Hint>) -> u8 {
    hint.map_or(NONE, |hint| code_of(&HINT_CODES, &hint))
}

/// Returns the hint with a number.
pub(crate) fn hint_of(code: u8) -> Result<Option<Hint>, SchemaError> {
    match code {
        NONE => Ok(None),
        code => from_code(&HINT_CODES, code, "a hint").map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_this_release_has_a_number() {
        assert!(Rule::ALL.iter().all(|rule| code_of(&RULE_CODES, rule) != OTHER));
        assert!(Arm::ALL.iter().all(|arm| code_of(&ARM_CODES, arm) != OTHER));
        assert!(ErrorKind::ALL.iter().all(|kind| code_of(&ERROR_CODES, kind) != OTHER));
        assert!(Source::ALL.iter().all(|source| code_of(&SOURCE_CODES, source) != OTHER));
        assert!(Class::ALL.iter().all(|class| code_of(&CLASS_CODES, class) != OTHER));
        assert!(Hint::ALL.iter().all(|hint| code_of(&HINT_CODES, hint) != OTHER));
    }
}
