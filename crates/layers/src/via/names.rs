//! The name service: names of hosts and of processes.

use super::address::Host;
use super::error::ViaError;
use super::port::Via;

/// Names of a job's processes begin so, and their numbers follow.
const NODE: &str = "node";

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
