//! NICs, protection tags, memory, VIs and completion queues.

use std::collections::VecDeque;

use super::cq::{Cq, CqNotify, ENTRIES_MAX};
use super::error::ViaError;
use super::port::Via;
use super::queue::WorkQueue;
use super::regions::MemoryAttributes;
use super::state::{ErrorHandler, State};
use super::vi::{Attributes, Queue, RELIABLE_DELIVERY, RELIABLE_RECEPTION, Side, UNRELIABLE, Vi, ViState};
use super::wire::Terms;

/// Bytes that a descriptor may move.
pub const TRANSFER_MAX: u64 = 1 << 30;
/// VIs at a time.
pub const VIS_MAX: usize = 1 << 16;
/// Completion queues at a time.
pub const CQS_MAX: usize = 1 << 16;

/// The results of a query of a VI: `VipQueryVi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ViQuery {
    /// Its state.
    pub state: ViState,
    /// Its attributes.
    pub attributes: Attributes,
    /// Whether no descriptor is in its send queue.
    pub is_send_empty: bool,
    /// Whether none is in its receive queue.
    pub is_receive_empty: bool,
}

/// Checks a VI's attributes.
fn check(state: &State, nic: u32, attributes: &Attributes) -> Result<(), ViaError> {
    let Terms { reliability, max_transfer, allows_read, .. } = attributes.terms;
    if ![UNRELIABLE, RELIABLE_DELIVERY, RELIABLE_RECEPTION].contains(&reliability) {
        return Err(ViaError::InvalidReliability);
    }
    if max_transfer == 0 || max_transfer > TRANSFER_MAX {
        return Err(ViaError::InvalidMtu);
    }
    if !state.regions.has_ptag(attributes.ptag, nic) {
        return Err(ViaError::InvalidPtag);
    }
    if allows_read && reliability == UNRELIABLE { Err(ViaError::InvalidRdmaRead) } else { Ok(()) }
}

fn nic(state: &State, nic: u32) -> Result<(), ViaError> {
    if state.nics.contains_key(&nic) { Ok(()) } else { Err(ViaError::InvalidParameter) }
}

/// NICs.
impl Via {
    /// Opens the NIC once more: `VipOpenNic`. Gives a number of its own.
    pub fn open_nic(&self) -> u32 {
        self.shared.with(|state| {
            let nic = state.new_id();
            state.nics.insert(nic, None);
            nic
        })
    }

    /// Closes a NIC with all that was made by it: `VipCloseNic`. Its connections are taken down. It does not
    /// wait.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn close_nic(&self, number: u32) -> Result<(), ViaError> {
        self.shared.with(|state| {
            nic(state, number)?;
            let vis: Vec<u32> =
                state.vis.iter().filter(|(_, vi)| vi.nic == number).map(|(id, _)| *id).collect();
            vis.into_iter().for_each(|id| state.disconnect(&self.node, id));
            Ok(())
        })?;
        self.shared.pump_after_others(&self.node);
        self.shared.with(|state| {
            state.vis.retain(|_, vi| vi.nic != number);
            state.cqs.retain(|_, cq| cq.nic != number);
            state.meeting.requests.retain(|_, request| request.nic != number);
            state.meeting.waiters.retain(|waiter| waiter.nic != number);
            state.regions.remove_nic(number);
            state.nics.remove(&number);
        });
        self.node.wake();
        Ok(())
    }

    /// Has a handler be told of the NIC's errors, or the default one: `VipErrorCallback`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn set_error_handler(&self, nic: u32, handler: Option<ErrorHandler>) -> Result<(), ViaError> {
        self.shared.with(|state| {
            *state.nics.get_mut(&nic).ok_or(ViaError::InvalidParameter)? = handler;
            Ok(())
        })
    }
}

/// Protection tags and memory.
impl Via {
    /// Makes a protection tag: `VipCreatePtag`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`], [`ViaError::Resource`].
    pub fn create_ptag(&self, number: u32) -> Result<u32, ViaError> {
        self.shared.with(|state| {
            nic(state, number)?;
            let ptag = state.new_id();
            state.regions.add_ptag(ptag, number)?;
            Ok(ptag)
        })
    }

    /// Gives a protection tag up: `VipDestroyPtag`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`]; [`ViaError::Resource`] while memory or a VI has it.
    pub fn destroy_ptag(&self, number: u32, ptag: u32) -> Result<(), ViaError> {
        self.shared.with(|state| {
            nic(state, number)?;
            if ptag != 0 && state.vis.values().any(|vi| vi.nic == number && vi.attributes.ptag == ptag) {
                return Err(ViaError::Resource);
            }
            state.regions.remove_ptag(ptag, number)
        })
    }

