//! Which packet of a peer may come next.

use super::wire::Packet;

/// The message that a peer is at: a peer sends one at a time to another.
#[derive(Debug, Default)]
pub(crate) struct Assembly {
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    announced: u64,
    arrived: u64,
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A whole message.
    Whole,
    /// The first of several packets.
    First,
    /// A later one.
    Later,
    /// The last of several.
    Last,
    /// None that may come now: the peer breaks the protocol.
    Refused,
}

impl Assembly {
    /// Takes a packet of `len` bytes, unless it is refused: then nothing changes.
    pub(crate) fn accept(&mut self, packet: &Packet, len: u64) -> Step {
        match (&mut self.open, packet.first) {
            (None, Some(_)) if packet.is_last => Step::Whole,
            (None, Some(_)) => {
                self.open = Some(Open { announced: packet.position, arrived: len });
                Step::First
            }
            (Some(open), None) => {
                let arrived = open.arrived.checked_add(len).filter(|arrived| *arrived <= open.announced);
                let Some(arrived) = arrived.filter(|_| packet.position == open.arrived) else {
                    return Step::Refused;
                };
                open.arrived = arrived;
                if packet.is_last {
                    self.open = None;
                    return Step::Last;
                }
                Step::Later
            }
            (None, None) | (Some(_), Some(_)) => Step::Refused,
        }
    }

    /// Whether a message is open.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Ends the message that the peer is at: whether there was one.
    pub(crate) fn cut(&mut self) -> bool {
        self.open.take().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(first: bool, position: u64, is_last: bool) -> Packet {
        Packet { first: first.then_some(3), position, is_last, inline: None }
    }

    #[test]
    fn messages_follow_each_other() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.accept(&packet(true, 9, true), 4), Step::Whole);
        assert_eq!(assembly.accept(&packet(true, 30, false), 10), Step::First);
        assert_eq!(assembly.accept(&packet(false, 10, false), 10), Step::Later);
        assert_eq!(assembly.accept(&packet(false, 20, true), 10), Step::Last);
        assert_eq!(assembly.accept(&packet(true, 30, false), 10), Step::First);
        assert!(assembly.cut() && !assembly.cut());
    }

    #[test]
    fn packets_that_do_not_fit_are_refused_and_change_nothing() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.accept(&packet(false, 0, false), 1), Step::Refused);
        assert_eq!(assembly.accept(&packet(true, 30, false), 10), Step::First);
        for (wrong, len) in [
            (packet(true, 30, false), 10),
            (packet(true, 1, true), 1),
            (packet(false, 9, false), 1),
            (packet(false, 11, true), 1),
            (packet(false, 10, true), 21),
            (packet(false, 10, true), u64::MAX),
        ] {
            assert_eq!(assembly.accept(&wrong, len), Step::Refused);
        }
        assert_eq!(assembly.accept(&packet(false, 10, true), 20), Step::Last);
    }
}
