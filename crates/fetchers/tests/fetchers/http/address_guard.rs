//! The address guard, proved by listeners without a connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::fetch::Limits;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::dial::{LookupFuture, Resolve};
use fetchwise::fetch::http::HttpFetcher;
use fetchwise_testsite::ports::RefusingPort;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use super::harness::*;

#[tokio::test]
async fn loopback_is_not_dialled_unless_it_is_allowed() {
    bounded(async {
        let server = Server::http(|_| response(200, "inside")).await;
        let port = server.addr.port();
        let names = Names::of(&[
            ("inside.example", &[&["127.0.0.1"]]),
            ("v6.example", &[&["::1", "::ffff:127.0.0.1"]]),
        ]);
        let shut = HttpFetcher::builder().resolver(names).build().unwrap();
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "0",
            "0.0.0.0",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "%31%32%37.0.0.1",
            "\u{ff11}27.0.0.1",
            "inside.example",
            "INSIDE.example",
            "v6.example",
            "169.254.169.254",
            "10.0.0.1",
        ] {
            let url = format!("http://{host}:{port}/").parse().unwrap();
            let error = get_with(&shut, &url, &limits()).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::RefusedAddress, "{host}: {error}");
        }
        let system = HttpFetcher::new(AddressGuard::default()).unwrap();
        let url = format!("http://localhost:{port}/").parse().unwrap();
        assert_eq!(
            get_with(&system, &url, &limits()).await.unwrap_err().kind,
            ErrorKind::RefusedAddress
        );
        assert_eq!(server.connections(), 0);
        assert_eq!(
            body(&get(&server.url("/")).await.unwrap()),
            b"inside",
            "the server was running all the time"
        );
    })
    .await;
}

#[tokio::test]
async fn each_hop_of_a_redirect_is_checked() {
    bounded(async {
        // 127.0.0.1 is allowed, 127.0.0.2 is not: a listener waits there.
        let forbidden = Server::silent([127, 0, 0, 2]).await;
        let port = forbidden.addr.port();
        let server = Server::http(move |request| {
            redirect(302, &request.uri().query().unwrap().replace("PORT", &port.to_string()))
        })
        .await;
        let names = Names::of(&[("out.example", &[&["127.0.0.2"]])]);
        let fetcher = builder().resolver(names).build().unwrap();
        for to in [
            "http://127.0.0.2:PORT/",
            "//127.0.0.2:PORT/",
            "http://2130706434:PORT/",
            "http://out.example:PORT/",
            "http://169.254.169.254/latest/meta-data/",
            "http://10.0.0.1/",
            "http://[fd00:ec2::254]/",
            "http://[::ffff:10.0.0.1]/",
            "https://192.168.0.1/",
        ] {
            let error =
                get_with(&fetcher, &server.url(&format!("/?{to}")), &limits()).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::RefusedAddress, "{to}: {error}");
        }
        assert_eq!(forbidden.connections(), 0);
        assert_eq!(server.connections(), 1);
    })
    .await;
}

