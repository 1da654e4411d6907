//! Settings.

use std::ffi::{c_char, c_int, c_void};

use standpipe::{Code, Config};

use crate::border::{Failure, call, or};
use crate::handle::{Handle, Kind, word};
use crate::messages::{CHandler, runnable};
use crate::pointer;

/// `sp_config` of the header.
pub struct Settings(pub(crate) Config);

impl Kind for Settings {
    const NAME: &'static str = "config";
    const WORD: u64 = word(b"sp confg");
}

/// `sp_config_new` of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_config_new(config: *mut *mut Handle<Settings>) -> c_int {
    call(|| {
        pointer::needs(config, "config")?;
        let settings = Settings(Config::from_env()?);
        // SAFETY: the caller's promise.
        unsafe { pointer::put(config, Handle::give(settings), "config")? };
        Ok(0)
    })
}

/// `sp_config_defaults` of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_config_defaults(config: *mut *mut Handle<Settings>) -> c_int {
    call(|| {
        pointer::needs(config, "config")?;
        // SAFETY: the caller's promise.
        unsafe { pointer::put(config, Handle::give(Settings(Config::new())), "config")? };
        Ok(0)
    })
}

/// `sp_config_set` of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_config_set(
    config: *mut Handle<Settings>,
    name: *const c_char,
    value: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let (settings, name, value) = unsafe {
            (Handle::get_mut(config)?, pointer::text(name, "the name")?, pointer::text(value, "the value")?)
        };
        settings.0.set(name, value)?;
        Ok(0)
    })
}

/// `sp_config_get` of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_config_get(
    config: *const Handle<Settings>,
    name: *const c_char,
    into: *mut c_char,
    room: usize,
    len: *mut usize,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let (settings, name) = unsafe { (Handle::get(config)?, pointer::text(name, "the name")?) };
        let value = settings.0.get(name)?;
        let value = value.ok_or_else(|| Failure::new(Code::NotFound, format!("{name} is not set")))?;
        // SAFETY: the caller's promise.
        unsafe { pointer::give(value.as_bytes(), true, into.cast(), room, len)? };
        Ok(0)
    })
}

/// `sp_config_handler` of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_config_handler(
    config: *mut Handle<Settings>,
    name: *const c_char,
    handler: Option<CHandler>,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let (settings, name) = unsafe { (Handle::get_mut(config)?, pointer::text(name, "the name")?) };
        let handler = handler.ok_or_else(|| Failure::argument("the handler is NULL"))?;
        let with = std::mem::take(&mut settings.0);
        settings.0 = with.handler(name, runnable(handler, context));
        Ok(0)
    })
}

/// `sp_config_free` of the header.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sp_config_free(config: *mut Handle<Settings>) {
    free(config);
}

/// Frees any handle but null; a mistake is noted.
pub(crate) fn free<T: Kind>(handle: *mut Handle<T>) {
    let noted = |failure| {
        crate::border::note(failure);
    };
    or(noted, || {
        if !handle.is_null() {
            // SAFETY: whoever calls this interface passes a handle that nobody uses any more.
            drop(unsafe { Handle::take(handle)? });
        }
        Ok(())
    });
}
