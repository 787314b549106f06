//! Whether this machine's clock is right: the median of its offsets against `Date` headers.
//!
//! Invariants: each host has one vote, and fewer than [`MIN_HOSTS`] hosts say nothing. So one server with a wrong clock
//! changes nothing.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Number of hosts from which on their median counts.
const MIN_HOSTS: usize = 5;
/// Largest number of hosts that are kept.
const MAX_HOSTS: usize = 63;

/// Offsets of the last hosts.
#[derive(Debug, Default)]
pub(crate) struct ClockCheck {
    offsets: Mutex<VecDeque<(String, i64)>>,
}

impl ClockCheck {
    /// Notes that this machine's clock was `offset` seconds ahead of a host's.
    pub(crate) fn note(&self, host: &str, offset: i64) {
        let mut offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = offsets.iter_mut().find(|(known, _)| known == host) {
            known.1 = offset;
            return;
        }
        if offsets.len() == MAX_HOSTS {
            offsets.pop_front();
        }
        offsets.push_back((host.to_owned(), offset));
    }

    /// Returns the median offset; none while too few hosts are known.
    pub(crate) fn median(&self) -> Option<i64> {
        let offsets = self.offsets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<i64> = offsets.iter().map(|(_, offset)| *offset).collect();
        drop(offsets);
        if all.len() < MIN_HOSTS {
            return None;
        }
        all.sort_unstable();
        Some(all[all.len() / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_hosts_decide_and_one_does_not() {
        let check = ClockCheck::default();
        for _ in 0..100 {
            check.note("wrong.example", 900);
        }
        assert_eq!(check.median(), None);
        for (n, offset) in [0, 1, -1, 40].into_iter().enumerate() {
            check.note(&format!("{n}.example"), offset);
        }
        assert_eq!(check.median(), Some(1));
        for n in 0..200 {
            check.note(&format!("late{n}.example"), -31);
        }
        assert_eq!(check.median(), Some(-31));
    }
}
