//! The sites of the demo.

use fetchwise_testsite::demo_sites::DemoSite;
use fetchwise_testsite::origin::Origin;

use crate::failure::Failure;

/// The user agent that the demo's bank accepts as a person: real stealth is not part of the demo.
pub(super) const STEALTH_AGENT: &str = "Mozilla/5.0 (X11; Linux x86_64) stealth";

/// Serves the sites on loopback.
pub(super) fn serve(places: &[DemoSite]) -> Result<Origin, Failure> {
    Origin::start(places.iter().map(|place| (place.host, place.site.clone())))
        .map_err(|error| Failure::failed(format_args!("cannot serve the demo sites: {error}")))
}
