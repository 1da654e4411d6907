//! The forms of requests and replies with no to four words, which both headers have.

/// Exports the forms of one to four words of a request or a reply.
macro_rules! words_forms {
    ($send:ident, $dest:ty: $($name:ident($($arg:ident),*);)*) => {
        $(
            /// Sends so many words; see the header.
            // SAFETY: no other symbol of this library has that name.
            #[unsafe(no_mangle)]
            pub extern "C" fn $name(dest: $dest, function: Pointer $(, $arg: c_long)*) -> c_int {
                $send(stringify!($name), i64::from(dest), function, [$($arg),*])
            }
        )*
    };
}
pub(super) use words_forms;
