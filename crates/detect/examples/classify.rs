//! Classifies a saved response: `cargo run -p fetchwise-detect --example classify -- [PAGE.html
//! [STATUS]]`.
//!
//! Without arguments it classifies a short challenge page.

use std::error::Error;

use fetchwise_detect::response::{Header, Page};
use fetchwise_detect::{Detector, Scratch};

const CHALLENGE: &str = "<!doctype html><title>Just a moment...</title>\
    <body><p>Checking your browser before you access the site.</p><script>window._cf_chl_opt = {}</script></body>";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let body = match arguments.next() {
        Some(path) => std::fs::read(path)?,
        None => CHALLENGE.into(),
    };
    let status = arguments.next().map_or(Ok(200), |status| status.parse())?;
    let headers = [Header::new("Content-Type", "text/html")];
    let page = Page { status, headers: &headers, body: &body, ..Page::default() };

    let detector = Detector::new();
    let explanation = detector.explain(&page, &mut Scratch::default());
    let verdict = &explanation.verdict;
    println!("outcome     {:?}", verdict.outcome(&page));
    println!("reason      {}", verdict.reason());
    println!("confidence  {:.2}", verdict.confidence);
    for found in &explanation.matches {
        let counted = if found.counted { "counted" } else { "ignored" };
        println!("{counted}     {} in {}: {}", found.rule, found.place.name(), found.text);
    }
    if let Some(cues) = &explanation.cues {
        println!("cues        {} of {}", cues.sum, cues.threshold);
        for cue in &cues.cues {
            println!("{:>7}     {}: {}", cue.weight, cue.id, cue.text);
        }
    }
    Ok(())
}
