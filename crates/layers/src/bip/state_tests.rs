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
    assert!(matches!(body, Some(Content::AsItCame(body)) if body.bytes() == [1; 4]));
    assert_eq!(state.tags.at(slot).tell(), Some(Ok(Received { words: 1, from: 1 })));
    for (from, send) in [(1, 7), (2, 8)] {
        assert!(state.post(slot, room(LONG_WORDS)).expect("none is posted").is_none());
        let get = state.next_to_get().expect("a long one is next");
        assert_eq!((get.slot, get.long.from, get.long.send, get.into), (slot, from, send, Some(64)));
        assert!(state.next_to_get().is_none() && state.tags.at(slot).tell().is_none() && state.is_busy());
        state.got(&get, Ok(()), None);
        assert_eq!(state.done.pop_front(), Some((from, Message::Done { send })));
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
    let told = Message::NoRoom { send: 1, most: LONG_WORDS - 1 };
    assert_eq!(state.done.pop_front(), Some((1, told)), "its sender is told");
}

#[test]
fn a_sender_is_told_that_it_has_no_memory_there() {
    let mut state = state();
    let slot = slot(&mut state);
    state.post(slot, room(LONG_WORDS)).expect("none is posted");
    come(&mut state, 1, long(1));
    let get = state.next_to_get().expect("a long one is next");
    let none = BipError::BadSource { tag: TAG, from: 1, addr: 64, words: LONG_WORDS };
    state.got(&get, Err(none.clone()), None);
    assert_eq!(state.tags.at(slot).tell(), Some(Err(none)));
    assert_eq!(state.done.pop_front(), Some((1, Message::NoSource { send: 1 })));
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
    let get = get_in_place(&mut state, slot);
    assert!(state.got(&get, Err(lost.clone()), Some(Vec::new())).is_none());
    assert!(state.tags.at(slot).front().is_none(), "nobody can ask for it again");
    assert_eq!((state.fault, state.getting), (Some(lost), 0));
}

fn get_in_place(state: &mut State, slot: u16) -> ToGet {
    match state.next_in_place(slot) {
        Ok(InPlace::ToGet(get)) => get,
        other => panic!("a long one is next, and not {other:?}"),
    }
}

/// The content that the program is given to read in place, if it is.
fn given(state: &mut State, slot: u16) -> Result<Option<Received>, BipError> {
    state.next_in_place(slot).map(|next| match next {
        InPlace::Here(_, received) => Some(received),
        InPlace::NotYet => None,
        InPlace::ToGet(get) => panic!("{get:?} is to be got"),
    })
}

#[test]
fn a_message_is_read_in_place_until_it_is_freed() {
    let mut state = state();
    let slot = slot(&mut state);
    assert!(given(&mut state, slot) == Ok(None) && !state.has_next(slot));
    assert_eq!(state.free(slot), Err(BipError::NotHeld { tag: TAG }));
    for (from, message) in [(1, short(2)), (2, long(5)), (1, short(0))] {
        come(&mut state, from, message);
    }
    assert!(state.has_next(slot));
    assert_eq!(given(&mut state, slot), Ok(Some(Received { words: 2, from: 1 })));
    assert_eq!(given(&mut state, slot), Err(BipError::Held { tag: TAG }));
    assert!(!state.has_next(slot));
    assert_eq!(state.free(slot), Ok(()));
    let get = get_in_place(&mut state, slot);
    assert_eq!((get.long.send, get.into, state.has_next(slot)), (5, None, false));
    assert_eq!(given(&mut state, slot), Ok(None), "it is being got");
    assert_eq!(state.free(slot), Err(BipError::NotHeld { tag: TAG }), "the program has not got it");
    assert!(state.got(&get, Ok(()), Some(vec![0; LONG_WORDS as usize])).is_none());
    assert!(state.has_next(slot) && state.is_short_next(slot) == Some(false));
    assert_eq!(given(&mut state, slot), Ok(Some(Received { words: LONG_WORDS, from: 2 })));
    assert!(state.post(slot, room(1)).is_ok(), "the tag goes on while one is held");
    assert_eq!(state.copies.received, 0);
}

