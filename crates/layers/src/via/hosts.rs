//! Processes that nobody launched: those of one user on one host find each other by files in a folder.
//!
//! Each process leaves a file there with its node's address, named by its number. It removes the file at its
//! end, and whoever finds the file of a process that is gone removes that. No process serves the others.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use standpipe::{ConnectError, Node, Rank};

/// Bits of a process's number here that are its pid; above them one counts how often it has opened VIA.
const PID_BITS: u32 = 22;

/// How often this process has opened VIA.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// The folder, and who of it is known.
pub(super) struct Hosts {
    folder: PathBuf,
    own: u32,
    /// By number, the peers that were called.
    known: Mutex<HashMap<u32, Rank>>,
}

impl Hosts {
    /// Leaves this node's address in the folder. `None` in a launched job, whose processes have ranks, and
    /// where a node is to listen nowhere.
    pub(super) fn enter(node: &Node, folder: &Path) -> io::Result<Option<Hosts>> {
        let address = match node.address() {
            Ok(address) => address,
            Err(ConnectError::InJob { .. } | ConnectError::NotListening) => return Ok(None),
            Err(error) => return Err(io::Error::other(error.to_string())),
        };
        make_private(folder)?;
        let opened = OPENED.fetch_add(1, Ordering::Relaxed);
        let own = std::process::id() & ((1 << PID_BITS) - 1) | opened << PID_BITS;
        let (made, named) = (folder.join(format!(".{own}")), folder.join(own.to_string()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&made)?;
        file.write_all(&address.into_bytes())?;
        // So that nobody finds a part of it.
        fs::rename(made, named)?;
        Ok(Some(Hosts { folder: folder.to_owned(), own, known: Mutex::default() }))
    }

    /// This process's number.
    pub(super) fn own(&self) -> u32 {
        self.own
    }

    /// Removes this process's file: nobody finds it any more.
    pub(super) fn leave(&self) {
        // It may be gone already, and harms nobody if it stays.
        let _ = fs::remove_file(self.folder.join(self.own.to_string()));
    }

    /// The numbers of all processes that are there, this one included, in rising order.
    pub(super) fn all(&self) -> Vec<u32> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let (mut all, gone): (Vec<u32>, Vec<u32>) = names.partition(|number| is_alive(*number));
        for number in gone {
            // Another process may have done so just now.
            let _ = fs::remove_file(self.folder.join(number.to_string()));
        }
        all.sort_unstable();
        all
    }

    /// The peer that a process is here; `None` where it is not to be had. May wait for it.
    pub(super) fn peer(&self, node: &Node, number: u32) -> Option<Rank> {
        if number == self.own {
            return Some(node.rank());
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&number).copied();
        if known.is_some() {
            return known;
        }
        let address = fs::read(self.folder.join(number.to_string())).ok()?;
        let peer = node.connect_to(address).ok()?;
        self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(number, peer);
        Some(peer)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.leave();
    }
}

fn is_alive(number: u32) -> bool {
    Path::new("/proc").join((number & ((1 << PID_BITS) - 1)).to_string()).exists()
}

/// Makes a folder that this user alone may use, or looks whether it is one: addresses are secrets.
fn make_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    let own = fs::metadata("/proc/self")?.uid();
    if found.is_dir() && found.uid() == own && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let why = format!("{} is no folder that its owner alone may use", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}
