//! A server within a program of one's own: the same API as `fetchwise serve`, with a selector that
//! this program has put together.
//!
//!     cargo run --release -p fetchwise-serve --example embed -- 127.0.0.1:7117 data

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use fetchwise::detect::{Detector, DetectorOptions};
use fetchwise::journal::{self, Journal, JournalOptions, OnFull};
use fetchwise::pace::{Pace, PaceSettings};
use fetchwise::registry::FetcherSpec;
use fetchwise::selector::Selector;
use fetchwise::time::Timestamp;
use fetchwise_serve::{Options, Parts, Server, Tokens};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let listen = args.next().unwrap_or_else(|| "127.0.0.1:7117".to_owned());
    let dir = args.next().unwrap_or_else(|| "data".to_owned());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let now = Timestamp::now();
        let (journal, _) =
            Journal::open(Path::new(&dir), JournalOptions::default().on_full(OnFull::Error))?;
        let journal = Arc::new(journal);
        let pace = Pace::new(PaceSettings::default()).with_store(Box::new(Arc::clone(&journal)));
        let selector = Selector::builder()
            .around(now)
            .fetcher(FetcherSpec::by_name("direct_access"))
            .fetcher(FetcherSpec::by_name("playwright"))
            .pace(pace)
            .build()?;
        journal::load(Path::new(&dir), &selector, now)?;
        let server = Server::new(Parts {
            selector,
            registered: Vec::new(),
            journal,
            detector: Arc::new(Detector::new()),
            classifier: Arc::new(
                Detector::new().with_options(DetectorOptions::default().counting_all()),
            ),
            unavailable: Vec::new(),
            tokens: Tokens::default(),
            options: Options::default(),
            guard: None,
            followed: None,
        })?;
        let listener = tokio::net::TcpListener::bind(&listen).await?;
        println!("listening on http://{}", listener.local_addr()?);
        server
            .run(listener, async {
                let _ = tokio::signal::ctrl_c().await;
            })
            .await?;
        Ok(())
    })
}
