//! Signing a request, for development: in both forms, and with a component that the server asks
//! for.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use fetchwise::identity::{
    Agent, Form, FormSetting, KeySource, SignatureRequest, Signer, SigningKey, ToSign,
};
use fetchwise::time::Timestamp;
use url::Url;

/// The design allows 60 us for one.
fn sign(c: &mut Criterion) {
    let now = Timestamp::now().as_millis() / 1000;
    let url: Url = "https://shop.example/a/b%20c?q=1".parse().unwrap();
    let wanted = SignatureRequest::read(r#"sig9=("@authority" "@query");nonce="abc""#).unwrap();
    let mut group = c.benchmark_group("sign");
    for (name, form, wanted) in [
        ("dictionary", Form::Dictionary, None),
        ("string", Form::String, None),
        ("as asked", Form::Dictionary, Some(&wanted)),
    ] {
        let (_, pem) = SigningKey::generate().unwrap();
        let signer =
            Signer::new(Agent::parse("https://bot.example").unwrap(), KeySource::Text(pem), now)
                .unwrap();
        let signer = signer.form(FormSetting::Always(form));
        let request = ToSign { wanted, ..ToSign::get(&url) };
        group.bench_function(name, |b| b.iter(|| signer.sign(black_box(&request), now).unwrap()));
    }
    group.finish();
}

criterion_group!(benches, sign);
criterion_main!(benches);
