//! The network: what libfabric offers here, which provider is opened, and what is registered with it.
//!
//! # What may stay registered
//! Heaps are never unmapped, and reached by key: as a whole where a registration pins nothing, page by page
//! where it does (`transport::ofi::heaps`). Private memory can be unmapped while it is registered. That is
//! noticed (`memory`), and holders give back what is gone before they hear from its owner again. An operation
//! on its way until then, by a mistake of the program's, meets the old pages where the provider pins memory:
//! a put is lost, and a get has the bytes of before. Nothing else comes of it, so there `firehose` is the
//! default. Where the provider pins nothing, as `tcp`, the processor of the owner copies it. The owner dies
//! of it if nothing is mapped there any more (`fabric` tells how that was found out). No strategy avoids this
//! that registers at all: under `rendezvous-unpin`, transfers that overlap share a registration, and so may
//! one that starts after an unmapping. By message each chunk is copied by the kernel, when it arrives: a bad
//! address is a fault, and nothing else. So there `bounce` is the default, and the strategies that register
//! are for programs that keep mapped what they let peers know of.

use std::net::{IpAddr, SocketAddr};

use engine::registration::{Keep, Order, Quota, Settings, Strategy};
use engine::span::BucketSize;
use fabric::{Description, Endpoint, Errno, Fabric, Hints, MrMode, Options, Origin, Provider};

use crate::base::code::{Code, into_io_error};
use crate::base::debug_is_display::debug_is_display;
use crate::base::limits::FRAME_BYTES;
use crate::job::plumbing::addresses::{NO_PORT_LEFT, everywhere, within_host};
use crate::job::unlaunched::Listen;
use crate::transport::contract::Reach;
use crate::transport::ofi::endpoint::NetEndpoint;
use crate::transport::ofi::provider_env;

/// Providers that are tried where none is named, best first. Others that libfabric may have are for tests
/// (`sockets`, `udp`), reach one host only (`shm`), or never let anybody sleep (`net` of 1.17); they must be
/// named.
const PREFERRED: [&str; 5] = ["cxi", "efa", "verbs;ofi_rxm", "psm3", "tcp"];

/// Providers, by how their names begin, that are known to reach registered memory by pinned pages alone. Of
/// others that want memory registered, some copy by the processor of the owner.
const PINNING: [&str; 2] = ["verbs", "cxi"];

/// Providers, by how their names begin, whose endpoints are sockets: any of the host's addresses is theirs.
const OVER_SOCKETS: [&str; 4] = ["tcp", "net", "sockets", "udp"];

/// Bytes of one piece from which copies to and from a far heap are one-sided over sockets; over others all
/// are. Over sockets the owner's processor takes part in any case. While it waits, it polls for messages
/// only: by them a word is there and back in a third of the time.
pub const ONE_SIDED_MIN: u64 = size_of::<u64>() as u64 + 1;

/// Providers that may listen at all of the host's addresses. They tell a peer by the address that its
/// connection comes from, where others believe the one that it says it has.
const LISTEN_EVERYWHERE: [&str; 2] = ["tcp", "net"];

/// Providers over sockets name their domains after interfaces.
const LOOPBACK_DOMAIN: &str = "lo";

/// Taken for the physical memory where the system does not tell.
const MEMORY_UNKNOWN: u64 = 2 << 30;

/// The unit of registration is a page: what lies next to a transfer's end need not be mapped.
const BUCKET: BucketSize = match BucketSize::new(12) {
    Some(size) => size,
    None => unreachable!(),
};

/// Buckets, at most, of one registration: 1 MiB.
const RUN_MAX: u32 = 256;

/// Bytes that no other peer's demand takes away from one that is active.
const GUARANTEED: u64 = 16 << 12;

/// Bytes of a put that go with the message that asks for registration.
const PUT_IN_MOVE_MAX: u32 = 4096;

/// How long a peer may take to give back a registration, in nanoseconds: it may have lost its core.
const RECALL_WITHIN: u64 = 10_000_000_000;

/// Bytes of a key in messages.
const KEY_BYTES: usize = size_of::<u64>();

debug_is_display!(NetworkError);

