//! The keys of an agent on disk: a directory (0700) with one PEM file (0600) for each key, and `keys.toml`.
//!
//! Owns: reading, creating and rotating keys.
//!
//! Invariants: a directory or key that others can read is refused. `keys.toml` is replaced as a whole. A PEM file is
//! complete before `keys.toml` names it.
//!
//! Must not know: where the directory is.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::key::{KeyError, SigningKey};
use crate::key_set::{KeyEntry, KeySet, KeyState};
use crate::lifetime::{CREATED_BEFORE, OVERLAP, UnixSeconds};

const TABLE: &str = "keys.toml";
/// Largest key file that is read.
const MAX_PEM: u64 = 64 << 10;
/// Time for which a key is valid once it signs.
const VALID: i64 = 365 * 86_400;

/// The reason why keys cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyDirError {
    /// There is no key.
    #[error("no key in {}", path.display())]
    Missing {
        /// The directory.
        path: PathBuf,
    },
    /// Others can read the directory or a key.
    #[error("others may read {}: its mode is {mode:04o}, expected {expected:04o}", path.display())]
    LooseMode {
        /// The directory or the file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// The mode that it should have.
        expected: u32,
    },
    /// A key cannot be used.
    #[error("invalid key {place}: {error}")]
    Key {
        /// The file, or the variable.
        place: String,
        /// The reason.
        error: KeyError,
    },
    /// `keys.toml` cannot be used.
    #[error("invalid {}: {reason}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// There are keys already.
    #[error("{} has keys already", path.display())]
    Exists {
        /// The directory.
        path: PathBuf,
    },
    /// A rotation has not ended.
    #[error("a rotation is under way: key {kid} is published and does not sign yet")]
    Rotating {
        /// The new key.
        kid: String,
    },
    /// The key comes from a variable.
    #[error("the key comes from the variable {0}, and only its owner can exchange it")]
    Variable(String),
    /// A file cannot be read or written.
    #[error("cannot access {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

impl KeyDirError {
    /// Returns what the operator can do.
    pub fn hint(&self) -> String {
        match self {
            Self::Missing { .. } => "create one with `fetchwise identity init`".to_owned(),
            Self::LooseMode { path, expected, .. } => {
                format!(
                    "run `chmod {expected:o} {}`; if others could read the key, also run `fetchwise identity rotate --compromised`",
                    path.display()
                )
            }
            Self::Key { error: KeyError::Published(_), .. } => {
                "delete the file and create a key with `fetchwise identity init`".to_owned()
            }
            Self::Key { .. } => {
                "restore the file from a backup, or create one with `openssl genpkey -algorithm ed25519`".to_owned()
            }
            Self::Table { .. } => {
                "restore the file from a backup; it lists kid, nbf, exp and state of each key".to_owned()
            }
            Self::Exists { .. } => "exchange the key with `fetchwise identity rotate`".to_owned(),
            Self::Rotating { .. } => {
                "wait for a day after the last rotation, or drop all old keys at once with --compromised".to_owned()
            }
            Self::Variable(_) => "set the variable to the PEM of a new key".to_owned(),
            Self::Io { .. } => "check the path and its permissions".to_owned(),
        }
    }

    fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self::Io { path: path.to_owned(), error }
    }
}

/// The place of an agent's keys.
#[derive(Clone)]
pub enum KeySource {
    /// A directory.
    Dir(KeyDir),
    /// The PEM of the only key, which has no end.
    Text(String),
}

impl KeySource {
    /// Reads the keys.
    ///
    /// # Errors
    /// [`KeyDirError`] if there is none, or any is unusable.
    pub fn load(&self) -> Result<KeySet, KeyDirError> {
        match self {
            Self::Dir(dir) => dir.load(),
            Self::Text(pem) => {
                let failed = |error| KeyDirError::Key { place: "in the variable".to_owned(), error };
                let key = Arc::new(SigningKey::from_pem(pem.as_bytes()).map_err(failed)?);
                Ok(KeySet::new(vec![KeyEntry { key, nbf: None, exp: None }]))
            }
        }
    }
}

