//! A `fi_info` that is ours to free, and how the library is asked for some.

use crate::errno::Errno;
use crate::error::{Error, check};
use crate::ffi::{self, fi_domain_attr, fi_ep_attr, fi_fabric_attr, fi_info, fi_rx_attr, fi_tx_attr};
use crate::library::{Fabric, Version};
use std::ffi::{CStr, CString};
use std::ptr::NonNull;

/// One `fi_info`, alone or the head of a list. Its five attributes are there: that is checked when it is
/// made.
pub(crate) struct Info {
    raw: NonNull<fi_info>,
    fabric: &'static Fabric,
}

// SAFETY: a `fi_info` is plain memory, with pointers only to more of it that it alone owns; the library keeps
// none of it, and any thread may free it.
unsafe impl Send for Info {}

// SAFETY: nothing is changed through a shared `Info`: what is handed out of it are copies, and the library
// reads it.
unsafe impl Sync for Info {}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: it came from the library that frees it, at the same version of the symbols, and nobody else
        // has it.
        unsafe { (self.fabric.freeinfo)(self.raw.as_ptr()) }
    }
}

impl Info {
    /// Takes over what the library made; `None` if it made nothing, or lacks an attribute.
    ///
    /// # Safety
    /// `raw` is null, or a `fi_info` made by `fabric` that nobody else frees.
    unsafe fn from_raw(fabric: &'static Fabric, raw: *mut fi_info) -> Option<Info> {
        let info = Info { raw: NonNull::new(raw)?, fabric };
        let head = info.head();
        let whole = !head.tx_attr.is_null()
            && !head.rx_attr.is_null()
            && !head.ep_attr.is_null()
            && !head.domain_attr.is_null()
            && !head.fabric_attr.is_null();
        whole.then_some(info)
    }

    /// An empty one, for hints.
    pub(crate) fn empty(fabric: &'static Fabric) -> Result<Info, Error> {
        // SAFETY: asked with null, the library makes a new one, which is ours.
        let info = unsafe { Info::from_raw(fabric, (fabric.dupinfo)(std::ptr::null())) };
        info.ok_or(Error::Call { call: "fi_allocinfo", errno: Errno::ENOMEM })
    }

    /// A copy of this one alone, without what follows it in a list.
    pub(crate) fn copy(&self) -> Result<Info, Error> {
        // SAFETY: what is copied is a valid `fi_info` of that library; the copy is ours.
        let info = unsafe { Info::from_raw(self.fabric, (self.fabric.dupinfo)(self.raw.as_ptr())) };
        info.ok_or(Error::Call { call: "fi_dupinfo", errno: Errno::ENOMEM })
    }

    /// For calls that take one; valid as long as `self`.
    pub(crate) fn as_ptr(&self) -> *mut fi_info {
        self.raw.as_ptr()
    }

