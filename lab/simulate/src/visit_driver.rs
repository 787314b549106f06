//! A driver of visits without a network: a function returns the result of each fetch, and time
//! passes only when the visit waits.
//!
//! The simulator's runs use it, and so do scripts that are compared with other drivers.
//!
//! Must not know: decisions and records; the visit makes them.

use std::borrow::Borrow;
use std::ops::Deref;
use std::time::Instant;

use fetchwise::Selector;
use fetchwise::fetch_result::FetchResult;
use fetchwise::time::Clock;
use fetchwise::visit::{End, Fetch, Step, Visit};
use url::Url;

/// The time that decisions took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Total nanoseconds.
    pub nanoseconds: u64,
    /// The number of steps.
    pub steps: u64,
}

/// Drives `visit` to its end. `clock` is the clock of the selector: each wait sets it forward.
///
/// ```
/// use std::sync::Arc;
/// use fetchwise::{Selector, fetch_result::{FetchResult, Outcome}, time::{Clock, Timestamp}};
///
/// let clock = Arc::new(Clock::fixed(Timestamp::now()));
/// let selector = Selector::builder().clock(clock.clone()).build()?;
/// let url = url::Url::parse("https://example.org/").unwrap();
/// let mut visit = selector.visit(&url)?;
/// let end = fetchwise_simulate::drive(&mut visit, &clock, None, |_| FetchResult::from(Outcome::Http(404)));
/// assert_eq!(end.requests, 1);
/// # Ok::<(), fetchwise::Error>(())
/// ```
pub fn drive<S, U>(
    visit: &mut Visit<S, U>,
    clock: &Clock,
    mut timing: Option<&mut Timing>,
    mut answer: impl FnMut(&Fetch<S>) -> FetchResult,
) -> End
where
    S: Deref<Target = Selector> + Clone,
    U: Borrow<Url>,
{
    loop {
        let begun = timing.as_ref().map(|_| Instant::now());
        let step = visit.next();
        if let (Some(timing), Some(begun)) = (timing.as_deref_mut(), begun) {
            timing.nanoseconds += begun.elapsed().as_nanos() as u64;
            timing.steps += 1;
        }
        match step {
            Step::Fetch(fetch) => {
                let answer = answer(&fetch);
                visit.report(fetch, answer);
            }
            Step::Wait(wait) => clock.set(wait.until()),
            Step::End(end) => return end,
        }
    }
}
