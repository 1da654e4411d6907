//! Sleeping where there is a network: until it has something, or the doorbell rings.
//!
//! One thread at a time sleeps on the network's descriptor, the *watch*; all others sleep on the doorbell,
//! and the watch rings that when something has moved. A thread that rings the doorbell of this process from
//! within also rings the [`NetWakeup`], which the watch sleeps on, too. A thread that waits for something of
//! its own is a better watch than the progress thread: it then need not be woken by another. So the progress
//! thread *parks* while anybody waits. It looks again after a moment, and then waits to be told, so that
//! neither short waits cost a wake each nor long ones a thousand looks a second.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::thread::Thread;
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use vm::{Bell, Ticket, Words};

/// How long the progress thread leaves the network to those who wait before it looks whether they still do.
const PARK: Duration = Duration::from_millis(1);

/// The longest time that it does without being told.
const PARK_MAX: Duration = Duration::from_millis(100);

/// How long a sleep is where the network has no descriptor, or one that cannot be trusted.
const NAP: Duration = Duration::from_micros(200);

/// Sleeps in turn that a descriptor may keep from beginning, with nothing moved, before it is not trusted for
/// once. While a long write comes in it is ready, too, again and again, and nothing moves before all is
/// there.
const VAIN_MAX: u32 = 64;

/// After that, so many in turn.
const VAIN_AGAIN: u32 = 4;

/// How long messages may gather where nobody polls, before the progress thread sends them; the kernel adds as
/// much again.
const GATHER: Duration = Duration::from_micros(50);

/// The number that the network's descriptor gives for the wake-up's own; of all others it says 0.
const RUNG: u64 = 1;

/// The things that one process's threads sleep on.
pub(crate) struct NetWakeup {
    /// The network's, an epoll instance; `None` where its provider has none. `event` is among what it waits
    /// for: so who sleeps on it sleeps on both, and is woken by way of one descriptor less than if it polled
    /// the two.
    network: Option<OwnedFd>,
    event: OwnedFd,
    /// Some thread is the watch.
    watched: AtomicBool,
    /// Sleeps in turn that the descriptor has kept from beginning, with nothing moved since.
    vain: AtomicU32,
    /// Messages have begun to gather, and no thread that was about to sleep has seen that since.
    gathered: AtomicBool,
    /// Threads that wait for something of their own, and how often one has begun to.
    waiting: AtomicU32,
    waits: AtomicU64,
    /// The progress thread, and whether it waits to be told that nobody waits any more.
    attendant: OnceLock<Thread>,
    parked: AtomicBool,
    /// The thread that [hears the doorbell](NetWakeup::forward), and whether it rests.
    listener: OnceLock<Thread>,
    resting: AtomicBool,
}

