//! Threads of other processes, held by the kernel's means for debuggers.

/// A thread that this one traces, from the next call of the kernel on.
pub(crate) struct Traced(libc::pid_t);

impl Traced {
    /// Begins, and stops it.
    pub(crate) fn seize(thread: libc::pid_t) -> Traced {
        let traced = Traced(thread);
        traced.ask(libc::PTRACE_SEIZE, libc::PTRACE_O_TRACESYSGOOD as usize);
        traced.ask(libc::PTRACE_INTERRUPT, 0);
        traced.wait();
        traced
    }

    fn ask(&self, request: libc::c_uint, data: usize) {
        // SAFETY: requests that take numbers only, for a thread of another process.
        let rc = unsafe { libc::ptrace(request, self.0, 0, data) };
        assert_eq!(rc, 0, "ptrace request {request}: {}", std::io::Error::last_os_error());
    }

    /// Waits until it stops.
    fn wait(&self) {
        let mut status = 0;
        // SAFETY: the kernel writes one status, which lives until the call returns.
        let pid = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
        assert!(pid == self.0 && libc::WIFSTOPPED(status), "it stops: {status:#x}");
    }

    /// Lets it go on until it is about to enter that call of the kernel.
    #[allow(dead_code, reason = "each test program uses its own part of this")]
    pub(crate) fn run_to(&self, call: libc::c_long) {
        while self.entered() != Some(call) {
            self.ask(libc::PTRACE_SYSCALL, 0);
            self.wait();
        }
    }

    /// Lets it go on to the next moment at which it is about to enter a call of the kernel, and says which;
    /// `None` once it has ended.
    #[allow(dead_code, reason = "each test program uses its own part of this")]
    pub(crate) fn next_call(&self) -> Option<libc::c_long> {
        loop {
            // SAFETY: a request that takes numbers only. It fails where the thread has ended.
            if unsafe { libc::ptrace(libc::PTRACE_SYSCALL, self.0, 0, 0) } != 0 {
                return None;
            }
            let mut status = 0;
            // SAFETY: the kernel writes one status, which lives until the call returns.
            let pid = unsafe { libc::waitpid(self.0, &raw mut status, libc::__WALL) };
            if pid != self.0 || !libc::WIFSTOPPED(status) {
                return None;
            }
            if let Some(call) = self.entered() {
                return Some(call);
            }
        }
    }

    /// The call that it is about to enter.
    fn entered(&self) -> Option<libc::c_long> {
        // SAFETY: a structure of integers, of which any bytes are one.
        let mut info: libc::ptrace_syscall_info = unsafe { std::mem::zeroed() };
        let bytes = size_of_val(&info);
        // SAFETY: the kernel writes no more than so many bytes to a value that lives meanwhile.
        let got = unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, self.0, bytes, &raw mut info) };
        if got <= 0 || info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
            return None;
        }
        // SAFETY: the kernel has said that this is what it has filled.
        Some(unsafe { info.u.entry.nr } as libc::c_long)
    }

    #[allow(dead_code, reason = "each test program uses its own part of this")]
    pub(crate) fn release(self) {
        self.ask(libc::PTRACE_DETACH, 0);
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // Where a test has failed, its process could not be waited for. Fails where it is traced no more.
        // SAFETY: a request that takes numbers only, as `ask` makes.
        let _ = unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}
