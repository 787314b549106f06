//! The pictures of `docs/guides/dashboard.md`, taken of a crawl of the demo sites by `make pictures`.

use std::path::{Path, PathBuf};

use super::chrome::Chrome;
use super::server::{Server, program};

/// The folder for the pictures.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub(crate) fn take(chrome: &mut Chrome, name: &str) {
    // The next frame draws everything after the last change of size or colours.
    chrome.eval("new Promise(done => requestAnimationFrame(() => setTimeout(done, 300)))");
    let picture = chrome.picture();
    std::fs::write(folder().join(name), picture).unwrap();
}

#[test]
#[ignore = "writes the pictures of the docs: `make pictures`"]
fn pictures_of_the_docs() {
    let place = tempfile::tempdir().unwrap();
    // A crawl of a quarter of an hour gives better pictures than the minute of a demo.
    let data = match std::env::var_os("PICTURES_OF") {
        Some(dir) => PathBuf::from(dir),
        None => {
            let data = place.path().join("data");
            let ran =
                program(&data).args(["demo", "--rounds", "24", "--json", "--data-dir"]).arg(&data).output().unwrap();
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            data
        }
    };
    let server = Server::start(&data, None);
    let mut chrome = Chrome::start(1440, 1010);
    chrome.prefers("light", true);
    chrome.open(&format!("{}/", server.url));
    chrome.until("document.querySelector('#status')?.textContent === 'Live'");
    chrome.until("document.querySelector('#domains tbody tr')");
    chrome.eval("document.fonts.ready.then(() => 0)");
    take(&mut chrome, "dashboard-light.png");

    // The gallery is an application shell, which a plain request cannot render.
    chrome.eval("document.querySelector('#explain-url').value = 'http://127.0.0.3/works/99'");
    chrome.eval("document.querySelector('#explain-form').requestSubmit()");
    chrome.until("document.querySelector('#verdict')");
    chrome.eval("document.activeElement.blur()");
    chrome.eval("document.querySelector('#explain').scrollIntoView()");
    take(&mut chrome, "dashboard-explain.png");

    chrome.prefers("dark", true);
    chrome.until("matchMedia('(prefers-color-scheme: dark)').matches");
    chrome.eval("document.querySelector('#hosts').scrollIntoView()");
    take(&mut chrome, "dashboard-dark.png");

    chrome.prefers("light", true);
    chrome.open(&format!("{}/?domain=127.0.0.3", server.url));
    chrome.until("document.querySelectorAll('#domain-explained .gates li').length === 6");
    chrome.eval("document.activeElement.blur()");
    take(&mut chrome, "dashboard-domain.png");

    // The same on a telephone: the beginning, and the domains.
    chrome.open(&format!("{}/", server.url));
    chrome.until("document.querySelector('#status')?.textContent === 'Live'");
    chrome.size(400, 1010);
    chrome.until("innerWidth === 400 && document.documentElement.scrollWidth === 400");
    chrome.until("document.querySelector('#domains tbody tr')");
    chrome.eval("scrollTo(0, 0)");
    take(&mut chrome, "dashboard-narrow.png");
    chrome.prefers("dark", true);
    chrome.until("matchMedia('(prefers-color-scheme: dark)').matches");
    chrome.eval("document.querySelector('#sites').scrollIntoView()");
    take(&mut chrome, "dashboard-narrow-dark.png");
}
