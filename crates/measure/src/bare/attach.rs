//! The kernel's best copies to and from a peer's private memory: cross-memory attach.

use std::time::{Duration, Instant};

use standpipe::{Error, Memory, Node, Remote, underneath};
use vm::Iov;

/// Calls process_vm_writev `times` times, with one list for all pieces, of one peer and all private. `None`
/// where the kernel refuses.
///
/// # Errors
/// As for [`Node::connect`].
///
/// # Panics
/// When a piece is of another peer than the first one, or in a heap.
pub fn attach_put(node: &Node, pieces: &[(Remote, &[u8])], times: u32) -> Result<Option<Duration>, Error> {
    let Some(((first, _), _)) = pieces.split_first() else { return Ok(None) };
    let pid = underneath::process(node, first.peer())?;
    let remote: Vec<Iov> = pieces.iter().map(|(remote, local)| there(*first, remote, local.len())).collect();
    let local: Vec<Iov> = pieces.iter().map(|(_, local)| here(local.as_ptr(), local.len())).collect();
    // SAFETY: the local pieces are slices borrowed for reading; whoever made the `Remote`s promised that
    // putting through them does no harm.
    Ok(unsafe { attach_write(pid, &remote, &local, times) })
}

/// Calls process_vm_readv `times` times, as [`attach_put`] does for writing.
///
/// # Errors
/// As for [`Node::connect`].
///
/// # Panics
/// As for [`attach_put`].
pub fn attach_get(
    node: &Node,
    pieces: &mut [(Remote, &mut [u8])],
    times: u32,
) -> Result<Option<Duration>, Error> {
    let Some(((first, _), _)) = pieces.split_first() else { return Ok(None) };
    let pid = underneath::process(node, first.peer())?;
    let remote: Vec<Iov> = pieces.iter().map(|(remote, local)| there(*first, remote, local.len())).collect();
    let local: Vec<Iov> = pieces.iter_mut().map(|(_, local)| here(local.as_mut_ptr(), local.len())).collect();
    // SAFETY: the local pieces are slices borrowed for writing until this returns.
    Ok(unsafe { attach_read(pid, &remote, &local, times) })
}

/// Pieces of one system call: Linux's `UIO_MAXIOV`.
const PIECES_MAX: usize = 1024;

/// Calls process_vm_writev with a list from `local` to `remote` of process `pid`, once for as many pieces as
/// it takes. `None` if a call fails or falls short.
///
/// # Safety
/// The local pieces must be readable memory of this process; the remote ones, memory of the other process
/// that its program lets us change.
unsafe fn attach_write(pid: u32, remote: &[Iov], local: &[Iov], times: u32) -> Option<Duration> {
    let start = Instant::now();
    for _ in 0..times {
        for (there, here) in remote.chunks(PIECES_MAX).zip(local.chunks(PIECES_MAX)) {
            let wanted: u64 = here.iter().map(|iov| iov.len).sum();
            let (there_len, here_len) = (there.len() as u64, here.len() as u64);
            let (there, here) = (there.as_ptr().cast(), here.as_ptr().cast());
            // SAFETY: `Iov` has the layout of iovec, which `cma` asserts; the caller promises what the lists
            // name.
            let done = unsafe { libc::process_vm_writev(pid as i32, here, here_len, there, there_len, 0) };
            if done != wanted as isize {
                return None;
            }
        }
    }
    Some(start.elapsed())
}

/// Calls process_vm_readv with a list from `remote` of process `pid` to `local`, as [`attach_write`]. `None`
/// if a call fails or falls short.
///
/// # Safety
/// The local pieces must be memory of this process that may be written and that nothing refers to meanwhile.
unsafe fn attach_read(pid: u32, remote: &[Iov], local: &[Iov], times: u32) -> Option<Duration> {
    let start = Instant::now();
    for _ in 0..times {
        for (there, here) in remote.chunks(PIECES_MAX).zip(local.chunks(PIECES_MAX)) {
            let wanted: u64 = here.iter().map(|iov| iov.len).sum();
            let (there_len, here_len) = (there.len() as u64, here.len() as u64);
            let (there, here) = (there.as_ptr().cast(), here.as_ptr().cast());
            // SAFETY: `Iov` has the layout of iovec, which `cma` asserts; the caller promises what the lists
            // name.
            let done = unsafe { libc::process_vm_readv(pid as i32, here, here_len, there, there_len, 0) };
            if done != wanted as isize {
                return None;
            }
        }
    }
    Some(start.elapsed())
}

fn there(first: Remote, remote: &Remote, len: usize) -> Iov {
    assert_eq!(remote.peer(), first.peer(), "one call attaches the memory of one peer");
    assert_eq!(remote.memory(), Memory::Private, "cross-memory attach is for private memory");
    Iov { addr: remote.addr(), len: len as u64 }
}

fn here(start: *const u8, len: usize) -> Iov {
    Iov { addr: start.expose_provenance() as u64, len: len as u64 }
}

#[cfg(test)]
mod tests {
    use standpipe::{Config, Rank};

    use super::*;

    /// Nothing is mapped there.
    fn nowhere(peer: Rank) -> Remote {
        // SAFETY: no operation is done with it: where it is used, the call panics before it does anything.
        unsafe { Remote::raw(peer, 4096) }
    }

    fn alone() -> Node {
        Node::open_in(Config::new().heap_bytes(1 << 20), None).expect("a node")
    }

    #[test]
    #[should_panic(expected = "the memory of one peer")]
    fn a_put_to_two_peers_is_refused() {
        let _ = attach_put(&alone(), &[(nowhere(0), &[1]), (nowhere(1), &[2])], 1);
    }

    #[test]
    #[should_panic(expected = "the memory of one peer")]
    fn a_get_from_two_peers_is_refused() {
        let (mut one, mut other) = ([0], [0]);
        let _ = attach_get(&alone(), &mut [(nowhere(0), &mut one), (nowhere(1), &mut other)], 1);
    }
}