/// Why no endpoint in the network could be opened.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// There is no libfabric that can be used.
    #[error(transparent)]
    Library(#[from] fabric::LoadError),
    /// libfabric has no such provider on this machine, or it lacks what is needed.
    #[error(
        "libfabric has no provider {name} that can be used here{}; `standpipe info` lists those that can",
        filters()
    )]
    NoProvider {
        /// The wanted provider.
        name: String,
    },
    /// A provider is there whose keys cannot be sent: messages have 64 bits for one.
    #[error(
        "the provider {provider} has raw keys, of {key_bytes} bytes: {KEY_BYTES} bytes are all that is provided for"
    )]
    RawKeys {
        /// Its name.
        provider: String,
        /// Bytes of a key of its, as it says.
        key_bytes: usize,
    },
    /// A provider's buffers are too small for messages, as a variable of the environment wants it.
    #[error(
        "{variable}={value} makes the buffers of {provider} smaller than a message: processes were seen to die of a corrupted \
         heap then, when a peer was lost; unset it, or set it to {FRAME_BYTES} or more"
    )]
    SmallBuffers {
        /// Its name.
        provider: String,
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// A provider's buffers are too small for messages, as `tcp` needs no larger ones.
    #[error(
        "libfabric keeps small buffers in this process, which are enough for tcp and not for {provider}: set \
         FI_OFI_RXM_BUFFER_SIZE=16384 to use that"
    )]
    BuffersForTcp {
        /// Its name.
        provider: String,
    },
    /// This host has no address by which peers could reach it.
    #[error("{why}")]
    NoAddress {
        /// Which were tried.
        why: String,
    },
    /// A provider is there, and cannot be opened.
    #[error(
        "the provider {provider} cannot be opened{}: {source}{}",
        at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default(),
        of_ports(source)
    )]
    Provider {
        /// Its name.
        provider: String,
        /// At which address.
        at: Option<String>,
        /// Why not.
        source: fabric::Error,
    },
}

impl NetworkError {
    /// The kind of error: a number and a name that do not change.
    pub fn code(&self) -> Code {
        Code::NoNetwork
    }
}

into_io_error!(NetworkError);

/// The meaning of an error where the system had no port to give: endpoints take any.
fn of_ports(error: &fabric::Error) -> String {
    match error {
        fabric::Error::Call { errno: Errno::EADDRINUSE, .. } => format!(" ({NO_PORT_LEFT})"),
        _ => String::new(),
    }
}

/// libfabric, as it is found here.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Library {
    /// Its version.
    pub version: String,
    /// Where it comes from: `system`, or `bundled` with this program.
    pub origin: &'static str,
    /// Its providers, each once, in its own order.
    pub providers: Vec<Offer>,
}

/// One provider of libfabric's.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Offer {
    /// Its abilities and needs, on the first interface that it names and that can be opened.
    #[serde(flatten)]
    pub description: Description,
    /// Whether a thread can sleep until something happens; otherwise those that wait look again now and then.
    pub sleeps: bool,
    /// Why no endpoint can be opened, if so.
    pub error: Option<String>,
    /// Whether it was ever tried.
    pub tested: Tested,
}

/// Where Standpipe, or at least its face of libfabric, was tried over a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub enum Tested {
    /// On what it is made for: it needs no hardware.
    #[serde(rename = "yes")]
    Yes,
    /// On devices that the kernel emulates (soft-RoCE), and on no network card.
    #[serde(rename = "emulated devices only")]
    Emulated,
    /// Nowhere, though it needs no hardware: it is never chosen unless it is named.
    #[serde(rename = "no")]
    Untried,
    /// Nowhere: no machine that it was developed on had what the provider drives.
    #[serde(rename = "untested on hardware")]
    No,
}

impl Tested {
    /// Of the provider of this name.
    pub fn of(provider: &str) -> Tested {
        match provider {
            "tcp" | "tcp;ofi_rxm" | "net" | "sockets" => Tested::Yes,
            "verbs" | "verbs;ofi_rxm" => Tested::Emulated,
            "udp" | "udp;ofi_rxd" | "shm" | "sm2" => Tested::Untried,
            _ => Tested::No,
        }
    }
}

/// Providers that are opened where they are, though no machine that Standpipe was developed on had any.
pub fn untested() -> impl Iterator<Item = &'static str> {
    PREFERRED.into_iter().filter(|name| Tested::of(name) == Tested::No)
}

