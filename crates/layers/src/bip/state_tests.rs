use super::*;

const LONG_WORDS: u32 = 5000;
const TAG: u32 = 3;

fn state() -> State {
    State::new(HashMap::new(), &[BASE; 3])
}

fn short(words: u32) -> Message {
    Message::Short { tag: TAG, words }
}

fn long(send: u32) -> Message {
    Message::Long { tag: TAG, words: LONG_WORDS, send, addr: 4096 }
}

fn room(most: u32) -> Target {
    Target { addr: 64, most }
}

/// What comes of a message, with its payload kept where it belongs.
fn come(state: &mut State, from: Rank, message: Message) -> Route {
    let route = state.arrive(from, message);
    if let (Route::Queue(slot), Message::Short { words, .. }) = (&route, message) {
        state.keep(*slot, from, Body::Copied(vec![words as u8; words as usize * WORD]));
    }
    route
}

fn slot(state: &mut State) -> u16 {
    state.tags.slot_of(TAG).expect("there is room")
}

#[test]
fn a_posted_receive_gets_a_short_message_where_it_belongs() {
    let mut state = state();
    let slot = slot(&mut state);
    assert!(state.post(slot, room(2)).expect("none is posted").is_none());
    assert_eq!(come(&mut state, 1, short(2)), Route::Into(64));
    assert_eq!(state.tags.at(slot).tell(), Some(Ok(Received { words: 2, from: 1 })));
    assert_eq!((state.copies.received, state.counts), (8, Counts::default()));
}

#[test]
fn short_and_long_ones_are_received_in_the_order_in_which_they_came() {
    let mut state = state();
    let slot = slot(&mut state);
    for (from, message) in [(1, short(1)), (1, long(7)), (2, long(8)), (1, short(3))] {
        assert!(come(&mut state, from, message) != Route::Into(64));
    }
    let body = state.post(slot, room(LONG_WORDS)).expect("none is posted");
    assert_eq!(body.map(|body| body.bytes().to_vec()), Some(vec![1; 4]));
    assert_eq!(state.tags.at(slot).tell(), Some(Ok(Received { words: 1, from: 1 })));
    for (from, send) in [(1, 7), (2, 8)] {
        assert!(state.post(slot, room(LONG_WORDS)).expect("none is posted").is_none());
        let get = state.next_to_get().expect("a long one is next");
        assert_eq!((get.slot, get.long.from, get.long.send, get.into), (slot, from, send, Some(64)));
        assert!(state.next_to_get().is_none() && state.tags.at(slot).tell().is_none() && state.is_busy());
        state.got(&get, Ok(()), None);
        assert_eq!(state.done.pop_front(), Some((from, send)));
        assert_eq!(state.tags.at(slot).tell(), Some(Ok(Received { words: LONG_WORDS, from })));
    }
    assert!(state.is_short_next(slot) == Some(true) && !state.is_busy());
    assert_eq!(state.copies.received, 4, "of long ones nothing is copied");
}

#[test]
fn a_message_that_comes_while_a_long_one_is_got_waits_its_turn() {
    let mut state = state();
    let slot = slot(&mut state);
    state.post(slot, room(LONG_WORDS)).expect("none is posted");
    come(&mut state, 1, long(1));
    assert_eq!(come(&mut state, 1, short(1)), Route::Queue(slot), "before the get has begun");
    let get = state.next_to_get().expect("a long one is next");
    assert_eq!(come(&mut state, 2, short(2)), Route::Queue(slot), "while it goes on");
    state.got(&get, Ok(()), None);
    assert_eq!(state.tags.at(slot).tell(), Some(Ok(Received { words: LONG_WORDS, from: 1 })));
    for (words, from) in [(1, 1), (2, 2)] {
        assert!(state.post(slot, room(9)).expect("none is posted").is_some());
        assert_eq!(state.tags.at(slot).tell(), Some(Ok(Received { words, from })));
    }
}

#[test]
fn a_message_longer_than_its_room_is_the_receives_error() {
    let too_long = |words, most| BipError::TooLong { tag: TAG, from: 1, words, most };
    let mut state = state();
    let slot = slot(&mut state);
    state.post(slot, room(1)).expect("none is posted");
    assert_eq!(come(&mut state, 1, short(2)), Route::Nowhere);
    assert_eq!(state.tags.at(slot).tell(), Some(Err(too_long(2, 1))));
    come(&mut state, 1, short(2));
    assert!(state.post(slot, room(1)).expect("none is posted").is_none());
    assert_eq!(state.tags.at(slot).tell(), Some(Err(too_long(2, 1))));
    come(&mut state, 1, long(1));
    state.post(slot, room(LONG_WORDS - 1)).expect("none is posted");
    assert!(state.next_to_get().is_none());
    assert_eq!(state.tags.at(slot).tell(), Some(Err(too_long(LONG_WORDS, LONG_WORDS - 1))));
}

#[test]
fn a_get_that_fails_is_the_receives_error() {
    let lost = BipError::Lost { node: 1 };
    let mut state = state();
    let slot = slot(&mut state);
    state.post(slot, room(LONG_WORDS)).expect("none is posted");
    come(&mut state, 1, long(1));
    let get = state.next_to_get().expect("a long one is next");
    state.got(&get, Err(lost.clone()), None);
    assert_eq!((state.tags.at(slot).tell(), state.done.len()), (Some(Err(lost.clone())), 0));
    come(&mut state, 2, long(2));
    let get = state.hold_next(slot).expect("nothing is held").expect("a long one is next");
    state.got(&get, Err(lost.clone()), Some(Vec::new()));
    assert_eq!((state.fault, state.getting), (Some(lost), 0));
}

