//! Folders for what only this command's processes are to see.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
use tempfile::{Builder, TempDir, env::temp_dir};

/// A new folder in `TMPDIR` that no other user can look into: workers leave addresses there, and who has one
/// can be a peer. Dropped, it goes with all that is in it.
///
/// # Errors
/// If there can be none there.
pub fn folder() -> Result<TempDir> {
    let own = Builder::new().prefix("standpipe-").permissions(Permissions::from_mode(0o700)).tempdir();
    own.with_context(|| {
        format!("no folder can be made in {}, the place that TMPDIR names", temp_dir().display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_user_can_look_into_it() {
        let folder = folder().expect("a folder");
        let mode = folder.path().metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
}
