//! Active Messages.

use std::ffi::{c_char, c_int, c_void};

use standpipe::{Call, Code, HandlerId, Landed, Payload, Prepared, Remote};

use crate::border::{call, note, or};
use crate::config::Settings;
use crate::event::{CEvent, Context, Local};
use crate::failure::Failure;
use crate::handle::{Handle, Kind, word};
use crate::node::{CNode, node_of};
use crate::pointer::{self, CRemote, memory};

/// `sp_call` of the header.
#[repr(C)]
pub struct CCall {
    size: usize,
    from: u32,
    is_request: i32,
    args: [u64; 4],
    payload_len: usize,
    landed: CRemote,
    landed_len: u64,
    /// The `Call` itself.
    call: *mut c_void,
}

/// `sp_handler` of the header.
pub(crate) type CHandler = unsafe extern "C" fn(*mut CCall, *mut c_void);

/// A handler of C's as the library runs it.
pub(crate) fn runnable(
    handler: CHandler,
    context: *mut c_void,
) -> impl Fn(&mut Call<'_>) + Send + Sync + 'static {
    let context = Context::new(context);
    move |call| {
        let rank = call.from();
        let landed = match call.landed() {
            Some((Landed::Heap(ptr), len)) => Some((CRemote::of(ptr.into()), len)),
            Some((Landed::Private(addr), len)) => {
                Some((CRemote { peer: call.node().rank(), memory: 0, at: addr }, len))
            }
            Some((Landed::Granted(name, offset), len)) => {
                let remote = Remote::granted(call.node().rank(), name).plus(offset);
                Some((CRemote::of(remote), len))
            }
            _ => None,
        };
        let nowhere = CRemote { peer: 0, memory: 0, at: 0 };
        let (landed, landed_len) = landed.unwrap_or((nowhere, 0));
        let mut shown = CCall {
            size: size_of::<CCall>(),
            from: rank,
            is_request: call.is_request().into(),
            args: call.args(),
            payload_len: call.payload_len(),
            landed,
            landed_len,
            call: std::ptr::from_mut(call).cast(),
        };
        // SAFETY: the program has registered it for such calls, and is told what it may do.
        unsafe { handler(&raw mut shown, context.get()) };
    }
}

/// The call that a handler was given.
///
/// # Safety
/// `call` is null, or what a handler that is still running was given, on its thread.
unsafe fn call_of<'a>(call: *mut CCall) -> Result<&'a mut Call<'a>, Failure> {
    // SAFETY: the caller has promised what the header asks of these pointers.
    let shown = unsafe { call.as_ref() }.ok_or_else(|| Failure::argument("the call is NULL"))?;
    // SAFETY: it is the one that `runnable` has, which nobody uses while the handler calls this.
    unsafe { shown.call.cast::<Call<'a>>().as_mut() }.ok_or_else(|| Failure::argument("the call is none"))
}

/// Arguments of a message.
///
/// # Safety
/// `args` is null, or points to four numbers.
unsafe fn args_of(args: *const u64) -> [u64; 4] {
    // SAFETY: the caller has promised what the header asks of these pointers.
    if args.is_null() { [0; 4] } else { unsafe { args.cast::<[u64; 4]>().read_unaligned() } }
}

/// The handler of an id.
fn id_of(id: u64) -> HandlerId {
    HandlerId::from_word(id)
}

exported! {
    /// `sp_handler_id` of the header.
    fn sp_handler_id(space: *const c_char, name: *const c_char) -> u64 {
        let failed = |failure| {
            note(failure);
            0
        };
        or(failed, || {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (space, name) =
                unsafe { (pointer::text(space, "the namespace")?, pointer::text(name, "the name")?) };
            Ok(HandlerId::of(space, name).to_word())
        })
    }
}

exported! {
    /// `sp_config_handler` of the header.
    fn sp_config_handler(
        config: *mut Handle<Settings>,
        name: *const c_char,
        handler: Option<CHandler>,
        context: *mut c_void,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (settings, name) = unsafe { (Handle::get_mut(config)?, pointer::text(name, "the name")?) };
            let handler = handler.ok_or_else(|| Failure::argument("the handler is NULL"))?;
            settings.0.may_add_handler(name)?;
            let with = std::mem::take(&mut settings.0);
            settings.0 = with.handler(name, runnable(handler, context));
            Ok(0)
        })
    }
}

