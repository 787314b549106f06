//! Pages that a real Chromium renders.

use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions, OptionsError};
use fetchwise::fetch::dial::Dialer;
use fetchwise::response::header;

use crate::support::{Rebinding, body, bounded, chromium, dialer, get, guard, within};
use crate::tempers::{Certificate, Hostile, Temper};

fn browser(options: BrowserOptions, dialer: Dialer) -> Option<BrowserFetcher> {
    Some(BrowserFetcher::new(chromium()?, options, dialer).unwrap())
}

/// A page that is blocked is an error at the deadline: it is never read as it is.
fn without_concessions() -> BrowserOptions {
    BrowserOptions {
        max_settle: Duration::from_secs(600),
        give_in_percent: 100,
        ..BrowserOptions::default()
    }
}

#[tokio::test]
async fn no_server_can_impersonate_the_filtering_proxy() {
    bounded(async {
        let certificate = Certificate::for_names(&["forger.example"]);
        let secure = Hostile::start_tls(Temper::SpeaksForTheProxy, &certificate).await;
        let plain = Hostile::start(Temper::SpeaksForTheProxy).await;
        // The certificate is not part of this test.
        let options = BrowserOptions {
            extra_args: vec!["--ignore-certificate-errors".to_owned()],
            ..BrowserOptions::default()
        };
        let Some(browser) =
            browser(options, Dialer::with_resolver(guard(), Rebinding::new(&["127.0.0.1"])))
        else {
            return;
        };
        let secure = format!("https://forger.example:{}/", secure.address.port()).parse().unwrap();
        for url in [secure, plain.url("/")] {
            let response = get(&browser, &url, &within(120)).await.unwrap();
            assert_eq!(response.status, 403, "{url}");
            assert!(String::from_utf8_lossy(&body(&response)).contains("<p>no</p>"), "{url}");
        }
        browser.close().await;
    })
    .await;
}

#[tokio::test]
async fn the_proxys_own_response_still_counts() {
    bounded(async {
        let Some(browser) = browser(BrowserOptions::default(), dialer()) else { return };
        for url in ["http://127.0.0.2:9/", "https://127.0.0.2:9/", "http://0x7f000002:9/"] {
            let error = get(&browser, &url.parse().unwrap(), &within(120)).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::RefusedAddress, "{url}: {error}");
        }
        browser.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_password_prompt_gets_no_password_and_does_not_block() {
    bounded(async {
        let server = Hostile::start(Temper::AsksForPasswords).await;
        let Some(browser) = browser(without_concessions(), dialer()) else { return };
        let response = get(&browser, &server.url("/"), &within(120)).await.unwrap();
        assert_eq!(response.status, 401);
        assert!(header(&response.headers, "www-authenticate").is_some());
        assert_eq!(server.requests(), ["/", "/image"], "no password was tried");
        browser.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_password_prompt_in_a_frame_or_worker_does_not_block() {
    bounded(async {
        let asking = Hostile::start(Temper::AsksForPasswords).await;
        let port = asking.address.port();
        let page = format!(
            "<p>framed<iframe src=http://other.example:{port}/></iframe><script>\
             new Worker(URL.createObjectURL(new Blob(['fetch(\"http://third.example:{port}/w\", {{mode: \"no-cors\"}})'])))\
             </script>"
        );
        let server = Hostile::start(Temper::Shows(page)).await;
        let dialer = Dialer::with_resolver(guard(), Rebinding::new(&["127.0.0.1"]));
        let Some(browser) = browser(without_concessions(), dialer) else { return };
        let url = format!("http://page.example:{}/", server.address.port()).parse().unwrap();
        let response = get(&browser, &url, &within(120)).await.unwrap();
        assert!(String::from_utf8_lossy(&body(&response)).contains("framed"));
        assert!(asking.requests().contains(&"/image".to_owned()), "the frame was shown: {:?}", asking.requests());
        browser.close().await;
    })
    .await;
}

#[test]
fn a_browser_without_tabs_is_an_error() {
    let options = BrowserOptions { tabs: 0, ..BrowserOptions::default() };
    let built = BrowserFetcher::new("/bin/true".into(), options, dialer());
    assert!(matches!(built, Err(OptionsError::NoTabs)));
}
