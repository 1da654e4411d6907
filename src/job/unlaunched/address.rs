//! The address of a node that takes peers at any time: bytes that are sent by any means.
//!
//! ```text
//! 0     "SPA", version
//! 4     host, socket, secret, and how it is reached over the network, in postcard's encoding
//! end   SipHash-1-3 of all before, 8 bytes: it tells what was cut or garbled on the way, and protects nothing
//! ```
//! A process that has the bytes can become a peer of the node: they are a secret. An address that others send
//! is hostile input.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use siphasher::sip::SipHasher13;
use subtle::ConstantTimeEq;

use crate::base::code::{Code, into_io_error};
use crate::base::debug_is_display::debug_is_display;
use crate::job::plumbing::addresses;
use crate::job::plumbing::env::{JobName, NAME_BYTES};
use crate::job::plumbing::host_id::HostId;
use crate::job::plumbing::secret::Secret;

const MAGIC: [u8; 3] = *b"SPA";
/// The version of an address's bytes: what is drawn above, and the fields of what is in postcard's encoding.
/// Raise it by one with every change of either.
const VERSION: u8 = 3;
const HEADER_BYTES: usize = MAGIC.len() + 1;
const SUM_BYTES: usize = size_of::<u64>();

/// No address is longer.
const BYTES_MAX: usize = 4096;

/// No address names more ways over the network.
const WAYS_MAX: usize = addresses::TOLD_MAX;

/// The address of a node, by which any process that has it becomes the node's peer: [`Node::connect_to`]. It
/// is a secret, as it carries the token that the node asks for; `Debug` does not show it.
///
/// [`Node::connect_to`]: crate::Node::connect_to
#[derive(Clone)]
pub struct Address(Vec<u8>);

/// Takes as long whatever the two have in common.
impl PartialEq for Address {
    fn eq(&self, other: &Address) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Address {}

impl Address {
    /// The bytes to send to whoever may be a peer.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes to send to whoever may be a peer.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// An address from somebody: checked for what was cut or garbled on the way, and no further.
    ///
    /// # Errors
    /// Where it is none.
    pub fn from_bytes(bytes: impl Into<Vec<u8>>) -> Result<Address, AddressError> {
        let bytes = bytes.into();
        Told::parse(&bytes).map(|_| Address(bytes))
    }
}

impl TryFrom<&[u8]> for Address {
    type Error = AddressError;

    fn try_from(bytes: &[u8]) -> Result<Address, AddressError> {
        Address::from_bytes(bytes)
    }
}

/// By their bytes, so that addresses may be keys: as secret as they are.
impl Hash for Address {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// By their bytes.
impl Ord for Address {
    fn cmp(&self, other: &Address) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Address {
    fn partial_cmp(&self, other: &Address) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// As its bytes.
impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

/// From its bytes, which are checked as by [`Address::from_bytes`].
impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        let bytes = Vec::deserialize(deserializer)?;
        Address::from_bytes(bytes).map_err(serde::de::Error::custom)
    }
}

impl AsRef<[u8]> for Address {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Address(..)")
    }
}

debug_is_display!(AddressError);

/// Why bytes are no node's address.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// There are fewer bytes than any address has, or more.
    #[error("{len} bytes are no node's address: one has {} to {BYTES_MAX}", HEADER_BYTES + SUM_BYTES)]
    Length {
        /// Bytes given.
        len: usize,
    },
    /// They begin with something else.
    #[error("bytes that begin with {start:02x?} are no node's address: one begins with {MAGIC:02x?}")]
    Foreign {
        /// The first three.
        start: [u8; 3],
    },
    /// They are of another version of the library.
    #[error("a node's address of version {theirs}; this process reads version {VERSION}")]
    Version {
        /// The address's version.
        theirs: u8,
    },
    /// They end before what they say is over: some were lost on the way.
    #[error("a node's address that ends too early, after {len} bytes: it was cut off on the way")]
    Cut {
        /// Bytes given.
        len: usize,
    },
    /// Some were changed on the way.
    #[error(
        "a node's address whose checksum is {found:#018x} where its {len} bytes have {expected:#018x}: it was damaged on the way"
    )]
    Damaged {
        /// Bytes given.
        len: usize,
        /// The sum that the address says.
        found: u64,
        /// The sum that its bytes have.
        expected: u64,
    },
    /// They are what no node says.
    #[error("a node's address of {len} bytes that make no sense")]
    Malformed {
        /// Bytes given.
        len: usize,
    },
}

impl AddressError {
    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        Code::Address
    }
}

into_io_error!(AddressError);

/// The contents of an address.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Told {
    pub(super) host: HostId,
    node: [u8; NAME_BYTES],
    pub(super) secret: Secret,
    /// Whether those who share its host and network namespace come by its socket.
    pub(super) near: bool,
    /// Where it listens for those who do not.
    pub(super) ways: Vec<SocketAddr>,
}

impl Told {
    pub(super) fn new(host: HostId, node: &JobName, secret: Secret) -> Told {
        Told { host, node: node.bytes(), secret, near: true, ways: Vec::new() }
    }

    /// With ways over the network, the best first; and whether there is the other way, too.
    pub(super) fn over_network(self, mut ways: Vec<SocketAddr>, near: bool) -> Told {
        addresses::cut(&mut ways);
        Told { near, ways, ..self }
    }

    /// The socket where the node listens. No other node has the same, ever: one that is started again has
    /// another.
    pub(super) fn node(&self) -> JobName {
        JobName::of(&self.node)
    }

