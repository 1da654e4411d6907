//! The common part of all layers' C interfaces: it opens the process's node, and says what is wrong.

use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use standpipe::{AllMemory, Config, Node, ProgressThread};

/// The promise of a program that calls a C interface of ours: it vouches for the addresses that it passes.
pub(crate) fn memory() -> AllMemory {
    // SAFETY: the layers use it for the addresses alone that a C program passes to their functions, here and
    // at its peers. The headers say which memory those must be, and for how long.
    unsafe { AllMemory::promised() }
}

/// Whether a layer has asked for this process's node.
static HAS_OPENED: AtomicBool = AtomicBool::new(false);

/// Whether any layer has opened, or tried to open, this process's node: it cannot fork into a job then.
pub(crate) fn has_opened() -> bool {
    HAS_OPENED.load(Ordering::SeqCst)
}

/// This process's node, for one more layer. The library's threads run no handlers: they are the program's,
/// and run on its own thread in its own calls.
pub(crate) fn open_node() -> Result<Node, String> {
    HAS_OPENED.store(true, Ordering::SeqCst);
    let config = Config::from_env().map_err(|error| error.to_string())?;
    Node::shared(config.progress(ProgressThread::Off)).map_err(|error| error.to_string())
}

/// Writes one line to standard error, which names the layer and the function.
pub(crate) fn complain(function: &str, text: impl Display) {
    let line = format!("standpipe: {function}: {text}\n");
    // With standard error closed there is nowhere to say it.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Ends the process, where its program cannot go on and its interface has no way to say so.
pub(crate) fn end(function: &str, text: impl Display) -> ! {
    complain(function, text);
    std::process::exit(1)
}
