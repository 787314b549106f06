//! Exhausted resources of this machine are local faults.

use std::path::PathBuf;

use fetchwise::fetch::browser::{BrowserFetcher, BrowserOptions};
use fetchwise::fetch::command::{CommandFetcher, CommandOptions};
use fetchwise::fetch::{FetchError, Limits, Response, local_faults};
use fetchwise_testsite::requirements::{NO_MOUNT, NO_NETWORK, skip};
use futures_util::future::join_all;

use crate::support::{alone, bounded, builder, chromium, dialer, get, is_alone, within};
use crate::tempers::{Hostile, Temper};

/// Fetches `count` pages at once, by a name that the system resolves.
async fn fetch_at_once(server: &Hostile, count: usize) -> Vec<Result<Response, FetchError>> {
    let guard = fetchwise::fetch::address_guard::AddressGuard::new([], true);
    let fetcher = fetchwise::fetch::http::HttpFetcher::new(guard).unwrap();
    let urls: Vec<url::Url> = (0..count)
        .map(|n| format!("http://localhost:{}/{n}", server.address.port()).parse().unwrap())
        .collect();
    let limits = within(120);
    join_all(urls.iter().map(|url| get(&fetcher, url, &limits))).await
}

#[tokio::test]
async fn too_few_descriptors_are_a_local_fault() {
    if !is_alone() {
        return alone("limits::too_few_descriptors_are_a_local_fault", "ulimit -n 60");
    }
    bounded(async {
        let server = Hostile::start(Temper::LeadsOn(0)).await;
        let ends = fetch_at_once(&server, 300).await;
        let failed: Vec<_> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
        assert!(
            failed.len() > 100,
            "{} of 300 failed: there were enough descriptors",
            failed.len()
        );
        let blamed: Vec<_> = failed.iter().filter(|error| !error.local).collect();
        assert!(
            blamed.is_empty(),
            "{} of {} failures: {:?}",
            blamed.len(),
            failed.len(),
            blamed.first()
        );
        drop(ends);
        // With descriptors available again, requests succeed.
        for end in fetch_at_once(&server, 3).await {
            end.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn the_descriptor_limit_is_raised_to_its_maximum() {
    if !is_alone() {
        return alone("limits::the_descriptor_limit_is_raised_to_its_maximum", "ulimit -Sn 60");
    }
    bounded(async {
        let now = local_faults::raise_descriptor_limit();
        assert!(now >= 1024, "{now}");
        let server = Hostile::start(Temper::LeadsOn(0)).await;
        let at_once = local_faults::fetches_within(now).min(300);
        for end in fetch_at_once(&server, at_once).await {
            end.unwrap();
        }
    })
    .await;
}

fn script(text: &str) -> CommandFetcher {
    CommandFetcher::new(CommandOptions::new("script", ["/bin/sh", "-c", text]), dialer())
}

#[tokio::test]
async fn a_missing_temporary_folder_is_a_local_fault_for_http_and_child_processes() {
    let missing = "export TMPDIR=/nonexistent/fetchwise";
    if !is_alone() {
        return alone(
            "limits::a_missing_temporary_folder_is_a_local_fault_for_http_and_child_processes",
            missing,
        );
    }
    bounded(async {
        let server = Hostile::start(Temper::GoesOnAndOn(100_000)).await;
        let limits = Limits { max_in_memory: 1000, ..within(120) };
        let plain = get(&builder().build().unwrap(), &server.url("/"), &limits).await.unwrap_err();
        assert!(plain.local, "{plain:?}");
        let child = get(&script("cat >/dev/null"), &server.url("/"), &limits).await.unwrap_err();
        assert!(child.local, "{child:?}");
    })
    .await;
}

#[tokio::test]
async fn a_missing_temporary_folder_is_a_local_fault_for_the_browser() {
    let Some(program) = chromium() else { return };
    if !is_alone() {
        let missing = "export TMPDIR=/nonexistent/fetchwise";
        return alone(
            "limits::a_missing_temporary_folder_is_a_local_fault_for_the_browser",
            missing,
        );
    }
    bounded(async {
        let server = Hostile::start(Temper::GoesOnAndOn(100_000)).await;
        let limits = Limits { max_in_memory: 1000, ..within(120) };
        let browser = BrowserFetcher::new(program, BrowserOptions::default(), dialer()).unwrap();
        let browser = get(&browser, &server.url("/"), &limits).await.unwrap_err();
        assert!(browser.local && !browser.unavailable, "{browser:?}");
    })
    .await;
}

#[tokio::test]
async fn a_full_disk_is_a_local_fault() {
    // Without the system's temporary folder, which would take the body in place of the full one.
    if !is_alone() {
        return alone(
            "limits::a_full_disk_is_a_local_fault",
            "export TMPDIR=/nonexistent/fetchwise",
        );
    }
    bounded(async {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
            .arg(dir.path())
            .output();
        if !mounted.is_ok_and(|out| out.status.success()) {
            skip(NO_MOUNT);
            return;
        }
        let server = Hostile::start(Temper::GoesOnAndOn(1 << 20)).await;
        let fetcher = builder().temp_dir(dir.path()).build().unwrap();
        let error =
            get(&fetcher, &server.url("/"), &Limits { max_in_memory: 1000, ..within(120) }).await;
        let _ = std::process::Command::new("umount").arg("-l").arg(dir.path()).output();
        let error = error.unwrap_err();
        assert!(error.local, "{error:?}");
    })
    .await;
}

/// Returns a command that runs `then` in an empty network namespace; `None` if that is not allowed
/// here.
fn without_network(then: &str) -> Option<String> {
    let allowed = std::process::Command::new("unshare").args(["-n", "true"]).output();
    let own = "if [ -z \"$OWN_NETWORK\" ]; then export OWN_NETWORK=1; exec unshare -n /bin/sh -c";
    allowed
        .is_ok_and(|out| out.status.success())
        .then(|| format!("{own} '{then} exec \"$@\"' sh \"$@\"; fi"))
}

#[tokio::test]
async fn a_machine_without_a_network_is_a_local_fault() {
    if !is_alone() {
        return match without_network("") {
            Some(setup) => alone("limits::a_machine_without_a_network_is_a_local_fault", &setup),
            None => skip(NO_NETWORK),
        };
    }
    bounded(async {
        let fetcher = fetchwise::fetch::http::HttpFetcher::new(Default::default()).unwrap();
        for url in ["http://example.org/", "http://93.184.215.14/", "http://[2606:4700::1]/"] {
            let error = get(&fetcher, &url.parse().unwrap(), &within(120)).await.unwrap_err();
            assert!(error.local, "{url}: {error:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn exhausted_ports_are_a_local_fault() {
    if !is_alone() {
        let few = "ip link set lo up && echo \"50000 50003\" >/proc/sys/net/ipv4/ip_local_port_range || exit 77;";
        let has_ip = std::process::Command::new("ip").arg("-V").output().is_ok();
        return match without_network(few).filter(|_| has_ip) {
            Some(setup) => alone("limits::exhausted_ports_are_a_local_fault", &setup),
            None => skip(NO_NETWORK),
        };
    }
    bounded(async {
        let server = Hostile::start(Temper::GoesOnAndOn(1000)).await;
        let fetcher = builder().build().unwrap();
        let urls: Vec<url::Url> = (0..40).map(|n| server.url(&format!("/{n}"))).collect();
        let limits = within(120);
        let ends = join_all(urls.iter().map(|url| get(&fetcher, url, &limits))).await;
        let failed: Vec<_> = ends.into_iter().filter_map(Result::err).collect();
        assert!(!failed.is_empty(), "there were enough ports");
        assert!(failed.iter().all(|error| error.local), "{failed:?}");
    })
    .await;
}

/// Returns a program that runs a script instead of starting Chromium.
fn pretender(dir: &tempfile::TempDir, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = dir.path().join("chromium");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn a_slow_browser_start_is_a_local_fault() {
    let Some(program) = chromium() else { return };
    bounded(async {
        let (dir, server) =
            (tempfile::tempdir().unwrap(), Hostile::start(Temper::LeadsOn(0)).await);
        // It starts once the test has seen that it does not.
        let may_start = dir.path().join("may-start");
        let wait = format!("while [ ! -e '{}' ]; do sleep 0.1; done", may_start.display());
        let slow = pretender(&dir, &format!("{wait}\nexec '{}' \"$@\"", program.display()));
        let browser = BrowserFetcher::new(slow, BrowserOptions::default(), dialer()).unwrap();
        let error = get(&browser, &server.url("/"), &within(1)).await.unwrap_err();
        assert!(error.local && !error.unavailable, "{error:?}");
        assert_eq!(server.requests().len(), 0);
        // It continues to start, so a later try finds it.
        std::fs::write(&may_start, "").unwrap();
        get(&browser, &server.url("/"), &within(120)).await.unwrap();
        browser.close().await;
    })
    .await;
}

#[tokio::test]
async fn a_browser_that_cannot_start_is_unavailable() {
    bounded(async {
        let (dir, server) =
            (tempfile::tempdir().unwrap(), Hostile::start(Temper::LeadsOn(0)).await);
        let broken =
            pretender(&dir, "echo 'libfoo.so: cannot open shared object file' >&2\nexit 127");
        let browser = BrowserFetcher::new(broken, BrowserOptions::default(), dialer()).unwrap();
        let error = get(&browser, &server.url("/"), &within(120)).await.unwrap_err();
        assert!(
            error.unavailable && !error.local && error.message.contains("libfoo.so"),
            "{error:?}"
        );
        assert!(browser.why_not_started().is_some_and(|why| why.contains("libfoo.so")));
    })
    .await;
}