    /// Registers memory: `VipRegisterMem`. Nothing is pinned.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`] for no NIC, no address and no bytes; [`ViaError::InvalidPtag`];
    /// [`ViaError::Resource`].
    pub fn register(
        &self,
        number: u32,
        memory: (u64, u64),
        attributes: MemoryAttributes,
    ) -> Result<u32, ViaError> {
        self.shared.with(|state| {
            nic(state, number)?;
            state.regions.register((&self.node, state.memory), number, memory, attributes)
        })
    }

    /// Takes a registration back, by any address in it: `VipDeregisterMem`. Peers reach it no more.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn deregister(&self, nic: u32, addr: u64, handle: u32) -> Result<(), ViaError> {
        self.shared.with(|state| state.regions.deregister(nic, addr, handle))
    }

    /// The attributes of memory: `VipQueryMem`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn memory_attributes(&self, nic: u32, addr: u64, handle: u32) -> Result<MemoryAttributes, ViaError> {
        self.shared.with(|state| state.regions.attributes(nic, addr, handle))
    }

    /// Changes what memory is for: `VipSetMemAttributes`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`], [`ViaError::InvalidPtag`], [`ViaError::Resource`].
    pub fn set_memory_attributes(
        &self,
        nic: u32,
        place: (u64, u32),
        attributes: MemoryAttributes,
    ) -> Result<(), ViaError> {
        self.shared
            .with(|state| state.regions.set_attributes((&self.node, state.memory), nic, place, attributes))
    }
}

/// VIs.
impl Via {
    /// Makes a VI: `VipCreateVi`. A completion queue of number 0 is none.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`] for no NIC or completion queue; those of
    /// [`set_vi_attributes`](Via::set_vi_attributes); [`ViaError::Resource`].
    pub fn create_vi(
        &self,
        number: u32,
        attributes: Attributes,
        (send_cq, receive_cq): (u32, u32),
    ) -> Result<u32, ViaError> {
        self.shared.with(|state| {
            nic(state, number)?;
            let is_cq = |cq: &u32| *cq == 0 || state.cqs.get(cq).is_some_and(|cq| cq.nic == number);
            if ![send_cq, receive_cq].iter().all(is_cq) {
                return Err(ViaError::InvalidParameter);
            }
            check(state, number, &attributes)?;
            if state.vis.len() >= VIS_MAX {
                return Err(ViaError::Resource);
            }
            for cq in [send_cq, receive_cq] {
                if let Some(cq) = state.cqs.get_mut(&cq) {
                    cq.users += 1;
                }
            }
            let queue = |cq| Queue { works: WorkQueue::default(), cq, notifies: VecDeque::new() };
            let id = state.new_id();
            let vi = Vi {
                nic: number,
                attributes,
                state: ViState::Idle,
                attempt: 0,
                connection: None,
                send: queue(send_cq),
                receive: queue(receive_cq),
                user_data: 0,
            };
            state.vis.insert(id, vi);
            Ok(id)
        })
    }

    /// Ends a VI, with the descriptors in its queues: `VipDestroyVi`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`]; [`ViaError::InvalidState`] unless it is idle.
    pub fn destroy_vi(&self, id: u32) -> Result<(), ViaError> {
        self.shared.with(|state| {
            let vi = state.vis.get(&id).ok_or(ViaError::InvalidParameter)?;
            if vi.state != ViState::Idle {
                return Err(ViaError::InvalidState);
            }
            for cq in [vi.send.cq, vi.receive.cq] {
                if let Some(cq) = state.cqs.get_mut(&cq) {
                    cq.users -= 1;
                    cq.entries.retain(|(of, _)| *of != id);
                }
            }
            state.vis.remove(&id);
            Ok(())
        })
    }

