//! An endpoint with all that belongs to it, opened and closed as one.

use crate::aux_endpoint::{AuxEndpoint, AuxEndpointId, AuxEndpoints};
use crate::environment::entered;
use crate::errno::Errno;
use crate::error::{Error, check};
use crate::ffi::{self, fi_av_attr, fid_av, fid_domain, fid_ep, fid_fabric, offers};
use crate::info::Info;
use crate::object::Owned;
use crate::provider::{Description, Provider};
use crate::queued_endpoint::{Options, QueuedEndpoint};
use crate::region::{Access, Memory, Region, RegionId, Regions};
use crate::sockaddr;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// A peer, as one endpoint knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer(u32);

impl Peer {
    /// The provider's name for it.
    #[inline(always)]
    pub(crate) fn known(self, peers: &[u64]) -> Result<u64, Error> {
        match peers.get(self.0 as usize) {
            Some(&known) if known != ffi::FI_ADDR_UNSPEC => Ok(known),
            _ => Err(Error::NoPeer { index: self.0 }),
        }
    }
}

/// A reliable endpoint of datagrams, with its fabric, domain, address vector, completion queue, registrations
/// and [auxiliary endpoints](crate::AuxEndpointId).
///
/// May be sent between threads. Every call of the library takes `&mut self`, as it is used by one thread at a
/// time. Dropping it closes everything; [`Endpoint::close`] also says whether that went well.
pub struct Endpoint {
    pub(crate) main: QueuedEndpoint,
    pub(crate) aux_endpoints: AuxEndpoints,
    pub(crate) peers: Vec<u64>,
    pub(crate) fabric: Owned<fid_fabric>,
    regions: Regions,
    pub(crate) av: Owned<fid_av>,
    pub(crate) domain: Owned<fid_domain>,
    /// The provider's entry that it was opened from, for auxiliary endpoints.
    pub(crate) info: Info,
    pub(crate) description: Description,
    address: Box<[u8]>,
}

// SAFETY: the library was asked for FI_THREAD_DOMAIN: any thread may use a domain and what belongs to it, one
// at a time. All of that is in here, nothing of it is handed out, and every call to it takes `&mut self`.
unsafe impl Send for Endpoint {}

// SAFETY: through a shared reference only plain values are read, and the library is not called.
unsafe impl Sync for Endpoint {}

impl Endpoint {
    /// Opens an endpoint at a provider.
    ///
    /// # Errors
    /// [`Error::Call`] for whatever step failed; [`Error::Absent`] if the provider lacks what every endpoint
    /// needs, or has no descriptor to wait on and one was wanted.
    pub fn open(provider: &Provider, options: &Options) -> Result<Endpoint, Error> {
        entered(provider.info().version(), || Endpoint::opened(provider, options))
    }

    fn opened(provider: &Provider, options: &Options) -> Result<Endpoint, Error> {
        let info = provider.info().copy()?;
        let fabric = open_fabric(&info)?;
        let domain = open_domain(&fabric, &info)?;
        let av = open_av(&domain, &info)?;
        let main = QueuedEndpoint::open(&domain, &info, &av, options)?;
        let description = provider.description().clone();
        Ok(Endpoint {
            address: address(&main.ep)?,
            peers: Vec::new(),
            regions: Regions::default(),
            aux_endpoints: AuxEndpoints::default(),
            main,
            av,
            domain,
            fabric,
            info,
            description,
        })
    }

    /// The provider's abilities and needs.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// The endpoint's own address, for [`Endpoint::add_peer`] of others on the same fabric with the same
    /// format of addresses.
    pub fn address(&self) -> &[u8] {
        &self.address
    }

