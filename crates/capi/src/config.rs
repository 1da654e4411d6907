//! Settings.

use std::ffi::{c_char, c_int};

use standpipe::{Code, Config};

use crate::border::call;
use crate::failure::Failure;
use crate::handle::{Handle, Kind, word};
use crate::pointer;

/// `sp_config` of the header.
pub struct Settings(pub(crate) Config);

impl Kind for Settings {
    const NAME: &'static str = "config";
    const WORD: u64 = word(b"sp confg");
}

exported! {
    /// `sp_config_new` of the header.
    fn sp_config_new(config: *mut *mut Handle<Settings>) -> c_int {
        call(|| {
            pointer::needs(config, "config")?;
            let settings = Settings(Config::from_env()?);
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(config, Handle::give(settings), "config")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_config_defaults` of the header.
    fn sp_config_defaults(config: *mut *mut Handle<Settings>) -> c_int {
        call(|| {
            pointer::needs(config, "config")?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::put(config, Handle::give(Settings(Config::new())), "config")? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_config_set` of the header.
    fn sp_config_set(
        config: *mut Handle<Settings>,
        name: *const c_char,
        value: *const c_char,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (settings, name, value) = unsafe {
                (Handle::get_mut(config)?, pointer::text(name, "the name")?, pointer::text(value, "the value")?)
            };
            settings.0.set(name, value)?;
            Ok(0)
        })
    }
}

exported! {
    /// `sp_config_get` of the header.
    fn sp_config_get(
        config: *const Handle<Settings>,
        name: *const c_char,
        into: *mut c_char,
        room: usize,
        len: *mut usize,
    ) -> c_int {
        call(|| {
            // SAFETY: the caller has promised what the header asks of these pointers.
            let (settings, name) = unsafe { (Handle::get(config)?, pointer::text(name, "the name")?) };
            let value = settings.0.get(name)?;
            let value = value.ok_or_else(|| Failure::new(Code::NotFound, format!("{name} is not set")))?;
            // SAFETY: the caller has promised what the header asks of these pointers.
            unsafe { pointer::give(value.as_bytes(), true, into.cast(), room, len)? };
            Ok(0)
        })
    }
}

exported! {
    /// `sp_config_free` of the header.
    fn sp_config_free(config: *mut Handle<Settings>) {
        crate::border::free(config);
    }
}
