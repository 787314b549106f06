//! HTTP/2 servers that send frames for ever: each costs its deadline and little memory, and then
//! its connection is closed.

use fetchwise_testsite::poll::until;

use crate::support::{Rebinding, alone, bounded, builder, get, is_alone, resident, within};
use crate::tempers::{Flood, Flooder};

/// More than the buffers of both sides need, and less than any flood here sends.
const MAX_MEMORY: u64 = 96 << 20;

async fn survives(flood: Flood) {
    bounded(async {
        let server = Flooder::start(flood).await;
        let fetcher = builder()
            .resolver(Rebinding::new(&["127.0.0.1"]))
            .root_certificate(server.certificate.der.clone())
            .build()
            .unwrap();
        let url = format!("https://flood.example:{}/", server.address.port()).parse().unwrap();
        let before = resident();
        let ended = get(&fetcher, &url, &within(3)).await;
        assert!(
            ended.as_ref().is_err() || ended.as_ref().is_ok_and(|page| page.body.is_empty()),
            "{flood:?}: {ended:?}"
        );
        assert!(!ended.is_err_and(|error| error.local), "{flood:?} is not a local fault");
        assert_eq!(server.requests(), 1, "{flood:?}: one attempt is one request");
        until("the connection is closed after the request", || server.hung_up()).await;
        let grown = resident().saturating_sub(before);
        assert!(
            grown < MAX_MEMORY,
            "{flood:?}: {grown} bytes more after {} were sent",
            server.sent()
        );
        println!("{flood:?}: {} MB sent, {} MB more memory", server.sent() >> 20, grown >> 20);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_frames_cost_only_a_deadline() {
    // Memory is measured for the whole process.
    if !is_alone() {
        return alone("floods::floods_of_frames_cost_only_a_deadline", "");
    }
    for flood in Flood::ALL {
        survives(flood).await;
    }
}