impl NetWakeup {
    /// A wake-up for the network of this descriptor, an epoll instance that says 0 of all that it waits for.
    pub(crate) fn new(network: Option<OwnedFd>) -> std::io::Result<NetWakeup> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        if let Some(network) = &network {
            epoll::add(network, &event, EventData::new_u64(RUNG), EventFlags::IN)?;
        }
        Ok(NetWakeup {
            network,
            event,
            watched: AtomicBool::new(false),
            vain: AtomicU32::new(0),
            gathered: AtomicBool::new(false),
            waiting: AtomicU32::new(0),
            waits: AtomicU64::new(0),
            attendant: OnceLock::new(),
            parked: AtomicBool::new(false),
            listener: OnceLock::new(),
            resting: AtomicBool::new(false),
        })
    }

    /// Wakes the watch, if there is one. All that it should see must be written before, and the doorbell
    /// rung.
    pub(crate) fn ring(&self) {
        // Against the fence in `watch`: either we see the watch here, or it sees the doorbell rung.
        fence(Ordering::SeqCst);
        if self.watched.load(Ordering::Relaxed) {
            // It fails only if it has been rung without end.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Messages have begun to gather, which the next poll sends: wakes the watch for that, unless it is about
    /// to poll for others of them. A watch that is the progress thread lets more of them gather first.
    pub(crate) fn gathers(&self) {
        // Against the swap in `sleep`: either we see the watch in `ring`, or it sees this.
        if self.gathered.swap(true, Ordering::SeqCst) {
            return;
        }
        self.ring();
        if self.waiting.load(Ordering::SeqCst) == 0
            && let Some(attendant) = self.attendant.get()
        {
            attendant.unpark();
        }
    }

    /// Whether messages have begun to gather since somebody has seen that, who then is to send them.
    pub(crate) fn take_gathered(&self) -> bool {
        self.gathered.load(Ordering::Relaxed) && self.gathered.swap(false, Ordering::SeqCst)
    }

    /// Rings whenever the doorbell of this process is rung from without, until `closing`. It is for a job in
    /// which some peers are near, and know the doorbell only, while the watch sleeps on the network.
    pub(crate) fn forward(&self, bell: &Bell<Words>, closing: &AtomicBool) {
        self.listener.get_or_init(std::thread::current);
        let mut heard = bell.rung();
        while !closing.load(Ordering::SeqCst) {
            let ticket = bell.announce();
            let rung = ticket.rung_before();
            if rung == heard && !bell.has_pending() {
                ticket.sleep(Some(PARK_MAX));
                heard = bell.rung();
                self.ring();
                continue;
            }
            // It was rung before the announcement, perhaps without a word by whom; whoever is woken takes it.
            drop(ticket);
            heard = rung;
            self.ring();
            if !self.rest() {
                std::thread::sleep(NAP);
            }
        }
    }

    /// For who hears the doorbell: rests as long as there is no watch to be woken. A thread that is awake
    /// takes what it was rung for in its own time, and looks at it before it sleeps. Returns whether it has
    /// rested.
    fn rest(&self) -> bool {
        // Against the swap in `sleep`: either we see the watch here, or it sees us rest.
        self.resting.store(true, Ordering::SeqCst);
        let unwatched = !self.watched.load(Ordering::SeqCst);
        if unwatched {
            std::thread::park_timeout(PARK_MAX);
        }
        self.resting.store(false, Ordering::SeqCst);
        unwatched
    }

    /// Wakes the watch, and the progress thread however it rests.
    pub(crate) fn ring_all(&self) {
        self.ring();
        for thread in [&self.attendant, &self.listener].into_iter().filter_map(OnceLock::get) {
            thread.unpark();
        }
    }

    /// Something has moved: whatever ended the last sleep was no idle wake-up.
    pub(crate) fn moved(&self) {
        if self.vain.load(Ordering::Relaxed) != 0 {
            self.vain.store(0, Ordering::Relaxed);
        }
    }

    /// Sleeps until the network has something, the doorbell rings, `at_most` has passed, or for no reason at
    /// all. Returns whether this thread has been the watch: if others sleep, one of them must be woken to be
    /// it next, as this one may do something else now.
    pub(crate) fn sleep(&self, ticket: Ticket<'_, Words>, at_most: Duration) -> bool {
        let Some(network) = &self.network else {
            ticket.sleep(Some(at_most.min(NAP)));
            return false;
        };
        if self.watched.swap(true, Ordering::SeqCst) {
            ticket.sleep(Some(at_most));
            return false;
        }
        // Given up however this ends; those that come meanwhile sleep on the doorbell.
        let _watch = Watch(&self.watched);
        fence(Ordering::SeqCst);
        if ticket.is_rung() || self.gathered.swap(false, Ordering::SeqCst) {
            return true;
        }
        if self.vain.load(Ordering::Relaxed) >= VAIN_MAX {
            self.vain.store(VAIN_MAX - VAIN_AGAIN, Ordering::Relaxed);
            ticket.sleep(Some(at_most.min(NAP)));
            return true;
        }
        if self.resting.load(Ordering::SeqCst)
            && let Some(listener) = self.listener.get()
        {
            listener.unpark();
        }
        self.poll(network, at_most);
        true
    }

    fn poll(&self, network: &OwnedFd, at_most: Duration) {
        let mut found = ready(network, Duration::ZERO);
        match found {
            Ok(Ready { network: false, rung: false }) => {
                // A descriptor that is ready only after a while is none that is ready for nothing.
                self.moved();
                found = ready(network, at_most);
            }
            Ok(Ready { network: true, .. }) => _ = self.vain.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
        match found {
            Ok(Ready { rung: true, .. }) => {
                // Empty already if another thread was the watch in between.
                let _ = rustix::io::read(&self.event, &mut [0; 8]);
                if self.gathered.load(Ordering::SeqCst) && self.waiting.load(Ordering::SeqCst) == 0 {
                    // News of the network ends that: peers are served at once.
                    let _ = ready(network, GATHER);
                }
                self.gathered.store(false, Ordering::SeqCst);
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => tracing::debug!(%error, "cannot sleep on the network"),
        }
    }

    /// Takes note that this thread waits for something of its own, until the guard is dropped.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Waiting(self)
    }

    /// For the progress thread: rests as long as others see to the network, as far as it can tell. Returns
    /// whether it has rested.
    pub(crate) fn park(&self) -> bool {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.attendant.get_or_init(std::thread::current);
        let waits = self.waits.load(Ordering::Relaxed);
        std::thread::park_timeout(PARK);
        if self.waits.load(Ordering::Relaxed) == waits {
            // The same wait goes on: whoever ends it says so.
            self.parked.store(true, Ordering::SeqCst);
            if self.waiting.load(Ordering::SeqCst) > 0 {
                std::thread::park_timeout(PARK_MAX);
            }
            self.parked.store(false, Ordering::SeqCst);
        }
        true
    }
}

/// The events on the network's descriptor.
struct Ready {
    network: bool,
    rung: bool,
}

/// Waits until there is something, but no longer than `at_most`.
fn ready(network: &OwnedFd, at_most: Duration) -> rustix::io::Result<Ready> {
    // epoll counts in milliseconds.
    let ticks = Duration::from_millis(at_most.as_millis() as u64);
    let timespec =
        |time: Duration| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    if ticks.is_zero() && !at_most.is_zero() {
        poll(&mut [PollFd::new(network, PollFlags::IN)], Some(&timespec(at_most)))?;
    }
    let mut room = [const { MaybeUninit::uninit() }; 4];
    let (events, _) = epoll::wait(network, &mut room, Some(&timespec(ticks)))?;
    let any = |is: fn(u64) -> bool| events.iter().any(|event| is(event.data.u64()));
    Ok(Ready { network: any(|of| of != RUNG), rung: any(|of| of == RUNG) })
}

/// The time that a thread is the watch.
struct Watch<'a>(&'a AtomicBool);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

/// A thread that waits for something of its own, counted while this lives.
pub(crate) struct Waiting<'a>(&'a NetWakeup);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let last = self.0.waiting.fetch_sub(1, Ordering::SeqCst) == 1;
        if last
            && self.0.parked.load(Ordering::SeqCst)
            && let Some(thread) = self.0.attendant.get()
        {
            thread.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use vm::{Segment, bell_words};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn bell() -> Bell<Words> {
        let segment = Segment::create("standpipe-test", 4096).expect("a segment");
        Bell::new(segment.memory().words(0, bell_words(1)).expect("a page has them"), 1).expect("enough")
    }

    /// A wake-up whose network is a pipe, and that pipe.
    fn with_pipe() -> (NetWakeup, [OwnedFd; 2]) {
        let (network, (pipe, end)) = (
            epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll"),
            rustix::pipe::pipe().expect("a pipe"),
        );
        epoll::add(&network, &pipe, EventData::new_u64(0), EventFlags::IN).expect("it can be polled");
        (NetWakeup::new(Some(network)).expect("a wake-up"), [pipe, end])
    }

    #[test]
    fn the_watch_is_woken_by_the_network_and_by_a_ring() {
        let ((net_wakeup, [_pipe, end]), bell, start) = (with_pipe(), bell(), Instant::now());
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| assert!(net_wakeup.sleep(bell.announce(), LONG)));
            while !net_wakeup.watched.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            bell.poke();
            net_wakeup.ring();
            watch.join().expect("no panic");
        });
        rustix::io::write(&end, &[1]).expect("a pipe takes a byte");
        net_wakeup.sleep(bell.announce(), LONG);
        assert!(start.elapsed() < LONG);
        let ticket = bell.announce();
        bell.poke();
        net_wakeup.sleep(ticket, LONG);
        assert!(start.elapsed() < LONG, "it was rung before");
    }

    #[test]
    fn the_doorbell_is_heard_by_who_sleeps_on_the_network() {
        let ((net_wakeup, _pipe), bell, closing) = (with_pipe(), bell(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| net_wakeup.forward(&bell, &closing));
            let watch = scope.spawn(|| net_wakeup.sleep(bell.announce(), LONG));
            while !net_wakeup.watched.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            bell.ring(0);
            watch.join().expect("no panic");
            closing.store(true, Ordering::SeqCst);
        });
    }

    /// How often a thread of this process has gone to sleep.
    fn sleeps(thread: i32) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse().ok()).expect("Linux counts them")
    }

    #[test]
    fn a_doorbell_that_nobody_takes_wakes_nobody_until_somebody_sleeps() {
        let ((net_wakeup, _pipe), bell, closing) = (with_pipe(), bell(), AtomicBool::new(false));
        bell.ring(0);
        let (tell, told) = std::sync::mpsc::channel();
        let (slept, woken) = std::thread::scope(|scope| {
            scope.spawn(|| {
                tell.send(rustix::thread::gettid().as_raw_nonzero().get()).expect("it waits");
                net_wakeup.forward(&bell, &closing);
            });
            let thread = told.recv().expect("it starts");
            while !net_wakeup.resting.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let before = sleeps(thread);
            std::thread::sleep(5 * PARK_MAX);
            let slept = sleeps(thread) - before;
            let woken = net_wakeup.sleep(bell.announce(), LONG);
            closing.store(true, Ordering::SeqCst);
            net_wakeup.ring_all();
            (slept, woken)
        });
        assert!(slept < 50, "it has looked {slept} times in {:?}", 5 * PARK_MAX);
        assert!(woken, "nobody else was the watch");
    }

    #[test]
    fn a_descriptor_that_is_always_ready_does_not_keep_anybody_awake() {
        let ((net_wakeup, [_pipe, end]), bell) = (with_pipe(), bell());
        rustix::io::write(&end, &[1]).expect("a pipe takes a byte");
        let start = Instant::now();
        (0..VAIN_MAX + 10 * (VAIN_AGAIN + 1)).for_each(|_| _ = net_wakeup.sleep(bell.announce(), LONG));
        assert!(start.elapsed() >= 10 * NAP);
    }

    #[test]
    fn a_descriptor_that_has_let_somebody_sleep_is_trusted_again() {
        let ((net_wakeup, [pipe, end]), bell) = (with_pipe(), bell());
        rustix::io::write(&end, &[1]).expect("a pipe takes a byte");
        (0..VAIN_MAX).for_each(|_| _ = net_wakeup.sleep(bell.announce(), LONG));
        assert_eq!(net_wakeup.vain.load(Ordering::Relaxed), VAIN_MAX);
        rustix::io::read(&pipe, &mut [0; 1]).expect("the byte is there");
        // Not trusted, and so not looked at; then there is nothing for a moment.
        (0..2).for_each(|_| _ = net_wakeup.sleep(bell.announce(), NAP));
        assert_eq!(net_wakeup.vain.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_is_parked_is_told_that_nobody_waits_any_more() {
        let net_wakeup = Arc::new(with_pipe().0);
        assert!(!net_wakeup.park(), "nobody waits");
        let waiting = net_wakeup.wait();
        let attendant = std::thread::spawn({
            let net_wakeup = Arc::clone(&net_wakeup);
            move || while net_wakeup.park() {}
        });
        while !net_wakeup.parked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        drop(waiting);
        attendant.join().expect("it ends by itself");
    }
}