/// A directory with keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyDir {
    path: PathBuf,
}

/// What a rotation did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The new key.
    pub kid: String,
    /// Time from which on it signs.
    pub signs_from: UnixSeconds,
    /// The old keys.
    pub old: Vec<String>,
    /// Time up to which the old keys stay published; none if they are gone.
    pub old_until: Option<UnixSeconds>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    key: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    kid: String,
    nbf: UnixSeconds,
    exp: UnixSeconds,
    state: KeyState,
}

impl KeyDir {
    /// Returns the directory at `path`, which may not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether there is any key, usable or not.
    pub fn has_keys(&self) -> bool {
        self.pem_files().is_ok_and(|files| !files.is_empty()) || self.table_path().exists()
    }

    /// Reads the keys.
    ///
    /// # Errors
    /// [`KeyDirError`] if there is none, or any is unusable.
    pub fn load(&self) -> Result<KeySet, KeyDirError> {
        let files = self.pem_files()?;
        if files.is_empty() {
            return Err(KeyDirError::Missing { path: self.path.clone() });
        }
        check_mode(&self.path, 0o700)?;
        let mut keys = Vec::new();
        for file in &files {
            check_mode(file, 0o600)?;
            let text = read_pem(file)?;
            let failed = |error| KeyDirError::Key { place: file.display().to_string(), error };
            keys.push((file, Arc::new(SigningKey::from_pem(&text).map_err(failed)?)));
        }
        let Some(rows) = self.rows()? else {
            // A single key that was put here by hand needs no table.
            return match <[_; 1]>::try_from(keys) {
                Ok([(_, key)]) => Ok(KeySet::new(vec![KeyEntry { key, nbf: None, exp: None }])),
                Err(_) => Err(self.table_error(format!("missing, but there are {} keys", files.len()))),
            };
        };
        let mut entries = Vec::new();
        for (file, key) in keys {
            let row = rows.iter().find(|row| row.kid == key.kid());
            let row = row.ok_or_else(|| {
                self.table_error(format!("it does not list {}, whose kid is {}", file.display(), key.kid()))
            })?;
            if row.exp <= row.nbf {
                return Err(self.table_error(format!("exp of key {} is not after its nbf", row.kid)));
            }
            entries.push(KeyEntry { key, nbf: Some(row.nbf), exp: Some(row.exp) });
        }
        match rows.iter().find(|row| !entries.iter().any(|entry| entry.key.kid() == row.kid)) {
            Some(row) => Err(self.table_error(format!("key {} has no PEM file", row.kid))),
            None => Ok(KeySet::new(entries)),
        }
    }

