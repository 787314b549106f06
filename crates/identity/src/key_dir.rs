//! The keys of an agent on disk: a directory (0700) with one PEM file (0600) for each key, and
//! `keys.toml`.
//!
//! Owns: reading, creating and rotating keys.
//!
//! Invariants: a directory or key that others can read is refused. One process at a time changes a
//! directory. Files are replaced as a whole. A PEM file is complete and has its name before
//! `keys.toml` names it, and loses its row before it is deleted. So a process that is killed at any
//! point leaves a directory whose keys can be read: a PEM file without a row is no key.
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
/// The file whose lock a process holds while it changes the directory.
const LOCK: &str = "keys.lock";
/// End of the name of a file that is being written.
const UNFINISHED: &str = ".new";
/// Number of times that a directory is read while another process changes it.
const READS: u32 = 10;
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
                let failed =
                    |error| KeyDirError::Key { place: "in the variable".to_owned(), error };
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

    /// Reads the keys. A PEM file that `keys.toml` does not list is not one of them.
    ///
    /// # Errors
    /// [`KeyDirError`] if there is none, or any is unusable.
    pub fn load(&self) -> Result<KeySet, KeyDirError> {
        let mut reads = 1;
        loop {
            let before = self.table_text()?;
            let read = self.load_with(before.as_deref());
            // Another process may have changed the files after the table was read.
            if read.is_ok() || reads == READS || self.table_text()? == before {
                return read;
            }
            reads += 1;
        }
    }

    /// Returns the PEM files that `keys.toml` does not list. None has a use.
    ///
    /// # Errors
    /// [`KeyDirError`] if a file is unusable.
    pub fn unlisted(&self) -> Result<Vec<PathBuf>, KeyDirError> {
        let Some(rows) = self.table_text()?.map(|text| self.rows(&text)).transpose()? else {
            return Ok(Vec::new());
        };
        let mut unlisted = self.read_keys()?;
        unlisted.retain(|(_, key)| rows.iter().all(|row| row.kid != key.kid()));
        Ok(unlisted.into_iter().map(|(file, _)| file).collect())
    }

    fn load_with(&self, table: Option<&str>) -> Result<KeySet, KeyDirError> {
        let keys = self.read_keys()?;
        let files = keys.len();
        if files == 0 {
            return Err(KeyDirError::Missing { path: self.path.clone() });
        }
        let Some(rows) = table.map(|text| self.rows(text)).transpose()? else {
            // A single key that was put here by hand needs no table.
            return match <[_; 1]>::try_from(keys) {
                Ok([(_, key)]) => Ok(KeySet::new(vec![KeyEntry { key, nbf: None, exp: None }])),
                Err(_) => Err(self.table_error(format!("missing, but there are {files} keys"))),
            };
        };
        let mut entries = Vec::new();
        for row in rows {
            let key =
                keys.iter().find(|(_, key)| key.kid() == row.kid).map(|(_, key)| Arc::clone(key));
            let key =
                key.ok_or_else(|| self.table_error(format!("key {} has no PEM file", row.kid)))?;
            if row.exp <= row.nbf {
                return Err(
                    self.table_error(format!("exp of key {} is not after its nbf", row.kid))
                );
            }
            entries.push(KeyEntry { key, nbf: Some(row.nbf), exp: Some(row.exp) });
        }
        match entries.is_empty() {
            true => Err(self.table_error(format!("it lists none of the {files} keys"))),
            false => Ok(KeySet::new(entries)),
        }
    }

    /// Reads all PEM files, listed or not.
    fn read_keys(&self) -> Result<Vec<(PathBuf, Arc<SigningKey>)>, KeyDirError> {
        let files = self.pem_files()?;
        if !files.is_empty() {
            check_mode(&self.path, 0o700)?;
        }
        let mut keys = Vec::new();
        for file in files {
            let text = match check_mode(&file, 0o600).and_then(|()| read_pem(&file)) {
                // Another process has deleted it.
                Err(KeyDirError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                    continue;
                }
                text => text?,
            };
            let failed = |error| KeyDirError::Key { place: file.display().to_string(), error };
            let key = Arc::new(SigningKey::from_pem(&text).map_err(failed)?);
            keys.push((file, key));
        }
        Ok(keys)
    }

    /// Creates the directory and its first key, which signs at once.
    ///
    /// # Errors
    /// [`KeyDirError::Exists`] if there are keys, and errors of files.
    pub fn init(&self, now: UnixSeconds) -> Result<KeySet, KeyDirError> {
        if self.has_keys() {
            return Err(KeyDirError::Exists { path: self.path.clone() });
        }
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.path)
            .map_err(KeyDirError::io(&self.path))?;
        check_mode(&self.path, 0o700)?;
        let _lock = self.lock()?;
        if self.has_keys() {
            return Err(KeyDirError::Exists { path: self.path.clone() });
        }
        self.delete_unfinished()?;
        let nbf = now.saturating_sub(CREATED_BEFORE);
        let entry = self.create_key(nbf)?;
        let keys = KeySet::new(vec![entry]);
        self.write_table(&keys, now)?;
        Ok(keys)
    }

    /// Exchanges the key. The new one is published at once and signs after a day; the old ones stay
    /// published for a day more. With `compromised` the new key signs at once, and the old ones are
    /// deleted. Waits for another process that changes the directory.
    ///
    /// # Errors
    /// [`KeyDirError::Rotating`] if the last rotation has not ended, and errors of files.
    pub fn rotate(&self, now: UnixSeconds, compromised: bool) -> Result<Rotation, KeyDirError> {
        // Without keys there is nothing to lock.
        self.load()?;
        let _lock = self.lock()?;
        let keys = self.load()?;
        let kids = |entries: &[KeyEntry]| {
            entries.iter().map(|entry| entry.key.kid().to_owned()).collect::<Vec<_>>()
        };
        let is_expired = |entry: &KeyEntry| entry.exp.is_some_and(|exp| exp <= now);
        let (expired, old): (Vec<_>, Vec<_>) = keys.entries().iter().cloned().partition(is_expired);
        let pending = old.iter().find(|entry| keys.state(entry.key.kid(), now) == KeyState::Next);
        if let Some(next) = pending.filter(|_| !compromised) {
            return Err(KeyDirError::Rotating { kid: next.key.kid().to_owned() });
        }
        self.delete_unfinished()?;
        let at_once = compromised || old.is_empty();
        let signs_from = if at_once { now } else { now.saturating_add(OVERLAP) };
        let nbf = if at_once { now.saturating_sub(CREATED_BEFORE) } else { signs_from };
        let new = self.create_key(nbf)?;
        let kid = new.key.kid().to_owned();
        let until = now.saturating_add(2 * OVERLAP);
        let (gone, stay) =
            if compromised { (keys.entries().to_vec(), Vec::new()) } else { (expired, old) };
        let stay: Vec<_> = stay.into_iter().map(|entry| retired(entry, until)).collect();
        let old_until = stay.iter().filter_map(|entry| entry.exp).max();
        let named = if compromised { kids(&gone) } else { kids(&stay) };
        self.write_table(&KeySet::new(stay.into_iter().chain([new]).collect()), now)?;
        for entry in gone {
            self.delete(entry.key.kid())?;
        }
        Ok(Rotation { kid, signs_from, old: named, old_until })
    }

    /// Waits until no other process changes the directory. The returned file holds the lock.
    fn lock(&self) -> Result<fs::File, KeyDirError> {
        let path = self.path.join(LOCK);
        let open = || {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&path)?;
            file.lock()?;
            Ok(file)
        };
        open().map_err(KeyDirError::io(&path))
    }

    fn create_key(&self, nbf: UnixSeconds) -> Result<KeyEntry, KeyDirError> {
        let failed = |error| KeyDirError::Key { place: "to create".to_owned(), error };
        let (key, pem) = SigningKey::generate().map_err(failed)?;
        self.write(&format!("{}.pem", key.kid()), &pem)?;
        Ok(KeyEntry { key: Arc::new(key), nbf: Some(nbf), exp: Some(nbf.saturating_add(VALID)) })
    }

    /// Writes a file, which has its name once it is complete.
    fn write(&self, name: &str, text: &str) -> Result<(), KeyDirError> {
        let (new, path) = (self.path.join(format!("{name}{UNFINISHED}")), self.path.join(name));
        write_new(&new, text)?;
        fs::rename(&new, &path).map_err(KeyDirError::io(&path))?;
        let sync = fs::File::open(&self.path).and_then(|dir| dir.sync_all());
        sync.map_err(KeyDirError::io(&self.path))
    }

    /// Deletes what killed processes have left: files that were being written, and PEM files
    /// without a row that have the name of a key that this program made.
    fn delete_unfinished(&self) -> Result<(), KeyDirError> {
        let mut leftover = self.files()?;
        leftover.retain(|path| path.to_string_lossy().ends_with(UNFINISHED));
        for file in self.unlisted()? {
            let key = SigningKey::from_pem(&read_pem(&file)?).ok();
            if key.is_some_and(|key| file.file_stem().is_some_and(|stem| stem == key.kid())) {
                leftover.push(file);
            }
        }
        leftover.iter().try_for_each(|file| fs::remove_file(file).map_err(KeyDirError::io(file)))
    }

    /// Deletes the files with this key, whatever their names are.
    fn delete(&self, kid: &str) -> Result<(), KeyDirError> {
        for (file, key) in self.read_keys()? {
            if key.kid() == kid {
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

    fn table_text(&self) -> Result<Option<String>, KeyDirError> {
        let path = self.table_path();
        match fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(KeyDirError::io(&path)(error)),
        }
    }

    fn rows(&self, text: &str) -> Result<Vec<Row>, KeyDirError> {
        let table: Table =
            toml::from_str(text).map_err(|error| self.table_error(error.message().to_owned()))?;
        Ok(table.key)
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
        self.write(TABLE, &text)
    }

    /// Returns the PEM files, sorted.
    fn pem_files(&self) -> Result<Vec<PathBuf>, KeyDirError> {
        let mut paths = self.files()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "pem"));
        paths.sort();
        Ok(paths)
    }

    fn files(&self) -> Result<Vec<PathBuf>, KeyDirError> {
        let listed = match fs::read_dir(&self.path) {
            Ok(listed) => listed,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(KeyDirError::io(&self.path)(error)),
        };
        let paths =
            listed.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
        paths.map_err(KeyDirError::io(&self.path))
    }
}

