//! Names: of devices as programs of the time have them, of hosts, and addresses.

use standpipe::Rank;

use super::error::ViaError;
use super::port::Via;

/// Bytes of a NIC's address.
pub const NIC_ADDRESS_BYTES: usize = 6;

const MARK: [u8; 2] = *b"VI";

/// Names of a job's processes begin so, and their numbers follow.
const NODE: &str = "node";

/// The address of a process's NIC.
#[must_use]
pub const fn nic_address(rank: Rank) -> [u8; NIC_ADDRESS_BYTES] {
    let [a, b, c, d] = rank.to_be_bytes();
    [MARK[0], MARK[1], a, b, c, d]
}

/// The process whose NIC has that address.
#[must_use]
pub fn rank_of(address: &[u8]) -> Option<Rank> {
    let (mark, rank) = address.split_at_checked(MARK.len())?;
    (mark == MARK).then_some(())?;
    Some(Rank::from_be_bytes(rank.try_into().ok()?))
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
    /// The process that a name stands for: a number, `node` and a number, or this host's own names with an
    /// index, which counts the processes of the job.
    ///
    /// # Errors
    /// [`ViaError::NameService`].
    pub fn rank_by_name(&self, name: &str, index: u64, own_host: &str) -> Result<Rank, ViaError> {
        let (_, size) = self.rank_and_size();
        let number = name.strip_prefix(NODE).unwrap_or(name);
        let rank = match number.parse::<u32>() {
            Ok(rank) if index == 0 => Some(rank),
            Ok(_) => None,
            Err(_) if name == "localhost" || name == own_host => u32::try_from(index).ok(),
            Err(_) => None,
        };
        rank.filter(|rank| *rank < size).ok_or(ViaError::NameService)
    }

    /// The name of the process with that address, by which [`Via::rank_by_name`] finds it.
    ///
    /// # Errors
    /// [`ViaError::NameService`].
    pub fn name_by_address(&self, address: &[u8]) -> Result<String, ViaError> {
        let (_, size) = self.rank_and_size();
        let rank = rank_of(address).filter(|rank| *rank < size).ok_or(ViaError::NameService)?;
        Ok(format!("{NODE}{rank}"))
    }
}