    /// Creates the directory and its first key, which signs at once.
    ///
    /// # Errors
    /// [`KeyDirError::Exists`] if there are keys, and errors of files.
    pub fn init(&self, now: UnixSeconds) -> Result<KeySet, KeyDirError> {
        if self.has_keys() {
            return Err(KeyDirError::Exists { path: self.path.clone() });
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(KeyDirError::io(&self.path))?;
        check_mode(&self.path, 0o700)?;
        let nbf = now.saturating_sub(CREATED_BEFORE);
        let entry = self.create_key(nbf)?;
        let keys = KeySet::new(vec![entry]);
        self.write_table(&keys, now)?;
        Ok(keys)
    }

    /// Exchanges the key. The new one is published at once and signs after a day; the old ones stay published for a day
    /// more. With `compromised` the new key signs at once, and the old ones are deleted.
    ///
    /// # Errors
    /// [`KeyDirError::Rotating`] if the last rotation has not ended, and errors of files.
    pub fn rotate(&self, now: UnixSeconds, compromised: bool) -> Result<Rotation, KeyDirError> {
        let keys = self.load()?;
        let kids = |entries: &[KeyEntry]| entries.iter().map(|entry| entry.key.kid().to_owned()).collect::<Vec<_>>();
        let is_expired = |entry: &KeyEntry| entry.exp.is_some_and(|exp| exp <= now);
        let (expired, old): (Vec<_>, Vec<_>) = keys.entries().iter().cloned().partition(is_expired);
        let pending = old.iter().find(|entry| keys.state(entry.key.kid(), now) == KeyState::Next);
        if let Some(next) = pending.filter(|_| !compromised) {
            return Err(KeyDirError::Rotating { kid: next.key.kid().to_owned() });
        }
        let at_once = compromised || old.is_empty();
        let signs_from = if at_once { now } else { now.saturating_add(OVERLAP) };
        let nbf = if at_once { now.saturating_sub(CREATED_BEFORE) } else { signs_from };
        let new = self.create_key(nbf)?;
        let kid = new.key.kid().to_owned();
        let until = now.saturating_add(2 * OVERLAP);
        let (gone, stay) = if compromised { (keys.entries().to_vec(), Vec::new()) } else { (expired, old) };
        let stay: Vec<_> = stay.into_iter().map(|entry| retired(entry, until)).collect();
        let old_until = stay.iter().filter_map(|entry| entry.exp).max();
        let named = if compromised { kids(&gone) } else { kids(&stay) };
        self.write_table(&KeySet::new(stay.into_iter().chain([new]).collect()), now)?;
        for entry in gone {
            self.delete(entry.key.kid())?;
        }
        Ok(Rotation { kid, signs_from, old: named, old_until })
    }

    fn create_key(&self, nbf: UnixSeconds) -> Result<KeyEntry, KeyDirError> {
        let failed = |error| KeyDirError::Key { place: "to create".to_owned(), error };
        let (key, pem) = SigningKey::generate().map_err(failed)?;
        let path = self.path.join(format!("{}.pem", key.kid()));
        write_new(&path, &pem)?;
        Ok(KeyEntry { key: Arc::new(key), nbf: Some(nbf), exp: Some(nbf.saturating_add(VALID)) })
    }

    /// Deletes the files with this key, whatever their names are.
    fn delete(&self, kid: &str) -> Result<(), KeyDirError> {
        for file in self.pem_files()? {
            let is_it = SigningKey::from_pem(&read_pem(&file)?).is_ok_and(|key| key.kid() == kid);
            if is_it {
                fs::remove_file(&file).map_err(KeyDirError::io(&file))?;
            }
        }
        Ok(())
    }

    fn table_path(&self) -> PathBuf {
        self.path.join(TABLE)
    }

    fn table_error(&self, reason: String) -> KeyDirError {
        KeyDirError::Table { path: self.table_path(), reason }
    }

    fn rows(&self) -> Result<Option<Vec<Row>>, KeyDirError> {
        let path = self.table_path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(KeyDirError::io(&path)(error)),
        };
        let table: Table = toml::from_str(&text).map_err(|error| self.table_error(error.message().to_owned()))?;
        Ok(Some(table.key))
    }

    fn write_table(&self, keys: &KeySet, now: UnixSeconds) -> Result<(), KeyDirError> {
        let row = |entry: &KeyEntry| Row {
            kid: entry.key.kid().to_owned(),
            nbf: entry.nbf.unwrap_or_default(),
            exp: entry.exp.unwrap_or(i64::MAX),
            state: keys.state(entry.key.kid(), now),
        };
        let table = Table { key: keys.entries().iter().map(row).collect() };
        let text = toml::to_string(&table).map_err(|error| self.table_error(error.to_string()))?;
        let text = format!(
            "# Keys of an agent. `fetchwise identity rotate` exchanges them. Times decide; `state` is that of the last change.\n\n{text}"
        );
        let new = self.path.join(format!("{TABLE}.new"));
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(KeyDirError::io(&new)(error)),
            _ => write_new(&new, &text)?,
        }
        fs::rename(&new, self.table_path()).map_err(KeyDirError::io(&new))?;
        let sync = fs::File::open(&self.path).and_then(|dir| dir.sync_all());
        sync.map_err(KeyDirError::io(&self.path))
    }

    /// Returns the PEM files, sorted.
    fn pem_files(&self) -> Result<Vec<PathBuf>, KeyDirError> {
        let listed = match fs::read_dir(&self.path) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(KeyDirError::io(&self.path)(error)),
        };
        let paths = listed.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
        let mut paths = paths.map_err(KeyDirError::io(&self.path))?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "pem"));
        paths.sort();
        Ok(paths)
    }
}

