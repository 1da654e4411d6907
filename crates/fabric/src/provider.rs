//! The providers that there are, what each can do, and what it needs.

use crate::environment::entered;
use crate::error::Error;
use crate::ffi;
use crate::info::Info;
use crate::library::Fabric;
use crate::sockaddr;
use std::ffi::CString;
use std::net::SocketAddr;

/// Which providers to look for. The default takes all that have reliable datagram endpoints with messages and
/// one-sided reads and writes.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Name of the provider, such as `tcp` or `verbs;ofi_rxm`. A plain name also finds it under a layer that
    /// makes reliable datagrams of it: `tcp` finds `tcp;ofi_rxm` where tcp has none of its own (before 1.18).
    pub provider: Option<String>,
    /// Name of the domain: a network interface or device.
    pub domain: Option<String>,
    /// An address or host name of the interface to use, such as `127.0.0.1`.
    pub source: Option<String>,
    /// Only with completions that say that the data are in the target's memory.
    pub delivery: bool,
    /// Only as [`Progress::Manual`]: transfers go on when an endpoint is polled, and only then. Spares a
    /// provider in software a thread of its own and the locks against it.
    pub manual: bool,
}

/// The demands of a provider on registrations. Without `virt_addr`, remote addresses count from the start of
/// the registration; without `prov_key`, the caller chooses keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct MrMode {
    /// Local buffers must be registered too.
    pub local: bool,
    /// Keys are longer than 64 bits, and must be mapped by whoever uses them.
    pub raw: bool,
    /// Remote addresses are virtual addresses of the target.
    pub virt_addr: bool,
    /// The memory must be there when it is registered.
    pub allocated: bool,
    /// The provider chooses keys.
    pub prov_key: bool,
    /// A registration belongs to an endpoint.
    pub endpoint: bool,
}

impl MrMode {
    /// Every mode that this crate deals with, as bits.
    const ALL: u64 = ffi::FI_MR_LOCAL
        | ffi::FI_MR_RAW
        | ffi::FI_MR_VIRT_ADDR
        | ffi::FI_MR_ALLOCATED
        | ffi::FI_MR_PROV_KEY
        | ffi::FI_MR_ENDPOINT;

    pub(crate) fn from_bits(bits: u64) -> MrMode {
        MrMode {
            local: bits & ffi::FI_MR_LOCAL != 0,
            raw: bits & ffi::FI_MR_RAW != 0,
            virt_addr: bits & ffi::FI_MR_VIRT_ADDR != 0,
            allocated: bits & ffi::FI_MR_ALLOCATED != 0,
            prov_key: bits & ffi::FI_MR_PROV_KEY != 0,
            endpoint: bits & ffi::FI_MR_ENDPOINT != 0,
        }
    }

    /// Whether registering is mere bookkeeping: nothing has to be there, and nothing is pinned.
    pub fn is_free(self) -> bool {
        !(self.local || self.allocated || self.raw || self.prov_key)
    }
}

/// The one that must call for things to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// The provider goes on by itself.
    Auto,
    /// Only calls of the user make it go on.
    Manual,
    /// Something that this crate does not know.
    Other,
}

impl Progress {
    fn from_number(number: u32) -> Progress {
        match u64::from(number) {
            ffi::FI_PROGRESS_AUTO => Progress::Auto,
            ffi::FI_PROGRESS_MANUAL => Progress::Manual,
            _ => Progress::Other,
        }
    }
}

