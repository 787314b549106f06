//! The vendors at which the operator has registered the crawler, and since when.
//!
//! Owns: the file [`REGISTRATIONS`] in a data directory, and the names of vendors that differ from
//! those of their blocks.
//!
//! Invariants: the file is replaced as a whole. A vendor that is registered again has the later
//! time.
//!
//! Must not know: what a registration changes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The file's name in the data directory.
pub const REGISTRATIONS: &str = "registrations.toml";

/// Names under which vendors are known too, and the name that a block of theirs has.
const ALIASES: [(&str, &str); 2] = [("aws", "aws_waf"), ("human", "perimeterx")];

/// The reason why registrations cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationsError {
    /// The file cannot be read or written.
    #[error("cannot access {}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The file has invalid content.
    #[error("invalid {}: {reason}; remove it and register the vendors again", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// The vendors at which the crawler is registered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registrations {
    /// Milliseconds since the Unix epoch, by the name that a block of the vendor has: `cloudflare`
    /// for `block_cloudflare`.
    #[serde(default)]
    registered_at_ms: BTreeMap<String, i64>,
}

impl Registrations {
    /// Reads the registrations in the data directory `dir`. There are none if it has no such file.
    ///
    /// # Errors
    /// [`RegistrationsError`] if the file cannot be read or is invalid.
    pub fn read(dir: &Path) -> Result<Self, RegistrationsError> {
        let path = dir.join(REGISTRATIONS);
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map_err(|error| RegistrationsError::Content {
                path,
                reason: error.message().to_owned(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(RegistrationsError::Io { path, error }),
        }
    }

    /// Returns the time of the registration at `vendor`, in milliseconds since the Unix epoch.
    /// Evidence that a signed fetcher got behind this vendor before that time says nothing about
    /// the time after it.
    pub fn registered_at_ms(&self, vendor: &str) -> Option<i64> {
        self.registered_at_ms.get(vendor).copied()
    }

    /// Returns all vendors with the time of the registration, sorted by vendor.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.registered_at_ms.iter().map(|(vendor, at)| (vendor.as_str(), *at))
    }

    /// Adds a registration at `vendor` to those in the data directory `dir`, which is created if it
    /// is missing.
    ///
    /// # Errors
    /// [`RegistrationsError`] if the file cannot be read or written; then nothing changes.
    pub fn add(dir: &Path, vendor: &str, now_ms: i64) -> Result<Self, RegistrationsError> {
        let mut all = Self::read(dir)?;
        let at = all.registered_at_ms.entry(vendor.to_owned()).or_insert(now_ms);
        *at = now_ms.max(*at);
        let path = dir.join(REGISTRATIONS);
        let text = toml::to_string(&all).map_err(|error| RegistrationsError::Content {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        let text = format!("# Written by `fetchwise identity registered`.\n\n{text}");
        replace(dir, &path, &text).map_err(|error| RegistrationsError::Io { path, error })?;
        Ok(all)
    }
}

/// Returns the name that a block of `vendor` has.
pub fn vendor_of_blocks(vendor: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == vendor).map_or(vendor, |(_, name)| name)
}

fn replace(dir: &Path, path: &Path, text: &str) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    // As the log makes it.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(dir)?;
    let new = dir.join(format!("{REGISTRATIONS}.new"));
    let mut file = fs::File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_read_back_and_the_later_time_counts() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("data");
        assert_eq!(Registrations::read(&dir).unwrap(), Registrations::default());
        Registrations::add(&dir, "cloudflare", 2_000).unwrap();
        Registrations::add(&dir, "akamai", 3_000).unwrap();
        Registrations::add(&dir, "cloudflare", 1_000).unwrap();
        Registrations::add(&dir, "akamai", 4_000).unwrap();
        let read = Registrations::read(&dir).unwrap();
        assert_eq!(read.iter().collect::<Vec<_>>(), [("akamai", 4_000), ("cloudflare", 2_000)]);
        assert_eq!(
            (read.registered_at_ms("akamai"), read.registered_at_ms("datadome")),
            (Some(4_000), None)
        );
    }

    #[test]
    fn an_invalid_file_is_not_replaced() {
        let base = tempfile::tempdir().unwrap();
        for text in ["cloudflare", "[registered_at_ms]\ncloudflare = \"today\"\n", "[other]\n"] {
            fs::write(base.path().join(REGISTRATIONS), text).unwrap();
            let error = Registrations::add(base.path(), "cloudflare", 1).unwrap_err();
            assert!(error.to_string().contains(REGISTRATIONS), "{error}");
            assert_eq!(fs::read_to_string(base.path().join(REGISTRATIONS)).unwrap(), text);
        }
    }

    #[test]
    fn a_vendor_has_the_name_of_its_blocks() {
        assert_eq!(
            ["human", "aws", "cloudflare"].map(vendor_of_blocks),
            ["perimeterx", "aws_waf", "cloudflare"]
        );
    }
}
