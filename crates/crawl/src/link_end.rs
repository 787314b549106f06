//! How a link of a run ended, as far as a later run cares.

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::pipeline::Report;

/// How a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LinkEnd {
    /// Its page was delivered.
    Delivered,
    /// The site says that the page does not exist: 404 or 410.
    Missing,
    /// It failed in an outcome of the table.
    Failed,
    /// It failed because of this machine or this moment; a resumed run fetches it again.
    FailedHere,
    /// It was left because it, or its host, is paused.
    Paused,
}

impl LinkEnd {
    /// Every end.
    pub(crate) const ALL: [Self; 5] =
        [Self::Delivered, Self::Missing, Self::Failed, Self::FailedHere, Self::Paused];

    /// Returns the end of a link with this report.
    pub fn of(report: &Report) -> Self {
        Self::from_result(report.success, report.error_type, report.paused_until.is_some())
    }

    /// Returns the end of a link from the fields of its result.
    pub(crate) fn from_result(success: bool, error_type: Option<&str>, is_paused: bool) -> Self {
        match error_type {
            _ if success => Self::Delivered,
            Some(Report::PAUSED) => Self::Paused,
            error_type => match error_type.and_then(ErrorKind::from_name) {
                Some(ErrorKind::NotFound) => Self::Missing,
                Some(ErrorKind::RateLimited) if is_paused => Self::Paused,
                Some(ErrorKind::RateLimited | ErrorKind::LocalFault | ErrorKind::NetworkBlock)
                | None => Self::FailedHere,
                Some(_) => Self::Failed,
            },
        }
    }

    /// Returns whether it is final: it is about the link, not about this machine, this moment or
    /// the crawl's speed.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Delivered | Self::Missing | Self::Failed)
    }

    /// Returns the letter in the state of a run.
    pub(crate) fn letter(self) -> u8 {
        match self {
            Self::Delivered => b'd',
            Self::Missing => b'm',
            Self::Failed => b'f',
            Self::FailedHere => b'h',
            Self::Paused => b'p',
        }
    }

    /// Returns the end with this letter.
    pub(crate) fn from_letter(letter: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|end| end.letter() == letter)
    }
}

/// A selection of the links that a run left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeftLinks {
    /// Those that failed.
    Failed,
    /// Those that were left for a pause.
    Paused,
    /// Those that do not exist: 404 and 410.
    Missing,
}

impl LeftLinks {
    /// Returns whether it selects a link that ended like this.
    pub(crate) fn selects(self, end: LinkEnd) -> bool {
        match self {
            Self::Failed => matches!(end, LinkEnd::Failed | LinkEnd::FailedHere),
            Self::Paused => end == LinkEnd::Paused,
            Self::Missing => end == LinkEnd::Missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_links_own_outcome_is_final() {
        let ended =
            |error_type| LinkEnd::of(&Report { error_type: Some(error_type), ..Report::default() });
        assert_eq!(LinkEnd::of(&Report { success: true, ..Report::default() }), LinkEnd::Delivered);
        for &kind in ErrorKind::ALL {
            let want = match kind {
                ErrorKind::NotFound => LinkEnd::Missing,
                ErrorKind::LocalFault | ErrorKind::RateLimited | ErrorKind::NetworkBlock => {
                    LinkEnd::FailedHere
                }
                _ => LinkEnd::Failed,
            };
            assert_eq!(ended(kind.name()), want, "{kind}");
        }
        assert_eq!(ended(Report::PAUSED), LinkEnd::Paused);
        let limited = Report {
            paused_until: Some(fetchwise::time::Timestamp::default()),
            ..Report::default()
        };
        let limited = Report { error_type: Some(ErrorKind::RateLimited.name()), ..limited };
        assert_eq!(LinkEnd::of(&limited), LinkEnd::Paused);
        for here in [Report::STORE_ERROR, Report::NO_ROUTE, Report::NO_FETCHER, "internal_error"] {
            assert_eq!(ended(here), LinkEnd::FailedHere, "{here}");
        }
        // A page that arrived and could not be stored is not final.
        assert!(
            !LinkEnd::of(&Report { success: false, status: Some(200), ..Report::default() })
                .is_done()
        );
    }

    #[test]
    fn letters_read_back_and_each_selection_has_its_ends() {
        for end in LinkEnd::ALL {
            assert_eq!(LinkEnd::from_letter(end.letter()), Some(end));
        }
        let selected = |which: LeftLinks| {
            LinkEnd::ALL.into_iter().filter(|end| which.selects(*end)).collect::<Vec<_>>()
        };
        assert_eq!(selected(LeftLinks::Failed), [LinkEnd::Failed, LinkEnd::FailedHere]);
        assert_eq!(selected(LeftLinks::Paused), [LinkEnd::Paused]);
        assert_eq!(selected(LeftLinks::Missing), [LinkEnd::Missing]);
    }
}
