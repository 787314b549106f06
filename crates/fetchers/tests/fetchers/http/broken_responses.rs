//! Responses that break off or are not HTTP, and URLs that cannot be requested.

use std::net::Ipv4Addr;

use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise_testsite::ports::RefusingPort;
use tokio::io::AsyncWriteExt;
use url::Url;

use super::harness::*;

#[tokio::test]
async fn a_truncated_body_is_returned_as_far_as_it_arrived() {
    bounded(async {
        for wire in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf"[..],
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n64\r\nhalf",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\nzz\r\n",
        ] {
            let server = Server::canned(wire).await;
            let response = get(&server.url("/")).await.unwrap();
            assert!(response.truncated, "{}", wire.escape_ascii());
            assert_eq!(body(&response), b"half", "{}", wire.escape_ascii());
        }
        let resets = Server::raw(|mut stream| async move {
            read_head(&mut stream).await;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf").await.unwrap();
            // The reset comes after the bytes, which the client's kernel keeps.
            stream.set_zero_linger().unwrap();
        })
        .await;
        let response = get(&resets.url("/")).await.unwrap();
        assert!(response.truncated && body(&response) == b"half");
    })
    .await;
}

#[tokio::test]
async fn a_response_that_is_not_http_is_a_network_error() {
    bounded(async {
        for wire in [
            &b""[..],
            b"SSH-2.0-OpenSSH_9.2\r\n",
            b"HTTP/1.1 abc OK\r\n\r\n",
            b"HTTP/1.1 20 OK\r\n\r\n",
            b"HTTP/9.9 200 OK\r\n\r\n",
            b"\r\n\r\n\0\0\0\0",
            b"<html>no head at all</html>",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1",
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: -1\r\n\r\nok",
            b"HTTP/1.1 200 OK\r\ncontent-length: 2, 3\r\n\r\nok",
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        ] {
            let server = Server::canned(wire).await;
            assert_eq!(
                error_kind(&server.url("/")).await,
                ErrorKind::NetworkError,
                "{}",
                wire.escape_ascii()
            );
        }
        let refusing = RefusingPort::on(Ipv4Addr::LOCALHOST).unwrap();
        let gone = refusing.address();
        let error = get(&format!("http://{gone}/").parse().unwrap()).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NetworkError);
        assert!(error.message.contains(&gone.to_string()), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_url_that_cannot_be_requested_is_an_invalid_url() {
    bounded(async {
        for text in
            ["ftp://127.0.0.1/", "file:///etc/passwd", "data:text/plain,x", "mailto:a@b.example"]
        {
            assert_eq!(error_kind(&text.parse().unwrap()).await, ErrorKind::InvalidUrl, "{text}");
        }
        let long = format!("http://127.0.0.1:9/{}", "a".repeat(10 << 20)).parse().unwrap();
        let error = get(&long).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::InvalidUrl);
        assert!(error.message.len() < 200, "the message does not repeat the URL");

        let server = Server::http(|request| response(200, request.uri().path().to_owned())).await;
        assert_eq!(
            body(&get(&server.url("/a\0b")).await.unwrap()),
            b"/a%00b",
            "a NUL byte is escaped in a path"
        );
        assert!("http://a\0b.example/".parse::<Url>().is_err(), "but invalid in a host");
    })
    .await;
}

#[tokio::test]
async fn a_head_that_browsers_read_is_read() {
    bounded(async {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 4, 4\r\n\r\n",
            "HTTP/1.1  200 OK\r\n\r\n",
            "HTTP/1.1 200\r\n\r\n",
            "HTTP/1.1 200 \r\n\r\n",
            "HTTP/1.0 200OK\r\n\r\n",
            "HTTP/1.1 200 OK\n\n",
            "HTTP/1.1 200 OK\rA: b\r\rC: d\r\n\r\n",
            "HTTP/1.1 200 OK\r\r\nA: b\r\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n  folded\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n(bad): name\r\n\r\n",
            "\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1  103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1  200 OK\r\n\r\n",
        ] {
            let server = Server::canned(format!("{head}page")).await;
            let response =
                get(&server.url("/")).await.unwrap_or_else(|why| panic!("{head:?}: {why}"));
            assert_eq!((response.status, body(&response)), (200, b"page".to_vec()), "{head:?}");
            assert!(!response.truncated, "{head:?}");
        }
    })
    .await;
}

/// A body that looks like a head is a body, also on a connection that serves another response after
/// it.
#[tokio::test]
async fn no_body_is_taken_for_a_head() {
    bounded(async {
        let page = "HTTP/1.1  200 OK\r\nContent-Length: -1\r\n\r\n";
        let server = Server::raw(move |mut stream| async move {
            for line in ["HTTP/1.1  200 OK", "HTTP/1.1 200 OK", "HTTP/1.1 200"] {
                read_head(&mut stream).await;
                let response = format!("{line}\r\nContent-Length: {}\r\n\r\n{page}", page.len());
                // In pieces, so that no head arrives at once.
                for piece in response.as_bytes().chunks(5) {
                    stream.write_all(piece).await.unwrap();
                    stream.flush().await.unwrap();
                }
            }
            read_to_close(&mut stream).await;
        })
        .await;
        let fetcher = fetcher();
        for _ in 0..3 {
            let response = get_with(&fetcher, &server.url("/"), &limits()).await.unwrap();
            assert_eq!(body(&response), page.as_bytes());
        }
        assert_eq!(server.connections(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_header_keeps_the_bytes_that_were_received() {
    bounded(async {
        let value: Vec<u8> = (0x21..=0x7e_u8).chain(0x80..=0xff).collect();
        let wire = [b"HTTP/1.1 200 OK\r\nx-bytes: ", &value[..], b"\r\ncontent-length: 0\r\n\r\n"]
            .concat();
        let server = Server::canned(wire).await;
        let response = get(&server.url("/")).await.unwrap();
        let header = response.headers.iter().find(|header| header.name == "x-bytes").unwrap();
        assert_eq!(header.bytes(), value);
    })
    .await;
}
