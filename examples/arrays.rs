//! Ten thousand arrays from the allocator, within reach as soon as they are there: nothing is registered
//! first, be it by hand or by the library. Rank 1 makes them and says where they are; rank 0 gets a page of
//! each, by the list and one by one.
//!
//! ```text
//! cargo build --release --example arrays
//! cargo run --release -- run -n 2 -- target/release/examples/arrays
//! STANDPIPE_TRANSPORT=ofi:tcp cargo run --release -- run -n 2 -- target/release/examples/arrays
//! ```

use std::time::{Duration, Instant};

use standpipe::{Config, GetPiece, GlobalPtr, Node, Remote};

/// Arrays, and the bytes of each.
const ARRAYS: usize = 10_000;
const BYTES: usize = 200_000;

/// What is got of each.
const PAGE: usize = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let node = Node::open(Config::from_env()?)?;
    if node.size() < 2 {
        return Err("one rank makes the arrays, another reads them: standpipe run -n 2 -- arrays".into());
    }
    match node.rank() {
        0 => read(&node)?,
        1 => make(&node)?,
        _ => node.barrier()?,
    }
    Ok(())
}

/// Makes the arrays, tells where they are, and keeps them until they have been read.
fn make(node: &Node) -> Result<(), Box<dyn std::error::Error>> {
    let mut arrays: Vec<Vec<u8>> = (0..ARRAYS).map(|_| vec![0; BYTES]).collect();
    let list = node.heap().alloc_zeroed::<u64>(ARRAYS)?;
    for (number, array) in arrays.iter_mut().enumerate() {
        array[..PAGE].fill(mark(number));
        list.write(number, array.as_ptr().expose_provenance() as u64);
    }
    node.directory().publish("arrays", bytemuck::bytes_of(&list.ptr(0).to_words()))?;
    node.barrier()?;
    Ok(())
}

/// Reads a page of each array.
fn read(node: &Node) -> Result<(), Box<dyn std::error::Error>> {
    let words = node.directory().wait("arrays", Duration::from_secs(60))?;
    let started = Instant::now();
    let list = GlobalPtr::<u64>::from_words(bytemuck::pod_read_unaligned(&words));
    let mut addresses = vec![0; ARRAYS];
    node.get_slice(list, &mut addresses)?;
    // SAFETY: the arrays' owner keeps them, and writes to none, until the barrier below; they are only read
    // here.
    let arrays: Vec<Remote> = addresses.iter().map(|at| unsafe { Remote::raw(1, *at) }).collect();
    println!("{ARRAYS} arrays of {BYTES} bytes are within reach after {:.2?}", started.elapsed());

    let mut pages = vec![0; ARRAYS * PAGE];
    let started = Instant::now();
    let pieces = arrays.iter().zip(pages.chunks_mut(PAGE));
    let mut pieces: Vec<GetPiece<'_>> = pieces.map(|(from, into)| GetPiece { from: *from, into }).collect();
    node.get_list(&mut pieces)?;
    println!("a page of each, by one list: {:.2?}", started.elapsed());
    check(&pages);

    pages.fill(0);
    let started = Instant::now();
    for (from, into) in arrays.iter().zip(pages.chunks_mut(PAGE)) {
        node.get_bytes(*from, into)?;
    }
    println!("one by one: {:.2?} each", started.elapsed() / ARRAYS as u32);
    check(&pages);
    println!("registered: {} times", node.registrations().table.registrations);
    node.barrier()?;
    Ok(())
}

/// What an array is filled with.
fn mark(number: usize) -> u8 {
    number as u8 | 1
}

fn check(pages: &[u8]) {
    let wrong = pages
        .chunks(PAGE)
        .enumerate()
        .filter(|(number, page)| page.iter().any(|byte| *byte != mark(*number)));
    assert_eq!(wrong.count(), 0, "pages that are not what their owner wrote");
}