/// The version of the libfabric that is found here.
///
/// # Errors
/// [`NetworkError::Library`], if there is none that can be used.
pub fn version() -> Result<String, NetworkError> {
    Ok(Fabric::load()?.version().to_string())
}

/// Looks what libfabric offers here. A provider that [`look_for`] refuses has an error. Opens an endpoint at
/// each provider, and closes it again: takes up to some seconds.
///
/// # Errors
/// [`NetworkError::Library`], if there is none that can be used; [`NetworkError::Provider`], if it does not
/// say what it has.
pub fn library() -> Result<Library, NetworkError> {
    let fabric = Fabric::load()?;
    let hints = Hints { manual: true, ..Hints::default() };
    let failed = |source| NetworkError::Provider { provider: "of any name".to_owned(), at: None, source };
    let mut providers: Vec<Offer> = Vec::new();
    for provider in fabric.providers(&hints).map_err(failed)? {
        let name = &provider.description().provider;
        match providers.iter_mut().find(|known| known.description.provider == *name) {
            None => providers.push(offer(fabric, &provider)),
            // Of several interfaces, one that can be opened.
            Some(known) if known.error.is_some() => {
                let other = offer(fabric, &provider);
                if other.error.is_none() {
                    *known = other;
                }
            }
            Some(_) => {}
        }
    }
    let origin = if fabric.origin() == Origin::System { "system" } else { "bundled" };
    Ok(Library { version: fabric.version().to_string(), origin, providers })
}

fn offer(fabric: &'static Fabric, found: &Provider) -> Offer {
    let open = |wait| Endpoint::open(found, &Options { wait, ..Options::default() });
    let (endpoint, sleeps) = match open(true) {
        Ok(endpoint) => (Ok(endpoint), true),
        Err(_) => (open(false), false),
    };
    let (description, error) = match endpoint {
        Ok(endpoint) => {
            // The nodes' treatment of this name: an endpoint may open where none of its peers would find it.
            let refused = provider(fabric, &endpoint.description().provider, &Reach::Host).err();
            (endpoint.description().clone(), refused.map(|error| error.to_string()))
        }
        Err(error) => (found.description().clone(), Some(error.to_string())),
    };
    let tested = Tested::of(&description.provider);
    Offer { description, sleeps, error, tested }
}

fn refuse_small_buffers(fabric: &Fabric, provider: &str) -> Result<(), NetworkError> {
    if fabric.has_small_buffers() {
        // Then the user has not made them small, though another thread may see it so for a moment.
        return match provider_env::needs_buffers(provider) {
            true => Err(NetworkError::BuffersForTcp { provider: provider.to_owned() }),
            false => Ok(()),
        };
    }
    match provider_env::cuts_messages(provider, FRAME_BYTES) {
        Some((variable, value)) => {
            Err(NetworkError::SmallBuffers { provider: provider.to_owned(), variable, value })
        }
        None => Ok(()),
    }
}

fn refuse_raw_keys(description: &Description) -> Result<(), NetworkError> {
    refuse_raw(&description.provider, description.mr_mode, description.key_bytes)
}

/// A peer needs all of a raw key, and messages have 64 bits for one. No provider that was at hand has any.
fn refuse_raw(provider: &str, mr_mode: MrMode, key_bytes: usize) -> Result<(), NetworkError> {
    if mr_mode.raw {
        return Err(NetworkError::RawKeys { provider: provider.to_owned(), key_bytes });
    }
    Ok(())
}

/// Opens an endpoint for peers that may be anywhere. Where nothing but this host can be reached yet, and the
/// provider cannot listen at addresses that come later, it opens one for those of this host alone.
pub(crate) fn open_to_all(name: Option<&str>, listen: Listen) -> Result<NetEndpoint, NetworkError> {
    if let Listen::At(at) = listen {
        let at = SocketAddr::new(at.ip(), 0);
        let reach = if at.ip().is_unspecified() { Reach::Network(Ok(at)) } else { Reach::Interface(at) };
        return open(name, reach);
    }
    let listens_everywhere =
        name.is_none_or(|name| LISTEN_EVERYWHERE.iter().any(|begins| name.starts_with(begins)));
    if !listens_everywhere && vm::host::addresses().iter().all(IpAddr::is_loopback) {
        tracing::warn!(
            provider = name,
            "the network is opened at loopback alone, as this host has no other address now: no other host ever reaches this node"
        );
        return open(name, Reach::Host);
    }
    open(name, Reach::Network(Ok(SocketAddr::new(everywhere(), 0))))
}