#[test]
fn a_message_is_read_in_place_until_it_is_freed() {
    let mut state = state();
    let slot = slot(&mut state);
    assert!(state.give(slot).is_none() && !state.has_next(slot));
    assert_eq!(state.free(slot), Err(BipError::NotHeld { tag: TAG }));
    for (from, message) in [(1, short(2)), (2, long(5)), (1, short(0))] {
        come(&mut state, from, message);
    }
    assert_eq!(state.hold_next(slot).expect("nothing is held"), None);
    assert_eq!(state.free(slot), Err(BipError::NotHeld { tag: TAG }), "the program has not got it");
    assert_eq!(state.give(slot).map(|(_, received)| received), Some(Received { words: 2, from: 1 }));
    assert_eq!(state.hold_next(slot), Err(BipError::Held { tag: TAG }));
    assert_eq!(state.free(slot), Ok(()));
    let get = state.hold_next(slot).expect("nothing is held").expect("a long one is next");
    assert_eq!((get.long.send, get.into, state.give(slot).is_some()), (5, None, false));
    assert_eq!(state.hold_next(slot), Ok(None), "it is being got");
    let pending = Err(BipError::ReceivePending { tag: TAG });
    assert_eq!(state.post(slot, room(1)).map(|body| body.is_some()), pending);
    state.got(&get, Ok(()), Some(vec![0; LONG_WORDS as usize]));
    assert_eq!(state.give(slot).map(|(_, received)| received), Some(Received { words: LONG_WORDS, from: 2 }));
    assert!(state.post(slot, room(1)).is_ok(), "the tag goes on while one is held");
    assert_eq!(state.copies.received, 0);
}

#[test]
fn messages_that_no_correct_peer_sends_are_refused_and_counted() {
    let mut state = state();
    let slot = slot(&mut state);
    for (from, message) in [
        (3, short(1)),
        (u32::MAX, long(1)),
        (1, Message::Done { send: 1 }),
        (1, Message::Taken { total: 1 }),
        (9, Message::Taken { total: 0 }),
    ] {
        assert_eq!(state.arrive(from, message), Route::Nowhere);
    }
    assert_eq!(state.counts.refused, 5);
    come(&mut state, 1, long(1));
    come(&mut state, 1, long(2));
    assert_eq!(
        (state.counts.refused, state.tags.at(slot).front().is_some()),
        (6, true),
        "one send at a time"
    );
    for _ in 0..BASE {
        assert_eq!(come(&mut state, 2, short(0)), Route::Queue(slot));
    }
    assert_eq!(come(&mut state, 2, short(0)), Route::Nowhere, "more than the window");
    assert_eq!(come(&mut state, 1, short(0)), Route::Queue(slot), "another peer has its own");
    assert_eq!(state.counts.refused, 7);
    assert_eq!(state.counts.unbuffered, u64::from(BASE) + 1 - 64, "the long one takes no buffer");
}

#[test]
fn a_peer_that_uses_too_many_tags_is_a_fault() {
    let mut state = state();
    let most = crate::bip::tags::TAGS_MAX as u32;
    for tag in 0..most {
        state.tags.slot_of(tag).expect("there is room");
    }
    let message = Message::Long { tag: most, words: LONG_WORDS, send: 1, addr: 64 };
    assert_eq!(state.arrive(1, message), Route::Nowhere);
    let fault = BipError::TooManyTags { tag: most, most: most as usize };
    assert_eq!((state.fault, state.counts.refused), (Some(fault), 1));
}

#[test]
fn a_sender_is_told_once_a_quarter_of_the_window_was_taken() {
    let mut state = state();
    let slot = slot(&mut state);
    for taken in 1..=u64::from(BASE) {
        come(&mut state, 1, short(0));
        state.post(slot, room(0)).expect("none is posted");
        assert!(state.tags.at(slot).tell().is_some_and(|outcome| outcome.is_ok()));
        if taken.is_multiple_of(u64::from(BASE / 4)) {
            assert_eq!((state.owed.pop_front(), state.taken_of(1)), (Some(1), taken));
            state.told(1, taken);
        }
        assert!(state.owed.is_empty(), "{taken}");
    }
}

#[test]
fn a_send_waits_for_the_window_and_a_long_one_does_not() {
    let mut state = State::new(HashMap::new(), &[BASE, 2, BASE]);
    for _ in 0..2 {
        assert!(state.may_send(1, true));
        state.sent(1, true);
    }
    assert!(!state.may_send(1, true) && state.may_send(1, false) && state.may_send(2, true));
    state.sends.begin((1, TAG), (64, 1)).expect("none is under way");
    assert!(!state.is_busy(), "nothing can be done about it");
    assert_eq!(state.arrive(1, Message::Taken { total: 1 }), Route::Nowhere);
    assert!(state.is_busy() && state.may_send(1, true));
}

#[test]
fn the_window_has_all_declared_buffers() {
    assert_eq!(window_of(&HashMap::new()), BASE);
    let of = |count| Buffers { count, words: 1 };
    assert_eq!(window_of(&HashMap::from([(1, of(10)), (2, of(5))])), BASE + 15);
    assert_eq!(window_of(&HashMap::from([(1, of(u32::MAX)), (2, of(5))])), u32::MAX);
}

#[test]
fn a_process_is_alone_once_all_others_have_left() {
    let mut state = state();
    for from in [1, 2] {
        assert!(!state.have_left() && !state.has_left(from));
        assert_eq!(state.arrive(from, Message::Leaving), Route::Nowhere);
    }
    assert!(state.have_left() && state.has_left(1) && state.counts.refused == 0);
    state.arrive(1, Message::Leaving);
    state.arrive(7, Message::Leaving);
    assert_eq!(state.counts.refused, 2);
    assert!(State::new(HashMap::new(), &[BASE]).have_left(), "in a job of one");
}
