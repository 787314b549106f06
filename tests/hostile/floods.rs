//! HTTP/2 servers that send frames for ever: each costs its deadline and little memory, and then its connection is
//! closed.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use crate::support::{Rebinding, bounded, builder, get, resident, within};
use crate::tempers::{Flood, Flooder};

/// Memory is measured for the whole process: one flood at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// More than the buffers of both sides need, and less than any flood here sends.
const MAX_MEMORY: u64 = 96 << 20;

async fn survives(flood: Flood) {
    let _alone = ONE_AT_A_TIME.lock().await;
    bounded(async {
        let server = Flooder::start(flood).await;
        let fetcher = builder()
            .resolver(Rebinding::new(&["127.0.0.1"]))
            .root_certificate(server.certificate.der.clone())
            .build()
            .unwrap();
        let url = format!("https://flood.example:{}/", server.address.port()).parse().unwrap();
        let (before, begun) = (resident(), Instant::now());
        let ended = get(&fetcher, &url, &within(3)).await;
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(5), "{flood:?} took {took:?}: {ended:?}");
        assert!(
            ended.as_ref().is_err() || ended.as_ref().is_ok_and(|page| page.body.is_empty()),
            "{flood:?}: {ended:?}"
        );
        assert!(!ended.is_err_and(|error| error.local), "{flood:?} is not a local fault");
        assert_eq!(server.requests(), 1, "{flood:?}: one attempt is one request");
        for _ in 0..100 {
            if server.hung_up() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(server.hung_up(), "{flood:?}: the connection is still open after the request");
        let grown = resident().saturating_sub(before);
        assert!(grown < MAX_MEMORY, "{flood:?}: {grown} bytes more after {} were sent", server.sent());
        println!("{flood:?}: {} MB sent, {} MB more memory", server.sent() >> 20, grown >> 20);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_of_frames_cost_only_a_deadline() {
    for flood in Flood::ALL {
        survives(flood).await;
    }
}
