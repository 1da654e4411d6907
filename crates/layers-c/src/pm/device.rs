//! Devices and contexts: opened, attached and closed.

use std::ffi::{CStr, c_char, c_int};

use layers::pm::PmError;

use super::state::{AGENT, CONTEXTS, Layer, TYPES, channel_of, context_of, device_of, layer, pmc_of, pmd_of};
use super::{SUCCESS, code, errno, fd, pmContext, pmDevice, store};

/// A text of the program's.
fn text<'a>(at: *const c_char) -> Option<&'a str> {
    if at.is_null() {
        return None;
    }
    // SAFETY: by pm.h it is a text that ends with a zero byte, and the program keeps it during the call.
    unsafe { CStr::from_ptr(at) }.to_str().ok()
}

/// The place of a type of device.
fn type_of(at: *const c_char) -> Result<usize, c_int> {
    let name = text(at).ok_or(libc::EINVAL)?;
    TYPES.iter().position(|known| *known == name).ok_or(libc::ENODEV)
}

/// Reads a device's options: whether they are such, and whether they name an agent.
fn read_options(argc: c_int, argv: *const *const c_char) -> Result<bool, c_int> {
    let count = usize::try_from(argc).map_err(|_| libc::EINVAL)?;
    if count > 0 && argv.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: by pm.h there are `argc` pointers from `argv` on, and it is not NULL where there are any.
    let word = |at: usize| text(unsafe { argv.add(at).read() }).ok_or(libc::EINVAL);
    let mut has_agent = false;
    if count % 2 == 1 {
        return Err(libc::EINVAL);
    }
    for at in (0..count).step_by(2) {
        let (option, value) = (word(at)?, word(at + 1)?);
        match option {
            // Files that say how a network is wired: this one is found without.
            "-config" | "-firmware" => {}
            "-agent" if value == "pmaudp" => has_agent = true,
            option if is_trunk(option) => {}
            _ => return Err(libc::EINVAL),
        }
    }
    Ok(has_agent)
}

fn is_trunk(option: &str) -> bool {
    option.strip_prefix("-trunk:").is_some_and(|number| number.parse::<u8>().is_ok())
}

fn open_device(place: usize) -> Result<(), c_int> {
    let layer = &mut *layer();
    if layer.devices[place] {
        return Err(libc::ENODEV);
    }
    layer.open()?;
    layer.devices[place] = true;
    Ok(())
}

/// `pmOpenDevice`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmOpenDevice(
    r#type: *const c_char,
    argc: c_int,
    argv: *const *const c_char,
    pmdp: *mut *mut pmDevice,
) -> c_int {
    if pmdp.is_null() {
        return libc::EINVAL;
    }
    let opened = type_of(r#type).and_then(|place| {
        let has_agent = read_options(argc, argv)?;
        if has_agent != (place == AGENT) {
            return Err(libc::EINVAL);
        }
        open_device(place).map(|()| place)
    });
    match opened {
        Ok(place) => {
            store(pmdp, pmd_of(place));
            SUCCESS
        }
        Err(code) => code,
    }
}

/// `pmCloseDevice`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmCloseDevice(pmd: *mut pmDevice) -> c_int {
    let layer = &mut *layer();
    let Some(place) = device_of(layer, pmd) else { return libc::EINVAL };
    let channels = place * CONTEXTS..(place + 1) * CONTEXTS;
    // All are looked at before any is closed: EBUSY changes nothing.
    let open: Vec<_> = layer.contexts[channels.clone()].iter().flatten().copied().collect();
    if let Some(pm) = layer.pm.as_mut()
        && open.into_iter().any(|context| pm.is_busy(context) == Ok(true))
    {
        return libc::EBUSY;
    }
    for channel in channels {
        if let Err(error) = close_channel(layer, channel) {
            return errno(error);
        }
    }
    layer.devices[place] = false;
    layer.close_if_unused();
    SUCCESS
}

/// Closes a channel's context, if it is open.
fn close_channel(layer: &mut Layer, channel: usize) -> Result<(), PmError> {
    let (Some(context), Some(pm)) = (layer.contexts[channel], layer.pm.as_mut()) else { return Ok(()) };
    pm.close_context(context)?;
    layer.contexts[channel] = None;
    Ok(())
}

/// `pmOpenContext`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmOpenContext(pmd: *mut pmDevice, number: c_int, pmcp: *mut *mut pmContext) -> c_int {
    let number = usize::try_from(number).ok().filter(|number| *number < CONTEXTS);
    let (Some(number), false) = (number, pmcp.is_null()) else { return libc::EINVAL };
    let layer = &mut *layer();
    let Some(place) = device_of(layer, pmd) else { return libc::ENODEV };
    let channel = place * CONTEXTS + number;
    code(layer.open_context(channel).map(|()| store(pmcp, pmc_of(channel))))
}

/// `pmCloseContext`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmCloseContext(pmc: *mut pmContext) -> c_int {
    let layer = &mut *layer();
    match channel_of(pmc).filter(|channel| layer.contexts[*channel].is_some()) {
        Some(channel) => code(close_channel(layer, channel)),
        None => libc::EINVAL,
    }
}

/// `pmGetFd`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmGetFd(pmc: *mut pmContext, fdp: *mut c_int) -> c_int {
    if fdp.is_null() || context_of(&layer(), pmc).is_none() {
        return libc::EINVAL;
    }
    let Some(channel) = channel_of(pmc) else { return libc::EINVAL };
    match fd::make(channel) {
        Ok(fd) => {
            store(fdp, fd);
            SUCCESS
        }
        Err(_) => libc::EIO,
    }
}

/// `pmAttachContext`: see pm.h.
// SAFETY: no other symbol of the process has this name, which is of the interface of PM and SCore.
#[unsafe(no_mangle)]
pub extern "C" fn pmAttachContext(r#type: *const c_char, fd: c_int, pmcp: *mut *mut pmContext) -> c_int {
    if pmcp.is_null() {
        return libc::EINVAL;
    }
    let attached = type_of(r#type).and_then(|place| {
        let channel = fd::read(fd).ok_or(libc::EINVAL)?;
        if channel / CONTEXTS != place {
            return Err(libc::ENODEV);
        }
        let layer = &mut *layer();
        layer.open().map_err(|code| if code == libc::EINVAL { code } else { libc::ENODEV })?;
        layer.devices[place] = true;
        if layer.contexts[channel].is_none() {
            layer.open_context(channel).map_err(errno)?;
        }
        Ok(channel)
    });
    match attached {
        Ok(channel) => {
            store(pmcp, pmc_of(channel));
            SUCCESS
        }
        Err(code) => code,
    }
}
