//! A node's proof of who it is to those that it calls.

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::env::JobName;
use super::secret::Secret;

const PROOF_BYTES: usize = 32;

/// The proof, to those who have a node's address, that it is this node that calls another. Only it and they
/// can make it, and it is of no use at a third.
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

/// Bytes that each of two nodes throws in, so that no two meetings have the same secret.
pub(crate) const SALT_BYTES: usize = 16;

/// The secret that only two processes know that have met over the network, from when on. A process that has
/// the address knows its secret, but neither salt, as these are told encrypted.
pub(crate) fn secret_of_two(
    secret: &Secret,
    (caller, caller_salt): (&JobName, &[u8; SALT_BYTES]),
    (called, called_salt): (&JobName, &[u8; SALT_BYTES]),
) -> Secret {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("an HMAC takes keys of any length");
    mac.update(b"standpipe has met");
    for part in [&caller.bytes(), caller_salt, &called.bytes(), called_salt] {
        mac.update(part);
    }
    Secret::of(mac.finalize().into_bytes().into())
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

    #[test]
    fn each_meeting_has_a_secret_of_its_own() {
        let (a, b) = (JobName::of(&[1; 16]), JobName::of(&[2; 16]));
        let secret = Secret::random().expect("bytes");
        let met = secret_of_two(&secret, (&a, &[3; 16]), (&b, &[4; 16]));
        assert!(met.matches(&secret_of_two(&secret, (&a, &[3; 16]), (&b, &[4; 16]))));
        let others = [
            secret_of_two(&Secret::random().expect("bytes"), (&a, &[3; 16]), (&b, &[4; 16])),
            secret_of_two(&secret, (&b, &[3; 16]), (&a, &[4; 16])),
            secret_of_two(&secret, (&a, &[5; 16]), (&b, &[4; 16])),
            secret_of_two(&secret, (&a, &[3; 16]), (&b, &[5; 16])),
        ];
        assert!(others.iter().all(|other| !other.matches(&met)));
    }
}
