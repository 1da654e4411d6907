//! PMIx, by which `mpirun` and `srun` tell the processes that they start of each other: as much of it as it
//! takes to exchange texts. The library is the launcher's, found at run time.
//!
//! | symbol | what for |
//! |---|---|
//! | `PMIx_Init`, `PMIx_Finalize` | counted: a program's MPI library calls them too |
//! | `PMIx_Put`, `PMIx_Commit` | to leave a text for others |
//! | `PMIx_Fence` | to wait until all have |
//! | `PMIx_Get` | to read another's |
//!
//! Seen to work with PMIx 4.2 (Debian 12) under Open MPI 4.1, and with 5.0 under Open MPI 5.0. The structures
//! that cross the border are of PMIx 2 to 5, whose layout has not changed in what is used.

mod ffi;
mod leave;
mod library;

use std::ffi::{CStr, CString};
use std::time::Duration;

use crate::ffi::{Info, Proc, RANK_WILDCARD, Status, Value};
pub use crate::leave::Aside;
pub use crate::library::LoadError;
use crate::library::{Library, library};

/// The longest text that a PMIx gives back as it was put, in bytes, unless it is set otherwise. PMIx 5.0.11
/// compresses longer ones, and its `PMIx_Get` was seen to hand them out so. Its parameter
/// `pcompress_base_limit` says beyond how many bytes, and 4,096 is its default.
pub const TEXT_MAX: usize = 4096;

/// Why PMIx did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum PmixError {
    /// There is no library, or none that can be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A call failed.
    #[error("{call} failed: {text} ({status})")]
    Call {
        /// Which call, and of what.
        call: String,
        /// PMIx's number for the failure.
        status: i32,
        /// What PMIx says about it.
        text: String,
    },
    /// A value is there, but not of the kind that was put.
    #[error("the value of {key} is of PMIx type {found}, not {wanted}")]
    Kind {
        /// The value's key.
        key: String,
        /// Its type.
        found: u16,
        /// The type it should have.
        wanted: u16,
    },
    /// A key or text holds a zero byte, or a key is longer than PMIx takes.
    #[error("{text:?} cannot be given to PMIx: it holds a zero byte, or is a key of more than 511 bytes")]
    Text {
        /// The text, or as much of it as an error should hold.
        text: String,
    },
}

/// This process's part in the exchange. Leaving it is what tells the launcher that the process ends as it
/// should: when this is dropped, or else at the process's `exit`, which waits two seconds for it at most.
///
/// Any thread may own it. A process makes one call of the library at a time: others wait for its end.
#[derive(Debug)]
pub struct Client {
    library: &'static Library,
    own: Proc,
    size: u32,
}

impl Client {
    /// Joins. Waits for the launcher's local server at most. The process's `exit` leaves by `aside`.
    ///
    /// # Errors
    /// [`PmixError::Load`] where there is no library, [`PmixError::Call`] where no server answers.
    pub fn init(aside: Aside) -> Result<Client, PmixError> {
        let library = library()?;
        let mut own = Proc::default();
        let mut joined = leave::one_call();
        // SAFETY: `own` is a live local of the layout that the call fills; no list of infos is given, and its
        // length is zero.
        let status = unsafe { (library.init)(&mut own, std::ptr::null(), 0) };
        check(library, status, || "PMIx_Init".to_owned())?;
        leave::joined(&mut joined, aside);
        drop(joined);
        let mut client = Client { library, own, size: 0 };
        client.size =
            client.value(&own.fellow(RANK_WILDCARD), "pmix.job.size", None, |value| value.as_u32())?;
        Ok(client)
    }

    /// This process's number in the job.
    pub fn rank(&self) -> u32 {
        self.own.rank
    }

    /// Processes in the job.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Leaves `text` under `key` for all others, who find it after the next [`fence`](Client::fence). A text
    /// of more than [`TEXT_MAX`] bytes may come back as something else, which is [`PmixError::Kind`] there.
    ///
    /// # Errors
    /// [`PmixError::Text`], [`PmixError::Call`].
    pub fn put(&mut self, key: &str, text: &str) -> Result<(), PmixError> {
        let (key_text, text) = (c_key(key)?, c_text(text)?);
        let value = Value::string(&text);
        let _one = leave::one_call();
        // SAFETY: the key ends with a zero and is no longer than a key may be; the value is a live local of
        // type string, whose text lives until the call has ended, by when the library has copied it.
        let status = unsafe { (self.library.put)(ffi::GLOBAL, key_text.as_ptr(), &value) };
        check(self.library, status, || format!("PMIx_Put of {key}"))
    }

