//! A signed crawl of a hundred sites, and one without an identity.

use crate::identity_costs::assert_that_signing_saves_the_browser;

#[test]
fn signing_saves_the_browser_on_fifty_sites_that_verify_bots() {
    assert_that_signing_saves_the_browser(50);
}
