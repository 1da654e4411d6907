//! What everything costs in virtual time: one documented TOML file a machine.
//!
//! The model is LogGP's (Alexandrov et al.), with what a pinning card adds: a message takes its sender's
//! processor for the send overhead, then the card for a fixed time and a time a byte, then the wire for the
//! latency, then the receiver's processor for the receive overhead. One-sided copies take no processor at the
//! target.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use engine::Nanos;
use serde::{Deserialize, Serialize};

/// No more is read of a file, which may be a device without end.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The costs of one machine. Every field but `gathers` must be in its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// The machine, for tables.
    pub name: String,
    /// From the last byte leaving one card to its arriving at another, in ns.
    pub latency_ns: Nanos,
    /// Time on the link for each byte, in ns: the inverse of the bandwidth.
    pub gap_ns_per_byte: f64,
    /// The sender's processor, for each message or one-sided operation, in ns.
    pub send_overhead_ns: Nanos,
    /// The receiver's processor, for each message, in ns.
    pub receive_overhead_ns: Nanos,
    /// The initiator's processor, for noticing that a one-sided operation is complete, in ns.
    pub completion_overhead_ns: Nanos,
    /// The sending card, for each message or piece of a one-sided operation, in ns.
    pub message_ns: Nanos,
    /// Bytes on the link besides the payload of each message or piece.
    pub header_bytes: u64,
    /// Bytes of payload that one message has at most.
    pub payload_max_bytes: usize,
    /// Messages from one rank to another, on each lane, that are sent and not yet taken.
    pub lane_messages: u32,
    /// Whether messages to a peer gather in a frame while others are on their way out, as far as polls tell.
    /// A frame takes the send overhead and the card's fixed time once. It leaves when it has 8 KiB, or when
    /// its sender is polled next and asks the network. `false` where a file does not say.
    #[serde(default)]
    pub gathers: bool,
    /// Bytes at the local end of a one-sided copy that need no registration: they are copied.
    pub unregistered_max_bytes: u64,
    /// Each registration, in ns of its owner's processor.
    pub register_fixed_ns: Nanos,
    /// Each page of a registration, in ns of its owner's processor.
    pub register_page_ns: Nanos,
    /// Each deregistration, in ns of its owner's processor.
    pub deregister_fixed_ns: Nanos,
    /// Each page of a deregistration, in ns of its owner's processor.
    pub deregister_page_ns: Nanos,
    /// Bytes that one process may pin.
    pub pinnable_bytes: u64,
    /// Pages whose translation the card keeps; 0: all that are pinned.
    pub table_entries: usize,
    /// Each page whose translation the card must fetch, in ns of that operation's time on the card.
    pub table_miss_ns: Nanos,
    /// Each byte that a processor copies, in ns.
    pub copy_ns_per_byte: f64,
    /// Bytes of a page: a power of two, 512 at least.
    pub page_bytes: u64,
}

/// Why costs could not be had.
#[derive(Debug, thiserror::Error)]
pub enum CostsError {
    /// The file could not be read.
    #[error("cannot read the costs in {path}")]
    Read {
        /// The file.
        path: String,
        /// Why not.
        source: std::io::Error,
    },
    /// It is not TOML, a cost is missing, or something is in it that is no cost.
    #[error("these are no costs")]
    Parse(#[from] toml::de::Error),
    /// A cost has a value that it cannot have.
    #[error("{field} is {value}, and must be {must}")]
    Value {
        /// Which.
        field: &'static str,
        /// What it is.
        value: f64,
        /// What it must be.
        must: &'static str,
    },
}

impl Costs {
    /// The machines that are built in, by the names that [`Costs::named`] takes.
    pub const NAMES: [&str; 3] = ["myrinet-gm-2003", "myrinet-pm-1998", "infiniband-modern"];

    /// Myrinet with GM as in the Firehose paper, from its published figures.
    pub fn myrinet_gm_2003() -> Costs {
        built_in(include_str!("../costs/myrinet-gm-2003.toml"))
    }

    /// Myrinet with PM as in the pin-down cache's paper, from its published figures.
    pub fn myrinet_pm_1998() -> Costs {
        built_in(include_str!("../costs/myrinet-pm-1998.toml"))
    }

    /// A modern InfiniBand adapter, from UCX's published model of registration.
    pub fn infiniband_modern() -> Costs {
        built_in(include_str!("../costs/infiniband-modern.toml"))
    }

    /// A built-in machine by its name, which is one of [`Costs::NAMES`].
    pub fn named(name: &str) -> Option<Costs> {
        match name {
            "myrinet-gm-2003" => Some(Costs::myrinet_gm_2003()),
            "myrinet-pm-1998" => Some(Costs::myrinet_pm_1998()),
            "infiniband-modern" => Some(Costs::infiniband_modern()),
            _ => None,
        }
    }