    /// Waits until every process of the job has called this, for `within` at most (in whole seconds, one at
    /// least).
    ///
    /// # Errors
    /// [`PmixError::Call`], after the time too where the server keeps it.
    pub fn fence(&mut self, within: Duration) -> Result<(), PmixError> {
        let _one = leave::one_call();
        // SAFETY: the call takes nothing; it hands on what the library itself has kept since `PMIx_Put`.
        let status = unsafe { (self.library.commit)() };
        check(self.library, status, || "PMIx_Commit".to_owned())?;
        let timeout = Info::timeout(within);
        // SAFETY: no list of processes means all of the job; the one info is a live local of the layout that
        // the call reads, and its length is one.
        let status = unsafe { (self.library.fence)(std::ptr::null(), 0, &timeout, 1) };
        check(self.library, status, || "PMIx_Fence".to_owned())
    }

    /// What process `rank` has left under `key`.
    ///
    /// # Errors
    /// [`PmixError::Call`] where there is no such thing, or it has not come `within` the time;
    /// [`PmixError::Kind`].
    pub fn get(&mut self, rank: u32, key: &str, within: Duration) -> Result<String, PmixError> {
        self.value(&self.own.fellow(rank), key, Some(within), |value| {
            // SAFETY: the library made the value, and says that it is a string: a text that ends with a zero,
            // and is not touched by anybody before the value is given back.
            value.as_string().map(|text| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        })
    }

    /// Asks for a value, reads it by `read`, and gives it back.
    fn value<T>(
        &self,
        from: &Proc,
        key: &str,
        within: Option<Duration>,
        read: impl Fn(&Value) -> Result<T, (u16, u16)>,
    ) -> Result<T, PmixError> {
        let key_text = c_key(key)?;
        let timeout = within.map(Info::timeout);
        let (infos, count) = match &timeout {
            Some(timeout) => (std::ptr::from_ref(timeout), 1),
            None => (std::ptr::null(), 0),
        };
        let mut found: *mut Value = std::ptr::null_mut();
        let _one = leave::one_call();
        // SAFETY: the process and the infos are live locals of the layouts that the call reads, as many as it
        // is told; the key ends with a zero; `found` is where it puts the address of a value that it makes.
        let status = unsafe { (self.library.get)(from, key_text.as_ptr(), infos, count, &mut found) };
        check(self.library, status, || format!("PMIx_Get of {key} from {}", from.name()))?;
        if found.is_null() {
            let text = "no value came, and no error".to_owned();
            return Err(PmixError::Call { call: format!("PMIx_Get of {key}"), status, text });
        }
        // SAFETY: not null, as was just seen, and made by the library with the layout that all its versions
        // have; it is this caller's alone until it is given back below.
        let value = unsafe { &*found };
        let result = read(value);
        // SAFETY: the value is not used any more; both it and what it holds come from the C library's
        // allocator, which is what PMIx's own release of a value gives them back to; `destruct` is that
        // library's.
        unsafe { ffi::release(found, self.library.destruct) };
        result.map_err(|(found, wanted)| PmixError::Kind { key: key.to_owned(), found, wanted })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        leave::leave(self.library);
    }
}

fn check(library: &Library, status: Status, call: impl FnOnce() -> String) -> Result<(), PmixError> {
    if status == ffi::SUCCESS {
        return Ok(());
    }
    // SAFETY: takes any number, and gives a text that is never freed.
    let text = unsafe { CStr::from_ptr((library.error_string)(status)) };
    Err(PmixError::Call { call: call(), status, text: text.to_string_lossy().into_owned() })
}

fn c_text(text: &str) -> Result<CString, PmixError> {
    CString::new(text).map_err(|_| PmixError::Text { text: text.chars().take(64).collect() })
}

fn c_key(key: &str) -> Result<CString, PmixError> {
    if key.len() > ffi::KEY_MAX {
        return Err(PmixError::Text { text: key.chars().take(64).collect() });
    }
    c_text(key)
}
