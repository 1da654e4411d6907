//! The handlers of a node's clients: they come and go at any time, and whoever makes progress runs them.
//!
//! The thread that holds the inbox has a copy of the table, and takes a new one when a message names a
//! handler that the copy has not. So a thread that registers never waits for a running handler, and running
//! one costs no lock.

use std::collections::BTreeMap;
use std::ops::DerefMut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use engine::{HandlerKey, Node, Transport};
use slotmap::{Key, KeyData, SlotMap, new_key_type};

use crate::base::error::Error;
use crate::base::handler_id::{HandlerId, NAME_MAX, shown};
use crate::base::lock::lock;
use crate::transport::peers::{NotAdded, OwnHandlers};
use crate::transport::shm::control::HANDLERS_MAX;

new_key_type! {
    /// The engine's name for a handler.
    struct Entry;
}

/// A handler, and the client that registered it.
#[derive(Clone)]
pub(crate) struct Runnable<H> {
    pub(crate) handler: H,
    pub(crate) client: u8,
}

type Table<H> = SlotMap<Entry, Runnable<H>>;

/// The registered handlers.
pub(crate) struct Handlers<H> {
    state: Mutex<State<H>>,
    /// Counts changes of the table.
    changes: AtomicU32,
    /// Handlers that are to be dropped with no lock held.
    old: Mutex<Vec<Snapshot<H>>>,
}

struct State<H> {
    table: Arc<Table<H>>,
    /// By number.
    named: BTreeMap<u32, Named>,
}

impl<H: Clone> State<H> {
    fn enter(
        &mut self,
        own: &OwnHandlers,
        (namespace, name): (&str, &str),
        runnable: Runnable<H>,
    ) -> Result<(HandlerId, Entry), (Error, Runnable<H>)> {
        if let Err(error) = check_names(namespace, name) {
            return Err((error, runnable));
        }
        let id = HandlerId::of(namespace, name);
        if let Some(known) = self.named.get(&id.number()) {
            let by = shown(&known.namespace, &known.name);
            return Err((Error::HandlerTaken { name: shown(namespace, name), by }, runnable));
        }
        match own.add(id.0) {
            Ok(()) => {}
            Err(NotAdded::Full) => return Err((Error::HandlersFull { most: HANDLERS_MAX as u64 }, runnable)),
            Err(NotAdded::Taken) => unreachable!("what peers see is what is registered"),
        }
        let client = runnable.client;
        let entry = Arc::make_mut(&mut self.table).insert(runnable);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.named.insert(id.number(), Named { namespace, name, key: id.0, entry, client });
        Ok((id, entry))
    }
}

struct Named {
    namespace: String,
    name: String,
    key: HandlerKey,
    entry: Entry,
    client: u8,
}

/// The table as it was when somebody looked.
pub(crate) struct Snapshot<H> {
    table: Arc<Table<H>>,
    changes: u32,
}

impl<H> Default for Snapshot<H> {
    fn default() -> Snapshot<H> {
        Snapshot { table: Arc::default(), changes: 0 }
    }
}

impl<H> Default for Handlers<H> {
    fn default() -> Handlers<H> {
        let state = State { table: Arc::default(), named: BTreeMap::new() };
        Handlers { state: Mutex::new(state), changes: AtomicU32::new(0), old: Mutex::default() }
    }
}

impl<H> Snapshot<H> {
    /// The handler that the engine knows by that, if it is there.
    #[inline(always)]
    pub(crate) fn get(&self, entry: u64) -> Option<&Runnable<H>> {
        self.table.get(Entry::from(KeyData::from_ffi(entry)))
    }
}

/// Refuses names that no handler may have.
pub(crate) fn check_names(namespace: &str, name: &str) -> Result<(), Error> {
    let why = match (namespace, name) {
        (_, "") => "it is empty",
        (first, second) if first.len() > NAME_MAX || second.len() > NAME_MAX => "it has more than 255 bytes",
        (first, second) if first.contains('\0') || second.contains('\0') => "it has a zero byte",
        _ => return Ok(()),
    };
    Err(Error::BadName { name: shown(namespace, name), why })
}

impl<H: Clone> Handlers<H> {
    /// Adds a handler of a client's: peers see it, and its messages are delivered, once this returns.
    /// The engine is taken when its turn comes.
    pub(crate) fn add<T: Transport, E: DerefMut<Target = Node<T>>>(
        &self,
        own: &OwnHandlers,
        names: (&str, &str),
        runnable: Runnable<H>,
        may_add: impl FnOnce() -> Result<(), Error>,
        engine: impl FnOnce() -> E,
    ) -> Result<HandlerId, Error> {
        let mut state = lock(&self.state);
        // Once the client has left, its handlers are removed, and no others come.
        let entered = match may_add() {
            Ok(()) => state.enter(own, names, runnable),
            Err(error) => Err((error, runnable)),
        };
        let (id, entry) = match entered {
            Ok(entered) => entered,
            Err((error, unused)) => {
                drop(state);
                drop(unused);
                return Err(error);
            }
        };
        // Before any message can name it.
        self.changes.fetch_add(1, Ordering::Release);
        let added = engine().add_handler(id.0, entry.data().as_ffi());
        assert!(added.is_ok(), "the engine has what is registered");
        Ok(id)
    }

