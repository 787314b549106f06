//! Vendors of bot protection, the settings of their hosts, and the signals in their responses.
//!
//! Owns: these keys of a world file, and the probability that a fetcher passes a vendor's block.
//!
//! Must not know: hosts and policies.

use serde::Deserialize;

/// The difference of one of five equally likely hosts from its vendor's setting, in standard
/// deviations.
const LEVELS: [f64; 5] = [0.0, -0.52, 0.52, -1.28, 1.28];

/// How well responses show the vendor, framework and server of a host.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tags {
    /// The share of recognised blocks that show their vendor.
    pub recognised: f64,
    /// The share of those that show a random vendor instead.
    pub wrong: f64,
    /// The variation among hosts of one setting: the standard deviation of the logit of `pass`.
    pub noise: f64,
    /// The probability that a host whose protection changes moves to another vendor.
    pub moves: f64,
}

/// A vendor of bot protection.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vendor {
    /// The name that its blocks show.
    pub name: String,
    /// Its share of the sites.
    pub share: f64,
    /// The settings of its customers.
    pub settings: Vec<Setting>,
    /// A change of the settings, for all of its hosts on one day.
    pub shift: Option<Shift>,
}

/// One setting of a vendor's protection.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// The share of the vendor's sites that have it.
    pub share: f64,
    /// The probability that each fetcher passes, in the order of the world's fetchers.
    pub pass: Vec<f64>,
}

/// A change of the settings of all hosts of a vendor from one day on.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shift {
    /// The day.
    pub day: f64,
    /// The settings from then on.
    pub settings: Vec<Setting>,
}

impl Shift {
    /// Returns the time of the change, in milliseconds since the world began.
    pub(crate) fn at_ms(&self) -> i64 {
        (self.day * 86_400_000.0) as i64
    }
}

/// The vendor block that a URL meets: the vendor, its setting, and the host's difference from the
/// setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct VendorBlock {
    pub(crate) vendor: u8,
    setting: u8,
    pub(crate) shifted: bool,
    level: u8,
}

/// The vendor of a host and its index among the vendor's settings at any time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Standing {
    pub(crate) vendor: u8,
    pub(crate) luck: f64,
}

/// The number of levels of difference.
pub(crate) const LEVEL_COUNT: usize = LEVELS.len();

impl VendorBlock {
    /// Returns the vendor block of a host at `ms`.
    pub(crate) fn at(vendors: &[Vendor], standing: Standing, level: u8, ms: i64) -> Self {
        let vendor = &vendors[usize::from(standing.vendor)];
        let shift = vendor.shift.as_ref().filter(|shift| shift.at_ms() <= ms);
        let settings = shift.map_or(&vendor.settings, |shift| &shift.settings);
        let mut left = standing.luck * settings.iter().map(|setting| setting.share).sum::<f64>();
        let of = settings.iter().position(|setting| {
            left -= setting.share;
            left < 0.0
        });
        let setting = of.unwrap_or(settings.len() - 1) as u8;
        Self { vendor: standing.vendor, setting, shifted: shift.is_some(), level }
    }

    /// Returns the probability that the fetcher at `place` passes.
    pub(crate) fn pass(&self, vendors: &[Vendor], noise: f64, place: usize) -> f64 {
        let vendor = &vendors[usize::from(self.vendor)];
        let settings = match &vendor.shift {
            Some(shift) if self.shifted => &shift.settings,
            _ => &vendor.settings,
        };
        let pass = settings[usize::from(self.setting)].pass[place];
        if pass <= 0.0 || pass >= 1.0 {
            return pass;
        }
        let logit = (pass / (1.0 - pass)).ln() + noise * LEVELS[usize::from(self.level)];
        1.0 / (1.0 + (-logit).exp())
    }
}

/// An invalid key: the key, its value, and the expected values.
pub(crate) type Fault = (&'static str, String, &'static str);