/// A long message that is being got to be read in place stays the next one, whoever asks for it then.
#[test]
fn what_is_got_in_place_goes_to_the_next_receive() {
    let words = vec![7; LONG_WORDS as usize];
    for is_posted_before in [true, false] {
        let mut state = state();
        let slot = slot(&mut state);
        come(&mut state, 1, short(1));
        state.post(slot, room(1)).expect("none is posted");
        let told = Some(Ok(Received { words: 1, from: 1 }));
        assert_eq!(state.tags.at(slot).tell(), told);
        come(&mut state, 1, long(5));
        come(&mut state, 2, short(3));
        let get = get_in_place(&mut state, slot);
        assert_eq!((state.is_short_next(slot), state.tags.at(slot).tell()), (Some(false), told.clone()));
        if is_posted_before {
            assert!(state.post(slot, room(LONG_WORDS)).expect("none is posted").is_none());
            assert!(state.next_to_get().is_none(), "it is being got");
            let waited_for = state.got(&get, Ok(()), Some(words.clone()));
            assert!(matches!(waited_for, Some((64, Content::Words(got))) if got == words));
        } else {
            assert!(state.got(&get, Ok(()), Some(words.clone())).is_none());
            assert_eq!(state.tags.at(slot).tell(), told, "asked again, it says the same");
            let here = state.post(slot, room(LONG_WORDS)).expect("none is posted");
            assert!(matches!(here, Some(Content::Words(got)) if got == words));
        }
        assert_eq!(state.tags.at(slot).tell(), Some(Ok(Received { words: LONG_WORDS, from: 1 })));
        assert_eq!((state.done.pop_front(), state.getting), (Some((1, Message::Done { send: 5 })), 0));
        assert_eq!(state.copies.received, 4 + u64::from(LONG_WORDS) * 4);
        assert_eq!(state.is_short_next(slot), Some(true), "what came later is received later");
    }
}

#[test]
fn what_is_got_in_place_may_be_too_long_for_the_next_receive() {
    for is_posted_before in [true, false] {
        let mut state = state();
        let slot = slot(&mut state);
        come(&mut state, 1, long(5));
        let get = get_in_place(&mut state, slot);
        if is_posted_before {
            state.post(slot, room(LONG_WORDS - 1)).expect("none is posted");
        }
        assert!(state.got(&get, Ok(()), Some(vec![0; LONG_WORDS as usize])).is_none());
        if !is_posted_before {
            assert!(state.post(slot, room(LONG_WORDS - 1)).expect("none is posted").is_none());
        }
        let (words, most) = (LONG_WORDS, LONG_WORDS - 1);
        let too_long = BipError::TooLong { tag: TAG, from: 1, words, most };
        assert_eq!(state.tags.at(slot).tell(), Some(Err(too_long)));
    }
}

/// A message too long for its receive is over nevertheless: its sender may send as before.
#[test]
fn what_is_refused_for_its_length_takes_no_room() {
    let mut state = state();
    let slot = slot(&mut state);
    for _ in 0..2 * BASE {
        state.post(slot, room(0)).expect("none is posted");
        assert_eq!(come(&mut state, 1, short(1)), Route::Nowhere);
        assert!(matches!(state.tags.at(slot).tell(), Some(Err(BipError::TooLong { .. }))));
        if let Some(peer) = state.owed.pop_front() {
            let total = state.taken_of(peer);
            state.told(peer, total);
        }
    }
    assert_eq!(state.counts.refused, 0);
    for send in [7, 8] {
        state.post(slot, room(1)).expect("none is posted");
        come(&mut state, 1, long(send));
        assert!(state.next_to_get().is_none());
        assert!(matches!(state.tags.at(slot).tell(), Some(Err(BipError::TooLong { .. }))));
        let told = Message::NoRoom { send, most: 1 };
        assert_eq!((state.done.pop_front(), state.counts.refused), (Some((1, told)), 0));
    }
}

#[test]
fn whoever_leaves_takes_back_its_receives() {
    let mut state = state();
    let slot = slot(&mut state);
    let other = state.tags.slot_of(TAG + 1).expect("there is room");
    for slot in [slot, other] {
        state.post(slot, room(LONG_WORDS)).expect("none is posted");
    }
    come(&mut state, 1, long(1));
    state.withdraw();
    assert!(state.next_to_get().is_none());
    assert_eq!(come(&mut state, 2, short(1)), Route::Queue(slot));
    assert_eq!(come(&mut state, 2, Message::Short { tag: TAG + 1, words: 0 }), Route::Queue(other));
}

/// A peer hears of all else before it hears that this process leaves, and waits for no other peer's news.
#[test]
fn leaving_overtakes_nothing() {
    let mut state = state();
    let slot = slot(&mut state);
    state.post(slot, room(LONG_WORDS)).expect("none is posted");
    come(&mut state, 1, long(7));
    let get = state.next_to_get().expect("a long one is next");
    state.got(&get, Ok(()), None);
    assert!(!state.may_tell_of_leaving(1) && state.may_tell_of_leaving(2));
    state.done.clear();
    assert!(state.may_tell_of_leaving(1));
    state.sends.begin((2, TAG), (64, 1)).expect("none is under way");
    assert!(state.may_tell_of_leaving(1) && !state.may_tell_of_leaving(2));
    state.sends.sent();
    assert!(state.may_tell_of_leaving(2));
}

#[test]
fn who_asks_for_ever_is_told_in_the_end() {
    let mut state = state();
    assert!((0..IN_VAIN_MAX).all(|_| !state.asks_in_vain()));
    assert!(state.asks_in_vain() && state.asks_in_vain());
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
    assert_eq!((state.fault.clone(), state.counts.refused), (Some(fault), 1));
    for _ in 0..2 * BASE {
        state.arrive(1, Message::Short { tag: most, words: 0 });
    }
    assert_eq!(state.owed.pop_front(), Some(1), "what found no tag takes no room");
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
