//! The layers, and the bare library beside them, as what sends and receives messages of any size.

mod bare;
mod bench;
mod bip;
mod fm;
mod gam;
mod memory;
mod pm;

use anyhow::{Result, bail, ensure};
use layers::Id;
use standpipe::Node;

pub(super) use bench::Bench;
pub(crate) use memory::right;

/// What layers are measured beside, in every run: Active Messages, and puts to private memory.
pub(super) const BARE: [&str; 2] = [bare::AM, bare::PUT];

/// Layers that run here and have no bench yet. The report names them as missing.
pub(super) const UNMEASURED: [Id; 1] = [Id::Via];

/// The name of every layer that is measured, those beside which they are measured first.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let measured = layers::ALL.iter().filter(|layer| !UNMEASURED.contains(&layer.id));
    BARE.into_iter().chain(measured.map(|layer| layer.name))
}

/// The bench of that name, for messages of at most `longest` bytes.
///
/// # Errors
/// If there is none, or its layer does not open.
pub(super) fn open(name: &str, node: &Node, longest: usize) -> Result<Box<dyn Bench>> {
    match name {
        bare::AM => return Ok(Box::new(bare::Messages::open(node, longest)?)),
        bare::PUT => return Ok(Box::new(bare::Puts::open(node, longest)?)),
        _ => {}
    }
    let Some(layer) = layers::ALL.iter().find(|layer| layer.name == name) else {
        bail!("there is no layer {name}");
    };
    Ok(match layer.id {
        Id::Bip => Box::new(bip::Bip::open(node, longest)?),
        Id::Fm => Box::new(fm::Fm::open(node, longest)?),
        Id::Gam => Box::new(gam::Gam::open(node, longest)?),
        Id::Pm => Box::new(pm::Pm::open(node, longest)?),
        Id::Via => bail!("the layer {name} is not measured yet"),
    })
}

/// Sends a message of each size from `from` to `to` and looks at every byte of it.
///
/// # Errors
/// If it came otherwise, or the layer fails.
pub(super) fn verify(bench: &mut dyn Bench, node: &Node, sizes: &[usize]) -> Result<()> {
    for size in sizes {
        let seed = |rank: u32| *size as u64 * 2 + u64::from(rank);
        bench.memory().fill(seed(node.rank()));
        node.barrier()?;
        let other = 1 - node.rank();
        bench.exchange(other, *size)?;
        let came = bench.memory().has(seed(other), *size);
        ensure!(came, "a message of {size} bytes came otherwise than it was sent");
        node.barrier()?;
    }
    bench.memory().let_go();
    Ok(())
}
