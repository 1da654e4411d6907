//! Stores and gets: bytes that go directly between the memory of two processes.

use standpipe::{Error, Event, Foreign, Rank};

use super::error::GamError;
use super::handlers;
use super::message::{Arguments, Function, Kind};
use super::pending::{Credit, End, Pending, State};
use super::program::Program;
use super::{Gam, MAX_SIZE, checked};

/// Stores and gets.
impl<P: Program + 'static> Gam<P> {
    /// Puts `len` bytes from `local` at address `remote` of `dest`, and then runs the function there
    /// (`am_store`). Returns when `local` may be used again. To oneself the function runs in place.
    ///
    /// # Errors
    /// As for [`Gam::request`]; [`GamError::Size`] beyond [`MAX_SIZE`] bytes. An address that `dest` has not
    /// fails here, or where the bytes are under way still, with [`GamError::Failed`] in a later call.
    pub fn store(
        &self,
        dest: i64,
        local: *const u8,
        remote: u64,
        len: i64,
        (function, arg): (Function, u64),
    ) -> Result<(), GamError> {
        let bytes = checked(len, MAX_SIZE)?;
        let dest = self.may_send("am_store", dest, function)?;
        if dest == self.my_proc() {
            return self.store_here(local, remote, bytes, (function, arg));
        }
        if self.ends_at_once(dest) {
            return self.store_at_once(dest, local, remote, bytes, (function, arg));
        }
        let event = self.start_store(dest, local, remote, bytes, (function, arg))?;
        let (_, rest) = event.wait_local();
        let state = State::Free(rest);
        self.poller.hold(Pending { state, dest, end: None, credit: Credit::IfItFails })
    }

    /// As [`Gam::store`], and returns at once (`am_store_async`): `local` is the program's again when
    /// `(end_function, end_arg)` has run here, in a later poll.
    ///
    /// # Errors
    /// As for [`Gam::store`]. The end function does not run then.
    pub fn store_async(
        &self,
        dest: i64,
        local: *const u8,
        remote: u64,
        len: i64,
        (function, arg): (Function, u64),
        (end_function, end_arg): (Function, u64),
    ) -> Result<(), GamError> {
        let bytes = checked(len, MAX_SIZE)?;
        self.check_function(end_function)?;
        let dest = self.may_send("am_store_async", dest, function)?;
        let end =
            End { function: end_function, local: local.expose_provenance() as u64, len: bytes, arg: end_arg };
        let (state, credit) = if dest == self.my_proc() {
            self.store_here(local, remote, bytes, (function, arg))?;
            (State::Over, Credit::None)
        } else {
            // By an event: what is sent at once waits while the lane is full.
            let event = self.start_store(dest, local, remote, bytes, (function, arg))?;
            (State::Lent(event), Credit::IfItFails)
        };
        self.poller.hold(Pending { state, dest, end: Some(end), credit })
    }

    /// Gets `len` bytes from address `remote` of `dest` to `local`, and runs the function here when they are
    /// there (`am_get`), in a later poll. `dest` takes no part where its memory can be reached.
    ///
    /// # Errors
    /// As for [`Gam::store`]. The function does not run then.
    pub fn get(
        &self,
        dest: i64,
        remote: u64,
        local: *mut u8,
        len: i64,
        (function, arg): (Function, u64),
    ) -> Result<(), GamError> {
        let bytes = checked(len, MAX_SIZE)?;
        let dest = self.may_send("am_get", dest, function)?;
        let end = End { function, local: local.expose_provenance() as u64, len: bytes, arg };
        let (state, credit) = if dest == self.my_proc() {
            self.poller.poll_to_send(self.my_proc())?;
            self.memory.copy(std::ptr::with_exposed_provenance(remote as usize), local, bytes);
            self.count_copy(bytes);
            (State::Over, Credit::None)
        } else {
            self.poller.await_credit(dest)?;
            let buffer = self.memory.buffer(local, bytes, ());
            let event = self.node.get_nb(self.memory.remote(dest, remote), buffer);
            (State::Lent(event), Credit::AtEnd)
        };
        self.poller.hold(Pending { state, dest, end: Some(end), credit })
    }

    fn store_here(
        &self,
        local: *const u8,
        remote: u64,
        len: usize,
        (function, arg): (Function, u64),
    ) -> Result<(), GamError> {
        self.poller.poll_to_send(self.my_proc())?;
        self.memory.copy(local, std::ptr::with_exposed_provenance_mut(remote as usize), len);
        self.count_copy(len);
        let own = self.my_proc();
        self.shared.run_here(own, function, Arguments::Memory { addr: remote, len, arg });
        Ok(())
    }

    /// Whether this process's own hands reach all memory of the other one: a store is over when its call
    /// returns.
    #[inline]
    fn ends_at_once(&self, dest: Rank) -> bool {
        matches!(self.node.attach(dest), Some(Ok(())))
    }

    /// A store that leaves nothing under way.
    #[inline]
    fn store_at_once(
        &self,
        dest: Rank,
        local: *const u8,
        remote: u64,
        len: usize,
        (function, arg): (Function, u64),
    ) -> Result<(), GamError> {
        let to = self.memory.remote(dest, remote);
        self.with_credit(dest, |may_wait| {
            let (store, args) = (handlers::id(Kind::Store), [function | may_wait, arg, 0, 0]);
            self.memory.request_long(&self.node, store, args, to, (local, len))
        })
    }

    /// A store to a process whose memory is reached by messages, or that has not been met.
    fn start_store(
        &self,
        dest: Rank,
        local: *const u8,
        remote: u64,
        len: usize,
        (function, arg): (Function, u64),
    ) -> Result<Event<Foreign<()>>, GamError> {
        let mut event = None;
        self.with_credit(dest, |may_wait| {
            // To ask whether their handlers differ takes longer than a message: once is enough.
            if self.node.attach(dest).is_none() {
                self.node.connect(dest)?;
            }
            // It is only read from.
            let buffer = self.memory.buffer(local.cast_mut(), len, ());
            let to = self.memory.remote(dest, remote);
            let args = [function | may_wait, arg, 0, 0];
            event = Some(self.node.request_long_nb(handlers::id(Kind::Store), args, to, buffer));
            Ok::<(), Error>(())
        })?;
        Ok(event.expect("the closure has run to its end, which sets it"))
    }
}
