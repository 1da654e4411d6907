//! The node's counters and times.

use std::ffi::{c_char, c_int};

use standpipe::watch::RegistrationCounters;
use standpipe::{Code, Mechanism, Operation, PathReason, Timed};

use crate::border::call;
use crate::failure::Failure;
use crate::handle::Handle;
use crate::node::{CNode, may_call, node_of};
use crate::pointer;

exported! {
    /// `sp_count_of` of the header.
    fn sp_count_of(
        node: *const Handle<CNode>,
        operation: c_int,
        mechanism: c_int,
        count: *mut u64,
        bytes: *mut u64,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            may_call(node, "the counters")?;
            let at = |index: c_int| usize::try_from(index).ok();
            let known = at(operation).and_then(|index| Operation::ALL.get(index));
            let known = known
                .ok_or_else(|| Failure::value("the operation", operation.into(), "SP_OP_PUT to SP_OP_SERVED"))?;
            let stats = node.stats();
            let tally = match mechanism {
                ..0 => stats.total(*known),
                index => {
                    let way = at(index).and_then(|index| Mechanism::ALL.get(index));
                    let none = || {
                        Failure::value("the mechanism", index.into(), "negative, or SP_MAPPED to SP_REGISTERED")
                    };
                    stats.get(*known, *way.ok_or_else(none)?)
                }
            };
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                pointer::put_if(count, tally.count);
                pointer::put_if(bytes, tally.bytes);
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_figure` of the header.
    fn sp_figure(
        node: *const Handle<CNode>,
        name: *const c_char,
        value: *mut u64,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, name) = unsafe { (node_of(node)?, pointer::text(name, "the name")?) };
            may_call(node, "a figure")?;
            let (stats, registered) = (node.stats(), node.registrations());
            let plain = stats.scalars().find(|(known, _)| *known == name).map(|(_, value)| value);
            let of_memory = RegistrationCounters::FIGURES.iter();
            let of_path = || PathReason::ALL.iter().find(|why| why.name() == name).map(|why| stats.why(*why));
            let found = plain.or_else(of_path).or_else(|| {
                of_memory.clone().find(|(known, _)| *known == name).map(|(_, value)| value(&registered))
            });
            let found = found.ok_or_else(|| {
                let plain = stats.scalars().map(|(name, _)| name);
                let known: Vec<&str> = plain.chain(of_memory.map(|(name, _)| *name)).collect();
                Failure::new(
                    Code::NotFound,
                    format!("there is no figure {name:?}; there are {}", known.join(", ")),
                )
            })?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(value, found, "value")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_latency` of the header.
    fn sp_latency(
        node: *const Handle<CNode>,
        what: *const c_char,
        share: f64,
        time: *mut u64,
        timed: *mut u64,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, what) = unsafe { (node_of(node)?, pointer::text(what, "`what`")?) };
            may_call(node, "a latency")?;
            let known = Timed::ALL.iter().find(|timed| timed.name() == what);
            let known = known.ok_or_else(|| {
                let names = Timed::ALL.map(Timed::name).join(", ");
                Failure::new(Code::NotFound, format!("no calls are timed as {what:?}; there are {names}"))
            })?;
            if !(0.0..=1.0).contains(&share) {
                return Err(Failure::argument(format!("a share is 0 to 1, and not {share}")));
            }
            let latencies = node.latencies();
            let latency = latencies.get(*known);
            let nanos =
                latency.quantile(share).map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                pointer::put_if(time, nanos);
                pointer::put_if(timed, latency.sampled());
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_metrics` of the header.
    fn sp_metrics(
        node: *const Handle<CNode>,
        into: *mut c_char,
        room: usize,
        len: *mut usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let node = unsafe { node_of(node)? };
            may_call(node, "the metrics")?;
            let text = node.open_metrics(&[]);
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::give(text.as_bytes(), true, into.cast(), room, len)? };
            Ok(0)
        })
    }
}