    /// Costs from a file.
    pub fn load(path: &Path) -> Result<Costs, CostsError> {
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text))
            .map_err(|source| CostsError::Read { path: path.display().to_string(), source })?;
        Costs::parse(&text)
    }

    /// Costs from a file's text.
    pub fn parse(text: &str) -> Result<Costs, CostsError> {
        let costs: Costs = toml::from_str(text)?;
        costs.check()?;
        Ok(costs)
    }

    /// The text of a file with these costs, without comments.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("numbers and one name are always TOML")
    }

    /// Time that the processor takes to copy so many bytes.
    pub fn copy_ns(&self, bytes: u64) -> Nanos {
        whole(bytes as f64 * self.copy_ns_per_byte)
    }

    /// Time that the card takes for one message or piece of so many bytes, up to its last byte's leaving.
    pub fn card_ns(&self, bytes: u64) -> Nanos {
        self.message_ns + whole((self.header_bytes + bytes) as f64 * self.gap_ns_per_byte)
    }

    /// Time that the owner's processor takes to register so many bytes, which are whole pages.
    pub fn register_ns(&self, bytes: u64) -> Nanos {
        self.register_fixed_ns + bytes / self.page_bytes * self.register_page_ns
    }

    /// Time that the owner's processor takes to deregister so many bytes, which are whole pages.
    pub fn deregister_ns(&self, bytes: u64) -> Nanos {
        self.deregister_fixed_ns + bytes / self.page_bytes * self.deregister_page_ns
    }

    /// Checks that virtual time goes forwards and that messages fit.
    fn check(&self) -> Result<(), CostsError> {
        let no = |field, value, must| Err(CostsError::Value { field, value, must });
        for (field, value) in
            [("gap_ns_per_byte", self.gap_ns_per_byte), ("copy_ns_per_byte", self.copy_ns_per_byte)]
        {
            if !(0.0..1e9).contains(&value) {
                return no(field, value, "between 0 and 10^9");
            }
        }
        if !self.page_bytes.is_power_of_two() || self.page_bytes < 512 {
            return no("page_bytes", self.page_bytes as f64, "a power of two, 512 at least");
        }
        if !(64..=1 << 20).contains(&self.payload_max_bytes) {
            return no("payload_max_bytes", self.payload_max_bytes as f64, "between 64 and 2^20");
        }
        if self.lane_messages == 0 {
            return no("lane_messages", 0.0, "1 at least");
        }
        let times = [
            ("latency_ns", self.latency_ns),
            ("send_overhead_ns", self.send_overhead_ns),
            ("receive_overhead_ns", self.receive_overhead_ns),
            ("completion_overhead_ns", self.completion_overhead_ns),
            ("message_ns", self.message_ns),
            ("header_bytes", self.header_bytes),
            ("register_fixed_ns", self.register_fixed_ns),
            ("register_page_ns", self.register_page_ns),
            ("deregister_fixed_ns", self.deregister_fixed_ns),
            ("deregister_page_ns", self.deregister_page_ns),
            ("table_miss_ns", self.table_miss_ns),
        ];
        match times.into_iter().find(|(_, value)| *value > 1_000_000_000) {
            Some((field, value)) => no(field, value as f64, "10^9 at most"),
            None => Ok(()),
        }
    }
}

fn built_in(text: &str) -> Costs {
    Costs::parse(text).expect("a test parses every built-in file")
}

/// The nearest whole number of nanoseconds, 0 or more and below 2^63: through a signed number, which takes
/// half the instructions, and without a call, as there are several for each message.
fn whole(nanos: f64) -> Nanos {
    (nanos + 0.5) as i64 as Nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_machines_are_there_by_name_and_survive_their_text() {
        for name in Costs::NAMES {
            let costs = Costs::named(name).expect("every name has its machine");
            assert_eq!(Costs::parse(&costs.to_toml()).expect("what was written"), costs);
        }
        assert_eq!(Costs::named("ethernet"), None);
    }

    #[test]
    fn a_machine_gathers_if_its_file_says_so() {
        let costs = Costs { gathers: true, ..Costs::infiniband_modern() };
        assert!(Costs::parse(&costs.to_toml()).expect("what was written").gathers);
        assert!(!Costs::infiniband_modern().gathers, "its file does not say");
    }

    #[test]
    fn every_number_of_a_built_in_file_says_where_it_comes_from() {
        for text in [
            include_str!("../costs/myrinet-gm-2003.toml"),
            include_str!("../costs/myrinet-pm-1998.toml"),
            include_str!("../costs/infiniband-modern.toml"),
        ] {
            let mut sourced = false;
            for line in text.lines() {
                let comment = line.starts_with('#');
                sourced = (sourced && !line.is_empty()) || (comment && line.contains('['));
                assert!(comment || line.is_empty() || line.starts_with("name") || sourced, "{line}");
            }
        }
    }

    #[test]
    fn costs_that_cannot_be_are_refused_by_name() {
        let refused = |from: &str, to: &str| {
            let text = Costs::myrinet_gm_2003().to_toml().replace(from, to);
            Costs::parse(&text).expect_err("a wrong cost was taken").to_string()
        };
        assert!(refused("page_bytes = 4096", "page_bytes = 5000").contains("page_bytes is 5000"));
        assert!(refused("copy_ns_per_byte = 5.0", "copy_ns_per_byte = -1.0").contains("copy_ns_per_byte"));
        assert!(refused("lane_messages = 16", "lane_messages = 0").contains("lane_messages"));
        assert!(refused("latency_ns = 5000", "latency_ns = 9000000000").contains("latency_ns"));
        assert_eq!(refused("latency_ns", "latenzy_ns"), "these are no costs");
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = Costs::load(Path::new("no/such/costs.toml")).expect_err("there is no such file");
        assert!(error.to_string().contains("no/such/costs.toml"), "{error}");
        let error = Costs::load(Path::new("/dev/zero")).expect_err("zeroes without end");
        assert!(matches!(error, CostsError::Parse(_)), "{error}");
    }
}
