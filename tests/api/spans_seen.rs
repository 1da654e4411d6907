//! What a program's subscriber sees of the library's spans.

use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Notes each span of the library's: its name and fields, also those that are told later, and whether it is
/// over.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<(String, bool)>>>);

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        *self.0 += &format!(" {field}={value:?}");
    }
}

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_span() && metadata.target().starts_with("standpipe")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut text = span.metadata().name().to_owned();
        span.record(&mut Fields(&mut text));
        let mut spans = self.0.lock().expect("no panic");
        spans.push((text, false));
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut spans = self.0.lock().expect("no panic");
        values.record(&mut Fields(&mut spans[id.into_u64() as usize - 1].0));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn try_close(&self, id: Id) -> bool {
        self.0.lock().expect("no panic")[id.into_u64() as usize - 1].1 = true;
        true
    }
}

/// The spans that all of this made on this thread, each in a line; of those that go on the line says so.
pub(crate) fn spans_of(run: impl FnOnce()) -> Vec<String> {
    let spans = Spans::default();
    tracing::subscriber::with_default(spans.clone(), run);
    // Some may go on, and be told of there.
    let spans = spans.0.lock().expect("no panic").clone();
    let line = |(text, over)| if over { text } else { text + " (goes on)" };
    spans.into_iter().map(line).collect()
}