/// Checks the keys for a world with this number of fetchers.
pub(crate) fn check(tags: Option<&Tags>, vendors: &[Vendor], fetchers: usize) -> Result<(), Fault> {
    const SHARE: &str = "a share between 0 and 1";
    let share = |key, share: f64| match (0.0..=1.0).contains(&share) {
        true => Ok(()),
        false => Err((key, share.to_string(), SHARE)),
    };
    if let Some(tags) = tags {
        share("tags.recognised", tags.recognised)?;
        share("tags.wrong", tags.wrong)?;
        share("tags.moves", tags.moves)?;
        if !(0.0..=10.0).contains(&tags.noise) {
            return Err((
                "tags.noise",
                tags.noise.to_string(),
                "a standard deviation from 0 to 10",
            ));
        }
    }
    if !vendors.is_empty() && tags.is_none() {
        return Err(("tags", "nothing".to_owned(), "a table, if there are vendors"));
    }
    if vendors.len() > usize::from(u8::MAX) {
        return Err(("vendor", vendors.len().to_string(), "at most 255 of them"));
    }
    for vendor in vendors {
        share("vendor.share", vendor.share)?;
        if vendor.name.is_empty() {
            return Err(("vendor.name", String::new(), "a name that is not empty"));
        }
        settings("vendor.settings", &vendor.settings, fetchers)?;
        if let Some(shift) = &vendor.shift {
            settings("vendor.shift.settings", &shift.settings, fetchers)?;
            if !(0.0..=3650.0).contains(&shift.day) {
                return Err(("vendor.shift.day", shift.day.to_string(), "a day from 0 to 3650"));
            }
        }
    }
    let sum: f64 = vendors.iter().map(|vendor| vendor.share).sum();
    if !vendors.is_empty() && sum <= 0.0 {
        return Err(("vendor.share", sum.to_string(), "a sum above 0"));
    }
    Ok(())
}

fn settings(key: &'static str, settings: &[Setting], fetchers: usize) -> Result<(), Fault> {
    let sum: f64 = settings.iter().map(|setting| setting.share).sum();
    if !(1..=usize::from(u8::MAX)).contains(&settings.len()) || sum.is_nan() || sum <= 0.0 {
        return Err((
            key,
            format!("{} of them", settings.len()),
            "1 to 255 settings whose shares have a sum above 0",
        ));
    }
    for Setting { share, pass } in settings {
        if !(0.0..=1.0).contains(share) || pass.iter().any(|p| !(0.0..=1.0).contains(p)) {
            return Err((key, format!("{share} {pass:?}"), "shares and chances between 0 and 1"));
        }
        if pass.len() != fetchers {
            return Err((key, format!("{pass:?}"), "one chance for each fetcher"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vendors() -> Vec<Vendor> {
        let setting = |share, pass: &[f64]| Setting { share, pass: pass.to_vec() };
        vec![Vendor {
            name: "stony".to_owned(),
            share: 1.0,
            settings: vec![setting(0.5, &[0.2, 0.9]), setting(0.5, &[0.0, 1.0])],
            shift: Some(Shift { day: 10.0, settings: vec![setting(1.0, &[0.5, 0.5])] }),
        }]
    }

    #[test]
    fn a_host_keeps_its_setting_and_a_shift_changes_all_settings_on_its_day() {
        let vendors = vendors();
        let pass = |luck, level, day: i64, place| {
            VendorBlock::at(&vendors, Standing { vendor: 0, luck }, level, day * 86_400_000)
                .pass(&vendors, 1.0, place)
        };
        assert_eq!([pass(0.2, 0, 0, 0), pass(0.7, 0, 0, 0), pass(0.7, 4, 0, 1)], [0.2, 0.0, 1.0]);
        assert!((pass(0.2, 0, 9, 1) - 0.9).abs() < 1e-12);
        assert_eq!([pass(0.2, 0, 10, 0), pass(0.7, 0, 99, 1)], [0.5, 0.5]);
    }

    #[test]
    fn hosts_of_one_setting_differ_by_their_level_in_the_logit() {
        let vendors = vendors();
        let pass = |level| {
            VendorBlock::at(&vendors, Standing { vendor: 0, luck: 0.0 }, level, 0)
                .pass(&vendors, 0.5, 1)
        };
        let logit = |p: f64| (p / (1.0 - p)).ln();
        assert!((logit(pass(4)) - logit(pass(0)) - 0.64).abs() < 1e-9);
        assert!((logit(pass(0)) - logit(pass(1)) - 0.26).abs() < 1e-9);
    }

    #[test]
    fn a_setting_without_a_probability_for_each_fetcher_is_refused() {
        let tags = Tags { recognised: 0.9, wrong: 0.0, noise: 0.5, moves: 0.3 };
        assert!(check(Some(&tags), &vendors(), 2).is_ok());
        assert_eq!(check(Some(&tags), &vendors(), 3).unwrap_err().0, "vendor.settings");
        assert_eq!(check(None, &vendors(), 2).unwrap_err().0, "tags");
        assert_eq!(
            check(Some(&Tags { wrong: 1.5, ..tags }), &vendors(), 2).unwrap_err().0,
            "tags.wrong"
        );
    }
}
