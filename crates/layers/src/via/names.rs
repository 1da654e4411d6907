//! Names: of devices as programs of the time have them, of hosts, and addresses.

use standpipe::Rank;

use super::error::ViaError;
use super::port::Via;

/// Bytes of a NIC's address.
pub const NIC_ADDRESS_BYTES: usize = 6;

/// Names of a job's processes begin so, and their numbers follow.
const NODE: &str = "node";

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

/// The name service.
impl Via {
    /// The address that a name stands for: a number of a process, `node` and a number, or this host's own
    /// names. Only index 0 has one.
    ///
    /// # Errors
    /// [`ViaError::NameService`].
    pub fn host_by_name(&self, name: &str, index: u64, own_host: &str) -> Result<Host, ViaError> {
        let number = name.strip_prefix(NODE).unwrap_or(name);
        let host = match number.parse::<u32>() {
            Ok(number) => self.host_of(number),
            Err(_) if name == "localhost" || name == own_host => Some(Host::Any),
            Err(_) => None,
        };
        host.filter(|_| index == 0).ok_or(ViaError::NameService)
    }

    /// The process of that number.
    fn host_of(&self, number: u32) -> Option<Host> {
        let (_, size) = self.rank_and_size();
        match self.hosts.get() {
            Some(hosts) => hosts.all().contains(&number).then_some(Host::Process(number)),
            None => (number < size).then_some(Host::Rank(number)),
        }
    }

    /// The name of the process with that address, by which [`Via::host_by_name`] finds it.
    ///
    /// # Errors
    /// [`ViaError::NameService`].
    pub fn name_by_address(&self, address: &[u8]) -> Result<String, ViaError> {
        match Host::from_bytes(address) {
            Some(Host::Any) => Ok("localhost".to_owned()),
            Some(host @ (Host::Rank(number) | Host::Process(number)))
                if self.host_of(number) == Some(host) =>
            {
                Ok(format!("{NODE}{number}"))
            }
            _ => Err(ViaError::NameService),
        }
    }
}