    /// A VI's state, attributes and queues: `VipQueryVi`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn query_vi(&self, id: u32) -> Result<ViQuery, ViaError> {
        self.shared.with(|state| {
            let vi = state.vis.get(&id).ok_or(ViaError::InvalidParameter)?;
            Ok(ViQuery {
                state: vi.state,
                attributes: vi.attributes,
                is_send_empty: vi.send.works.is_empty(),
                is_receive_empty: vi.receive.works.is_empty(),
            })
        })
    }

    /// Changes an idle VI's attributes: `VipSetViAttributes`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`]; [`ViaError::InvalidState`] unless it is idle;
    /// [`ViaError::InvalidReliability`], [`ViaError::InvalidMtu`], [`ViaError::InvalidPtag`],
    /// [`ViaError::InvalidRdmaRead`].
    pub fn set_vi_attributes(&self, id: u32, attributes: Attributes) -> Result<(), ViaError> {
        self.shared.with(|state| {
            let vi = state.vis.get(&id).ok_or(ViaError::InvalidParameter)?;
            if vi.state != ViState::Idle {
                return Err(ViaError::InvalidState);
            }
            check(state, vi.nic, &attributes)?;
            if let Some(vi) = state.vis.get_mut(&id) {
                vi.attributes = attributes;
            }
            Ok(())
        })
    }

    /// The NIC that a VI was made by.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn nic_of_vi(&self, id: u32) -> Result<u32, ViaError> {
        self.shared.with(|state| Ok(state.vis.get(&id).ok_or(ViaError::InvalidParameter)?.nic))
    }

    /// The word of the program's own that a VI has: `VipGetUserData`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn user_data(&self, id: u32) -> Result<u64, ViaError> {
        self.shared.with(|state| Ok(state.vis.get(&id).ok_or(ViaError::InvalidParameter)?.user_data))
    }

    /// Gives a VI such a word: `VipSetUserData`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn set_user_data(&self, id: u32, word: u64) -> Result<(), ViaError> {
        self.shared.with(|state| {
            state.vis.get_mut(&id).ok_or(ViaError::InvalidParameter)?.user_data = word;
            Ok(())
        })
    }
}

/// Completion queues.
impl Via {
    /// Makes a completion queue for so many entries: `VipCreateCQ`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`] for no NIC and no entries; [`ViaError::Resource`].
    pub fn create_cq(&self, number: u32, entries: u64) -> Result<u32, ViaError> {
        self.shared.with(|state| {
            nic(state, number)?;
            let capacity = capacity(entries)?;
            if state.cqs.len() >= CQS_MAX {
                return Err(ViaError::Resource);
            }
            let cq = state.new_id();
            state.cqs.insert(cq, Cq::new(number, capacity));
            Ok(cq)
        })
    }

    /// Ends a completion queue: `VipDestroyCQ`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`]; [`ViaError::Resource`] while a VI has it.
    pub fn destroy_cq(&self, number: u32) -> Result<(), ViaError> {
        self.shared.with(|state| {
            let cq = state.cqs.get(&number).ok_or(ViaError::InvalidParameter)?;
            if cq.users > 0 {
                return Err(ViaError::Resource);
            }
            state.cqs.remove(&number);
            Ok(())
        })
    }

    /// The NIC that a completion queue was made by.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn nic_of_cq(&self, number: u32) -> Result<u32, ViaError> {
        self.shared.with(|state| Ok(state.cqs.get(&number).ok_or(ViaError::InvalidParameter)?.nic))
    }

    /// Changes how many entries a completion queue has: `VipResizeCQ`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`]; [`ViaError::Resource`] where there are more entries in it.
    pub fn resize_cq(&self, number: u32, entries: u64) -> Result<(), ViaError> {
        self.shared.with(|state| {
            let cq = state.cqs.get_mut(&number).ok_or(ViaError::InvalidParameter)?;
            let capacity = capacity(entries)?;
            if capacity < cq.entries.len() {
                return Err(ViaError::Resource);
            }
            cq.capacity = capacity;
            Ok(())
        })
    }

    /// Has a handler be called, once, with the next entry: `VipCQNotify`.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`].
    pub fn notify_cq(&self, number: u32, notify: CqNotify) -> Result<(), ViaError> {
        self.shared.with(|state| {
            state.cqs.get_mut(&number).ok_or(ViaError::InvalidParameter)?.notifies.push_back(notify);
            state.notify_cq(number);
            Ok(())
        })
    }

    /// Takes the next entry: `VipCQDone`. Which VI, and which of its queues.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`], [`ViaError::NotDone`].
    pub fn cq_done(&self, number: u32) -> Result<(u32, Side), ViaError> {
        self.poll(|state| next_entry(state, number))
    }

    /// The same, and waits: `VipCQWait`. `None` waits for ever.
    ///
    /// # Errors
    /// [`ViaError::InvalidParameter`], [`ViaError::Timeout`].
    pub fn cq_wait(&self, number: u32, within: Option<std::time::Duration>) -> Result<(u32, Side), ViaError> {
        self.wait(within, |state| next_entry(state, number))
    }
}

fn next_entry(state: &mut State, number: u32) -> Result<(u32, Side), ViaError> {
    let cq = state.cqs.get_mut(&number).ok_or(ViaError::InvalidParameter)?;
    cq.entries.pop_front().ok_or(ViaError::NotDone)
}

fn capacity(entries: u64) -> Result<usize, ViaError> {
    match usize::try_from(entries) {
        Ok(0) => Err(ViaError::InvalidParameter),
        Ok(entries) if entries <= ENTRIES_MAX => Ok(entries),
        _ => Err(ViaError::Resource),
    }
}
