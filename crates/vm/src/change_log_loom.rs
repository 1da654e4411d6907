use super::*;
use crate::sync::{AtomicU64, Ordering};
use loom::thread;
use std::sync::Arc;

/// The kernel lets the changer go at the moment of the read, which is a flag here. Whoever has seen that and
/// then looks is told, be it waiting for the word to get even, or finding it so.
#[test]
fn loom_what_was_read_before_a_look_is_told_by_it() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let told = Arc::new(ChangeLog::new(2));
        let returned = Arc::new(AtomicU64::new(0));
        let mut mark = told.cursor();
        let reader = {
            let (told, returned) = (Arc::clone(&told), Arc::clone(&returned));
            thread::spawn(move || {
                for round in 1..=2 {
                    told.open();
                    returned.store(round, Ordering::Release);
                    told.record(round * 10, round * 10 + 5);
                    told.close();
                }
            })
        };
        let changed = returned.load(Ordering::Acquire);
        let mut heard = 0;
        if !told.is_current(&mark) {
            told.catch_up(&mut mark, |range| {
                heard += 1;
                assert_eq!(range, Changed::Range { start: heard * 10, end: heard * 10 + 5 });
            });
        }
        assert!(heard >= changed, "{changed} changes have returned, {heard} were told");
        reader.join().unwrap();
    });
}

/// One slot, overwritten while it is read: what is told is whole, or everything.
#[test]
fn loom_a_slot_that_is_overwritten_is_never_told_torn() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let told = Arc::new(ChangeLog::new(1));
        let mut mark = told.cursor();
        let reader = {
            let told = Arc::clone(&told);
            thread::spawn(move || {
                for round in 1..=2 {
                    told.open();
                    told.record(round, round);
                    told.close();
                }
            })
        };
        told.catch_up(&mut mark, |changed| match changed {
            Changed::Range { start, end } => assert!(start == end && start != 0),
            Changed::Everything => {}
        });
        reader.join().unwrap();
    });
}
