//! Errors that are readable however they are printed.

/// Makes errors say in full what went wrong where they are printed with `{:?}`, as `main` and `expect` do.
macro_rules! debug_is_display {
    ($error:ty) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}
pub(crate) use debug_is_display;