#[tokio::test]
async fn only_checked_addresses_are_dialled() {
    bounded(async {
        // Nothing listens on this port of 127.0.0.1, so every allowed address is tried.
        let (forbidden, _refusing) = loop {
            let server = Server::silent([127, 0, 0, 2]).await;
            if let Ok(refusing) = RefusingPort::at((Ipv4Addr::LOCALHOST, server.addr.port())) {
                break (server, refusing);
            }
        };
        let port = forbidden.addr.port();
        let names = Names::of(&[
            ("mixed.example", &[&["127.0.0.2", "127.0.0.1", "10.0.0.1"]]),
            ("rebound.example", &[&["127.0.0.1"], &["127.0.0.2"]]),
        ]);
        let fetcher = builder().resolver(Arc::clone(&names) as Arc<dyn Resolve>).build().unwrap();
        for (host, kinds) in [
            ("mixed.example", [ErrorKind::NetworkError, ErrorKind::NetworkError]),
            // A changing answer gains nothing between check and dialling: there is one lookup per
            // connection.
            ("rebound.example", [ErrorKind::NetworkError, ErrorKind::RefusedAddress]),
        ] {
            for kind in kinds {
                let url = format!("http://{host}:{port}/").parse().unwrap();
                assert_eq!(
                    get_with(&fetcher, &url, &limits()).await.unwrap_err().kind,
                    kind,
                    "{host}"
                );
            }
        }
        assert_eq!(forbidden.connections(), 0);
        assert_eq!(names.lookups(), 4);
    })
    .await;
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_fails() {
    bounded(async {
        let (server, _refusing) = loop {
            let server = Server::http(|request| {
                response(200, request.headers()["host"].as_bytes().to_vec())
            })
            .await;
            let refusing =
                [3, 4].map(|n| RefusingPort::at((Ipv4Addr::new(127, 0, 0, n), server.addr.port())));
            if refusing.iter().all(Result::is_ok) {
                break (server, refusing);
            }
        };
        let port = server.addr.port();
        let names = Names::of(&[(
            "many.example",
            &[&["127.0.0.3", "127.0.0.4", "127.0.0.1", "127.0.0.1"]],
        )]);
        let fetcher =
            HttpFetcher::builder().guard(opened(&["127.0.0.0/8"])).resolver(names).build().unwrap();
        let url = format!("http://many.example:{port}/").parse().unwrap();
        let response = get_with(&fetcher, &url, &limits()).await.unwrap();
        assert_eq!(body(&response), format!("many.example:{port}").into_bytes());
    })
    .await;
}

#[tokio::test]
async fn the_next_address_is_tried_when_one_does_not_respond() {
    bounded(async {
        // A listener with a full queue drops further connections: they hang.
        let listen = |port| -> std::io::Result<TcpListener> {
            let socket = TcpSocket::new_v4()?;
            socket.bind(SocketAddr::from(([127, 0, 0, 2], port)))?;
            socket.listen(1)
        };
        let (server, full) = loop {
            let server = Server::http(|_| response(200, "second")).await;
            if let Ok(full) = listen(server.addr.port()) {
                break (server, full);
            }
        };
        let port = server.addr.port();
        let mut queued = Vec::new();
        let connect = || {
            tokio::time::timeout(
                Duration::from_millis(200),
                TcpStream::connect(full.local_addr().unwrap()),
            )
        };
        while let Ok(stream) = connect().await {
            queued.push(stream.unwrap());
            assert!(queued.len() < 20, "the queue never fills");
        }
        let names = Names::of(&[("slow.example", &[&["127.0.0.2", "127.0.0.1"]])]);
        let fetcher =
            HttpFetcher::builder().guard(opened(&["127.0.0.0/8"])).resolver(names).build().unwrap();
        let url = format!("http://slow.example:{port}/").parse().unwrap();
        let response = get_with(&fetcher, &url, &limits()).await.unwrap();
        assert_eq!(body(&response), b"second");
        assert!(response.duration >= Duration::from_millis(250));
    })
    .await;
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_a_dns_error() {
    bounded(async {
        let names = Names::of(&[("nowhere.example", &[&[]])]);
        let fetcher = builder().resolver(names).build().unwrap();
        for host in ["nowhere.example", "unknown.example"] {
            let error = get_with(&fetcher, &format!("https://{host}/").parse().unwrap(), &limits())
                .await
                .unwrap_err();
            assert_eq!(error.kind, ErrorKind::DnsError);
            assert!(error.message.contains(host), "{error}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_lookup_without_an_answer_is_a_network_error() {
    struct Silent;
    impl Resolve for Silent {
        fn lookup<'a>(&'a self, _: &'a str) -> LookupFuture<'a> {
            Box::pin(async { Err(std::io::Error::other("no server answered")) })
        }
    }
    bounded(async {
        let fetcher = builder().resolver(Arc::new(Silent)).build().unwrap();
        let url = "http://there.example/".parse().unwrap();
        let error = get_with(&fetcher, &url, &limits()).await.unwrap_err();
        assert!(error.kind == ErrorKind::NetworkError && !error.local, "{error:?}");
        assert!(error.message.contains("there.example: no server answered"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_resolver_that_hangs_is_cut_off_by_the_deadline() {
    struct Hangs;
    impl Resolve for Hangs {
        fn lookup<'a>(&'a self, _: &'a str) -> LookupFuture<'a> {
            Box::pin(std::future::pending())
        }
    }
    bounded(async {
        let fetcher = builder().resolver(Arc::new(Hangs)).build().unwrap();
        let limits = Limits { deadline: Duration::from_millis(100), ..limits() };
        let error = get_with(&fetcher, &"http://slow.example/".parse().unwrap(), &limits)
            .await
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Timeout);
    })
    .await;
}
