//! What a node shows of itself to those that it calls.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::env::JobName;
use super::secret::Secret;

const PROOF_BYTES: usize = 32;

/// What shows to those who have a node's address that it is this node that calls another: only it and they can make it, and it
/// is of no use at a third.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Proof([u8; PROOF_BYTES]);

impl Proof {
    /// That the node of this secret and name calls the other.
    pub(crate) fn of(secret: &Secret, caller: &JobName, called: &JobName) -> Proof {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("an HMAC takes keys of any length");
        mac.update(b"standpipe meets");
        mac.update(&caller.bytes());
        mac.update(&called.bytes());
        Proof(mac.finalize().into_bytes().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_one_secret_and_one_pair() {
        let (a, b) = (JobName::of(&[1; 16]), JobName::of(&[2; 16]));
        let (secret, other) = (Secret::random().expect("bytes"), Secret::random().expect("bytes"));
        let proof = Proof::of(&secret, &a, &b);
        assert_eq!(proof, Proof::of(&secret, &a, &b));
        assert_ne!(proof, Proof::of(&other, &a, &b));
        assert_ne!(proof, Proof::of(&secret, &b, &a));
        assert_ne!(proof, Proof::of(&secret, &a, &a));
    }
}
