//! Select and record: choose a fetcher, fetch in any way, and record the result.
//!
//! `cargo run --example select`

use fetchwise::attempt::Attempt;
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::registry::FetcherSpec;
use fetchwise::selector::{SelectContext, Selector};
use fetchwise::time::Timestamp;
use url::Url;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let selector = Selector::builder()
        .fetcher(FetcherSpec::by_name("direct_access"))
        .fetcher(FetcherSpec::by_name("playwright"))
        .build()?;
    let now = Timestamp::now();

    // A shop whose pages are empty without scripts. Each URL is tried until its content came.
    for n in 1..=9 {
        let url = Url::parse(&format!("https://shop.example/items/{n}"))?;
        let mut situation = SelectContext::first_attempt(now);
        while let Some(take) = selector.select(&url, &situation)?.selected() {
            let fetcher = selector.fetcher_name(take.fetcher);
            println!("{url}  {fetcher}  {} (confidence {:.2})", take.source, take.confidence);
            let mut attempt = Attempt::new(&url, fetcher, Timestamp::date())?;
            // A crawler learns this by fetching. Label and propensity make the log useful for later
            // analysis.
            attempt.source = Some(take.source.name().into());
            attempt.propensity = Some(take.propensity);
            attempt.try_no = situation.attempts + 1;
            attempt.hint = situation.hint;
            let delivered = fetcher == "playwright";
            let attempt =
                if delivered { attempt.delivered() } else { attempt.failed(ErrorKind::WrongTool) };
            selector.record(attempt, now)?;
            if delivered {
                break;
            }
            situation.excluded.insert(take.fetcher);
            situation.attempts += 1;
            situation.hint = Some(fetchwise::attempt::Hint::after(ErrorKind::WrongTool));
        }
    }
    Ok(())
}
