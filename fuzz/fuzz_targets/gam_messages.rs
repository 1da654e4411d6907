//! A peer that sends a message of Generic Active Messages with any words, payload and place: it is read whole
//! or refused, and its handler gets no more than came.
#![no_main]

use layers::gam::Arguments;
use layers::gam::message::{Kind, Message};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Sent<'a> {
    kind: u8,
    args: [u64; 4],
    payload: &'a [u8],
    landed: Option<(u64, usize)>,
}

fuzz_target!(|sent: Sent<'_>| {
    let Sent { kind, args, payload, landed } = sent;
    let kind = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
    let Ok(message) = Message::parse(kind, args, payload, landed) else { return };
    // One bit of the word beside a function is the layer's own.
    let is_marked = message.may_wait && message.function | 1 << 62 == args[0];
    assert!(is_marked || message.function == args[0]);
    assert_eq!(message.may_wait, args[0] >> 62 & 1 == 1 && message.arguments().is_some());
    match message.arguments() {
        None => {
            assert!(matches!(kind, Kind::Null | Kind::Returned | Kind::Leave));
            assert_eq!(message.returns(), (kind != Kind::Leave).then_some(args[0]));
        }
        Some(Arguments::Words(words)) => {
            assert!(words.len() <= 4 && words.iter().zip(&args[1..]).all(|(word, arg)| word == arg));
            assert_eq!(words.len() == 4, !payload.is_empty());
        }
        Some(Arguments::Medium(bytes, a, b)) => {
            assert_eq!((bytes, [a, b]), (payload, [args[1], args[2]]));
        }
        Some(Arguments::Memory { addr, len, arg }) => {
            assert_eq!((Some((addr, len)), arg), (landed, args[1]));
        }
        Some(_) => assert!(payload.is_empty() && landed.is_none()),
    }
});
