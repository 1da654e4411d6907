//! Variables of this process's environment.

/// A variable of the environment; `None` where it is not set. Bytes that are no text stand in it as U+FFFD,
/// which no setting takes: so they are refused, and not overlooked. Any thread may call.
pub fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}
