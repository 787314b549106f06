//! Recovery from errors that turned out to be noise: the host gets back what they took.
//!
//! Owns: what is given back.
//!
//! Must not know: how noise is told from a limit.

use super::rate_gate::RateGate;
use crate::limiter::active_state::Trial;
use crate::limiter::window::WINDOWS;
use crate::signals::error_noise::NoiseTest;
use crate::signals::response::Signal;

impl RateGate<'_> {
    /// Counts a response for the test. Returns whether the errors have just turned out to be noise:
    /// the host then has its previous rate and no hold.
    pub(crate) fn test_noise(&mut self, error: Option<Signal>) -> bool {
        if self.active.trouble.is_none() && error.is_none() {
            return false;
        }
        let (rate, now) = (self.usable_rate(), self.now);
        if self.active.trouble.is_none() {
            // What went well before the first error is not counted one by one. Most of it had a
            // lower rate.
            let good = (self.active.rings.count(WINDOWS - 1, now) - 1.0).max(0.0);
            self.active.trouble().noise.assume_good(rate, good);
        }
        let trouble = self.active.trouble();
        let is_limited = trouble.clarity > 0;
        match trouble.noise.record(rate, error, is_limited, now) {
            Some(found) => {
                self.restore(*found);
                true
            }
            None => false,
        }
    }

    /// Counts a response for the test of blocks between good pages. Returns whether these have just
    /// turned out to concern pages: the host then has its previous rate and no hold.
    pub(crate) fn test_block_noise(&mut self, is_block: bool) -> bool {
        if !is_block
            && self.active.trouble.as_ref().is_none_or(|trouble| !trouble.block_noise.has_begun())
        {
            return false;
        }
        let (rate, now) = (self.usable_rate(), self.now);
        let good = (self.active.rings.count(WINDOWS - 1, now) - 1.0).max(0.0);
        let trouble = self.active.trouble();
        if !trouble.block_noise.has_begun() {
            trouble.block_noise.assume_good(rate, good);
        }
        // A limit that says what it is has nothing to do with these blocks.
        let is_limited = trouble.clarity == 1;
        // All blocks are of one kind.
        let found = trouble.block_noise.record(
            rate,
            is_block.then_some(Signal::Unavailable),
            is_limited,
            now,
        );
        trouble.blocks_by_rate |= trouble.block_noise.is_limit();
        if trouble.block_noise.share().is_some() {
            trouble.blocks_by_rate = false;
        }
        match found {
            Some(found) => {
                self.restore(*found);
                true
            }
            None => false,
        }
    }

    /// Begins a test before blocks between good pages lower the rate, unless one is in progress.
    pub(crate) fn begin_block_test(&mut self) {
        if !self.rules.is_fixed {
            let (rate, before, now) = (self.usable_rate(), *self.persisted, self.now);
            self.active.trouble().block_noise.begin_test(rate, Signal::Unavailable, before, now);
        }
    }

    /// Begins a test before errors lower the rate, unless one is in progress.
    pub(crate) fn begin_noise_test(&mut self, signal: Signal) {
        if !self.rules.is_fixed {
            let (rate, before, now) = (self.usable_rate(), *self.persisted, self.now);
            self.active.trouble().noise.begin_test(rate, signal, before, now);
        }
    }

    /// Ends the test: the host has said that it has a limit.
    pub(crate) fn end_noise_test(&mut self) {
        if let Some(trouble) = &mut self.active.trouble {
            trouble.noise.end_test();
        }
    }

    /// Returns the rate, or the lower one that a learned limit of parallel requests leaves of it: a
    /// rate that no request follows says nothing of errors.
    pub(crate) fn usable_rate(&self) -> f64 {
        let latency = f64::from(self.active.fast).exp();
        match self.persisted.par_cap {
            cap if cap > 0 && latency > 0.0 => self.rate().min(f64::from(cap) / latency),
            _ => self.rate(),
        }
    }

    /// Takes back what errors have changed.
    fn restore(&mut self, test: NoiseTest) {
        *self.persisted = test.before.with_declared_gap_of(self.persisted);
        let trouble = self.active.trouble();
        (trouble.errors, trouble.blocks, trouble.crowd, trouble.cuts, trouble.sheds) =
            (0.0, 0.0, 0, 0, 0);
        (trouble.hold, trouble.trial, trouble.probe, trouble.fresh) = (0, Trial::No, None, 0);
        trouble.is_brief = false;
        self.set_rate(test.rate.max(self.rate()));
        self.schedule();
    }
}
