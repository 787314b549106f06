//! Load of this machine: when the hosts of most sites grow slow at once, none of them is the cause.
//!
//! Owns: how late the last response of each of some sites was, and what is common to them.
//!
//! Invariants: a site is never compared with itself. Few sites prove nothing.
//!
//! Must not know: what a slow host costs.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of sites that are compared. More than that share places; the last one counts.
const PLACES: usize = 64;
/// Number of other sites with a recent response without which nothing is common.
const LEAST_SITES: usize = 4;
/// Time after which a response is no longer recent, in milliseconds.
const RECENT_MS: u32 = 10_000;

/// The delay of the last response of each site.
#[derive(Debug)]
pub(crate) struct LocalLoad {
    /// Time modulo 2^32 ms in the upper half; seconds above the latency of the quiet host, as the
    /// bits of an `f32`, in the lower one. 0 before the first response.
    places: [AtomicU64; PLACES],
}

impl Default for LocalLoad {
    fn default() -> Self {
        Self { places: [const { AtomicU64::new(0) }; PLACES] }
    }
}

impl LocalLoad {
    /// Records that a response of `site` took `excess_s` longer than those of the quiet host.
    pub(crate) fn record(&self, site: u64, excess_s: f64, now: i64) {
        let value = u64::from(now as u32) << 32 | u64::from((excess_s as f32).to_bits());
        // Relaxed: a place is one number, and a late one does no harm.
        self.places[place(site)].store(value, Ordering::Relaxed);
    }

    /// Returns the delay that other sites show, in seconds: the median of their last responses.
    pub(crate) fn common_s(&self, site: u64, now: i64) -> f64 {
        let mut others = [0.0_f32; PLACES];
        let mut count = 0;
        for (at, value) in self.places.iter().enumerate() {
            let value = value.load(Ordering::Relaxed);
            if value != 0
                && at != place(site)
                && (now as u32).wrapping_sub((value >> 32) as u32) <= RECENT_MS
            {
                others[count] = f32::from_bits(value as u32);
                count += 1;
            }
        }
        if count < LEAST_SITES {
            return 0.0;
        }
        let others = &mut others[..count];
        others.sort_unstable_by(f32::total_cmp);
        f64::from(others[(count - 1) / 2].max(0.0))
    }
}

fn place(site: u64) -> usize {
    (site % PLACES as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_common_if_most_other_sites_have_it() {
        let load = LocalLoad::default();
        for site in 1..=3 {
            load.record(site, 0.2, 1000);
        }
        assert_eq!(load.common_s(9, 1000), 0.0, "three sites are too few");
        load.record(4, 0.3, 1000);
        assert!((load.common_s(9, 1000) - 0.2).abs() < 1e-6);
        assert_eq!(load.common_s(1, 1000), 0.0, "a site is not compared with itself");
        (5..=9).for_each(|site| load.record(site, -0.01, 1000));
        assert_eq!(load.common_s(1, 1000), 0.0, "most are as quick as ever");
        assert_eq!(load.common_s(10, 12_000), 0.0, "old responses prove nothing");
    }
}