    /// As [`Handlers::add`], of a node that is about to open: its engine is [given](Handlers::give_all) them
    /// all at once.
    pub(crate) fn add_first(
        &self,
        own: &OwnHandlers,
        names: (&str, &str),
        runnable: Runnable<H>,
    ) -> Result<HandlerId, Error> {
        self.changes.fetch_add(1, Ordering::Release);
        let entered = lock(&self.state).enter(own, names, runnable);
        entered.map(|(id, _)| id).map_err(|(error, _)| error)
    }

    /// Removes the handlers that `goes` says of by client and id. Their values are dropped with no lock held,
    /// here or by the thread that runs handlers. Whether there were any.
    pub(crate) fn remove<T: Transport, E: DerefMut<Target = Node<T>>>(
        &self,
        own: &OwnHandlers,
        goes: impl Fn(u8, HandlerId) -> bool,
        engine: impl FnOnce() -> E,
    ) -> bool {
        let mut state = lock(&self.state);
        let goes = |named: &Named| goes(named.client, HandlerId(named.key));
        let numbers: Vec<u32> =
            state.named.iter().filter(|(_, named)| goes(named)).map(|(number, _)| *number).collect();
        let gone: Vec<Named> = numbers.iter().filter_map(|number| state.named.remove(number)).collect();
        if gone.is_empty() {
            return false;
        }
        let keys: Vec<HandlerKey> = gone.iter().map(|named| named.key).collect();
        own.remove(&keys);
        {
            let mut engine = engine();
            keys.iter().for_each(|key| engine.remove_handler(*key));
        }
        let old = Arc::clone(&state.table);
        let table = Arc::make_mut(&mut state.table);
        let removed: Vec<Option<Runnable<H>>> = gone.iter().map(|named| table.remove(named.entry)).collect();
        self.changes.fetch_add(1, Ordering::Release);
        drop(state);
        drop((old, removed));
        true
    }

    /// Drops all handlers, with no lock held.
    pub(crate) fn clear(&self) {
        let mut state = lock(&self.state);
        let old = (std::mem::take(&mut state.table), std::mem::take(&mut state.named));
        self.changes.fetch_add(1, Ordering::Release);
        drop(state);
        drop(old);
    }

    /// Gives the engine all handlers, which it has not yet.
    pub(crate) fn give_all<T: Transport>(&self, engine: &mut Node<T>) {
        for named in lock(&self.state).named.values() {
            let added = engine.add_handler(named.key, named.entry.data().as_ffi());
            assert!(added.is_ok(), "their numbers are all different");
        }
    }

    /// Keeps what somebody had who holds a lock.
    pub(crate) fn keep_old(&self, old: Snapshot<H>) {
        lock(&self.old).push(old);
    }

    /// Drops what was kept, for somebody who holds none.
    pub(crate) fn drop_old(&self) {
        let old = std::mem::take(&mut *lock(&self.old));
        drop(old);
    }

    /// The table, if it is not that of the snapshot, which it takes the place of.
    #[inline(always)]
    pub(crate) fn renew(&self, snapshot: &mut Snapshot<H>) -> Option<Snapshot<H>> {
        let is_old = self.changes.load(Ordering::Acquire) != snapshot.changes;
        if is_old { Some(self.renewed(snapshot)) } else { None }
    }

    #[cold]
    fn renewed(&self, snapshot: &mut Snapshot<H>) -> Snapshot<H> {
        let state = lock(&self.state);
        let new = Snapshot { table: Arc::clone(&state.table), changes: self.changes.load(Ordering::Acquire) };
        std::mem::replace(snapshot, new)
    }

    /// Holds the lock, as a thread does that a child made by `fork` has not.
    #[cfg(test)]
    pub(crate) fn hold(&self) -> impl Sized {
        lock(&self.state)
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.state).named.is_empty()
    }

    /// Whether the handler is registered here.
    pub(crate) fn has(&self, id: HandlerId) -> bool {
        lock(&self.state).named.get(&id.number()).is_some_and(|named| named.key == id.0)
    }

    /// The names of the handler that has that number here, or the number.
    #[cold]
    pub(crate) fn name_of(&self, number: u32) -> String {
        let of = |named: &Named| format!("{:?}", shown(&named.namespace, &named.name));
        lock(&self.state).named.get(&number).map_or_else(|| format!("{number:#010x}"), of)
    }
}
