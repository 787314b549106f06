//! Content codings: decoding, bombs, and codings that are wrong or break off.

use async_compression::Level;
use async_compression::tokio::write::{
    BrotliEncoder, DeflateEncoder, GzipEncoder, ZlibEncoder, ZstdEncoder,
};
use fetchwise::attempt::error_kind::ErrorKind;
use fetchwise::response::header;
use tokio::io::AsyncWriteExt;

use super::harness::*;

async fn encode(coding: &str, data: &[u8]) -> Vec<u8> {
    macro_rules! encode {
        ($encoder:ident) => {{
            let mut encoder = $encoder::with_quality(Vec::new(), Level::Fastest);
            encoder.write_all(data).await.unwrap();
            encoder.shutdown().await.unwrap();
            encoder.into_inner()
        }};
    }
    match coding {
        "gzip" => encode!(GzipEncoder),
        "br" => encode!(BrotliEncoder),
        "zstd" => encode!(ZstdEncoder),
        "zlib" => encode!(ZlibEncoder),
        "raw" => encode!(DeflateEncoder),
        _ => unreachable!(),
    }
}

fn encoded(coding: &str, wire: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\ncontent-length: {}\r\n\r\n",
        wire.len()
    );
    [head.as_bytes(), wire].concat()
}

#[tokio::test]
async fn bodies_are_decoded() {
    bounded(async {
        let page = text(200_000);
        let gzip_of_br = encode("gzip", &encode("br", &page).await).await;
        let two_frames =
            [encode("zstd", &page[..1000]).await, encode("zstd", &page[1000..]).await].concat();
        let gzip_and_junk = [encode("gzip", &page).await, vec![0; 100]].concat();
        let two_members =
            [encode("gzip", &page[..1000]).await, encode("gzip", &page[1000..]).await].concat();
        let end = |wire: &[u8], len: usize| wire.len() - len;
        let mut wrong_checksum = encode("gzip", &page).await;
        let at = end(&wrong_checksum, 8);
        wrong_checksum[at..].fill(0x55);
        let no_checksum = wrong_checksum[..at].to_vec();
        let mut wrong_zlib = encode("zlib", &page).await;
        let at = end(&wrong_zlib, 4);
        wrong_zlib[at..].fill(0x55);
        for (coding, wire) in [
            ("gzip", encode("gzip", &page).await),
            ("gzip", two_members),
            ("gzip", wrong_checksum),
            ("gzip", no_checksum),
            ("deflate", wrong_zlib),
            // Under other names than its own.
            ("gzip;q=1.0", encode("gzip", &page).await),
            ("\"gzip\"", encode("gzip", &page).await),
            ("gzip", encode("zlib", &page).await),
            ("unzip", encode("gzip", &page).await),
            ("rot13", encode("zstd", &page).await),
            ("X-GZIP", encode("gzip", &page).await),
            ("br", encode("br", &page).await),
            ("zstd", encode("zstd", &page).await),
            ("zstd", two_frames),
            ("deflate", encode("zlib", &page).await),
            ("deflate", encode("raw", &page).await),
            ("br, gzip", gzip_of_br),
            ("gzip", gzip_and_junk),
            // Labelled gzip or zstd, but plain; and an unknown coding.
            ("gzip", page.clone()),
            ("zstd", page.clone()),
            ("rot13", page.clone()),
        ] {
            let server = Server::canned(encoded(coding, &wire)).await;
            let response = get(&server.url("/")).await.unwrap();
            assert!(body(&response) == page, "{coding}: {} bytes", response.body.len());
            assert!(!response.truncated, "{coding}");
        }
        for coding in ["gzip", "br", "zstd", "deflate"] {
            let server = Server::canned(encoded(coding, b"")).await;
            let response = get(&server.url("/")).await.unwrap();
            assert!(response.body.is_empty() && !response.truncated, "{coding}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_bomb_ends_as_too_large_and_a_small_repetitive_page_does_not() {
    bounded(async {
        let zeros = vec![0; 16 << 20];
        let gzip = encode("gzip", &zeros).await;
        let stacked = encode("gzip", &gzip).await;
        for (coding, wire) in [
            ("gzip", gzip),
            ("gzip, gzip", stacked),
            ("br", encode("br", &zeros).await),
            ("zstd", encode("zstd", &zeros).await),
            ("deflate", encode("raw", &zeros).await),
        ] {
            let server = Server::canned(encoded(coding, &wire)).await;
            let error = get(&server.url("/")).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::TooLarge, "{coding}");
            assert_eq!(error.status, Some(200));
            assert_eq!(header(&error.headers, "content-encoding"), Some(coding));
        }
        let server =
            Server::canned(encoded("gzip", &encode("gzip", &zeros[..1 << 20]).await)).await;
        assert_eq!(get(&server.url("/")).await.unwrap().body.len(), 1 << 20);
    })
    .await;
}

#[tokio::test]
async fn a_zstd_window_over_the_limit_of_the_web_gets_no_memory() {
    bounded(async {
        // A frame whose header requests a window of 2^(10 + exponent) bytes, with one raw block
        // "abc" in it.
        let frame = |exponent: u8| {
            [
                &[0x28, 0xb5, 0x2f, 0xfd, 0x00, exponent << 3][..],
                &[0x19, 0x00, 0x00, b'a', b'b', b'c'],
            ]
            .concat()
        };
        for (exponent, decodes) in [(13, true), (14, false), (21, false)] {
            let server = Server::canned(encoded("zstd", &frame(exponent))).await;
            let response = get(&server.url("/")).await.unwrap();
            assert_eq!(
                (response.truncated, body(&response) == b"abc"),
                (!decodes, decodes),
                "2^{}",
                10 + exponent
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_coding_that_breaks_off_yields_the_part_before() {
    bounded(async {
        let page = text(200_000);
        let cases = [
            ("gzip", "gzip"),
            ("br", "br"),
            ("zstd", "zstd"),
            ("deflate", "zlib"),
            ("deflate", "raw"),
        ];
        for (coding, kind) in cases {
            let wire = encode(kind, &page).await;
            let server = Server::canned(encoded(coding, &wire[..wire.len() / 2])).await;
            let response = get(&server.url("/")).await.unwrap();
            assert!(response.truncated, "{kind}");
            let got = body(&response);
            assert!(
                got.len() < page.len() && page.starts_with(&got),
                "{kind}: {} bytes",
                got.len()
            );
        }
        let mut damaged = encode("gzip", &page).await;
        let middle = damaged.len() / 2;
        damaged[middle..middle + 8].fill(0xff);
        let server = Server::canned(encoded("gzip", &damaged)).await;
        assert!(get(&server.url("/")).await.unwrap().truncated);
    })
    .await;
}
