//! Servers that violate the protocol.

use std::sync::atomic::Ordering;
use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::{LimitMet, Limits};

use crate::support::{Rebinding, body, bounded, builder, get, within};
use crate::tempers::{Certificate, Farewell, Hostile, Temper, farewell};

#[tokio::test]
async fn a_request_is_repeated_only_if_no_byte_came_back() {
    bounded(async {
        for (temper, again) in [
            (Temper::HangsUpOnTheSecond, true),
            (Temper::BreaksOffOnTheSecond, false),
            (Temper::ResetsOnTheSecond, false),
        ] {
            let (server, fetcher) =
                (Hostile::start(temper.clone()).await, builder().build().unwrap());
            get(&fetcher, &server.url("/1"), &within(120)).await.unwrap();
            let second = get(&fetcher, &server.url("/2"), &within(120)).await;
            assert_eq!(second.is_ok(), again, "{temper:?}: {second:?}");
            let sent = server.requests().iter().filter(|path| *path == "/2").count();
            assert_eq!(
                sent,
                if again { 2 } else { 1 },
                "{temper:?}: each processed request is an attempt"
            );
            assert_eq!(server.connections(), if again { 2 } else { 1 }, "{temper:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_same_holds_with_tls_whose_close_notify_is_not_a_response() {
    bounded(async {
        let certificate = Certificate::for_names(&["tls.example"]);
        for (temper, again) in
            [(Temper::HangsUpOnTheSecond, true), (Temper::BreaksOffOnTheSecond, false)]
        {
            let server = Hostile::start_tls(temper.clone(), &certificate).await;
            let fetcher = builder()
                .resolver(Rebinding::new(&["127.0.0.1"]))
                .root_certificate(certificate.der.clone())
                .build()
                .unwrap();
            let url = |path: &str| {
                format!("https://tls.example:{}{path}", server.address.port()).parse().unwrap()
            };
            get(&fetcher, &url("/1"), &within(120)).await.unwrap();
            let second = get(&fetcher, &url("/2"), &within(120)).await;
            assert_eq!(second.is_ok(), again, "{temper:?}: {second:?}");
            let sent = server.requests().iter().filter(|path| *path == "/2").count();
            assert_eq!(sent, if again { 2 } else { 1 }, "{temper:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn http_2_repeats_only_unprocessed_requests() {
    bounded(async {
        let certificate = Certificate::for_names(&["farewell.example"]);
        for (how, again) in [
            (Farewell::SaysGoodbye, true),
            (Farewell::HangsUp, true),
            (Farewell::RefusesTheStream, false),
            (Farewell::BlamesUs, false),
        ] {
            let (address, requests) = farewell(how, &certificate).await;
            let fetcher = builder()
                .resolver(Rebinding::new(&["127.0.0.1"]))
                .root_certificate(certificate.der.clone())
                .build()
                .unwrap();
            let url = format!("https://farewell.example:{}/", address.port()).parse().unwrap();
            get(&fetcher, &url, &within(120)).await.unwrap();
            // The first frames of a connection arrive before the second request.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let second = get(&fetcher, &url, &within(120)).await;
            assert_eq!(second.is_ok(), again, "{how:?}: {second:?}");
            assert_eq!(requests.load(Ordering::SeqCst), if again { 3 } else { 2 }, "{how:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_limit_that_ended_a_fetch_is_named_with_its_value() {
    bounded(async {
        let server = Hostile::start(Temper::LeadsOn(7)).await;
        let fetcher = builder().build().unwrap();
        let small = Limits { max_redirects: 5, ..within(120) };
        let error = get(&fetcher, &server.url("/0"), &small).await.unwrap_err();
        assert_eq!(
            (error.kind, error.limit),
            (ErrorKind::RedirectLoop, Some(LimitMet::Redirects(5)))
        );
        assert!(error.limit.unwrap().is_wider_in(&within(120)), "wider limits allow another try");
        assert_eq!(
            body(&get(&fetcher, &server.url("/0"), &within(120)).await.unwrap()),
            b"<p>arrived"
        );

        let server = Hostile::start(Temper::GoesOnAndOn(100_000)).await;
        let small = Limits { max_body: 1000, ..within(120) };
        let error = get(&fetcher, &server.url("/"), &small).await.unwrap_err();
        assert_eq!((error.kind, error.limit), (ErrorKind::TooLarge, Some(LimitMet::Body(1000))));
        let small = Limits { max_headers: 10, ..within(120) };
        let error = get(&fetcher, &server.url("/"), &small).await.unwrap_err();
        assert_eq!((error.kind, error.limit), (ErrorKind::TooLarge, Some(LimitMet::Headers(10))));
    })
    .await;
}

#[tokio::test]
async fn a_page_with_ten_codings_is_refused() {
    bounded(async {
        let server = Hostile::start(Temper::WrapsUp(10)).await;
        let error =
            get(&builder().build().unwrap(), &server.url("/"), &within(120)).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooLarge);
        assert!(error.message.contains("codings: 10"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn dns_rebinding_does_not_reach_a_private_network() {
    bounded(async {
        // The name resolves to a public address for the check, and to a forbidden network when it
        // is resolved again.
        let names = Rebinding::new(&["127.0.0.1", "127.0.0.2"]);
        let server = Hostile::start(Temper::HangsUpOnTheSecond).await;
        let fetcher = builder().resolver(names.clone()).build().unwrap();
        let url = format!("http://rebind.example:{}/", server.address.port()).parse().unwrap();
        get(&fetcher, &url, &within(120)).await.unwrap();
        assert_eq!(names.asked(), 1, "one lookup for the check and for the connection");
        // The kept connection is closed; the new one resolves the name again, and is refused.
        let error = get(&fetcher, &url, &within(120)).await.unwrap_err();
        assert_eq!((error.kind, names.asked()), (ErrorKind::RefusedAddress, 2), "{error}");
        assert_eq!(server.connections(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_custom_certificate_authority_is_trusted_from_a_file() {
    bounded(async {
        let certificate = Certificate::for_names(&["own.example"]);
        let server = Hostile::start_tls(Temper::LeadsOn(0), &certificate).await;
        let url = format!("https://own.example:{}/", server.address.port()).parse().unwrap();
        let names = || Rebinding::new(&["127.0.0.1"]);
        let stranger = builder().resolver(names()).build().unwrap();
        assert_eq!(get(&stranger, &url, &within(120)).await.unwrap_err().kind, ErrorKind::TlsError);

        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.pem");
        let other = Certificate::for_names(&["other.example"]);
        std::fs::write(&file, format!("{}\n{}", other.pem, certificate.pem)).unwrap();
        let fetcher = builder().resolver(names()).ca_file(&file).unwrap().build().unwrap();
        assert_eq!(body(&get(&fetcher, &url, &within(120)).await.unwrap()), b"<p>arrived");

        std::fs::write(&file, "no certificate").unwrap();
        for broken in [file, dir.path().join("missing.pem")] {
            let message = builder().ca_file(&broken).unwrap_err().to_string();
            assert!(message.contains(broken.to_str().unwrap()), "{message}");
        }
    })
    .await;
}
