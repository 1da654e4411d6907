//! What the tests over real providers share.
#![allow(dead_code)]

use fabric::{
    Access, Completion, Desc, Endpoint, Error, Fabric, Hints, Local, Op, Options, Peer, Post, Provider,
    Region, Remote,
};
use std::time::{Duration, Instant};

/// Far more than anything here takes; processes may be paused for a minute.
pub(crate) const LIMIT: Duration = Duration::from_secs(100);

/// Providers that work on one machine without hardware, by names that find them in any version. Not `shm`,
/// which is not used, and leaves files in `/dev/shm` when a process is killed.
const PROVIDERS: &[&str] = &["tcp", "net", "tcp;ofi_rxm", "sockets"];

/// The names of the providers to test.
pub(crate) fn providers() -> Vec<String> {
    match std::env::var(testbed::PROVIDERS) {
        Ok(names) => names.split(',').map(str::to_owned).collect(),
        Err(_) => PROVIDERS.iter().map(|name| (*name).to_owned()).collect(),
    }
}

/// The provider of that name on loopback, the first that offers what the hints want; `None`, said aloud, if
/// there is none. One that was asked for by name may be on any device.
pub(crate) fn find(name: &str, hints: Hints) -> Option<Provider> {
    let asked_for =
        std::env::var(testbed::PROVIDERS).is_ok_and(|names| names.split(',').any(|other| other == name));
    let fabric = match Fabric::load() {
        Ok(fabric) => fabric,
        Err(error) => {
            testbed::skip(&error);
            return None;
        }
    };
    let source = (!asked_for).then(|| "127.0.0.1".to_owned());
    let hints = Hints { provider: Some(name.into()), source, ..hints };
    let found = fabric.providers(&hints).expect("a list").into_iter().next();
    if found.is_none() {
        assert!(!asked_for, "no provider {name} with {hints:?}");
        testbed::skip(format_args!("no provider {name} with {hints:?}"));
    }
    found
}

/// An endpoint at that provider.
pub(crate) fn open(provider: &Provider, options: &Options) -> Endpoint {
    Endpoint::open(provider, options).expect("it was offered")
}

/// Two endpoints in this process, and each other's peers.
pub(crate) struct Pair {
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
    pub(crate) b_of_a: Peer,
    pub(crate) a_of_b: Peer,
}

impl Pair {
    pub(crate) fn open(provider: &Provider, options: &Options) -> Result<Pair, Error> {
        let (mut a, mut b) = (Endpoint::open(provider, options)?, Endpoint::open(provider, options)?);
        let b_of_a = a.add_peer(b.address()).expect("its own address");
        let a_of_b = b.add_peer(a.address()).expect("its own address");
        Ok(Pair { a, b, b_of_a, a_of_b })
    }

    /// Posts at `a` until it is taken, and waits for its completion; the other side makes progress too.
    pub(crate) fn run(&mut self, post: impl FnMut(&mut Endpoint) -> Post) -> Completion {
        run(&mut self.a, post, || assert_eq!(self.b.poll(), Ok(None)))
    }

    /// Polls both until `a` has a completion.
    pub(crate) fn next(&mut self) -> Completion {
        next(&mut self.a, || assert_eq!(self.b.poll(), Ok(None)))
    }
}

/// Posts until it is taken, and waits for a completion, doing `meanwhile` again and again.
pub(crate) fn run(
    endpoint: &mut Endpoint,
    mut post: impl FnMut(&mut Endpoint) -> Post,
    mut meanwhile: impl FnMut(),
) -> Completion {
    let start = Instant::now();
    while post(endpoint) == Post::Busy {
        assert!(start.elapsed() < LIMIT, "never taken");
        meanwhile();
        if let Some(completion) = endpoint.poll().expect("the queue works") {
            return completion;
        }
    }
    next(endpoint, meanwhile)
}

/// Polls until there is a completion, doing `meanwhile` again and again.
pub(crate) fn next(endpoint: &mut Endpoint, mut meanwhile: impl FnMut()) -> Completion {
    let start = Instant::now();
    loop {
        if let Some(completion) = endpoint.poll().expect("the queue works") {
            return completion;
        }
        meanwhile();
        assert!(start.elapsed() < LIMIT, "no completion");
    }
}

pub(crate) fn done(token: u64, op: Op) -> Completion {
    Completion::Done { token, op, len: 0 }
}

/// Memory to be reached by peers and by this test, through raw pointers only; registered where that is
/// needed.
pub(crate) struct Memory {
    bytes: *mut u8,
    len: usize,
    pub(crate) region: Option<Region>,
}

impl Memory {
    /// As many zeros, not registered.
    pub(crate) fn new(len: usize) -> Memory {
        let words = vec![0_u64; len.div_ceil(8)].into_boxed_slice();
        Memory { bytes: Box::leak(words).as_mut_ptr().cast(), len, region: None }
    }

    /// As many zeros, registered for everything with that key, if keys are ours to choose.
    pub(crate) fn registered(endpoint: &mut Endpoint, len: usize, key: u64) -> Memory {
        let mut memory = Memory::new(len);
        // SAFETY: the memory is leaked, so it stays; it is touched through raw pointers only.
        let region = unsafe { endpoint.register(memory.bytes, len, Access::ALL, key) };
        memory.region = Some(region.expect("it can be registered"));
        memory
    }

    /// For use on this side: registered if the provider wants that.
    pub(crate) fn local(endpoint: &mut Endpoint, len: usize, key: u64) -> Memory {
        if endpoint.description().mr_mode.local {
            Memory::registered(endpoint, len, key)
        } else {
            Memory::new(len)
        }
    }

    pub(crate) fn piece(&self) -> Local {
        self.part(0, self.len)
    }

    pub(crate) fn part(&self, offset: usize, len: usize) -> Local {
        assert!(offset + len <= self.len);
        let desc = self.region.as_ref().map_or(Desc::NONE, |region| region.desc);
        Local { addr: self.bytes.wrapping_add(offset), len, desc }
    }

    pub(crate) fn at(&self, offset: usize, peer: Peer) -> Remote {
        let region = self.region.as_ref().expect("registered");
        Remote { peer, addr: region.remote_addr + offset as u64, key: self.key() }
    }

    pub(crate) fn key(&self) -> u64 {
        self.region.as_ref().expect("registered").key
    }

    pub(crate) fn fill(&self, mut byte: impl FnMut(usize) -> u8) {
        for at in 0..self.len {
            // SAFETY: inside the leaked memory; the tests write it only between operations.
            unsafe { self.bytes.add(at).write_volatile(byte(at)) }
        }
    }

    pub(crate) fn byte(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: inside the leaked memory; volatile, as a peer may write it.
        unsafe { self.bytes.add(at).read_volatile() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        // SAFETY: inside the leaked memory; volatile, as a peer may write it.
        (0..self.len).map(|at| unsafe { self.bytes.add(at).read_volatile() }).collect()
    }
}
