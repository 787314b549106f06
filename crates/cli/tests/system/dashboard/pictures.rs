//! The pictures of `docs/guides/dashboard.md`, taken of a crawl of the demo sites by
//! `make pictures`.

use std::path::{Path, PathBuf};

use fetchwise_testsite::demo_sites::interactive_demo_sites;
use fetchwise_testsite::origin::Origin;

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

/// The demo sites whose pace is in the pictures, and the number of pages of each.
const PACED: [&str; 5] = ["library", "gallery", "archive", "ferry", "mill"];
const PAGES: usize = 30;

/// Crawls some of the demo sites with a learned pace, which the demo has only for its mill.
fn learn_pace(data: &Path) {
    let sites: Vec<_> =
        interactive_demo_sites().into_iter().filter(|site| PACED.contains(&site.name)).collect();
    let origin = Origin::start(sites.iter().map(|site| (site.host, site.site.clone()))).unwrap();
    // Pages that the demo has not fetched.
    let urls = (0..PAGES).flat_map(|n| sites.iter().map(move |site| (site, 1_000 + n)));
    let urls: String =
        urls.map(|(site, n)| format!("{}\n", origin.url(site.host, &site.path(n)))).collect();
    let input = data.with_extension("txt");
    std::fs::write(&input, urls).unwrap();
    let fetch = ["fetch", "--json", "--allow-network", "127.0.0.0/8", "--wait", "0", "--input"];
    let ran = program(data).args(fetch).arg(&input).output().unwrap();
    assert!(
        ran.status.code().is_some_and(|code| code != 2),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
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
            let ran = program(&data)
                .args(["demo", "--rounds", "24", "--json", "--data-dir"])
                .arg(&data)
                .output()
                .unwrap();
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            learn_pace(&data);
            data
        }
    };
    let server = Server::start_bare(&data, &[]);
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
