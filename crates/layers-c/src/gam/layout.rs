//! Where this process's programs and libraries lie, and which of them lie at one address in all processes.

use std::collections::hash_map::DefaultHasher;
use std::ffi::{CStr, c_int, c_void};
use std::hash::{Hash as _, Hasher as _};

use standpipe::Node;

/// More programs and libraries than this are not compared, so that nothing of theirs may be sent.
const MODULES_MAX: usize = 64;

/// Words by which one is compared: its name, its build, its base, and whether there is one.
const WORDS: usize = 4;

/// The program, or one of its libraries.
#[derive(Clone, Debug)]
pub(super) struct Module {
    name: u64,
    build: u64,
    base: u64,
    /// First byte and the one after the last, of each piece that can be run.
    code: Vec<(u64, u64)>,
}

/// The modules of this process, the program first.
pub(super) fn modules() -> Vec<Module> {
    let mut modules: Vec<Module> = Vec::new();
    let data: *mut Vec<Module> = &raw mut modules;
    // SAFETY: the function runs on this thread until the call returns, with what is loaded kept so meanwhile,
    // and `data` is the address of a live vector that nothing else uses.
    unsafe { libc::dl_iterate_phdr(Some(note), data.cast()) };
    modules
}

/// Notes one module.
///
/// # Safety
/// `info` describes a module that stays loaded meanwhile, and `data` is the address of a `Vec<Module>`.
unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the caller promises a vector that only this function uses.
    let modules = unsafe { &mut *data.cast::<Vec<Module>>() };
    // SAFETY: the linker gives a description that lasts for this call.
    let info = unsafe { &*info };
    // SAFETY: the linker gives so many headers, which lie in the module that it keeps loaded.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    // SAFETY: the linker gives a name that ends in a zero byte.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) };
    let is_program = modules.is_empty();
    let (mut build, mut code) = (DefaultHasher::new(), Vec::new());
    for header in headers {
        (header.p_type, header.p_flags, header.p_vaddr, header.p_memsz).hash(&mut build);
        let start = info.dlpi_addr + header.p_vaddr;
        let is_code = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0;
        if is_code {
            code.push((start, start + header.p_memsz));
        }
        let is_read = header.p_flags & libc::PF_R != 0;
        if is_read && (header.p_type == libc::PT_NOTE || is_code && is_program) {
            let at: *const u8 = std::ptr::with_exposed_provenance(start as usize);
            // SAFETY: the module's header says that so many bytes of its file are mapped there to be read,
            // and notes and code do not change.
            let bytes = unsafe { std::slice::from_raw_parts(at, header.p_filesz as usize) };
            bytes.hash(&mut build);
        }
    }
    let mut hash = DefaultHasher::new();
    name.to_bytes().hash(&mut hash);
    modules.push(Module { name: hash.finish(), build: build.finish(), base: info.dlpi_addr, code });
    0
}

/// Code that lies at the same addresses in all processes of the job.
#[derive(Clone, Debug, Default)]
pub(super) struct Agreed {
    code: Vec<(u64, u64)>,
}

impl Agreed {
    /// Compares this process's modules with those of all others, each of which calls this, too.
    ///
    /// # Errors
    /// Why the program's own addresses mean nothing elsewhere, and the remedy.
    pub(super) fn find(node: &Node, function: &str) -> Result<Agreed, String> {
        let modules = modules();
        let own: Vec<[u64; WORDS]> = words_of(&modules);
        let team = node.world_of("gam: layouts").map_err(|error| error.to_string())?;
        let mut all = vec![[0; WORDS]; MODULES_MAX * node.size() as usize];
        team.all_gather(&own, &mut all).map_err(|error| error.to_string())?;
        let others: Vec<&[[u64; WORDS]]> = all.chunks(MODULES_MAX).collect();
        for (rank, other) in others.iter().enumerate() {
            refuse(function, rank, &own[0], &other[0])?;
        }
        let is_everywhere = |words: &[u64; WORDS]| others.iter().all(|other| other.contains(words));
        let same = modules.iter().zip(&own).filter(|(_, words)| is_everywhere(words));
        Ok(Agreed { code: same.flat_map(|(module, _)| module.code.iter().copied()).collect() })
    }

    /// Whether code lies there, in all processes.
    pub(super) fn has(&self, address: u64) -> bool {
        self.code.iter().any(|(start, end)| (*start..*end).contains(&address))
    }
}

fn words_of(modules: &[Module]) -> Vec<[u64; WORDS]> {
    let words = modules.iter().map(|module| [module.name, module.build, module.base, 1]);
    words.chain(std::iter::repeat([0; WORDS])).take(MODULES_MAX).collect()
}

/// Refuses a process whose program is another, or lies elsewhere.
fn refuse(function: &str, rank: usize, own: &[u64; WORDS], other: &[u64; WORDS]) -> Result<(), String> {
    let [_, build, base, _] = *own;
    if other[1] != build {
        return Err(format!(
            "process {rank} runs another program, or another build of this one: {function} wants one build for all, as handlers are sent by their addresses"
        ));
    }
    if other[2] != base {
        return Err(format!(
            "process {rank} has the program at {:#x}, and this one at {base:#x}, so that addresses of functions and variables mean nothing there: start it by `standpipe run --same-addresses`, or link it with -no-pie",
            other[2]
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_comes_first_and_has_its_functions() {
        let modules = modules();
        let own = (this_program_comes_first_and_has_its_functions as fn()) as usize as u64;
        let has = |module: &Module| module.code.iter().any(|(start, end)| (*start..*end).contains(&own));
        assert!(has(&modules[0]));
        assert!(modules.len() > 1, "libc is another");
        assert!(!modules[1..].iter().any(has));
    }

    #[test]
    fn another_build_and_another_base_are_refused_each_with_its_remedy() {
        let own = [1, 2, 0x5000, 1];
        assert_eq!(refuse("am_enable", 1, &own, &own), Ok(()));
        let moved = refuse("am_enable", 1, &own, &[1, 2, 0x6000, 1]).expect_err("it lies elsewhere");
        assert!(moved.contains("--same-addresses") && moved.contains("0x6000") && moved.contains("0x5000"));
        let other = refuse("am_enable", 3, &own, &[1, 9, 0x5000, 1]).expect_err("it is another");
        assert!(other.contains("process 3") && other.contains("build"), "{other}");
    }
}
