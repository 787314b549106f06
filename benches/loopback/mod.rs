//! A server on loopback addresses: one 20 KB page over HTTP/1.1 with keep-alive, for the `pipeline`
//! bench and the report.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, SERVER};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// The page's size, in bytes.
pub(crate) const PAGE_BYTES: usize = 20_000;
/// Responses under this path take [`SLOW`], like those of sites with work to do.
pub(crate) const SLOW_PATH: &str = "/slow";
pub(crate) const SLOW: Duration = Duration::from_millis(20);
/// The number of its addresses, from 127.0.0.1 on: hosts of a crawl.
pub(crate) const HOSTS: usize = 32;

/// Serves until the process ends, in a runtime of one thread; `tell` receives the port.
pub(crate) fn run(tell: impl FnOnce(u16)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let first = TcpListener::bind((address(0), 0)).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let page = page();
        for host in 1..HOSTS {
            tokio::spawn(serve(
                TcpListener::bind((address(host), port)).await.unwrap(),
                page.clone(),
            ));
        }
        tell(port);
        serve(first, page).await;
    });
}

/// Returns the address of a host by its number.
pub(crate) fn address(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, (host % HOSTS) as u8 + 1)
}

async fn serve(listener: TcpListener, page: Bytes) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let _ = stream.set_nodelay(true);
        let page = page.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request: http::Request<Incoming>| {
                let page = page.clone();
                async move {
                    if request.uri().path().starts_with(SLOW_PATH) {
                        tokio::time::sleep(SLOW).await;
                    }
                    let response = http::Response::builder()
                        .header(CONTENT_TYPE, "text/html; charset=utf-8")
                        .header(SERVER, "nginx")
                        .body(Full::new(page));
                    Ok::<_, Infallible>(response.unwrap())
                }
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

/// Returns a typical article: a head, navigation, paragraphs with links.
pub(crate) fn page() -> Bytes {
    let mut page = String::from(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>An article</title>\
         <link rel=\"stylesheet\" href=\"/style.css\"><script src=\"/app.js\" defer></script></head><body><nav><ul>",
    );
    for n in 0..20 {
        page.push_str(&format!("<li><a class=\"item\" href=\"/section/{n}\">Section {n}</a></li>"));
    }
    page.push_str("</ul></nav><main><h1>An article</h1>");
    let mut n = 0;
    while page.len() < PAGE_BYTES - 200 {
        page.push_str(&format!(
            "<p id=\"p{n}\">Paragraph {n} tells what the one before left out, refers to <a href=\"/page/{n}\">another \
             page</a> &amp; goes on.</p>\n"
        ));
        n += 1;
    }
    page.push_str("</main></body></html>");
    Bytes::from(page)
}
