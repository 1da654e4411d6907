//! What a program's subscriber sees of peers that the network takes nothing for.

#[path = "../../../../tests/api/spans_seen.rs"]
mod seen;

use std::time::{Duration, Instant};

use conformance::Cluster;
use engine::{AmBody, AmSend, Inbox, Lane};

use super::cluster::{LIMIT, OfiCluster, Setting, providers};
use seen::spans_of;

#[test]
fn reaching_a_peer_is_a_span_with_what_came_of_it() {
    let note = AmSend { peer: 1, lane: Lane::Request, handler: 0, args: [0; 4], body: AmBody::Short };
    for provider in providers() {
        eprintln!("over {}", provider.description().provider);
        let send_timeout = Duration::from_millis(200);
        let (registration, provider) = (None, &provider);
        let setting = Setting {
            provider,
            registration,
            confirms: false,
            registers_local: false,
            pins: false,
            send_timeout,
        };
        let reached = spans_of(|| drop(OfiCluster::new(2, Setting { send_timeout: LIMIT, ..setting })));
        let expected = [1, 0].map(|peer| format!("reach peer={peer} again=false outcome=\"reached\""));
        assert_eq!(reached, expected);
        let lost = spans_of(|| {
            let mut cluster = OfiCluster::strangers(2, setting);
            cluster.crash(1);
            assert_eq!(cluster.node(0).send_am(&note), Ok(()));
            let since = Instant::now();
            while !cluster.node(0).is_lost(1) {
                assert!(since.elapsed() < LIMIT, "it does not end");
                cluster.node(0).poll(&mut Inbox::default());
                cluster.step();
            }
        });
        assert_eq!(lost, ["reach peer=1 again=false outcome=\"lost\""]);
    }
}