/// Opens an endpoint at the provider of this name, or at the best that can be opened.
pub(crate) fn open(name: Option<&str>, reach: Reach) -> Result<NetEndpoint, NetworkError> {
    let fabric = Fabric::load()?;
    let (used, endpoint, passed) = first_of(name, |name| open_named(fabric, name, &reach))?;
    if let Some(error) = passed {
        tracing::warn!(%error, used, "another provider is used");
    }
    Ok(endpoint)
}

/// Asks `of` about the provider of this name, or about those that nodes take by themselves until it has an
/// answer. Returns which one that was, the answer, and why one before it was passed by, though it is there.
fn first_of<'a, T>(
    name: Option<&'a str>,
    of: impl Fn(&'a str) -> Result<T, NetworkError>,
) -> Result<(&'a str, T, Option<NetworkError>), NetworkError> {
    let names = name.map_or(PREFERRED.to_vec(), |name| vec![name]);
    let mut first: Option<NetworkError> = None;
    for name in names {
        match of(name) {
            Ok(found) => return Ok((name, found, first)),
            // A provider that nobody asked for and that is not there is not worth a word.
            Err(NetworkError::NoProvider { .. }) => {}
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| NetworkError::NoProvider { name: name.unwrap_or("at all").to_owned() }))
}

fn open_named(fabric: &'static Fabric, name: &str, reach: &Reach) -> Result<NetEndpoint, NetworkError> {
    let provider = provider(fabric, name, reach)?;
    provider_env::warn(&provider.description().provider);
    // Some let nobody sleep; those who wait then look again now and then.
    let endpoint = NetEndpoint::open(&provider, true).or_else(|_| NetEndpoint::open(&provider, false));
    let endpoint = endpoint.map_err(|source| {
        let at = provider.source().map(|at| at.ip().to_string());
        NetworkError::Provider { provider: name.to_owned(), at, source }
    })?;
    tracing::debug!(provider = %provider.description().provider, at = ?provider.source(), "opening an endpoint");
    Ok(endpoint)
}

/// Whether there is libfabric on this host, and in it the provider of this name; where none is given, any
/// that nodes take by themselves. Nothing is opened. For programs that start ranks, to say so once.
///
/// # Errors
/// Why not.
pub fn look_for(name: Option<&str>) -> Result<(), NetworkError> {
    let fabric = Fabric::load()?;
    first_of(name, |name| provider(fabric, name, &Reach::Host)).map(drop)
}

/// Variables by which libfabric leaves out providers, or interfaces of theirs.
const FILTERS: [&str; 6] = [
    "FI_PROVIDER",
    "FI_PROVIDER_PATH",
    "FI_TCP_IFACE",
    "FI_SOCKETS_IFACE",
    "FI_VERBS_IFACE",
    "FI_VERBS_DEVICE_NAME",
];

/// The set ones, in words: meant for another program, as a rule.
fn filters() -> String {
    let set = FILTERS.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    let set: Vec<String> = set.map(|(name, value)| format!("{name}={}", value.display())).collect();
    if set.is_empty() {
        String::new()
    } else {
        format!(" ({} in the environment may hide it)", set.join(" "))
    }
}

/// The provider of this name on the interface to use.
pub(crate) fn provider(fabric: &'static Fabric, name: &str, reach: &Reach) -> Result<Provider, NetworkError> {
    let failed = |source| NetworkError::Provider { provider: name.to_owned(), at: None, source };
    let mut refused = None;
    for source in sources(name, reach) {
        let found = source
            .map_err(|why| NetworkError::NoAddress { why })
            .and_then(|source| find(fabric, name, source, *reach != Reach::Host).map_err(failed));
        match found {
            Ok(Some(provider)) => {
                refuse_raw_keys(provider.description())?;
                refuse_small_buffers(fabric, &provider.description().provider)?;
                return Ok(provider);
            }
            Ok(None) => {}
            // One that has no addresses of IP may take the question itself for a mistake.
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| NetworkError::NoProvider { name: name.to_owned() }))
}