/// The abilities and needs of one provider on one interface.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Description {
    /// Name of the provider, with the layers above it: `tcp`, `verbs;ofi_rxm`.
    pub provider: String,
    /// The provider's own version; for most 100 × the library's major version + its minor one.
    pub provider_version: String,
    /// The library's number of the protocol that endpoints speak; those of another do not understand it.
    pub protocol: u32,
    /// The protocol's version.
    pub protocol_version: u32,
    /// Name of the fabric: endpoints of one fabric can reach each other.
    pub fabric: String,
    /// Name of the domain: an interface or device.
    pub domain: String,
    /// The format of addresses.
    pub address_format: &'static str,
    /// The needs of registrations.
    pub mr_mode: MrMode,
    /// Bytes of a remote key.
    pub key_bytes: usize,
    /// Whether completions that say that the data are in the target's memory may be asked for.
    pub delivery: bool,
    /// Most bytes of an operation that needs its buffer no longer than the call.
    pub inline_bytes: usize,
    /// Most bytes of one operation.
    pub message_bytes: usize,
    /// Most pieces of local memory in one operation.
    pub local_pieces: usize,
    /// Most pieces of remote memory in one operation.
    pub remote_pieces: usize,
    /// Operations to send that an endpoint takes at once, at its default size.
    pub tx_depth: usize,
    /// Buffers to receive into that an endpoint takes at once, at its default size.
    pub rx_depth: usize,
    /// Pointers' worth of memory that each operation lends to the provider: 0, 4 or 8.
    pub context_words: usize,
    /// The most that threads may do at once.
    pub threading: &'static str,
    /// The one that makes connections and other housekeeping go on.
    pub control_progress: Progress,
    /// The one that makes transfers go on.
    pub data_progress: Progress,
    /// Whether a read of remote memory sees what an earlier write of the same endpoint wrote.
    pub read_after_write: bool,
    /// Whether messages arrive in the order in which they were sent.
    pub send_after_send: bool,
    /// Whether the provider itself keeps queues from running over.
    pub guards_queues: bool,
}

/// A provider on an interface, from which an endpoint can be opened.
pub struct Provider {
    info: Info,
    description: Description,
}

impl Provider {
    /// Its abilities and needs.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The address that its endpoints have, where it is one of IP; which may stand for all of the host's.
    pub fn source(&self) -> Option<SocketAddr> {
        sockaddr::read(&self.info.source())
    }

    pub(crate) fn info(&self) -> &Info {
        &self.info
    }
}

impl std::fmt::Debug for Provider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.description.fmt(f)
    }
}

impl Fabric {
    /// The providers that match, best first as the library ranks them; none is an empty list, not an error.
    /// Takes milliseconds, the first time perhaps a second. Any thread.
    ///
    /// # Errors
    /// [`Error::Call`] for `fi_getinfo`; [`Error::BadText`].
    pub fn providers(&'static self, hints: &Hints) -> Result<Vec<Provider>, Error> {
        entered(self.version(), || self.ask(hints))
    }

    fn ask(&'static self, hints: &Hints) -> Result<Vec<Provider>, Error> {
        let found = query(self, hints)?;
        let delivery = query(self, &Hints { delivery: true, ..hints.clone() })?;
        let delivery: Vec<Identity> = delivery.iter().map(identity).collect();
        let describe = |info: Info| {
            let identity = identity(&info);
            let description = describe(&info, delivery.contains(&identity));
            Provider { info, description }
        };
        Ok(found.into_iter().map(describe).collect())
    }
}

/// The identity of one thing that the library offers: names, format of addresses, own address.
type Identity = ([String; 3], u32, Vec<u8>);

fn identity(info: &Info) -> Identity {
    (info.names(), info.head().addr_format, info.source())
}

fn query(fabric: &'static Fabric, hints: &Hints) -> Result<Vec<Info>, Error> {
    let text = |what, text: &Option<String>| -> Result<Option<CString>, Error> {
        text.as_deref().map(|text| CString::new(text).map_err(|_| Error::BadText { what })).transpose()
    };
    let source = text("the source address", &hints.source)?;
    let mut wanted = Info::empty(fabric)?;
    wanted.set_caps(ffi::FI_MSG | ffi::FI_RMA, ffi::FI_CONTEXT | ffi::FI_CONTEXT2);
    wanted
        .set_names(text("the provider's name", &hints.provider)?, text("the domain's name", &hints.domain)?);
    wanted.ep().r#type = ffi::FI_EP_RDM as u32;
    wanted.tx().op_flags = if hints.delivery { ffi::FI_DELIVERY_COMPLETE } else { 0 };
    let domain = wanted.domain();
    domain.mr_mode = MrMode::ALL as i32;
    // An endpoint is used by one thread at a time, with everything that belongs to it.
    domain.threading = ffi::FI_THREAD_DOMAIN as u32;
    domain.data_progress = if hints.manual { ffi::FI_PROGRESS_MANUAL as u32 } else { 0 };
    let mut found = wanted.query(source.as_deref())?;
    // Which operations want delivery is said with each: as the default it would slow down all the others.
    found.iter_mut().for_each(|info| info.tx().op_flags &= !ffi::FI_DELIVERY_COMPLETE);
    Ok(found)
}