exported! {
    /// `sp_register` of the header.
    fn sp_register(
        node: *mut Handle<CNode>,
        space: *const c_char,
        name: *const c_char,
        handler: Option<CHandler>,
        context: *mut c_void,
        id: *mut u64,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, space, name) = unsafe {
                (node_of(node)?, pointer::text(space, "the namespace")?, pointer::text(name, "the name")?)
            };
            let handler = handler.ok_or_else(|| Failure::argument("the handler is NULL"))?;
            let registered = node.register(space, name, runnable(handler, context))?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put_if(id, registered.to_word()) };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_unregister` of the header.
    fn sp_unregister(node: *mut Handle<CNode>, id: u64) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            match unsafe { node_of(node)? }.withdraw(id_of(id))? {
                true => Ok(0),
                false => {
                    Err(Failure::new(Code::NotFound, format!("this handle has registered no handler {id:#x}")))
                }
            }
        })
    }
}

exported! {
    /// `sp_has_handler` of the header.
    fn sp_has_handler(node: *mut Handle<CNode>, peer: u32, id: u64) -> c_int {
        // SAFETY: the caller has promised what the header asks of these pointers.
        call(|| Ok(unsafe { node_of(node)? }.has_handler(peer, id_of(id))?.into()))
    }
}

exported! {
    /// `sp_request` of the header.
    fn sp_request(node: *mut Handle<CNode>, peer: u32, id: u64, args: *const u64) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, args) = unsafe { (node_of(node)?, args_of(args)) };
            node.request(peer, id_of(id), args)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_try_request` of the header.
    fn sp_try_request(
        node: *mut Handle<CNode>,
        peer: u32,
        id: u64,
        args: *const u64,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, args) = unsafe { (node_of(node)?, args_of(args)) };
            Ok(node.try_request(peer, id_of(id), args)?.into())
        })
    }
}

exported! {
    /// `sp_request_medium` of the header.
    fn sp_request_medium(
        node: *mut Handle<CNode>,
        peer: u32,
        id: u64,
        args: *const u64,
        from: *const c_void,
        len: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, args, payload) = unsafe {
                (node_of(node)?, args_of(args), pointer::slice(from.cast::<u8>(), len, "the payload")?)
            };
            node.request_medium(peer, id_of(id), args, payload)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_try_request_medium` of the header.
    fn sp_try_request_medium(
        node: *mut Handle<CNode>,
        peer: u32,
        id: u64,
        args: *const u64,
        from: *const c_void,
        len: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, args, payload) = unsafe {
                (node_of(node)?, args_of(args), pointer::slice(from.cast::<u8>(), len, "the payload")?)
            };
            Ok(node.try_request_medium(peer, id_of(id), args, payload)?.into())
        })
    }
}

exported! {
    /// `sp_request_long` of the header.
    fn sp_request_long(
        node: *mut Handle<CNode>,
        id: u64,
        args: *const u64,
        to: CRemote,
        from: *const c_void,
        len: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, args, payload) = unsafe {
                (node_of(node)?, args_of(args), pointer::slice(from.cast::<u8>(), len, "the payload")?)
            };
            node.request_long(id_of(id), args, to.remote()?, payload)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_try_request_long` of the header.
    fn sp_try_request_long(
        node: *mut Handle<CNode>,
        id: u64,
        args: *const u64,
        to: CRemote,
        from: *const c_void,
        len: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, args, payload) = unsafe {
                (node_of(node)?, args_of(args), pointer::slice(from.cast::<u8>(), len, "the payload")?)
            };
            Ok(node.try_request_long(id_of(id), args, to.remote()?, payload)?.into())
        })
    }
}

