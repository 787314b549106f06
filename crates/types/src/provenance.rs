//! The source of a response that the site itself did not give, and its time: an archive's copy, a
//! search service's record.
//!
//! Invariants: a response from another server says nothing about the site of today.
//!
//! Must not know: how the response was fetched.

use crate::time::Timestamp;

/// The server that responded in place of the site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The host that responded, e.g. `web.archive.org`.
    pub by: Box<str>,
    /// The time of the copy, if it is a copy.
    pub captured: Option<Timestamp>,
}

impl Provenance {
    /// Returns the provenance of a copy that `by` made at `captured`.
    pub fn copy(by: &str, captured: Timestamp) -> Self {
        Self { by: by.into(), captured: Some(captured) }
    }

    /// Returns the provenance of a record that `by` keeps.
    pub fn record(by: &str) -> Self {
        Self { by: by.into(), captured: None }
    }

    /// Returns the day of the copy in UTC, as `2024-05-31`.
    ///
    /// ```
    /// use fetchwise_types::provenance::Provenance;
    /// use fetchwise_types::time::Timestamp;
    ///
    /// let copy = Provenance::copy("web.archive.org", Timestamp::from_millis(1_709_164_800_000));
    /// assert_eq!(copy.day().as_deref(), Some("2024-02-29"));
    /// ```
    pub fn day(&self) -> Option<String> {
        let (year, month, day) = date_of(self.captured?.utc_day());
        Some(format!("{year:04}-{month:02}-{day:02}"))
    }
}

/// Returns the date of the day with this number, counted from 1970-01-01. The calendar has eras of
/// 400 years that begin in March.
fn date_of(day: i64) -> (i64, i64, i64) {
    let day = day.saturating_add(719_468);
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::date_of;

    #[test]
    fn days_have_the_date_that_the_calendar_gives_them() {
        for (day, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (59, (1970, 3, 1)),
            (11_016, (2000, 2, 29)),
            (11_017, (2000, 3, 1)),
            (20_453, (2025, 12, 31)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date_of(day), date, "{day}");
        }
    }
}