fn describe(info: &Info, delivery: bool) -> Description {
    let attrs = info.attrs();
    let head = info.head();
    let [provider, fabric, domain] = info.names();
    let version = attrs.fabric.prov_version;
    let orders = attrs.tx.msg_order & attrs.rx.msg_order;
    Description {
        provider,
        provider_version: format!("{}.{}", version >> 16, version & 0xffff),
        protocol: attrs.ep.protocol,
        protocol_version: attrs.ep.protocol_version,
        fabric,
        domain,
        address_format: address_format(head.addr_format),
        mr_mode: MrMode::from_bits(attrs.domain.mr_mode as u64),
        key_bytes: attrs.domain.mr_key_size,
        delivery,
        inline_bytes: attrs.tx.inject_size,
        message_bytes: attrs.ep.max_msg_size,
        local_pieces: attrs.tx.iov_limit,
        remote_pieces: attrs.tx.rma_iov_limit,
        tx_depth: attrs.tx.size,
        rx_depth: attrs.rx.size,
        context_words: context_words(head.mode),
        threading: threading(attrs.domain.threading),
        control_progress: Progress::from_number(attrs.domain.control_progress),
        data_progress: Progress::from_number(attrs.domain.data_progress),
        read_after_write: orders & (ffi::FI_ORDER_RAW | ffi::FI_ORDER_RMA_RAW) != 0,
        send_after_send: orders & ffi::FI_ORDER_SAS != 0,
        guards_queues: u64::from(attrs.domain.resource_mgmt) == ffi::FI_RM_ENABLED,
    }
}

fn context_words(mode: u64) -> usize {
    match (mode & ffi::FI_CONTEXT2 != 0, mode & ffi::FI_CONTEXT != 0) {
        (true, _) => 8,
        (false, true) => 4,
        (false, false) => 0,
    }
}

fn address_format(number: u32) -> &'static str {
    match u64::from(number) {
        ffi::FI_SOCKADDR => "sockaddr",
        ffi::FI_SOCKADDR_IN => "ipv4",
        ffi::FI_SOCKADDR_IN6 => "ipv6",
        ffi::FI_SOCKADDR_IB => "ib",
        ffi::FI_ADDR_STR => "text",
        ffi::FI_ADDR_IB_UD => "ib_ud",
        ffi::FI_ADDR_EFA => "efa",
        ffi::FI_ADDR_CXI => "cxi",
        _ => "other",
    }
}

fn threading(number: u32) -> &'static str {
    match u64::from(number) {
        ffi::FI_THREAD_SAFE => "safe",
        ffi::FI_THREAD_FID => "fid",
        ffi::FI_THREAD_DOMAIN => "domain",
        ffi::FI_THREAD_COMPLETION => "completion",
        ffi::FI_THREAD_ENDPOINT => "endpoint",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_come_from_bits() {
        assert_eq!(MrMode::from_bits(0), MrMode::default());
        assert!(MrMode::from_bits(ffi::FI_MR_VIRT_ADDR).is_free());
        let basic = MrMode::from_bits(ffi::FI_MR_VIRT_ADDR | ffi::FI_MR_ALLOCATED | ffi::FI_MR_PROV_KEY);
        assert!(basic.virt_addr && basic.allocated && basic.prov_key && !basic.local && !basic.is_free());
        assert_eq!(context_words(ffi::FI_CONTEXT | ffi::FI_CONTEXT2), 8);
        assert_eq!(context_words(ffi::FI_CONTEXT), 4);
    }

    #[test]
    fn numbers_unknown_are_other() {
        assert_eq!(Progress::from_number(77), Progress::Other);
        assert_eq!((threading(77), address_format(0)), ("other", "other"));
    }
}
