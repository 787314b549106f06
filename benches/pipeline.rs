//! One page fetched over loopback with keep-alive, for development: by the fetcher alone, by the
//! pipeline with evidence of the site, and by its probe.
#![allow(clippy::unwrap_used, missing_docs)]

mod loopback;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use fetchwise::decision::Source;
use fetchwise::fetch::address_guard::AddressGuard;
use fetchwise::fetch::http::HttpFetcher;
use fetchwise::fetch::{Fetcher, Limits, Request};
use fetchwise::pipeline::{Link, Pipeline};
use fetchwise::registry::FetcherSpec;
use fetchwise::score::Settings;
use fetchwise::selector::Selector;
use url::Url;

fn http() -> HttpFetcher {
    let guard = AddressGuard::new(["127.0.0.0/8".parse().unwrap()], false);
    HttpFetcher::builder().guard(guard).build().unwrap()
}

fn pipeline(settings: Settings) -> Pipeline {
    let selector = Selector::builder()
        .without_pace()
        .fetcher(FetcherSpec::by_name("direct_access"))
        .settings(settings);
    Pipeline::builder(Arc::new(selector.build().unwrap()))
        .fetcher(Arc::new(http()))
        .build()
        .unwrap()
}

fn fetch(c: &mut Criterion) {
    let (tell, port) = mpsc::channel();
    std::thread::spawn(move || loopback::run(|port| tell.send(port).unwrap()));
    let url = format!("http://{}:{}/section1/page-1", loopback::address(0), port.recv().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut group =
        c.benchmark_group(format!("a page of {} B over loopback", loopback::PAGE_BYTES));
    group.measurement_time(Duration::from_secs(3)).sample_size(30);

    let (fetcher, parsed, limits) = (http(), Url::parse(&url).unwrap(), Limits::default());
    group.bench_function("fetcher alone", |b| {
        b.iter(|| {
            let response = runtime.block_on(fetcher.fetch(Request::new(&parsed, &limits))).unwrap();
            assert_eq!(response.status, 200);
        });
    });
    // Never confident, so that each fetch is a probe.
    let probing = Settings { min_sample: f64::MAX, ..Settings::default() };
    for (name, settings, source) in [
        ("pipeline, learned", Settings::default(), Source::Learned),
        ("pipeline, probe", probing, Source::Probe),
    ] {
        let pipeline = pipeline(settings);
        (0..20).for_each(|_| drop(runtime.block_on(pipeline.fetch(&Link::new(&url)))));
        group.bench_function(name, |b| {
            b.iter(|| {
                let report = runtime.block_on(pipeline.fetch(&Link::new(&url)));
                assert!(report.success && report.source == Some(source), "{report:?}");
            });
        });
    }
    group.finish();
}

criterion_group!(benches, fetch);
criterion_main!(benches);