    pub(crate) fn fabric(&self) -> &'static Fabric {
        self.fabric
    }

    pub(crate) fn head(&self) -> fi_info {
        // SAFETY: it points to a `fi_info` of the library, alive as long as `self`; this copies it.
        unsafe { *self.raw.as_ptr() }
    }

    pub(crate) fn tx(&mut self) -> &mut fi_tx_attr {
        // SAFETY: it was there when `self` was made, lives as long, and belongs to it alone.
        unsafe { &mut *self.head().tx_attr }
    }

    pub(crate) fn domain(&mut self) -> &mut fi_domain_attr {
        // SAFETY: it was there when `self` was made, lives as long, and belongs to it alone.
        unsafe { &mut *self.head().domain_attr }
    }

    pub(crate) fn ep(&mut self) -> &mut fi_ep_attr {
        // SAFETY: it was there when `self` was made, lives as long, and belongs to it alone.
        unsafe { &mut *self.head().ep_attr }
    }

    pub(crate) fn set_caps(&mut self, caps: u64, mode: u64) {
        // SAFETY: `self` is borrowed alone, so nobody reads the two fields while they are written.
        unsafe {
            (*self.raw.as_ptr()).caps = caps;
            (*self.raw.as_ptr()).mode = mode;
        }
    }

    /// Names the provider and the domain wanted; to be called once, as the library frees what it finds there.
    pub(crate) fn set_names(&mut self, provider: Option<CString>, domain: Option<CString>) {
        let [provider, domain] = [provider, domain].map(|name| {
            // SAFETY: `strdup` copies a C string into memory of the C library, with which the library frees
            // names.
            name.map_or(std::ptr::null_mut(), |name| unsafe { libc::strdup(name.as_ptr()) })
        });
        // SAFETY: the attribute was there when `self` was made, lives as long, and belongs to it alone.
        unsafe { (*self.head().fabric_attr).prov_name = provider };
        self.domain().name = domain;
    }

    /// Copies of the attributes.
    pub(crate) fn attrs(&self) -> Attrs {
        let head = self.head();
        // SAFETY: all five were there when `self` was made and live as long; these are copies.
        unsafe {
            Attrs {
                tx: *head.tx_attr,
                rx: *head.rx_attr,
                ep: *head.ep_attr,
                domain: *head.domain_attr,
                fabric: *head.fabric_attr,
            }
        }
    }

    /// The version of the library that it is of.
    pub(crate) fn version(&self) -> Version {
        self.fabric.version()
    }

    /// Names of the provider, the fabric and the domain.
    pub(crate) fn names(&self) -> [String; 3] {
        let attrs = self.attrs();
        [attrs.fabric.prov_name, attrs.fabric.name, attrs.domain.name].map(|name| {
            if name.is_null() {
                return String::new();
            }
            // SAFETY: names in a `fi_info` are null or C strings that live as long as it.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        })
    }

    /// The bytes of its own address, empty if it has none.
    pub(crate) fn source(&self) -> Vec<u8> {
        let head = self.head();
        if head.src_addr.is_null() {
            return Vec::new();
        }
        // SAFETY: a source address has as many bytes as its length says, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(head.src_addr.cast::<u8>(), head.src_addrlen) }.to_vec()
    }

    /// The library's entries that match these hints, on the interface of `source` if that is given.
    pub(crate) fn query(&self, source: Option<&CStr>) -> Result<Vec<Info>, Error> {
        let (node, flags) = source.map_or((std::ptr::null(), 0), |node| (node.as_ptr(), ffi::FI_SOURCE));
        let mut list = std::ptr::null_mut();
        // SAFETY: the hints are a whole `fi_info`, the node is null or a C string, and the list is written to
        // a local variable; the library keeps none of them.
        let returned = unsafe {
            (self.fabric.getinfo)(ffi::API_VERSION, node, std::ptr::null(), flags, self.as_ptr(), &mut list)
        };
        match check("fi_getinfo", returned.into()) {
            Err(Error::Call { errno: Errno::ENODATA, .. }) => return Ok(Vec::new()),
            other => other?,
        };
        let mut found = Vec::new();
        let mut next = list;
        while !next.is_null() {
            // SAFETY: `next` is an element of the list that the library has just made and that is freed
            // below; a copy is ours, and freed on its own.
            unsafe {
                found.extend(Info::from_raw(self.fabric, (self.fabric.dupinfo)(next)));
                next = (*next).next;
            }
        }
        // SAFETY: the list is null or the library's, and nobody looks at it after this.
        unsafe { (self.fabric.freeinfo)(list) };
        Ok(found)
    }
}

/// Copies of the attributes of a `fi_info`; the pointers in them live as long as that.
pub(crate) struct Attrs {
    pub(crate) tx: fi_tx_attr,
    pub(crate) rx: fi_rx_attr,
    pub(crate) ep: fi_ep_attr,
    pub(crate) domain: fi_domain_attr,
    pub(crate) fabric: fi_fabric_attr,
}
