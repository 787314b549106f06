//! Crawlers that learn nothing, for comparison: one always makes plain requests, one always uses a
//! browser. Each has its own copy of the demo sites, which count its requests, so it affects no
//! other crawler.

use std::sync::Arc;

use fetchwise::detect::Detector;
use fetchwise::fetch::{Fetcher, Limits, Request};
use fetchwise::fetch_result::Outcome;
use fetchwise_testsite::demo_sites::DemoSite;
use fetchwise_testsite::origin::Origin;
use tokio::sync::Semaphore;
use url::Url;

use super::sites::serve;
use crate::demo::model::RequestCounts;
use crate::failure::Failure;

/// A crawler that treats every page alike.
pub(super) struct Baseline {
    pub(super) name: &'static str,
    fetcher: Arc<dyn Fetcher>,
    detector: Arc<Detector>,
    places: Semaphore,
    origin: Origin,
    pages: u64,
}

impl Baseline {
    /// Serves the sites for `name`, which requests with `fetcher`.
    pub(super) fn new(
        name: &'static str,
        fetcher: Arc<dyn Fetcher>,
        detector: Arc<Detector>,
        sites: &[DemoSite],
    ) -> Result<Self, Failure> {
        let places = Semaphore::new(fetcher.max_in_flight().min(sites.len()).max(1));
        Ok(Self { name, fetcher, detector, places, origin: serve(sites)?, pages: 0 })
    }

    /// Requests page number `round` of each site, regardless of earlier results.
    pub(super) async fn round(&mut self, sites: &[DemoSite], round: usize) {
        let mut asked = Vec::with_capacity(sites.len());
        for place in sites {
            let url = self.origin.url(place.host, &place.path(round));
            asked.push(delivers(&*self.fetcher, &self.detector, &self.places, url));
        }
        let came = futures_util::future::join_all(asked).await;
        self.pages += came.into_iter().filter(|came| *came).count() as u64;
    }

    /// Returns the counts of its sites. `plain` is the user agent of a plain client.
    pub(super) fn counted(&self, sites: &[DemoSite], plain: &str) -> RequestCounts {
        RequestCounts { pages: self.pages, ..count(&self.origin, sites, plain) }
    }
}

/// Returns whether a readable page arrived.
async fn delivers(
    fetcher: &dyn Fetcher,
    detector: &Detector,
    places: &Semaphore,
    url: String,
) -> bool {
    let Ok(url) = Url::parse(&url) else { return false };
    let Ok(_place) = places.acquire().await else { return false };
    match fetcher.fetch(Request::new(&url, &Limits::default())).await {
        Ok(response) => {
            matches!(detector.judge_page(&response.page(&url)).outcome, Outcome::Content)
        }
        Err(_) => false,
    }
}

/// Returns the counts of the sites. A page counts as rendered unless the client's user agent is
/// `plain`.
pub(super) fn count(origin: &Origin, sites: &[DemoSite], plain: &str) -> RequestCounts {
    let mut counted = RequestCounts::default();
    for seen in
        origin.requests().iter().filter(|seen| sites.iter().any(|place| place.host == seen.host))
    {
        counted.requests += 1;
        match seen.is_page() {
            true if seen.user_agent() == Some(plain) => counted.plain += 1,
            true => counted.rendered += 1,
            false => {}
        }
    }
    counted.refused = sites.iter().map(|place| origin.refusals(place.host)).sum();
    counted
}