/// Returns an old key that stays published until `until`.
fn retired(entry: KeyEntry, until: UnixSeconds) -> KeyEntry {
    // A key that already retires keeps its earlier end.
    let signs_still = entry.exp.is_none_or(|exp| exp > until || entry.nbf.is_none_or(|nbf| exp - nbf >= VALID));
    let exp = if signs_still { Some(until) } else { entry.exp };
    KeyEntry { exp, ..entry }
}

fn read_pem(path: &Path) -> Result<Vec<u8>, KeyDirError> {
    let io = KeyDirError::io(path);
    let mut text = Vec::new();
    let file = fs::File::open(path).map_err(&io)?;
    io::Read::read_to_end(&mut io::Read::take(file, MAX_PEM), &mut text).map_err(&io)?;
    Ok(text)
}

/// Checks that nobody else has any access.
fn check_mode(path: &Path, expected: u32) -> Result<(), KeyDirError> {
    let mode = fs::metadata(path).map_err(KeyDirError::io(path))?.permissions().mode() & 0o7777;
    match mode & 0o077 {
        0 => Ok(()),
        _ => Err(KeyDirError::LooseMode { path: path.to_owned(), mode, expected }),
    }
}

/// Writes a new file that only its owner can read.
fn write_new(path: &Path, text: &str) -> Result<(), KeyDirError> {
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(KeyDirError::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn dir() -> (tempfile::TempDir, KeyDir) {
        let base = tempfile::tempdir().unwrap();
        let dir = KeyDir::new(base.path().join("fetchwise/identity"));
        (base, dir)
    }

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn signing(keys: &KeySet, now: i64) -> Option<String> {
        let (created, expires) = crate::lifetime::lifetime(now);
        keys.signing_key(created, expires).map(|entry| entry.key.kid().to_owned())
    }

    fn published(keys: &KeySet, now: i64) -> Vec<String> {
        keys.published(now).map(|entry| entry.key.kid().to_owned()).collect()
    }

    #[test]
    fn a_new_key_signs_at_once_and_only_its_owner_can_read_it() {
        let (_base, dir) = dir();
        assert!(!dir.has_keys() && matches!(dir.load(), Err(KeyDirError::Missing { .. })));
        let made = dir.init(NOW).unwrap();
        let read = dir.load().unwrap();
        assert_eq!(signing(&read, NOW), signing(&made, NOW));
        assert!(signing(&read, NOW).is_some());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(dir.path()), mode(&dir.pem_files().unwrap()[0])), (0o700, 0o600));
        assert!(matches!(dir.init(NOW), Err(KeyDirError::Exists { .. })));
        let table = fs::read_to_string(dir.table_path()).unwrap();
        assert!(
            ["kid = ", "nbf = ", "exp = ", "state = \"active\""].iter().all(|part| table.contains(part)),
            "{table}"
        );
    }

    #[test]
    fn a_rotation_overlaps_and_no_verifier_that_caches_a_day_misses_a_key() {
        let (_base, dir) = dir();
        let old = signing(&dir.init(NOW).unwrap(), NOW).unwrap();
        let rotation = dir.rotate(NOW + 1000, false).unwrap();
        assert_eq!((rotation.signs_from, rotation.old_until), (NOW + 1000 + 86_400, Some(NOW + 1000 + 2 * 86_400)));
        assert!(matches!(dir.rotate(NOW + 1001, false), Err(KeyDirError::Rotating { .. })));
        let keys = dir.load().unwrap();
        // What signs at any time was in the directory a day before, and is in it when the signature ends.
        let before = KeySet::new(keys.by_id(&old).cloned().into_iter().collect());
        for minute in 0..(3 * 24 * 60) {
            let now = NOW + 1000 + minute * 60;
            let kid = signing(&keys, now).unwrap();
            let cached = if now - 86_400 < NOW + 1000 {
                published(&before, now - 86_400)
            } else {
                published(&keys, now - 86_400)
            };
            assert!(cached.contains(&kid) && published(&keys, now).contains(&kid), "minute {minute}");
        }
        assert_eq!(signing(&keys, NOW + 1000 + 86_399), Some(old.clone()));
        assert_eq!(signing(&keys, NOW + 1000 + 86_405), Some(rotation.kid.clone()));
        assert_eq!(keys.state(&old, NOW + 1000 + 90_000), KeyState::Retiring);
        assert_eq!(published(&keys, NOW + 1000 + 2 * 86_400), [rotation.kid]);
        // The next rotation deletes what has expired.
        dir.rotate(NOW + 1000 + 3 * 86_400, false).unwrap();
        assert!(dir.load().unwrap().by_id(&old).is_none());
        assert_eq!(dir.pem_files().unwrap().len(), 2);
    }

    #[test]
    fn compromised_keys_are_gone_at_once() {
        let (_base, dir) = dir();
        let old = signing(&dir.init(NOW).unwrap(), NOW).unwrap();
        dir.rotate(NOW + 10, false).unwrap();
        let rotation = dir.rotate(NOW + 20, true).unwrap();
        let keys = dir.load().unwrap();
        assert!(rotation.old.contains(&old) && rotation.old.len() == 2 && rotation.old_until.is_none());
        assert_eq!(signing(&keys, NOW + 20), Some(rotation.kid.clone()));
        assert_eq!(published(&keys, NOW + 20), [rotation.kid]);
        assert_eq!(dir.pem_files().unwrap().len(), 1);
    }

    #[test]
    fn loose_modes_are_refused_with_the_command_that_mends_them() {
        let (_base, dir) = dir();
        dir.init(NOW).unwrap();
        let pem = dir.pem_files().unwrap().remove(0);
        for mode in [0o640, 0o604, 0o644, 0o660, 0o601] {
            chmod(&pem, mode);
            let error = dir.load().unwrap_err();
            assert!(matches!(error, KeyDirError::LooseMode { .. }), "{mode:o}");
            assert!(
                error.to_string().contains(&format!("{mode:04o}")) && error.hint().contains("chmod 600"),
                "{error}"
            );
        }
        chmod(&pem, 0o400);
        dir.load().unwrap();
        chmod(dir.path(), 0o750);
        assert!(dir.load().unwrap_err().hint().contains("chmod 700"));
        chmod(dir.path(), 0o700);
    }

    #[test]
    fn a_malformed_or_published_key_and_a_table_that_does_not_fit_are_named() {
        let (_base, dir) = dir();
        dir.init(NOW).unwrap();
        let extra = dir.path().join("extra.pem");
        let refused = |text: &str| {
            let _ = fs::remove_file(&extra);
            write_new(&extra, text).unwrap();
            dir.load().unwrap_err().to_string()
        };
        assert!(refused("nonsense").contains("extra.pem: not a private key"), "{}", refused("nonsense"));
        let rfc = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----\n";
        assert!(refused(rfc).contains("published test key (RFC 9421"), "{}", refused(rfc));
        let (_, pem) = SigningKey::generate().unwrap();
        assert!(refused(&pem).contains("it does not list"), "{}", refused(&pem));
        fs::remove_file(&extra).unwrap();
        let lone = dir.pem_files().unwrap().remove(0);
        let kept = fs::read_to_string(&lone).unwrap();
        fs::remove_file(&lone).unwrap();
        write_new(&extra, &pem).unwrap();
        assert!(dir.load().is_err());
        fs::write(dir.table_path(), "key = 3").unwrap();
        assert!(dir.load().unwrap_err().to_string().contains("keys.toml"));
        // Without a table a single key needs none.
        fs::remove_file(dir.table_path()).unwrap();
        assert!(signing(&dir.load().unwrap(), NOW).is_some());
        write_new(&lone, &kept).unwrap();
        assert!(dir.load().unwrap_err().to_string().contains("there are 2 keys"));
    }
}