    /// The descriptor that becomes readable when something happens, if the endpoint was opened for waiting.
    /// It is only to be slept on after [`Endpoint::try_wait`] said so.
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.main.wait_fd()
    }

    /// Operations in flight, buffers that wait for messages included.
    pub fn in_flight(&self) -> usize {
        self.main.slots.used() + self.main.prepared.under_way().count()
    }

    /// Makes a peer known by the address that its endpoint says it has; where that stands for all of its
    /// host's, by that at which it was `met`. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::BadAddress`] if these bytes are no address, or of a family that this endpoint has not;
    /// [`Error::Call`] for `fi_av_insert`.
    pub fn add_peer_met(&mut self, address: &[u8], met: Option<SocketAddr>) -> Result<Peer, Error> {
        let bad = Error::BadAddress { len: address.len() };
        self.add_peer(&sockaddr::for_endpoint(&self.address, address, met).ok_or(bad)?)
    }

    /// Makes a peer known by the address that its endpoint says it has. Nothing is sent.
    ///
    /// # Errors
    /// [`Error::BadAddress`] if these bytes are no address, [`Error::Call`] for `fi_av_insert`.
    pub fn add_peer(&mut self, address: &[u8]) -> Result<Peer, Error> {
        const CALL: &str = "fi_av_insert";
        let bad = Error::BadAddress { len: address.len() };
        let alike = address.len() == self.address.len();
        let fits = match self.description.address_format {
            "text" => address.contains(&0),
            // One of a family that it does not know makes 1.17 refuse all that come after it.
            "sockaddr" | "ipv4" | "ipv6" | "ib" => alike && address.get(..2) == self.address.get(..2),
            _ => alike,
        };
        // The call takes no length: a provider may read as far as it thinks that an address of its kind goes.
        let mut padded = [0_u8; 512];
        let room = padded.get_mut(..address.len()).filter(|_| fits).ok_or(bad.clone())?;
        room.copy_from_slice(address);
        let index = self.free_peer();
        let mut peer = ffi::FI_ADDR_UNSPEC;
        // SAFETY: the address vector is open, so its table is alive.
        let insert = unsafe { offers!((*self.av.as_ptr()).ops, fi_ops_av, insert) };
        let insert = insert.ok_or(Error::Absent { call: CALL })?;
        // SAFETY: one address is read from `padded`, which is larger than any, and one number written.
        let inserted = unsafe {
            insert(self.av.as_ptr(), padded.as_ptr().cast(), 1, &mut peer, 0, std::ptr::null_mut())
        };
        if check(CALL, inserted.into())? != 1 || peer == ffi::FI_ADDR_UNSPEC {
            return Err(bad);
        }
        self.peers[index] = peer;
        Ok(Peer(index as u32))
    }

    /// Forgets a peer; its number may be given to another one later. Operations with it end as the provider
    /// sees fit.
    ///
    /// # Errors
    /// [`Error::NoPeer`]; [`Error::Call`] for `fi_av_remove`.
    pub fn remove_peer(&mut self, peer: Peer) -> Result<(), Error> {
        const CALL: &str = "fi_av_remove";
        let mut known = self.known(peer)?;
        // SAFETY: the address vector is open, so its table is alive.
        let remove = unsafe { offers!((*self.av.as_ptr()).ops, fi_ops_av, remove) };
        let remove = remove.ok_or(Error::Absent { call: CALL })?;
        // SAFETY: the address was inserted into this vector and not removed since; one is read.
        check(CALL, unsafe { remove(self.av.as_ptr(), &mut known, 1, 0) }.into())?;
        self.peers[peer.0 as usize] = ffi::FI_ADDR_UNSPEC;
        Ok(())
    }

    /// The provider's name for a peer.
    #[inline]
    pub(crate) fn known(&self, peer: Peer) -> Result<u64, Error> {
        peer.known(&self.peers)
    }

    /// A place in the table of peers that is free.
    fn free_peer(&mut self) -> usize {
        let free = self.peers.iter().position(|known| *known == ffi::FI_ADDR_UNSPEC);
        free.unwrap_or_else(|| {
            self.peers.push(ffi::FI_ADDR_UNSPEC);
            self.peers.len() - 1
        })
    }

    /// Registers memory. Where the provider does not choose keys, `wanted_key` becomes the key, and must not
    /// be in use at this endpoint; where it does, it is ignored. Keys shorter than 64 bits exist: see
    /// [`Description::key_bytes`].
    ///
    /// # Errors
    /// [`Error::Call`] for `fi_mr_reg` (`FI_ENOKEY` if the key is taken, `FI_ENOMEM` where no more may be
    /// pinned), `fi_mr_bind`, `fi_mr_enable` or `fi_mr_raw_attr`.
    ///
    /// # Safety
    /// Until the registration or the endpoint is closed, and on providers in software until transfers under
    /// way have ended too (see the crate's notes on closing): the memory must be there, unless the provider
    /// [asks for nothing](crate::MrMode::is_free) and the caller accepts that it then dies, or its peer gets
    /// an error, when something reaches what is not there; and, as far as `access` allows peers to, they may
    /// write it at any time, so no Rust reference to plain data may point into it.
    pub unsafe fn register(
        &mut self,
        addr: *mut u8,
        len: usize,
        access: Access,
        wanted_key: u64,
    ) -> Result<Region, Error> {
        let memory = Memory { addr, len, access, wanted_key };
        // SAFETY: what the called function asks for is what the caller of this one has promised.
        unsafe { self.regions.register(&self.domain, &self.main.ep, self.description.mr_mode, memory) }
    }

    /// Closes a registration: peers' operations that use its key from now on fail.
    ///
    /// # Errors
    /// [`Error::NoRegion`] if it is closed; [`Error::Call`] for `fi_close`, after which it is still open.
    pub fn deregister(&mut self, region: RegionId) -> Result<(), Error> {
        self.regions.close(region)
    }

    /// Opens an auxiliary endpoint.
    ///
    /// # Errors
    /// As for [`Endpoint::open`]; [`Error::AuxEndpointsLeft`] if too many were not closed when they should
    /// be.
    pub fn open_aux_endpoint(&mut self, options: &Options) -> Result<AuxEndpointId, Error> {
        self.aux_endpoints.check_left()?;
        let open = || QueuedEndpoint::open(&self.domain, &self.info, &self.av, options);
        let queued = entered(self.info.version(), open)?;
        Ok(self.aux_endpoints.insert(queued))
    }

    /// Whether closing would leave the endpoint open now, for reads that were started from it.
    pub fn cannot_close(&self) -> bool {
        self.main.cannot_close()
    }

    /// Whether closing this auxiliary endpoint would leave it open now, for reads that were started from it.
    pub fn cannot_close_aux_endpoint(&self, aux_endpoint: AuxEndpointId) -> bool {
        self.aux_endpoints.cannot_close(aux_endpoint)
    }

    /// Closes an auxiliary endpoint: what was started from it and has not ended never does, and the provider
    /// touches the memory lent to it no more. Data that it has given to the network by then may still arrive
    /// at peers, until those close the endpoint that it was written to. Writes of peers by it end, too: once
    /// this has returned, nothing is written any more. Over `tcp;ofi_rxm`, one with reads under way is not
    /// closed but left as it is, for that provider would kill the process. Nobody polls it, so no bytes move,
    /// but its connections and buffers stay until the process ends. A few may be left so.
    ///
    /// # Errors
    /// [`Error::NoAuxEndpoint`]; [`Error::Call`] for `fi_close`, after which the auxiliary endpoint is open,
    /// and has what it was lent.
    pub fn close_aux_endpoint(&mut self, aux_endpoint: AuxEndpointId) -> Result<(), Error> {
        self.aux_endpoints.close(aux_endpoint)
    }

    /// An auxiliary endpoint to be used.
    ///
    /// # Errors
    /// [`Error::NoAuxEndpoint`].
    #[inline]
    pub fn aux_endpoint(&mut self, aux_endpoint: AuxEndpointId) -> Result<AuxEndpoint<'_>, Error> {
        let queued = self.aux_endpoints.get(aux_endpoint)?;
        Ok(AuxEndpoint { queued, peers: &self.peers, description: &self.description })
    }

    /// The endpoint itself as one.
    #[inline]
    pub(crate) fn main_as_aux(&mut self) -> AuxEndpoint<'_> {
        AuxEndpoint { queued: &mut self.main, peers: &self.peers, description: &self.description }
    }

    /// Closes everything. When this has returned `Ok`, no buffer of any operation is used any more, and no
    /// completion comes.
    ///
    /// # Errors
    /// [`Error::LeftOpen`] where the endpoint, or an auxiliary endpoint before, could not be closed, as said
    /// at [`Endpoint::close_aux_endpoint`]; [`Error::Call`] for the first `fi_close` that failed. A part that
    /// could not be closed is leaked, and stays as it was.
    pub fn close(mut self) -> Result<(), Error> {
        self.close_all()
    }

    /// Closes in the order that every provider accepts.
    fn close_all(&mut self) -> Result<(), Error> {
        self.regions.close_all()?;
        let aux_endpoints_closed = self.aux_endpoints.close_all()?;
        if !self.main.close()? || !aux_endpoints_closed {
            // These stay, and use the rest.
            self.leak();
            return Err(Error::LeftOpen);
        }
        self.av.close()?;
        self.domain.close()?;
        self.fabric.close()
    }

    /// Closes nothing more: whatever still uses something keeps it.
    fn leak(&mut self) {
        self.regions.leak();
        self.aux_endpoints.leak();
        self.main.leak();
        self.av.leak();
        self.domain.leak();
        self.fabric.leak();
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.close_all().is_err() {
            self.leak();
        }
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Description { provider, domain, .. } = &self.description;
        f.debug_struct("Endpoint").field("provider", provider).field("domain", domain).finish_non_exhaustive()
    }
}

