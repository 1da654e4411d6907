//! What is open: PM itself, devices by type, and contexts by channel.

use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use layers::pm::{CHANNELS_MAX, Context, LockBy, Pm, PmError, PmOpenError};
use standpipe::{AllMemory, Config, Node, ProgressThread};

use super::names::{pmContext, pmDevice};

/// The types of devices, as programs name them.
pub(super) const TYPES: [&str; 5] = ["composite", "myrinet", "ethernet", "shmem", "agent"];
/// The place of `composite` among them.
pub(super) const COMPOSITE: usize = 0;
/// The place of `agent` among them.
pub(super) const AGENT: usize = 4;
/// Contexts that a device has.
pub(super) const CONTEXTS: usize = 16;

const _: () = assert!(TYPES.len() * CONTEXTS == CHANNELS_MAX, "each context has a channel");

/// Says how memory is locked.
const LOCKS_SETTING: &str = "STANDPIPE_PM_LOCKS";
/// Bytes that may be locked by their addresses where nothing else is said.
const ADDRESSES_BUDGET: u64 = 64 << 20;

/// Their addresses are what C has of devices and contexts; nobody reads or writes them.
static DEVICES: [pmDevice; TYPES.len()] = [const { pmDevice { _place: 0 } }; TYPES.len()];
static CHANNELS: [pmContext; CHANNELS_MAX] = [const { pmContext { _place: 0 } }; CHANNELS_MAX];

static LAYER: Mutex<Layer> = Mutex::new(Layer {
    pm: None,
    devices: [false; TYPES.len()],
    contexts: [None; CHANNELS_MAX],
    opened_by: 0,
});

/// All that this process has open.
pub(super) struct Layer {
    pub(super) pm: Option<Pm>,
    pub(super) devices: [bool; TYPES.len()],
    pub(super) contexts: [Option<Context>; CHANNELS_MAX],
    /// The process that has opened it: a child made by `fork` ends nothing of its parent's.
    opened_by: u32,
}

pub(super) fn layer() -> MutexGuard<'static, Layer> {
    LAYER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Acts on an open context.
pub(super) fn with_context<T>(
    pmc: *mut pmContext,
    act: impl FnOnce(&mut Pm, Context) -> Result<T, PmError>,
) -> Result<T, PmError> {
    let layer = &mut *layer();
    let context = context_of(layer, pmc).ok_or(PmError::Invalid)?;
    act(layer.pm.as_mut().ok_or(PmError::Invalid)?, context)
}

/// The context that C means, if it is one that is open.
pub(super) fn context_of(layer: &Layer, pmc: *mut pmContext) -> Option<Context> {
    layer.contexts[channel_of(pmc)?]
}

/// The channel whose context that is.
pub(super) fn channel_of(pmc: *mut pmContext) -> Option<usize> {
    pmc.addr().checked_sub(CHANNELS.as_ptr().addr()).filter(|channel| *channel < CHANNELS_MAX)
}

/// What C has of a channel's context.
pub(super) fn pmc_of(channel: usize) -> *mut pmContext {
    (&raw const CHANNELS[channel]).cast_mut()
}

/// The type of the device that C means, if it is open.
pub(super) fn device_of(layer: &Layer, pmd: *mut pmDevice) -> Option<usize> {
    let place = pmd.addr().checked_sub(DEVICES.as_ptr().addr())?;
    layer.devices.get(place).copied().filter(|is_open| *is_open).map(|_| place)
}

/// What C has of a type's device.
pub(super) fn pmd_of(place: usize) -> *mut pmDevice {
    (&raw const DEVICES[place]).cast_mut()
}

impl Layer {
    /// Opens PM, unless it is: with all other processes of the job, for which it waits.
    pub(super) fn open(&mut self) -> Result<(), c_int> {
        if self.pm.is_some() {
            return Ok(());
        }
        let by = lock_by().inspect_err(|_| say(&bad_locks()))?;
        let config = Config::from_env().map_err(|error| said(&error, libc::EINVAL))?;
        let node = Node::shared(config.progress(ProgressThread::Off));
        let node = node.map_err(|error| said(&error, libc::EIO))?;
        // SAFETY: a program that calls PM vouches for the memory that it names to it, as pm.h says.
        let memory = unsafe { AllMemory::promised() };
        self.pm = Some(Pm::open(node, memory, by).map_err(|error| match error {
            PmOpenError::Heap(error) => said(&error, libc::ENOMEM),
            error => said(&error, libc::EIO),
        })?);
        if self.opened_by == 0 {
            // SAFETY: the function is one of this library's, which stays loaded until the process has ended.
            unsafe { libc::atexit(at_exit) };
        }
        self.opened_by = std::process::id();
        Ok(())
    }

    /// Opens the context of a channel.
    pub(super) fn open_context(&mut self, channel: usize) -> Result<(), PmError> {
        let pm = self.pm.as_mut().ok_or(PmError::Invalid)?;
        let is_composite = channel / CONTEXTS == COMPOSITE;
        let number = u16::try_from(channel).map_err(|_| PmError::Invalid)?;
        self.contexts[channel] = Some(pm.open_context(number, is_composite)?);
        Ok(())
    }

    /// Ends PM where no device is open any more.
    pub(super) fn close_if_unused(&mut self) {
        if self.devices.iter().all(|is_open| !is_open)
            && let Some(pm) = self.pm.take()
        {
            say_dropped(pm.close());
        }
    }
}

/// Says that messages were launched in vain.
fn say_dropped(count: u64) {
    if count > 0 {
        say(&format!(
            "{count} messages were launched and not sent, as their receivers have left or are lost; \
             let a receiver take all before it leaves"
        ));
    }
}

/// Sends what is left and says that this process leaves in order.
extern "C" fn at_exit() {
    // A call that is under way as the process ends goes no further, and neither does this.
    let Ok(mut layer) = LAYER.try_lock() else { return };
    if layer.opened_by != std::process::id() {
        // A child's copy of its parent's: nothing here is the child's to end.
        std::mem::forget(layer.pm.take());
    } else if let Some(pm) = layer.pm.take() {
        layer.contexts = [None; CHANNELS_MAX];
        say_dropped(pm.close());
    }
}

/// How memory is locked, by the environment.
fn lock_by() -> Result<LockBy, c_int> {
    let setting = std::env::var(LOCKS_SETTING).unwrap_or_else(|_| "pin".to_owned());
    match setting.split_once(':') {
        None if setting == "pin" => Ok(LockBy::Pin),
        None if setting == "addresses" => Ok(LockBy::Address { budget_bytes: ADDRESSES_BUDGET }),
        Some(("addresses", bytes)) => {
            bytes.parse().map(|budget_bytes| LockBy::Address { budget_bytes }).map_err(|_| libc::EINVAL)
        }
        _ => Err(libc::EINVAL),
    }
}

fn bad_locks() -> String {
    let value = std::env::var(LOCKS_SETTING).unwrap_or_default();
    format!("{LOCKS_SETTING}={value} is not pin, addresses or addresses:BYTES; set one of them, or nothing")
}

/// Says why PM is not opened, and gives the code.
fn said(error: &dyn std::error::Error, code: c_int) -> c_int {
    say(&error.to_string());
    code
}

/// Tells the user of what a code does not say.
pub(super) fn say(text: &str) {
    crate::border::complain("pm", text);
}
