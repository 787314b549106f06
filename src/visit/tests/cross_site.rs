//! Pages that several sites show, and doubtful pages that a browser has settled.

use xxhash_rust::xxh3::xxh3_64;

use super::*;

/// Returns the SimHash of the page with this text.
fn hash(text: &str) -> Option<u64> {
    Some(xxh3_64(text.as_bytes()))
}

/// Returns whether a browser was among the fetchers.
fn has_rendered(asked: &[String]) -> bool {
    asked.iter().any(|name| name != "direct_access")
}

/// What the attempts for a site were tagged with.
fn tags(world: &World, site: &str) -> Vec<(String, f64)> {
    let attempts =
        world.attempts().into_iter().filter(|attempt| attempt.heuristic("domain") == Some(site));
    attempts
        .map(|attempt| {
            (
                attempt.heuristic("same_page_other_sites").unwrap_or("none").to_owned(),
                attempt.weight,
            )
        })
        .collect()
}

#[test]
fn two_hundred_parked_domains_are_delivered_as_default_pages_and_teach_nothing() {
    let world = World::new();
    for site in 0..200 {
        let parked = content(Some(hash("for sale").unwrap() ^ (1 << (site % 60))));
        let (asked, end) = world.run(&format!("https://parked{site}.org/"), &[parked]);
        assert!(end.is_delivered() && asked.len() == 1, "{site}: {end:?}");
        assert_eq!(end.is_default_page, site >= 2, "{site}");
    }
    assert_eq!(tags(&world, "parked1.org"), [("none".to_owned(), 1.0)]);
    assert_eq!(tags(&world, "parked150.org"), [("default_page".to_owned(), 0.0)]);
}

#[test]
fn the_log_in_of_one_product_at_fifty_sites_is_a_default_page() {
    let world = World::new();
    for site in 0..50 {
        for page in 0..5 {
            world.run(&format!("https://shop{site}.org/{page}"), &[content(None)]);
        }
        let mut login = content(hash("sign in to your dashboard"));
        login.heuristics.push(Heuristic::flag("has_login_wall"));
        for page in ["a", "b", "c"] {
            let (_, end) =
                world.run(&format!("https://shop{site}.org/{page}"), std::slice::from_ref(&login));
            assert!(end.is_delivered(), "{site} {page}: {end:?}");
        }
    }
    assert!(world.attempts().iter().all(|attempt| attempt.error_type.is_none()));
}

#[test]
fn a_network_that_begins_to_refuse_everything_is_known_at_the_third_site_that_turns() {
    let world = World::new();
    let refusal = || content(hash("talk to the people who run this network"));
    for site in 0..10 {
        for page in 0..4 {
            world.run(&format!("https://s{site}.org/{page}"), &[content(None)]);
        }
    }
    let mut lost = 0;
    for page in 0..5 {
        for site in 0..10 {
            let (_, end) = world.run(&format!("https://s{site}.org/late/{page}"), &[refusal()]);
            lost += u32::from(end.is_delivered());
            if page >= 2 {
                assert_eq!(end.how, failed(ErrorKind::NetworkBlock), "{page} {site}");
            }
        }
    }
    assert_eq!(lost, 12, "one page of each site, and the second one of two");
    let last = world.attempts().pop().unwrap();
    assert_eq!((last.heuristic("network_block"), last.weight), (Some("true"), 0.0));
}

#[test]
fn a_network_that_refuses_one_site_in_twenty_is_known_once_another_fetcher_gets_the_page() {
    let world = World::new();
    let refusal = || content(hash("not on this network"));
    for site in 0..100 {
        for page in 0..3 {
            let url = format!("https://s{site}.org/{page}");
            let answer = if site % 20 == 0 { refusal() } else { content(hash(&url)) };
            let (_, end) = world.run(&url, &[answer]);
            assert!(
                end.is_delivered() && end.is_default_page == (site % 20 == 0 && site >= 40),
                "{url}: {end:?}"
            );
        }
    }
    // Another way to the site gets its page for one of the addresses.
    let mut visit = world.visit("https://s40.org/1");
    visit = visit.prefer("playwright").unwrap();
    assert!(drive(visit, &[content(None)]).1.is_delivered());
    for site in [0, 20, 40, 60, 80] {
        let (asked, end) = world.run(&format!("https://s{site}.org/new"), &[refusal()]);
        let is_known = end.how == failed(ErrorKind::NetworkBlock) || end.is_banned;
        assert!(is_known && asked.len() > 1, "{site}: {asked:?} {end:?}");
    }
}

#[test]
fn short_pages_of_many_sites_are_never_marked() {
    let world = World::new();
    for n in 0..899 {
        let url = format!("https://s{}.org/{n}", n % 139);
        let (_, end) = world.run(&url, &[content(hash(&url))]);
        assert!(end.is_delivered() && !end.is_default_page, "{url}");
    }
    // Three pages of one site are the site's own.
    for page in 0..3 {
        assert!(
            !world
                .run(&format!("https://a{page}.s1.org/x"), &[content(hash("same"))])
                .1
                .is_default_page
        );
    }
}

#[test]
fn the_words_of_a_doubtful_page_are_rendered_once_for_their_site() {
    let world = World::new();
    let doubtful = || with_short(ShortPage::new(40, 7).suspect());
    let (first, end) = world.run("/a", &[doubtful()]);
    assert!(
        has_rendered(&first) && end.how == failed(ErrorKind::EmptyContent),
        "{first:?} {end:?}"
    );
    for page in 0..20 {
        let (asked, end) = world.run(&format!("/more/{page}"), &[doubtful()]);
        assert_eq!((asked.len(), end.how), (1, failed(ErrorKind::EmptyContent)), "{asked:?}");
    }
    let settled = world.attempts().pop().unwrap();
    assert_eq!((settled.fetcher.as_str(), settled.weight), ("direct_access", 0.0));
    let other = |text| with_short(ShortPage::new(40, text).suspect());
    assert!(has_rendered(&world.run("/b", &[other(8)]).0), "other words");
    assert!(has_rendered(&world.run("https://f.org/b", &[doubtful()]).0), "another site");
    world.pass(Duration::from_secs(3_601));
    // An hour later nothing is settled: the plain attempt counts again. Whether a render is worth
    // its cost is the policy's matter.
    world.run("/c", &[doubtful()]);
    let plain =
        world.attempts().into_iter().rfind(|attempt| attempt.fetcher == "direct_access").unwrap();
    assert_eq!(plain.weight, 1.0);
}

#[test]
fn a_rendering_with_other_words_settles_nothing() {
    let world = World::new();
    let answers =
        [with_short(ShortPage::new(40, 7).suspect()), with_short(ShortPage::new(90, 9).suspect())];
    for page in 0..3 {
        assert!(has_rendered(&world.run(&format!("/{page}"), &answers).0));
    }
}