fn open_fabric(info: &Info) -> Result<Owned<fid_fabric>, Error> {
    let (open, attr) = (info.fabric().fabric, info.head().fabric_attr);
    // SAFETY: the attribute is of a `fi_info` that the library made; it writes a fabric that is ours.
    unsafe { Owned::made("fi_fabric", |fabric| open(attr, fabric, std::ptr::null_mut())) }
}

fn open_domain(fabric: &Owned<fid_fabric>, info: &Info) -> Result<Owned<fid_domain>, Error> {
    const CALL: &str = "fi_domain";
    // SAFETY: the fabric is open, so its table is alive.
    let open = unsafe { offers!((*fabric.as_ptr()).ops, fi_ops_fabric, domain) };
    let open = open.ok_or(Error::Absent { call: CALL })?;
    // SAFETY: the fabric is open, the info is the one it was opened from; it writes a domain that is ours.
    unsafe { Owned::made(CALL, |domain| open(fabric.as_ptr(), info.as_ptr(), domain, std::ptr::null_mut())) }
}

fn open_av(domain: &Owned<fid_domain>, info: &Info) -> Result<Owned<fid_av>, Error> {
    const CALL: &str = "fi_av_open";
    let mut attr = fi_av_attr {
        r#type: info.attrs().domain.av_type,
        rx_ctx_bits: 0,
        count: 0,
        ep_per_node: 0,
        name: std::ptr::null(),
        map_addr: std::ptr::null_mut(),
        flags: 0,
    };
    // SAFETY: the domain is open, so its table is alive.
    let open = unsafe { offers!((*domain.as_ptr()).ops, fi_ops_domain, av_open) };
    let open = open.ok_or(Error::Absent { call: CALL })?;
    // SAFETY: the domain is open, the attribute a local value; it writes an address vector that is ours.
    unsafe { Owned::made(CALL, |av| open(domain.as_ptr(), &mut attr, av, std::ptr::null_mut())) }
}

pub(crate) fn address(ep: &Owned<fid_ep>) -> Result<Box<[u8]>, Error> {
    const CALL: &str = "fi_getname";
    // SAFETY: the endpoint is open, so its table is null or alive.
    let getname = unsafe { offers!((*ep.as_ptr()).cm, fi_ops_cm, getname) };
    let getname = getname.ok_or(Error::Absent { call: CALL })?;
    let mut bytes = [0_u8; 512];
    let mut len = bytes.len();
    // SAFETY: the endpoint is open; at most `len` bytes are written to a buffer that has as many.
    let returned = unsafe { getname(ep.fid(), bytes.as_mut_ptr().cast(), &mut len) };
    check(CALL, returned.into())?;
    let bytes = bytes.get(..len).ok_or(Error::Call { call: CALL, errno: Errno::ETOOSMALL })?;
    Ok(bytes.into())
}
