//! The suffixes that mean a file: the shipped ones, with a crawler's own changes.
//!
//! Invariants: a suffix means either files or pages for all attempts of a process, replayed ones
//! included, because their evidence is separate.

use super::url::{ContentKind, Suffix};

/// The suffixes that mean a file. The default has the shipped ones: documents, images, audio,
/// video, archives, programs, data.
///
/// ```
/// use fetchwise_types::heuristic::files::FileSuffixes;
/// use fetchwise_types::heuristic::url::ContentKind;
///
/// let suffixes = FileSuffixes::default().file(".dcm")?.page("xml")?;
/// assert_eq!(suffixes.kind_of(".dcm"), ContentKind::File);
/// assert_eq!(suffixes.kind_of(".xml"), ContentKind::Page);
/// assert_eq!(suffixes.kind_of(".pdf"), ContentKind::File);
/// assert!(FileSuffixes::default().file("no suffix").is_err());
/// # Ok::<(), fetchwise_types::heuristic::files::InvalidSuffix>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FileSuffixes {
    /// The suffixes whose kind differs from the shipped one. They are few, so a linear search is
    /// fast.
    changed: Vec<(Suffix, ContentKind)>,
}

/// A text that is not a valid suffix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid suffix {text:?}: expected at most ten letters and digits after a dot, as in .pdf")]
pub struct InvalidSuffix {
    text: String,
}

impl FileSuffixes {
    /// Returns the suffixes with `suffix` (with or without its dot) as a file's.
    ///
    /// # Errors
    /// [`InvalidSuffix`] if it is not a valid suffix.
    pub fn file(self, suffix: &str) -> Result<Self, InvalidSuffix> {
        self.with(suffix, ContentKind::File)
    }

    /// Returns the suffixes with `suffix` (with or without its dot) as a page's.
    ///
    /// # Errors
    /// [`InvalidSuffix`] if it is not a valid suffix.
    pub fn page(self, suffix: &str) -> Result<Self, InvalidSuffix> {
        self.with(suffix, ContentKind::Page)
    }

    /// Returns the kind of `suffix` (with or without its dot); a text that is not a valid suffix
    /// means a page.
    pub fn kind_of(&self, suffix: &str) -> ContentKind {
        self.kind(read(suffix).ok())
    }

    fn with(mut self, suffix: &str, kind: ContentKind) -> Result<Self, InvalidSuffix> {
        let suffix = read(suffix)?;
        self.changed.retain(|(other, _)| *other != suffix);
        self.changed.push((suffix, kind));
        Ok(self)
    }

    /// Returns file or page, by the suffix of a URL as [`suffix_of`](super::url::suffix_of) returns
    /// it.
    #[inline]
    pub fn kind(&self, suffix: Option<Suffix>) -> ContentKind {
        let Some(suffix) = suffix else { return ContentKind::Page };
        match self.changed.iter().find(|(other, _)| *other == suffix) {
            Some((_, kind)) => *kind,
            None => suffix.kind(),
        }
    }
}

fn read(text: &str) -> Result<Suffix, InvalidSuffix> {
    let name = format!("x.{}", text.strip_prefix('.').unwrap_or(text));
    match Suffix::of_segment(&name) {
        // With a dot in the middle, only the text after it would be left.
        Some(suffix) if suffix.as_str().len() + 1 == name.len() => Ok(suffix),
        _ => Err(InvalidSuffix { text: text.to_owned() }),
    }
}
