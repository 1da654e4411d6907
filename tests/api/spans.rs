//! What a program's subscriber sees of the library's calls.

use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::*;

/// Notes the name and the fields of every span of the library's that begins on a thread.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<String>>>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {field}={value:?}");
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("standpipe")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = Fields(span.metadata().name().to_owned());
        span.record(&mut text);
        let mut spans = self.0.lock().expect("no panic");
        spans.push(text.0);
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn calls_that_wait_are_spans_with_what_they_are_about() {
    job(
        2,
        |_| Way::Message.config(),
        |node| {
            let mut mine = vec![0_u8; 100];
            let there = exchange_private(node, &mut mine);
            let spans = Spans::default();
            tracing::subscriber::with_default(spans.clone(), || {
                node.put_bytes(there, &[1; 60]).expect("put");
                node.world().all_reduce(&mut [1_u32; 5], standpipe::Reduction::Sum).expect("all come");
                node.barrier().expect("barrier");
            });
            let peer = 1 - node.rank();
            let seen = spans.0.lock().expect("no panic").clone();
            let expected = [
                format!("transfer peer={peer} direction=Put bytes=60"),
                "collective what=\"all-reduce\" members=2 bytes=20".to_owned(),
                "barrier".to_owned(),
            ];
            assert_eq!(seen, expected);
            assert!(node.latencies().get(standpipe::Timed::Put).sampled() > 0);
        },
    );
}

/// The spans that all of this made on this thread.
fn spans_of(run: impl FnOnce()) -> Vec<String> {
    let spans = Spans::default();
    tracing::subscriber::with_default(spans.clone(), run);
    spans.0.lock().expect("no panic").clone()
}

#[test]
fn opening_and_meeting_are_spans_and_what_is_there_already_is_none() {
    let mut nodes = Vec::new();
    let opened = spans_of(|| nodes.extend([alone(config()), alone(config())]));
    assert_eq!(opened, ["open rank=0 size=1", "open rank=0 size=1"]);
    let address = nodes[1].address().expect("a door");
    let met = spans_of(|| assert_eq!(nodes[0].connect_to(&address).expect("peers"), 1));
    assert_eq!(met, ["meet"]);
}

#[test]
fn the_first_contact_with_a_peer_is_a_span_and_no_other_is() {
    job(
        3,
        |_| config(),
        |node| {
            let peer = right_of(node);
            let seen = spans_of(|| {
                node.connect(peer).expect("it comes");
                node.connect(peer).expect("it is connected to");
            });
            assert_eq!(seen, [format!("connect peer={peer}")]);
        },
    );
}
