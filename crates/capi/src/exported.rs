//! A symbol of the library.

/// A function that C calls by its name, in C's convention, with a promise of the caller's about its pointers.
macro_rules! exported {
    ($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $returns:ty)? $body:block) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// Its pointers and handles are as the header asks.
        // SAFETY: no other symbol of this library has that name, and the header declares this very type.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) $(-> $returns)? $body
    };
}
