//! The key by which a data directory hashes the values of query strings.
//!
//! Invariants: a directory has at most one key, which only its owner can read. A key that cannot be
//! read is an error: another one would give every link another identity.
//!
//! Must not know: which texts are hashed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use super::entry::{ReleaseTarget, TombstoneTarget};
use super::error::JournalError;
use fetchwise_types::query_hash::{KEY_BYTES, QueryHash};

/// The file of the key: hex digits and a line break.
const FILE: &str = "query-key";
/// The file while it is being written.
const PART: &str = "query-key.new";

/// Returns the hash of the query values in the data directory `dir`; `None` if it keeps them as
/// they are, or is missing.
///
/// # Errors
/// The key cannot be read.
pub fn query_hash(dir: &Path) -> Result<Option<QueryHash>, JournalError> {
    let mut text = String::new();
    let read = File::open(dir.join(FILE)).and_then(|file| file.take(256).read_to_string(&mut text));
    match read {
        Ok(_) => parse(&text)
            .map(|key| Some(QueryHash::new(key)))
            .ok_or_else(|| unusable(dir, &damaged())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unusable(dir, &error)),
    }
}

/// Returns the same, and makes a key if there is none. The caller has the directory locked.
pub(super) fn open_or_create(dir: &Path) -> Result<QueryHash, JournalError> {
    if let Some(known) = query_hash(dir)? {
        return Ok(known);
    }
    let mut key = [0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(|error| unusable(dir, &io::Error::other(error)))?;
    write(dir, &key).map_err(|error| unusable(dir, &error))?;
    Ok(QueryHash::new(key))
}

fn write(dir: &Path, key: &[u8; KEY_BYTES]) -> io::Result<()> {
    let part = dir.join(PART);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&part)?;
    let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    file.write_all(format!("{digits}\n").as_bytes())?;
    file.sync_all()?;
    fs::rename(&part, dir.join(FILE))
}

fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    let digits = text.strip_suffix('\n')?;
    if digits.len() != 2 * KEY_BYTES || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; KEY_BYTES];
    for (byte, place) in key.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(place..place + 2)?, 16).ok()?;
    }
    Some(key)
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is damaged")
}

fn unusable(dir: &Path, error: &io::Error) -> JournalError {
    JournalError::QueryKey {
        file: dir.join(FILE),
        source: Arc::new(io::Error::new(error.kind(), error.to_string())),
    }
}

/// Returns the target of a tombstone as the log names it.
pub(super) fn forgotten(hash: Option<&QueryHash>, target: &TombstoneTarget) -> TombstoneTarget {
    match (hash, target) {
        (Some(hash), TombstoneTarget::Link(link)) => {
            TombstoneTarget::Link(hash.url(link).into_owned())
        }
        _ => target.clone(),
    }
}

/// Returns the target of a release as the log names it.
pub(super) fn released(hash: Option<&QueryHash>, target: &ReleaseTarget) -> ReleaseTarget {
    match (hash, target) {
        (Some(hash), ReleaseTarget::Link(link)) => ReleaseTarget::Link(hash.url(link).into_owned()),
        _ => target.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_key() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(query_hash(dir.path()).unwrap(), None);
        let made = open_or_create(dir.path()).unwrap();
        assert_eq!(
            (query_hash(dir.path()).unwrap(), open_or_create(dir.path()).unwrap()),
            (Some(made), made)
        );
        let other = tempfile::tempdir().unwrap();
        assert_ne!(open_or_create(other.path()).unwrap(), made);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(
                fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
    }

    #[test]
    fn a_damaged_key_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        for text in
            ["", "00", "zz0102030405060708090a0b0c0d0e0f\n", "000102030405060708090a0b0c0d0e0f"]
        {
            fs::write(dir.path().join(FILE), text).unwrap();
            let failed =
                [query_hash(dir.path()).unwrap_err(), open_or_create(dir.path()).unwrap_err()];
            assert!(
                failed.iter().all(|error| error.to_string().contains("query-key")),
                "{failed:?}"
            );
            assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), text);
        }
    }
}
