//! Addresses of NICs, and names of devices as programs of the time have them.

use standpipe::Rank;

/// Bytes of a NIC's address.
pub const NIC_ADDRESS_BYTES: usize = 6;

/// A NIC's address: the process whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// A process of the job.
    Rank(Rank),
    /// A process of this user on this host that nobody launched, by its number there.
    Process(u32),
    /// Whichever process of this host: the first one that waits for the discriminator.
    Any,
}

impl Host {
    /// The address's bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; NIC_ADDRESS_BYTES] {
        let (kind, number) = match self {
            Host::Rank(rank) => (b'R', rank),
            Host::Process(number) => (b'P', number),
            Host::Any => (b'H', 0),
        };
        let [a, b, c, d] = number.to_be_bytes();
        [b'V', kind, a, b, c, d]
    }

    /// The process that bytes stand for.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Host> {
        let [b'V', kind, number @ ..] = bytes else { return None };
        let number = u32::from_be_bytes(number.try_into().ok()?);
        match kind {
            b'R' => Some(Host::Rank(number)),
            b'P' => Some(Host::Process(number)),
            b'H' if number == 0 => Some(Host::Any),
            _ => None,
        }
    }
}

/// Whether that is a device's name: `/dev/via_lo`, `/dev/via_ethN`, `/etc/via_lo`, `/dev/clanvi0`, `nic0`.
#[must_use]
pub fn is_device(name: &str) -> bool {
    let numbered = |start: &str| {
        name.strip_prefix(start)
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    let plain = ["/dev/via_lo", "/etc/via_lo"].contains(&name);
    plain || ["/dev/via_eth", "/etc/via_eth", "/dev/clanvi", "nic"].into_iter().any(numbered)
}