    pub(super) fn to_address(&self) -> Address {
        let bytes = [&MAGIC[..], &[VERSION]].concat();
        let mut bytes =
            postcard::to_extend(self, bytes).expect("a Vec grows, and plain values can be written");
        bytes.extend(sum(&bytes).to_le_bytes());
        Address(bytes)
    }

    /// Reads what somebody says is an address.
    pub(super) fn parse(bytes: &[u8]) -> Result<Told, AddressError> {
        let len = bytes.len();
        if !(HEADER_BYTES + SUM_BYTES..=BYTES_MAX).contains(&len) {
            return Err(AddressError::Length { len });
        }
        let (said, found) = bytes.split_at(len - SUM_BYTES);
        let (header, body) = said.split_at(HEADER_BYTES);
        let (start, theirs) = ([header[0], header[1], header[2]], header[3]);
        if start != MAGIC {
            return Err(AddressError::Foreign { start });
        }
        if theirs != VERSION {
            return Err(AddressError::Version { theirs });
        }
        let found = u64::from_le_bytes(found.try_into().expect("split off as so many bytes"));
        let expected = sum(said);
        if found != expected {
            return Err(match postcard::take_from_bytes::<Told>(&bytes[HEADER_BYTES..]) {
                Err(postcard::Error::DeserializeUnexpectedEnd) => AddressError::Cut { len },
                Ok((_, rest)) if rest.len() < SUM_BYTES => AddressError::Cut { len },
                _ => AddressError::Damaged { len, found, expected },
            });
        }
        match postcard::take_from_bytes(body) {
            Ok((Told { ways, .. }, _)) if ways.len() > WAYS_MAX => Err(AddressError::Malformed { len }),
            Ok((told, [])) => Ok(told),
            _ => Err(AddressError::Malformed { len }),
        }
    }
}

fn sum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Whether both are addresses of one node, whatever ways they name.
pub(super) fn is_of_same_node(one: &[u8], other: &[u8]) -> bool {
    match (Told::parse(one), Told::parse(other)) {
        (Ok(one), Ok(other)) => one.node == other.node && one.secret.matches(&other.secret),
        _ => false,
    }
}

/// The ways over the network that an address names; none where it is no address.
pub(crate) fn ways_to(address: &[u8]) -> Vec<SocketAddr> {
    Told::parse(address).map(|told| told.ways).unwrap_or_default()
}

/// Reads what somebody says is an address, and forgets it: for the fuzzer.
///
/// # Errors
/// Where it is none.
#[doc(hidden)]
pub fn check_address(bytes: &[u8]) -> Result<(), AddressError> {
    Told::parse(bytes).map(drop)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn told() -> Told {
        let name = JobName::random().expect("the kernel has random bytes");
        let ways = ["10.0.0.1:7", "[fe80::1]:8"].map(|way| way.parse().expect("an address"));
        let told = Told::new(HostId::own(), &name, Secret::random().expect("the kernel has random bytes"));
        told.over_network(ways.to_vec(), false)
    }

    /// With a checksum that is right.
    fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend(sum(&bytes).to_le_bytes());
        bytes
    }

    #[test]
    fn an_address_goes_there_and_back_and_is_not_shown() {
        let told = told();
        let address = told.to_address();
        let back = Told::parse(address.as_bytes()).expect("just made");
        assert_eq!((&back.host, back.node()), (&told.host, told.node()));
        assert_eq!((&back.ways, back.near), (&told.ways, false));
        assert!(back.secret.matches(&told.secret));
        assert_eq!(format!("{address:?}"), "Address(..)");
        assert!(!format!("{told:?}").contains(&told.secret.to_hex()[..8]));
    }

    #[test]
    fn what_was_cut_or_changed_is_told_by_name() {
        let whole = told().to_address().into_bytes();
        for len in 0..whole.len() {
            let error = Told::parse(&whole[..len]).expect_err("cut");
            assert!(
                matches!(error, AddressError::Length { .. } | AddressError::Cut { .. }),
                "{len}: {error}"
            );
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            let error = Told::parse(&changed).expect_err("changed");
            match at {
                0..3 => assert!(matches!(error, AddressError::Foreign { .. }), "{error}"),
                3 => assert_eq!(error, AddressError::Version { theirs: VERSION ^ 1 }),
                // A length may be what has changed.
                _ => assert!(
                    matches!(error, AddressError::Damaged { .. } | AddressError::Cut { .. }),
                    "{error}"
                ),
            }
        }
        let long = vec![0; BYTES_MAX + 1];
        assert_eq!(Told::parse(&long).expect_err("long"), AddressError::Length { len: BYTES_MAX + 1 });
        let more = summed([&whole[..whole.len() - SUM_BYTES], &[0]].concat());
        assert_eq!(Told::parse(&more).expect_err("more"), AddressError::Malformed { len: more.len() });
    }

    #[test]
    fn no_address_names_more_ways_than_anybody_has() {
        let many = vec!["10.0.0.1:7".parse().expect("an address"); WAYS_MAX + 1];
        let told = Told { ways: many, ..told() };
        let bytes = told.to_address().into_bytes();
        assert_eq!(Told::parse(&bytes).expect_err("many"), AddressError::Malformed { len: bytes.len() });
        let fewer = told.over_network(vec!["10.0.0.1:7".parse().expect("an address"); WAYS_MAX + 1], true);
        assert!(Told::parse(fewer.to_address().as_bytes()).is_ok());
    }

    proptest! {
        #[test]
        fn noise_is_an_error_and_never_a_panic(noise in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Told::parse(&noise).is_err());
            let _ = Told::parse(&summed([&b"SPA\x02"[..], &noise].concat()));
        }
    }
}
