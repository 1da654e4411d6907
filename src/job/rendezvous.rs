//! A place where nodes that nobody launched find each other by name: for those who have no other means to
//! exchange the bytes of their addresses.
//!
//! `standpipe rendezvous` is such a place, on any host that all reach; a [`Registry`] is one in a program of
//! one's own. All that come have its secret, 64 hexadecimal digits in `STANDPIPE_SECRET`; nobody else finds
//! or leaves anything, or can read what is said. A process that has the secret may become a peer of every
//! node whose address is left there, and may leave another in its place.
//!
//! ```
//! use std::time::Duration;
//! use standpipe::rendezvous::{Registry, Rendezvous};
//! use standpipe::{Config, Node};
//!
//! let secret = "5a".repeat(32);
//! let registry = Registry::open_by("127.0.0.1:0", &secret).unwrap();
//! let at = registry.address().unwrap().to_string();
//! std::thread::spawn(move || registry.serve(|_| {}));
//!
//! // Two nodes of one process, here; they might be of two, which set STANDPIPE_RENDEZVOUS and use `Rendezvous::from_env`.
//! let open = || Node::open_in(Config::new().heap_bytes(1 << 20), None).unwrap();
//! let (server, client, within) = (open(), open(), Duration::from_secs(20));
//! let rendezvous = Rendezvous::new(&at, &secret).unwrap();
//! rendezvous.leave("server", &server.address().unwrap(), within).unwrap();
//! assert_eq!(client.connect_to(rendezvous.find("server", within).unwrap()).unwrap(), 1);
//! ```

pub use crate::job::unlaunched::{Registry, Rendezvous, RendezvousError, Visit};
