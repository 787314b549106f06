//! The crawlers that learn nothing: one that always asks directly, one that always uses a browser. Each visits a town of its own, so
//! that its requests change nothing for the others, and the town counts them.

use std::sync::Arc;

use fetchwise::detect::Detector;
use fetchwise::fetch::{Fetcher, Limits, Request};
use fetchwise::fetch_result::Outcome;
use fetchwise_testsite::demo_sites::DemoSite;
use fetchwise_testsite::origin::Origin;
use tokio::sync::Semaphore;
use url::Url;

use super::serve;
use crate::commands::demo::model::Counted;
use crate::terminal::exit::Failure;

/// A crawler that does the same for every page.
pub(super) struct Rival {
    pub(super) name: &'static str,
    fetcher: Arc<dyn Fetcher>,
    detector: Arc<Detector>,
    places: Semaphore,
    origin: Origin,
    pages: u64,
}

impl Rival {
    /// Builds a town for `name`, who asks with `fetcher`.
    pub(super) fn new(
        name: &'static str,
        fetcher: Arc<dyn Fetcher>,
        detector: Arc<Detector>,
        town: &[DemoSite],
    ) -> Result<Self, Failure> {
        let places = Semaphore::new(fetcher.max_in_flight().min(town.len()).max(1));
        Ok(Self { name, fetcher, detector, places, origin: serve(town)?, pages: 0 })
    }

    /// Asks for page number `round` of each place, whatever came of it before.
    pub(super) async fn round(&mut self, town: &[DemoSite], round: usize) {
        let mut asked = Vec::with_capacity(town.len());
        for place in town {
            let url = self.origin.url(place.host, &place.path(round));
            asked.push(delivers(&*self.fetcher, &self.detector, &self.places, url));
        }
        let came = futures_util::future::join_all(asked).await;
        self.pages += came.into_iter().filter(|came| *came).count() as u64;
    }

    /// What its town has counted. `plain` is how a plain client calls itself.
    pub(super) fn counted(&self, town: &[DemoSite], plain: &str) -> Counted {
        Counted { pages: self.pages, ..count(&self.origin, town, plain) }
    }
}

/// Whether a page came that somebody can read.
async fn delivers(fetcher: &dyn Fetcher, detector: &Detector, places: &Semaphore, url: String) -> bool {
    let Ok(url) = Url::parse(&url) else { return false };
    let Ok(_place) = places.acquire().await else { return false };
    match fetcher.fetch(Request { url: &url, limits: &Limits::default() }).await {
        Ok(response) => matches!(detector.judge_page(&response.page(&url)).outcome, Outcome::Content),
        Err(_) => false,
    }
}

/// What the places have counted: a page counts as a browser's unless the client calls itself `plain`.
pub(super) fn count(origin: &Origin, town: &[DemoSite], plain: &str) -> Counted {
    let mut counted = Counted::default();
    for seen in origin.requests().iter().filter(|seen| town.iter().any(|place| place.host == seen.host)) {
        counted.requests += 1;
        match seen.is_page() {
            true if seen.user_agent() == Some(plain) => counted.plain += 1,
            true => counted.rendered += 1,
            false => {}
        }
    }
    counted.refused = town.iter().map(|place| origin.refusals(place.host)).sum();
    counted
}