/// The addresses to look for a provider at, the best first; `None` stands for whichever it has. Instead of
/// one that there is not, why not.
fn sources(name: &str, reach: &Reach) -> Vec<Result<Option<SocketAddr>, String>> {
    let is_of = |names: &[&str]| names.iter().any(|begins| name.starts_with(begins));
    let over_sockets = is_of(&OVER_SOCKETS);
    match reach {
        Reach::Host => {
            let at = within_host().map(|ip| Some(SocketAddr::new(ip, 0)));
            if over_sockets { vec![at] } else { at.into_iter().map(Ok).chain([Ok(None)]).collect() }
        }
        Reach::Network(Ok(at)) if at.ip().is_unspecified() && !is_of(&LISTEN_EVERYWHERE) => vec![Ok(None)],
        Reach::Network(at) if over_sockets => vec![at.clone().map(Some)],
        Reach::Network(Ok(at)) => vec![Ok(Some(*at)), Ok(None)],
        Reach::Network(_) => vec![Ok(None)],
        Reach::Interface(at) => vec![Ok(Some(*at))],
    }
}

/// Of the providers of this name at an address, the first that others can reach, or anybody.
fn find(
    fabric: &'static Fabric,
    name: &str,
    at: Option<SocketAddr>,
    from_others: bool,
) -> Result<Option<Provider>, fabric::Error> {
    for delivery in [true, false] {
        let (provider, source) = (Some(name.to_owned()), at.map(written));
        let hints = Hints { provider, source, delivery, manual: true, ..Hints::default() };
        let reaches = |provider: &Provider| at.is_some() || !from_others || leads_away(provider);
        if let Some(provider) = fabric.providers(&hints)?.into_iter().find(reaches) {
            return Ok(Some(provider));
        }
    }
    Ok(None)
}

/// An address as the system's resolver reads it, with the interface of one that means something on one link
/// only.
fn written(at: SocketAddr) -> String {
    match at {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        _ => at.ip().to_string(),
    }
}

/// Whether processes of other hosts may reach what a provider found by itself. An interface that is just
/// coming up is not among what it finds, and loopback always is; a link-local address means nothing without
/// the interface that a peer has.
fn leads_away(provider: &Provider) -> bool {
    let of_a_link = |at: SocketAddr| matches!(at, SocketAddr::V6(v6) if v6.ip().is_unicast_link_local());
    provider.description().domain != LOOPBACK_DOMAIN && !provider.source().is_some_and(of_a_link)
}

/// Bytes of one piece from which copies to and from a heap are one-sided.
pub(crate) fn one_sided_min(provider: &str) -> u64 {
    let over_sockets = OVER_SOCKETS.iter().any(|begins| provider.starts_with(begins));
    if over_sockets { ONE_SIDED_MIN } else { 0 }
}

/// How memory is registered where nobody says.
pub(crate) fn default_strategy(description: &Description) -> Strategy {
    let pins = PINNING.iter().any(|name| description.provider.starts_with(name));
    if pins { Strategy::Firehose } else { Strategy::Bounce }
}

/// The engine's settings under a strategy, with so many bytes pinned at most; `None`: it never registers.
pub(crate) fn registration(strategy: Strategy, pin_bytes: Option<u64>) -> Option<Settings> {
    if strategy == Strategy::Bounce {
        return None;
    }
    strategy.settings(settings(pin_bytes.unwrap_or_else(default_budget)))
}

/// The least that may be registered for anything to be: a page, in the part of it that is for peers.
pub const LEAST_BUDGET: u64 = 4 * BUCKET.bytes() / 3;

/// The settings that strategies are made from where a rank may register so many bytes at a time.
pub fn settings(budget: u64) -> Settings {
    Settings {
        bucket: BUCKET,
        run_max: RUN_MAX,
        peers_bytes: budget - budget / 4,
        victims_bytes: budget / 4,
        victims_borrow: true,
        quota: Quota::Leases { guaranteed: GUARANTEED },
        order: Order::default(),
        keep: Keep::Firehoses,
        put_in_move_max: PUT_IN_MOVE_MAX,
        recall_within: RECALL_WITHIN,
    }
}

