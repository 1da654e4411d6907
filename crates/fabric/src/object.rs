//! The library's objects: closing, binding, controlling.

use crate::error::{Error, check};
use crate::ffi::{self, fi_ops, fid, offers};
use libc::c_int;
use std::ffi::c_void;
use std::ptr::NonNull;

/// Types of the library that begin with a `fid`.
///
/// # Safety
/// The type's first field is a `fid`, at offset 0.
pub(crate) unsafe trait Object {}

/// Marks types whose first field is a `fid`, and has the compiler look.
macro_rules! objects {
    ($($kind:ident,)*) => {$(
        // SAFETY: its first field is a `fid`; the line below does not compile unless that is at offset 0.
        unsafe impl Object for ffi::$kind {}
        const _: () = assert!(std::mem::offset_of!(ffi::$kind, fid) == 0);
    )*};
}

objects! { fid_fabric, fid_domain, fid_av, fid_cq, fid_ep, fid_mr, }

/// An object that is ours to close. Dropping closes it, and tells nobody if that fails.
pub(crate) struct Owned<T: Object> {
    raw: Option<NonNull<T>>,
}

impl<T: Object> Owned<T> {
    /// Has `make` write a new object, and takes it over.
    ///
    /// # Safety
    /// If `make` returns a number that is not negative, it has written a pointer to a valid object that
    /// nobody else closes and whose table of functions lives as long as it.
    pub(crate) unsafe fn made(
        call: &'static str,
        make: impl FnOnce(&mut *mut T) -> c_int,
    ) -> Result<Owned<T>, Error> {
        let mut raw = std::ptr::null_mut();
        check(call, make(&mut raw).into())?;
        NonNull::new(raw).map(|raw| Owned { raw: Some(raw) }).ok_or(Error::Absent { call })
    }

    /// Null once it is closed.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.raw.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline]
    pub(crate) fn fid(&self) -> *mut fid {
        self.as_ptr().cast()
    }

    /// Whether it is closed, or given up.
    pub(crate) fn is_closed(&self) -> bool {
        self.raw.is_none()
    }

    fn ops(&self) -> *mut fi_ops {
        // SAFETY: an object that is not closed begins with a `fid`; one that is closed is null and not read.
        self.raw.map_or(std::ptr::null_mut(), |raw| unsafe { (*raw.as_ptr().cast::<fid>()).ops })
    }

    /// Closes the object; does nothing if it is closed. After an error it is still open.
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        if self.raw.is_none() {
            return Ok(());
        }
        // SAFETY: the object is open, so its table is alive.
        let close =
            unsafe { offers!(self.ops(), fi_ops, close) }.ok_or(Error::Absent { call: "fi_close" })?;
        // SAFETY: the object is ours and open; when this succeeds, `raw` forgets it.
        check("fi_close", unsafe { close(self.fid()) }.into())?;
        self.raw = None;
        Ok(())
    }

    /// Gives up the object without closing it, as something may still use it.
    pub(crate) fn leak(&mut self) {
        self.raw = None;
    }

    /// Binds another object to this one.
    pub(crate) fn bind<U: Object>(
        &self,
        call: &'static str,
        other: &Owned<U>,
        flags: u64,
    ) -> Result<(), Error> {
        // SAFETY: the object is open, so its table is alive.
        let bind = unsafe { offers!(self.ops(), fi_ops, bind) }.ok_or(Error::Absent { call })?;
        // SAFETY: both objects are open; the library counts on `other` living longer, which who owns both
        // sees to.
        check(call, unsafe { bind(self.fid(), other.fid(), flags) }.into())?;
        Ok(())
    }

    /// Gives the object a command.
    ///
    /// # Safety
    /// `argument` is what that command takes, and may be written as the command says.
    pub(crate) unsafe fn control(
        &self,
        call: &'static str,
        command: u64,
        argument: *mut c_void,
    ) -> Result<(), Error> {
        // SAFETY: the object is open, so its table is alive.
        let control = unsafe { offers!(self.ops(), fi_ops, control) }.ok_or(Error::Absent { call })?;
        // SAFETY: the object is open, and the caller vouches for the argument.
        check(call, unsafe { control(self.fid(), command as c_int, argument) }.into())?;
        Ok(())
    }
}

impl<T: Object> Drop for Owned<T> {
    fn drop(&mut self) {
        // Nobody is left who could be told; who wants to know calls `close` before.
        let _ = self.close();
    }
}
