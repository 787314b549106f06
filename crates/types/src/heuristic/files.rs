//! Which suffixes mean a file: the shipped ones, but for what a crawler says of its own.
//!
//! Invariant: a suffix is a file's or a page's for all attempts of a process, those that are replayed among them: evidence of the two
//! is kept apart.

use super::url::{ContentKind, Suffix};

/// Which suffixes mean a file. The default has the shipped ones: documents, pictures, sounds, films, archives, programs, data.
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
    /// Those that are another kind than shipped. Few: they are gone through.
    changed: Vec<(Suffix, ContentKind)>,
}

/// A text that is no suffix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no suffix: expected at most ten letters and digits after a dot, as in .pdf")]
pub struct InvalidSuffix {
    text: String,
}

impl FileSuffixes {
    /// The same, and `suffix` (with or without its dot) means a file.
    ///
    /// # Errors
    /// [`InvalidSuffix`] when it is none.
    pub fn file(self, suffix: &str) -> Result<Self, InvalidSuffix> {
        self.with(suffix, ContentKind::File)
    }

    /// The same, and `suffix` (with or without its dot) means a page.
    ///
    /// # Errors
    /// [`InvalidSuffix`] when it is none.
    pub fn page(self, suffix: &str) -> Result<Self, InvalidSuffix> {
        self.with(suffix, ContentKind::Page)
    }

    /// What `suffix` (with or without its dot) means; what is no suffix is a page's.
    pub fn kind_of(&self, suffix: &str) -> ContentKind {
        self.kind(read(suffix).ok())
    }

    fn with(mut self, suffix: &str, kind: ContentKind) -> Result<Self, InvalidSuffix> {
        let suffix = read(suffix)?;
        self.changed.retain(|(other, _)| *other != suffix);
        self.changed.push((suffix, kind));
        Ok(self)
    }

    /// File or page, by the suffix of a URL.
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
        // A dot in the middle would leave only what follows it.
        Some(suffix) if suffix.as_str().len() + 1 == name.len() => Ok(suffix),
        _ => Err(InvalidSuffix { text: text.to_owned() }),
    }
}