exported! {
    /// `sp_request_long_nb` of the header.
    fn sp_request_long_nb(
        node: *mut Handle<CNode>,
        id: u64,
        args: *const u64,
        to: CRemote,
        from: *const c_void,
        len: usize,
        event: *mut *mut Handle<CEvent>,
    ) -> c_int {
        call(|| {
            pointer::needs(event, "event")?;
            pointer::is_there(from.cast::<u8>(), len, "the payload")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (node, args) = unsafe { (node_of(node)?, args_of(args)) };
            let local = Local::of(memory(), from.cast_mut().cast(), len);
            let started = node.request_long_nb(id_of(id), args, to.remote()?, local);
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { CEvent::give(started, event)? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_medium_max` of the header.
    fn sp_medium_max(node: *const Handle<CNode>, peer: u32) -> usize {
        let failed = |failure| {
            note(failure);
            0
        };
        // SAFETY: the caller has promised what the header asks of these pointers.
        or(failed, || Ok(unsafe { node_of(node)? }.medium_max(peer)))
    }
}

exported! {
    /// `sp_call_payload` of the header.
    fn sp_call_payload(message: *mut CCall) -> *const c_void {
        let failed = |failure| {
            note(failure);
            std::ptr::null()
        };
        or(failed, || {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let payload = unsafe { call_of(message)? }.payload();
            Ok(if payload.is_empty() { std::ptr::null() } else { payload.as_ptr().cast() })
        })
    }
}

exported! {
    /// `sp_call_read` of the header.
    fn sp_call_read(
        message: *mut CCall,
        from: usize,
        into: *mut c_void,
        len: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                call_of(message)?.read_payload(from, pointer::slice_mut(into.cast::<u8>(), len, "the room")?)?
            };
            Ok(0)
        })
    }
}

/// `sp_payload` of the header.
pub struct CPayload(Payload);

impl Kind for CPayload {
    const NAME: &'static str = "payload";
    const WORD: u64 = word(b"sp payld");
}

exported! {
    /// `sp_call_keep` of the header.
    fn sp_call_keep(message: *mut CCall, payload: *mut *mut Handle<CPayload>) -> c_int {
        call(|| {
            pointer::needs(payload, "payload")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let kept = unsafe { call_of(message)? }.take_payload()?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(payload, Handle::give(CPayload(kept)), "payload")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_payload_bytes` of the header.
    fn sp_payload_bytes(
        payload: *const Handle<CPayload>,
        len: *mut usize,
    ) -> *const c_void {
        let failed = |failure| {
            note(failure);
            std::ptr::null()
        };
        or(failed, || {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let bytes: &[u8] = unsafe { &Handle::get(payload)?.0 };
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put_if(len, bytes.len()) };
            Ok(bytes.as_ptr().cast())
        })
    }
}

exported! {
    /// `sp_payload_free` of the header.
    fn sp_payload_free(payload: *mut Handle<CPayload>) {
        crate::border::free(payload);
    }
}

exported! {
    /// `sp_call_node` of the header.
    fn sp_call_node(message: *mut CCall, node: *mut *mut Handle<CNode>) -> c_int {
        call(|| {
            pointer::needs(node, "node")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let own = unsafe { call_of(message)? }.node();
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(node, Handle::give(CNode::new(own)), "node")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_reply` of the header.
    fn sp_reply(message: *mut CCall, id: u64, args: *const u64) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (message, args) = unsafe { (call_of(message)?, args_of(args)) };
            message.reply(id_of(id), args)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_reply_medium` of the header.
    fn sp_reply_medium(
        message: *mut CCall,
        id: u64,
        args: *const u64,
        from: *const c_void,
        len: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (message, args, payload) = unsafe {
                (call_of(message)?, args_of(args), pointer::slice(from.cast::<u8>(), len, "the payload")?)
            };
            message.reply_medium(id_of(id), args, payload)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_reply_long` of the header.
    fn sp_reply_long(
        message: *mut CCall,
        id: u64,
        args: *const u64,
        to: CRemote,
        from: *const c_void,
        len: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (message, args, payload) = unsafe {
                (call_of(message)?, args_of(args), pointer::slice(from.cast::<u8>(), len, "the payload")?)
            };
            message.reply_long(id_of(id), args, to.remote()?, payload)?;
            Ok(0)
        })
    }
}

/// `sp_prepared` of the header. Empty once it was sent.
pub struct CPrepared(Option<Prepared>);

impl Kind for CPrepared {
    const NAME: &'static str = "prepared";
    const WORD: u64 = word(b"sp prepd");
}

exported! {
    /// `sp_prepare_medium` of the header.
    fn sp_prepare_medium(
        node: *mut Handle<CNode>,
        peer: u32,
        least: usize,
        most: usize,
        prepared: *mut *mut Handle<CPrepared>,
        here: *mut *mut c_void,
        len: *mut usize,
    ) -> c_int {
        call(|| {
            pointer::needs(prepared, "prepared")?;
            pointer::needs(here, "here")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            let mut room = unsafe { node_of(node)? }.prepare_medium(peer, least, most)?;
            let (start, bytes) = (room.as_mut_ptr(), room.len());
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe {
                pointer::put(prepared, Handle::give(CPrepared(Some(room))), "prepared")?;
                pointer::put(here, start.cast(), "here")?;
                pointer::put_if(len, bytes);
            }
            Ok(0)
        })
    }
}

exported! {
    /// `sp_prepared_send` of the header.
    fn sp_prepared_send(
        prepared: *mut Handle<CPrepared>,
        id: u64,
        args: *const u64,
        len: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (room, args) = unsafe { (Handle::take(prepared)?.0, args_of(args)) };
            let room = room.ok_or_else(|| Failure::argument("it has been sent"))?;
            room.commit(id_of(id), args, len)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_prepared_try_send` of the header.
    fn sp_prepared_try_send(
        prepared: *mut Handle<CPrepared>,
        id: u64,
        args: *const u64,
        len: usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (room, args) = unsafe { (Handle::get_mut(prepared)?, args_of(args)) };
            let whole = room.0.take().ok_or_else(|| Failure::argument("it has been sent"))?;
            room.0 = whole.try_commit(id_of(id), args, len)?;
            if room.0.is_some() {
                return Ok(0);
            }
            crate::border::free(prepared);
            Ok(1)
        })
    }
}

exported! {
    /// `sp_prepared_free` of the header.
    fn sp_prepared_free(prepared: *mut Handle<CPrepared>) {
        crate::border::free(prepared);
    }
}
