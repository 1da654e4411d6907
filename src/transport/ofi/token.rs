//! The token that only the members of a job can put on a message.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::transport::contract::Party;
use engine::MESSAGES_VERSION;

/// Bytes of a token.
pub(super) const TOKEN_BYTES: usize = 16;

/// Keeps these tokens apart from whatever else the job's secret may vouch for. Its number is the version of
/// the frame: raise it when a byte before the engine's header means something else. The engine's own
/// messages have a version of their own, [`MESSAGES_VERSION`], and it goes into tokens, too.
const PURPOSE: &[u8] = b"standpipe message token 3";

/// The token of all messages of one process to another: half of an HMAC-SHA256, by the job's secret, over who
/// sends and who receives. So it also keeps out what was meant for somebody else, or for a process that had
/// the rank before.
#[derive(Clone)]
pub(super) struct Token([u8; TOKEN_BYTES]);

impl Token {
    pub(super) fn new(secret: &[u8], from: Party, to: Party) -> Token {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("an HMAC takes keys of any length");
        mac.update(PURPOSE);
        mac.update(&[MESSAGES_VERSION]);
        for word in [from.rank, from.incarnation, to.rank, to.incarnation] {
            mac.update(&word.to_le_bytes());
        }
        let mut token = [0; TOKEN_BYTES];
        token.copy_from_slice(&mac.finalize().into_bytes()[..TOKEN_BYTES]);
        Token(token)
    }

    pub(super) fn bytes(&self) -> &[u8; TOKEN_BYTES] {
        &self.0
    }

    /// Compares in constant time: how long a wrong guess takes tells nothing about the token.
    pub(super) fn matches(&self, other: &[u8; TOKEN_BYTES]) -> bool {
        self.0.ct_eq(other).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_each_way_and_each_process_has_a_token_of_its_own() {
        let party = |rank, incarnation| Party { rank, incarnation };
        let token = |secret: &[u8], from, to| *Token::new(secret, from, to).bytes();
        let all = [
            token(b"secret", party(0, 0), party(1, 0)),
            token(b"secret", party(1, 0), party(0, 0)),
            token(b"secret", party(0, 1), party(1, 0)),
            token(b"secret", party(0, 0), party(1, 1)),
            token(b"secret", party(0, 0), party(2, 0)),
            token(b"other", party(0, 0), party(1, 0)),
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| other != one), "token {at} is another's, too");
        }
    }

    #[test]
    fn only_the_very_bytes_match() {
        let (from, to) = (Party { rank: 3, incarnation: 0 }, Party { rank: 4, incarnation: 9 });
        let token = Token::new(b"secret", from, to);
        assert!(Token::new(b"secret", from, to).matches(token.bytes()));
        for bit in 0..8 * TOKEN_BYTES {
            let mut bytes = *token.bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(!token.matches(&bytes));
        }
    }
}