/// Half of what this process may pin, where that is limited; otherwise a quarter of the memory.
fn default_budget() -> u64 {
    let memory = vm::host::memory_bytes().unwrap_or(MEMORY_UNKNOWN) / 4;
    vm::host::memlock().soft.map_or(memory, |limit| memory.min(limit / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_exceeded_by_its_parts() {
        for budget in [0, 1, 4095, 64 << 10, 1 << 40] {
            let settings = registration(Strategy::Firehose, Some(budget)).expect("it registers");
            assert_eq!(settings.peers_bytes + settings.victims_bytes, budget);
        }
        assert_eq!(registration(Strategy::Bounce, Some(1 << 30)), None);
        assert!(default_budget() > 0);
    }

    #[test]
    fn with_less_than_the_least_budget_no_page_fits() {
        assert_eq!(settings(LEAST_BUDGET).peers_bytes, BUCKET.bytes());
        assert!(settings(LEAST_BUDGET - 1).peers_bytes < BUCKET.bytes());
    }

    #[test]
    fn raw_keys_are_refused_by_name_and_size() {
        let plain =
            MrMode { local: true, virt_addr: true, allocated: true, prov_key: true, ..MrMode::default() };
        assert!(refuse_raw("raw", plain, 8).is_ok());
        let refused =
            refuse_raw("raw", MrMode { raw: true, ..plain }, 32).expect_err("there is no room for it");
        assert_eq!(
            refused.to_string(),
            "the provider raw has raw keys, of 32 bytes: 8 bytes are all that is provided for"
        );
    }

    #[test]
    fn what_nobody_could_try_is_known_by_name() {
        assert_eq!(untested().collect::<Vec<_>>(), ["cxi", "efa", "psm3"]);
        let tested = ["tcp;ofi_rxm", "verbs;ofi_rxm", "udp;ofi_rxd", "efa", "verbs;ofi_rxd"].map(Tested::of);
        assert_eq!(tested, [Tested::Yes, Tested::Emulated, Tested::Untried, Tested::No, Tested::No]);
    }

    #[test]
    fn firehose_is_for_providers_that_pin_unless_one_asks() {
        let Ok(fabric) = Fabric::load() else { return testbed::skip("no libfabric") };
        let Ok(tcp) = provider(fabric, "tcp", &Reach::Host) else { return testbed::skip("no tcp") };
        let mut description = tcp.description().clone();
        assert_eq!(default_strategy(&description), Strategy::Bounce);
        description.provider = "verbs;ofi_rxm".to_owned();
        assert_eq!(default_strategy(&description), Strategy::Firehose);
    }

    #[test]
    fn without_an_address_sockets_are_refused_and_devices_look_for_their_own() {
        let none = Reach::Network(Err("no way".to_owned()));
        assert_eq!(sources("tcp", &none), [Err("no way".to_owned())]);
        assert_eq!(sources("verbs;ofi_rxm", &none), [Ok(None)]);
        let [met, all] =
            ["10.0.0.1:0", "[::]:0"].map(|at| Reach::Network(Ok(at.parse().expect("an address"))));
        assert_eq!(sources("verbs;ofi_rxm", &met).len(), 2);
        assert_eq!((sources("verbs;ofi_rxm", &all), sources("tcp", &all).len()), (vec![Ok(None)], 1));
        assert_eq!(sources("udp;ofi_rxd", &all), [Ok(None)]);
        assert_eq!(written("[fe80::1%3]:0".parse().expect("an address")), "fe80::1%3");
        let Ok(fabric) = Fabric::load() else { return testbed::skip("no libfabric") };
        let error = provider(fabric, "tcp", &none).expect_err("no address").to_string();
        assert_eq!(error, "no way");
    }

    #[test]
    fn who_asks_for_what_is_not_there_is_told_so() {
        if Fabric::load().is_err() {
            return testbed::skip("no libfabric");
        }
        let error = open(Some("carrier-pigeon"), Reach::Host).err().expect("no such provider");
        assert!(error.to_string().contains("carrier-pigeon"), "{error}");
    }
}
