//! A pair of processes, each made of two libraries. One has a model's layers, and knows addresses alone. The
//! other moves bytes, and grants what it is told to. The processes exchange lists of addresses, as users of
//! NIXL do. Once the owner has taken its layers back, their addresses reach nothing.
//!
//! ```text
//! cargo build --release --example address_lists
//! target/release/examples/address_lists # starts the other process
//! cargo run --release -- run -n 2 -- target/release/examples/address_lists
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write, stdin, stdout};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use standpipe::{Config, Exposure, Node, Rank};

use layers::Layers;

/// A library that has memory, and has never heard of Standpipe.
mod layers {
    pub(crate) struct Layers(pub(crate) Vec<Box<[u64]>>);

    impl Layers {
        /// So many layers of 16 KiB, each filled with its number and `seed`.
        pub(crate) fn new(count: u64, seed: u64) -> Layers {
            Layers((0..count).map(|at| vec![at + seed; 2048].into()).collect())
        }

        /// Where each layer lies: its address, and how many bytes it has.
        pub(crate) fn list(&self) -> Vec<[u64; 2]> {
            self.0
                .iter()
                .map(|layer| [layer.as_ptr().expose_provenance() as u64, 8 * layer.len() as u64])
                .collect()
        }
    }
}

/// A library that moves bytes between addresses, and has no memory of its own.
mod mover {
    use std::{sync::Arc, time::Duration};

    use standpipe::{Audience, Error, Foreign, GetPiece, Grant, GrantError, Node, Rank, Remote};

    pub(crate) type Granted<K> = Vec<Grant<Foreign<Arc<K>>>>;

    /// Lets peers read this memory. Nothing is pinned.
    ///
    /// # Safety
    /// The memory is valid as long as `keeper` is, and nobody writes it meanwhile.
    pub(crate) unsafe fn grant<K: Send + Sync + 'static>(
        node: &Node,
        list: &[[u64; 2]],
        keeper: &Arc<K>,
    ) -> Result<Granted<K>, GrantError> {
        let memory = list.iter().map(|[addr, len]| {
            let start = std::ptr::with_exposed_provenance_mut(*addr as usize);
            // SAFETY: the caller promises that it is there as long as its keeper, which this keeps.
            unsafe { Foreign::new(start, *len as usize, Arc::clone(keeper)) }
        });
        node.share_many(memory, Audience::ALL)
    }

    /// Nobody reaches any of it any more when this returns.
    pub(crate) fn take_back<K: Send + Sync + 'static>(mut granted: Granted<K>) -> Result<(), GrantError> {
        granted.iter().try_for_each(Grant::revoke)?;
        granted.iter_mut().try_for_each(|grant| grant.wait_idle(Duration::from_secs(10)).map(drop))
    }

    /// Gets what lies at these addresses of the owner's.
    pub(crate) fn pull(
        node: &Node,
        owner: Rank,
        list: &[[u64; 2]],
        to: &mut [Box<[u64]>],
    ) -> Result<(), Error> {
        let pieces = list.iter().zip(to).map(|([addr, _], into)| {
            // SAFETY: the owner has granted what lies there, to be read, or this reaches nothing.
            GetPiece { from: unsafe { Remote::raw(owner, *addr) }, into: bytemuck::cast_slice_mut(into) }
        });
        node.get_list(&mut pieces.collect::<Vec<_>>())
    }
}

const SEED: u64 = 7000;
type Step = Result<(), Box<dyn Error>>;

/// Tells where layers lie, and takes them back once the other process has pulled them.
fn own(node: &Node, mut tell: impl FnMut(&[u8]) -> Step, mut hear: impl FnMut() -> Step) -> Step {
    let layers = Arc::new(Layers::new(64, SEED));
    // SAFETY: `layers` keeps what it lists, and nobody writes it.
    let granted = unsafe { mover::grant(node, &layers.list(), &layers) }?;
    tell(bytemuck::cast_slice(&layers.list()))?;
    hear()?;
    mover::take_back(granted)?;
    assert_eq!(Arc::strong_count(&layers), 1, "nobody else keeps the memory");
    tell(&[])?;
    hear()
}

/// Pulls what the owner lists twice, and tries once more when it is not granted any more.
fn pull(node: &Node, owner: Rank, list: &[u8], tell: impl Fn() -> Step, hear: impl Fn() -> Step) -> Step {
    let list: Vec<[u64; 2]> = list.chunks_exact(16).map(bytemuck::pod_read_unaligned).collect();
    let mut copy = Layers::new(64, 0);
    for _ in 0..2 {
        mover::pull(node, owner, &list, &mut copy.0)?;
        assert!((SEED..).zip(&copy.0).all(|(value, layer)| layer.iter().all(|word| *word == value)));
    }
    tell()?;
    hear()?;
    assert!(mover::pull(node, owner, &list, &mut copy.0).is_err(), "the addresses reach nothing");
    tell()
}

/// What the owner tells by a pipe: how many bytes, and these.
fn heard() -> Result<Vec<u8>, std::io::Error> {
    let mut len = [0; 8];
    stdin().read_exact(&mut len)?;
    let mut bytes = vec![0; usize::from_ne_bytes(len)];
    stdin().read_exact(&mut bytes).map(|()| bytes)
}

fn main() -> Step {
    // Peers reach what is granted, and no other memory.
    let node = &Node::open(Config::from_env()?.exposure(Exposure::Ranges))?;
    let meet = || Ok(node.barrier()?);
    if std::env::args().len() > 1 {
        let owner = node.connect_to(heard()?)?;
        let say = || Ok(stdout().write_all(b"done\n")?);
        return pull(node, owner, &heard()?, say, || Ok(heard().map(drop)?));
    } else if node.rank() == 1 {
        let list = node.directory().wait("layers", Duration::from_secs(10))?;
        return pull(node, 0, &list, meet, meet);
    } else if node.size() == 2 {
        let publish = |list: &[u8]| Ok(node.directory().publish("layers", list)?);
        return own(node, |list| if list.is_empty() { meet() } else { publish(list) }, meet);
    }
    let mut other = Command::new(std::env::current_exe()?);
    let mut other = other.arg("pull").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (mut pipe, said) = (other.stdin.take().expect("piped"), other.stdout.take().expect("piped"));
    let mut tell = |bytes: &[u8]| Ok(pipe.write_all(&[&bytes.len().to_ne_bytes(), bytes].concat())?);
    let mut lines = BufReader::new(said).lines();
    tell(node.address()?.as_bytes())?;
    own(node, tell, || Ok(lines.next().ok_or("the other process has ended")?.map(drop)?))?;
    assert!(other.wait()?.success());
    Ok(())
}