/// Returns an old key that stays published until `until`.
fn retired(entry: KeyEntry, until: UnixSeconds) -> KeyEntry {
    // A key that already retires keeps its earlier end.
    let signs_still =
        entry.exp.is_none_or(|exp| exp > until || entry.nbf.is_none_or(|nbf| exp - nbf >= VALID));
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
            ["kid = ", "nbf = ", "exp = ", "state = \"active\""]
                .iter()
                .all(|part| table.contains(part)),
            "{table}"
        );
    }

    #[test]
    fn a_rotation_overlaps_and_no_verifier_that_caches_a_day_misses_a_key() {
        let (_base, dir) = dir();
        let old = signing(&dir.init(NOW).unwrap(), NOW).unwrap();
        let rotation = dir.rotate(NOW + 1000, false).unwrap();
        assert_eq!(
            (rotation.signs_from, rotation.old_until),
            (NOW + 1000 + 86_400, Some(NOW + 1000 + 2 * 86_400))
        );
        assert!(matches!(dir.rotate(NOW + 1001, false), Err(KeyDirError::Rotating { .. })));
        let keys = dir.load().unwrap();
        // What signs at any time was in the directory a day before, and is in it when the signature
        // ends.
        let before = KeySet::new(keys.by_id(&old).cloned().into_iter().collect());
        for minute in 0..(3 * 24 * 60) {
            let now = NOW + 1000 + minute * 60;
            let kid = signing(&keys, now).unwrap();
            let cached = if now - 86_400 < NOW + 1000 {
                published(&before, now - 86_400)
            } else {
                published(&keys, now - 86_400)
            };
            assert!(
                cached.contains(&kid) && published(&keys, now).contains(&kid),
                "minute {minute}"
            );
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
        assert!(
            rotation.old.contains(&old) && rotation.old.len() == 2 && rotation.old_until.is_none()
        );
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
                error.to_string().contains(&format!("{mode:04o}"))
                    && error.hint().contains("chmod 600"),
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
        assert!(
            refused("nonsense").contains("extra.pem: not a private key"),
            "{}",
            refused("nonsense")
        );
        let rfc = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n-----END PRIVATE KEY-----\n";
        assert!(refused(rfc).contains("published test key (RFC 9421"), "{}", refused(rfc));
        let (_, pem) = SigningKey::generate().unwrap();
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

    #[test]
    fn a_rotation_that_is_killed_at_any_point_leaves_keys_that_can_be_read_and_rotated() {
        let pem_of = |key: &SigningKey| format!("{}.pem", key.kid());
        let torn = "-----BEGIN PRIVATE";
        type KilledState<'a> = (&'a str, &'a dyn Fn(&KeyDir));
        let kill: [KilledState<'_>; 5] = [
            ("while it writes the PEM", &|dir| {
                write_new(&dir.path().join("key.pem.new"), torn).unwrap()
            }),
            ("before the PEM has its name", &|dir| {
                let (key, pem) = SigningKey::generate().unwrap();
                write_new(&dir.path().join(pem_of(&key) + ".new"), &pem).unwrap();
            }),
            ("before it writes the table", &|dir| {
                let (key, pem) = SigningKey::generate().unwrap();
                write_new(&dir.path().join(pem_of(&key)), &pem).unwrap();
            }),
            ("while it writes the table", &|dir| {
                let (key, pem) = SigningKey::generate().unwrap();
                write_new(&dir.path().join(pem_of(&key)), &pem).unwrap();
                write_new(&dir.path().join("keys.toml.new"), "[[key]]\nkid = ").unwrap();
            }),
            ("before it deletes the old PEM", &|dir| {
                let old = dir.pem_files().unwrap().remove(0);
                let text = fs::read_to_string(&old).unwrap();
                dir.rotate(NOW + 5, true).unwrap();
                write_new(&old, &text).unwrap();
            }),
        ];
        for (point, leave) in kill {
            let (_base, dir) = dir();
            let first = signing(&dir.init(NOW).unwrap(), NOW).unwrap();
            leave(&dir);
            let keys = dir.load().unwrap_or_else(|error| panic!("{point}: {error}"));
            assert_eq!(keys.entries().len(), 1, "{point}");
            let signs = signing(&keys, NOW + 10).unwrap();
            assert_eq!(signs == first, !point.ends_with("old PEM"), "{point}");
            let rotation =
                dir.rotate(NOW + 10, false).unwrap_or_else(|error| panic!("{point}: {error}"));
            assert_eq!(rotation.old, [signs], "{point}");
            assert_eq!(dir.load().unwrap().entries().len(), 2, "{point}");
            let mut names: Vec<_> = dir
                .files()
                .unwrap()
                .iter()
                .map(|path| path.file_name().unwrap().to_owned())
                .collect();
            names.retain(|name| name != TABLE && name != LOCK);
            assert_eq!(names.len(), 2, "{point}: {names:?}");
        }
    }

    #[test]
    fn a_first_key_whose_creation_was_killed_can_be_created_or_used() {
        let (_base, dir) = dir();
        DirBuilder::new().recursive(true).mode(0o700).create(dir.path()).unwrap();
        write_new(&dir.path().join("key.pem.new"), "torn").unwrap();
        dir.init(NOW).unwrap();
        assert_eq!(
            dir.files()
                .unwrap()
                .iter()
                .filter(|path| path.to_string_lossy().ends_with(".new"))
                .count(),
            0
        );
        // The table is the last file that is written.
        fs::remove_file(dir.table_path()).unwrap();
        let signs = signing(&dir.load().unwrap(), NOW).unwrap();
        assert_eq!(dir.rotate(NOW, false).unwrap().old, [signs]);
    }

    #[test]
    fn a_key_that_the_table_does_not_list_is_named_and_not_used() {
        let (_base, dir) = dir();
        dir.init(NOW).unwrap();
        let (extra, (key, pem)) = (dir.path().join("extra.pem"), SigningKey::generate().unwrap());
        write_new(&extra, &pem).unwrap();
        assert!(dir.load().unwrap().by_id(key.kid()).is_none());
        assert_eq!(dir.unlisted().unwrap(), std::slice::from_ref(&extra));
        // Its name is not one that a killed process leaves.
        dir.rotate(NOW, false).unwrap();
        assert_eq!(dir.unlisted().unwrap(), [extra]);
        fs::write(dir.table_path(), "").unwrap();
        assert!(dir.load().unwrap_err().to_string().contains("lists none of the 3 keys"));
    }

    #[test]
    fn of_rotations_at_the_same_time_one_takes_place() {
        let (_base, dir) = dir();
        dir.init(NOW).unwrap();
        let rotate = || {
            let dir = dir.clone();
            std::thread::spawn(move || dir.rotate(NOW + 10, false))
        };
        let ended: Vec<_> = (0..8)
            .map(|_| rotate())
            .collect::<Vec<_>>()
            .into_iter()
            .map(|one| one.join().unwrap())
            .collect();
        let done: Vec<_> = ended.iter().filter_map(|one| one.as_ref().ok()).collect();
        assert!(
            ended.iter().all(|one| matches!(one, Ok(_) | Err(KeyDirError::Rotating { .. }))),
            "{ended:?}"
        );
        assert_eq!(done.len(), 1, "{ended:?}");
        let keys = dir.load().unwrap();
        assert!(keys.by_id(&done[0].kid).is_some() && keys.entries().len() == 2);
        assert_eq!((dir.pem_files().unwrap().len(), dir.unlisted().unwrap().len()), (2, 0));
    }

    #[test]
    fn keys_are_read_while_another_process_exchanges_them() {
        let (_base, dir) = dir();
        dir.init(NOW).unwrap();
        let rotating = {
            let dir = dir.clone();
            std::thread::spawn(move || {
                (0..50).for_each(|n| drop(dir.rotate(NOW + n, true).unwrap()))
            })
        };
        while !rotating.is_finished() {
            assert_eq!(dir.load().unwrap().entries().len(), 1);
        }
        rotating.join().unwrap();
    }
}
