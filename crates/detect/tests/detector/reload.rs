//! Reload of rules while other threads read: every page is read with one set of rules from
//! beginning to end, and a file with an error changes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fetchwise_detect::{Detector, Scratch};
use fetchwise_types::response::{Header, Page};

const BODY: &[u8] =
    b"<html><body><script>house_challenge()</script><p>nothing else</p></body></html>";

/// Returns a rule for the page above, with this vendor, and `more` other rules.
fn rules(vendor: &str, more: usize) -> String {
    let mut toml = format!(
        "[[rule]]\nid = 'house'\nvendor = '{vendor}'\ngrade = 'strong'\nfind = ['house_challenge(']\nnote = 'made up'\n"
    );
    for n in 0..more {
        toml += &format!(
            "[[rule]]\nid = 'more-{n}'\ngrade = 'strong'\nfind = ['marker-{n:05}']\nnote = 'made up'\n"
        );
    }
    toml
}

fn vendor(detector: &Detector, scratch: &mut Scratch) -> Option<String> {
    let headers = [Header::new("Content-Type", "text/html")];
    let page = Page { status: 200, headers: &headers, body: BODY, ..Page::default() };
    detector.inspect(&page, scratch).vendor.map(|v| v.to_string())
}

#[test]
fn rules_are_replaced_while_other_threads_read() {
    let detector = Arc::new(Detector::with_rules(&rules("even", 0)).unwrap());
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (detector, done) = (Arc::clone(&detector), Arc::clone(&done));
            thread::spawn(move || {
                let mut scratch = Scratch::default();
                let mut read = 0u32;
                // Each thread reads at least once, however the threads are scheduled.
                while read == 0 || !done.load(Ordering::Acquire) {
                    let vendor = vendor(&detector, &mut scratch);
                    assert!(matches!(vendor.as_deref(), Some("even" | "odd")), "{vendor:?}");
                    read += 1;
                }
            })
        })
        .collect();
    for n in 0..10 {
        // Tables of different sizes: state in a scratch from one cannot fit the next.
        detector.reload(&rules(if n % 2 == 0 { "odd" } else { "even" }, n * 7 % 50)).unwrap();
    }
    done.store(true, Ordering::Release);
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert_eq!(vendor(&detector, &mut Scratch::default()).as_deref(), Some("even"));
}

#[test]
fn an_error_names_the_file_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rules.toml");
    std::fs::write(&path, rules("first", 3)).unwrap();
    let detector = Detector::from_file(&path).unwrap();
    let count = detector.rule_count();
    let mut scratch = Scratch::default();
    for (broken, wants) in [
        (
            rules("second", 1)
                + "\n[[rule]]\nid = 'x'\ngrade = 'strong'\nfind = ['abc']\nnote = 'y'\n",
            "field `find`",
        ),
        (rules("second", 0) + "colour = 'red'\n", "colour"),
        ("[[rule]\n".to_owned(), "line 1"),
    ] {
        std::fs::write(&path, broken).unwrap();
        let error = detector.reload_file(&path).unwrap_err().to_string();
        assert!(
            error.contains("rules.toml") && error.contains("line ") && error.contains(wants),
            "{error}"
        );
        assert_eq!(detector.rule_count(), count);
        assert_eq!(vendor(&detector, &mut scratch).as_deref(), Some("first"));
    }
    std::fs::remove_file(&path).unwrap();
    assert!(detector.reload_file(&path).unwrap_err().to_string().contains("cannot read"));

    std::fs::write(&path, rules("second", 0)).unwrap();
    detector.reload_file(&path).unwrap();
    assert_eq!(vendor(&detector, &mut scratch).as_deref(), Some("second"));
}

#[test]
fn a_reload_removes_all_rules_of_the_previous_file() {
    let detector = Detector::with_rules(&rules("first", 10)).unwrap();
    let shipped = Detector::new().rule_count();
    assert_eq!(detector.rule_count(), shipped + 11);
    detector.reload("").unwrap();
    assert_eq!(detector.rule_count(), shipped);
    assert_eq!(vendor(&detector, &mut Scratch::default()), None);
}
