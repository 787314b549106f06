//! Reading and checking of world files of any kind, and its errors.

use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The reason why a world cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// The file cannot be read.
    #[error("cannot read world file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The text is not valid TOML, or a key is missing, unknown or of the wrong type.
    #[error("{origin}: {source}")]
    Parse {
        /// The source of the text.
        origin: String,
        /// The parser's error, with line and column.
        source: Box<toml::de::Error>,
    },
    /// A key has an invalid value.
    #[error("world {world:?}: {key} = {got}, expected {expected}")]
    Value {
        /// The world's name.
        world: String,
        /// The key.
        key: String,
        /// The value.
        got: String,
        /// The expected values.
        expected: &'static str,
    },
}

/// The common part of all kinds of world files.
pub(crate) trait WorldFile: DeserializeOwned {
    /// Checks the values of the world.
    fn check(&self) -> Result<(), WorldError>;

    /// Returns the name of the world.
    fn called(&self) -> &str;

    /// Reads a file.
    fn from_file(path: &Path) -> Result<Self, WorldError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| WorldError::Read { path: path.to_owned(), source })?;
        Self::from_text(&text, &path.display().to_string())
    }

    /// Reads the text of a file; `origin` names it in messages.
    fn from_text(text: &str, origin: &str) -> Result<Self, WorldError> {
        let world: Self = toml::from_str(text).map_err(|source| WorldError::Parse {
            origin: origin.to_owned(),
            source: Box::new(source),
        })?;
        world.check()?;
        Ok(world)
    }

    /// Fails unless `holds`: `key` has the value `got` instead of the `expected` ones.
    fn expect(
        &self,
        key: &str,
        got: impl ToString,
        holds: bool,
        expected: &'static str,
    ) -> Result<(), WorldError> {
        if holds {
            return Ok(());
        }
        Err(WorldError::Value {
            world: self.called().to_owned(),
            key: key.to_owned(),
            got: got.to_string(),
            expected,
        })
    }
}

/// Returns whether the text declares this kind, even if it is otherwise invalid.
pub(crate) fn is_of_kind(text: &str, kind: &str) -> bool {
    #[derive(Deserialize)]
    struct Kind {
        kind: Option<String>,
    }
    toml::from_str::<Kind>(text).is_ok_and(|said| said.kind.as_deref() == Some(kind))
}
