//! How a world file becomes a world, of whichever kind, and why it does not.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Why a world cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// The file cannot be read.
    #[error("cannot read world file {path}: {source}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no TOML, or a key is missing, unknown or of the wrong type.
    #[error("{origin}: {source}")]
    Parse {
        /// Where the text came from.
        origin: String,
        /// What the parser said, with line and column.
        source: Box<toml::de::Error>,
    },
    /// A key holds what no world can have.
    #[error("world {world:?}: {key} = {got}, expected {expected}")]
    Value {
        /// The world's name.
        world: String,
        /// The key.
        key: String,
        /// What it holds.
        got: String,
        /// What it may hold.
        expected: &'static str,
    },
}

/// What kinds of world files have in common.
pub(crate) trait WorldFile: DeserializeOwned {
    /// Whether what stands in it makes sense.
    fn check(&self) -> Result<(), WorldError>;

    /// What the file calls the world.
    fn called(&self) -> &str;

    /// Reads a file.
    fn from_file(path: &Path) -> Result<Self, WorldError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| WorldError::Read { path: path.to_owned(), source })?;
        Self::from_text(&text, &path.display().to_string())
    }

    /// Reads the text of a file; `origin` stands in messages.
    fn from_text(text: &str, origin: &str) -> Result<Self, WorldError> {
        let world: Self = toml::from_str(text)
            .map_err(|source| WorldError::Parse { origin: origin.to_owned(), source: Box::new(source) })?;
        world.check()?;
        Ok(world)
    }

    /// An error unless `holds`: `key` has `got` where a world has what is `expected`.
    fn expect(&self, key: &str, got: impl ToString, holds: bool, expected: &'static str) -> Result<(), WorldError> {
        if holds {
            return Ok(());
        }
        Err(WorldError::Value { world: self.called().to_owned(), key: key.to_owned(), got: got.to_string(), expected })
    }
}

/// Whether a file says that it is of this kind, whatever else is wrong with it.
pub(crate) fn is_of_kind(text: &str, kind: &str) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        kind: Option<String>,
    }
    toml::from_str::<Kind>(text).is_ok_and(|said| said.kind.as_deref() == Some(kind))
}
