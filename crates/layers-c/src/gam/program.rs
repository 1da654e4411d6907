//! The program's functions, called by their addresses.

use std::ffi::{c_double, c_int, c_long, c_void};
use std::mem::transmute;

use layers::gam::{Arguments, Function, Program};
use standpipe::Rank;

use super::layout::Agreed;
use super::system_buffer::SystemBuffer;
use crate::border::complain;

/// A function of the program, or a null pointer, which is none.
pub(super) type Pointer = *const c_void;

/// The program that this library is linked with.
#[derive(Debug)]
pub(super) struct CProgram {
    agreed: Agreed,
    /// Where this library's own handlers lie. A peer may have them elsewhere: messages name them by their
    /// numbers, from [`OWN`] on, where no function lies.
    own: Vec<usize>,
}

/// The name of this library's first handler: no processor of today has such an address.
const OWN: Function = 1 << 63;

type Words = unsafe extern "C" fn(c_int, c_long, c_long, c_long, c_long);

impl CProgram {
    pub(super) fn new(agreed: Agreed, own: Vec<usize>) -> CProgram {
        CProgram { agreed, own }
    }

    /// What messages name a function by: a number of this library's, or its address.
    pub(super) fn name_of(&self, function: Pointer) -> Function {
        let address = function.expose_provenance();
        match self.own.iter().position(|own| *own == address) {
            Some(number) => OWN + number as Function,
            // A program that passes such a name as an address passes no function.
            None if self.own(address as Function).is_some() => 0,
            None => address as Function,
        }
    }

    /// The address of one of this library's, by its number.
    fn own(&self, function: Function) -> Option<usize> {
        let number = usize::try_from(function.checked_sub(OWN)?).ok()?;
        self.own.get(number).copied()
    }
}

impl Program for CProgram {
    fn has_function(&self, function: Function) -> bool {
        self.own(function).is_some() || self.agreed.has(function)
    }

    fn call(&self, function: Function, from: Rank, arguments: Arguments<'_>) {
        let address = self.own(function).unwrap_or(function as usize);
        let (at, from) = (std::ptr::with_exposed_provenance::<c_void>(address), from.cast_signed());
        // SAFETY: code lies at the address, in this process as in the sender's. That it takes what the
        // message brings is the promise of the program, which names it in the call that sends such messages.
        // A function that takes fewer words than these is not disturbed by the rest: they come in registers.
        unsafe {
            match arguments {
                Arguments::Words(words) => {
                    let mut all = [0; 4];
                    words.iter().zip(&mut all).for_each(|(word, place)| *place = word.cast_signed());
                    let [a, b, c, d] = all;
                    transmute::<*const c_void, Words>(at)(from, a, b, c, d);
                }
                Arguments::WordsDouble(a, b, value) => {
                    type Handler = unsafe extern "C" fn(c_int, c_long, c_long, c_double);
                    transmute::<*const c_void, Handler>(at)(from, a.cast_signed(), b.cast_signed(), value);
                }
                Arguments::DoubleWords(value, a, b) => {
                    type Handler = unsafe extern "C" fn(c_int, c_double, c_long, c_long);
                    transmute::<*const c_void, Handler>(at)(from, value, a.cast_signed(), b.cast_signed());
                }
                Arguments::Medium(bytes, a, b) => {
                    type Handler = unsafe extern "C" fn(c_int, *mut u8, c_int, c_long, c_long);
                    let len = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
                    let (a, b) = (a.cast_signed(), b.cast_signed());
                    let mut buffer = SystemBuffer::of(bytes);
                    transmute::<*const c_void, Handler>(at)(from, buffer.start(), len, a, b);
                }
                Arguments::Memory { addr, len, arg } => {
                    type Handler = unsafe extern "C" fn(c_int, *mut c_void, c_int, *mut c_void);
                    let pointer = |word: u64| std::ptr::with_exposed_provenance_mut(word as usize);
                    let len = c_int::try_from(len).unwrap_or(c_int::MAX);
                    transmute::<*const c_void, Handler>(at)(from, pointer(addr), len, pointer(arg));
                }
                _ => complain("am", "a message that this version of the library has no handler for"),
            }
        }
    }
}
