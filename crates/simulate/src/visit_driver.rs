//! Driving a visit without a network: each fetch is answered by a function, and time passes only where the visit waits for it.
//!
//! The simulator's runs go through here, and so do scripts that are compared with other drivers. Must not decide or record: the
//! visit does.

use std::borrow::Borrow;
use std::ops::Deref;
use std::time::Instant;

use fetchwise::Selector;
use fetchwise::fetch_result::FetchResult;
use fetchwise::time::Clock;
use fetchwise::visit::{End, Fetch, Step, Visit};
use url::Url;

/// How long decisions took, for whoever wants to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timing {
    /// Nanoseconds in all.
    pub nanoseconds: u64,
    /// Steps that were asked for.
    pub steps: u64,
}

/// Drives `visit` to its end. `clock` is the selector's: it is set forward to whatever the visit waits for.
///
/// ```
/// use std::sync::Arc;
/// use fetchwise::{Selector, answer::{FetchResult, Outcome}, time::{Clock, Timestamp}};
///
/// let clock = Arc::new(Clock::fixed(Timestamp::now()));
/// let selector = Selector::builder().clock(clock.clone()).build()?;
/// let url = url::Url::parse("https://example.org/").unwrap();
/// let mut visit = selector.visit(&url)?;
/// let end = fetchwise_simulate::visit_driver(&mut visit, &clock, None, |_| FetchResult::from(Outcome::Http(404)));
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
            _ => unreachable!("a visit has no other steps"),
        }
    }
}
