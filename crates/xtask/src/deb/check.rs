//! The packages in a minimal Debian 12: installed, used as a C programmer uses them, and removed.

use crate::command::{Failure, root, run};
use crate::debian;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// A C programmer's tools: a compiler, and the two ways by which programs find libraries.
const PACKAGES: &str = "gcc,libc6-dev,pkg-config,cmake,make";

/// Where it all takes place inside.
const INSIDE: &str = "tmp/standpipe-check";

/// The commands that run there, in that folder. They list all files before and after, but for those that
/// dpkg writes for itself.
const SCRIPT: &str = r#"
list() { find / -xdev -path /tmp -prune -o -path /var/cache -prune -o -path /var/log -prune -o \
    -path /var/lib/dpkg -prune -o -path /etc/ld.so.cache -o -print | sort; }
dpkg --purge standpipe-tools libstandpipe-dev libstandpipe@series@ >/dev/null 2>&1 || true
list >before
dpkg --install ./*.deb
for package in standpipe-tools libstandpipe-dev libstandpipe@series@; do test -z "$(dpkg --verify $package)"; done
said() { cat "$1"; grep -q '0: hello from 1' "$1" && grep -q '1: hello from 0' "$1"; }

cc hello.c $(pkg-config --cflags --libs standpipe) -o hello
standpipe run -n 2 -- ./hello >hello.out
said hello.out
cc -static-libgcc hello.c -l:libstandpipe.a $(pkg-config --static --libs-only-l standpipe | sed s/-lstandpipe//) -o whole
standpipe run -n 2 -- ./whole >whole.out
said whole.out
cmake -S /usr/share/doc/libstandpipe-dev/examples/c -B build >/dev/null
cmake --build build
standpipe run -n 2 -- build/ring 100
LD_PRELOAD=libstandpipe_malloc.so standpipe run -n 2 -- ./hello >preloaded.out
said preloaded.out
man=/usr/share/man/man1/standpipe.1.gz
zcat $man | head -n 20 | grep -qi standpipe

dpkg --purge standpipe-tools libstandpipe-dev libstandpipe@series@
if dpkg --list | grep standpipe; then exit 1; fi
list >after
diff before after
"#;

/// Installs, uses and removes the packages in `machine`, which is made where it is not there.
pub(super) fn check(machine: &Path, packages: &[PathBuf]) -> Result<(), Failure> {
    debian::make(machine, PACKAGES)?;
    let inside = machine.join(INSIDE);
    run("rm -rf").arg(&inside).status()?;
    let trouble = |what: &str, why: std::io::Error| Failure(format!("{what}: {why}"));
    fs::create_dir_all(&inside).map_err(|why| trouble("its folder", why))?;
    for package in packages {
        run("cp").arg(package).arg(&inside).status()?;
    }
    fs::write(inside.join("hello.c"), first_program()?).map_err(|why| trouble("the program", why))?;
    let script = SCRIPT.replace("@series@", crate::c_library::series());
    let command = format!("cd /{INSIDE}\n{script}");
    println!("in {}:\n{script}", machine.display());
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let ended = debian::enter(machine, path, "/root", &command).stdin(Stdio::null()).status();
    let cleaned = run("rm -rf").arg(&inside).status();
    match ended {
        Ok(status) if status.success() => cleaned,
        Ok(status) => Err(Failure(format!("what is done in {}: {status}", machine.display()))),
        Err(why) => Err(trouble("unshare", why)),
    }
}

/// The program that the header begins with.
fn first_program() -> Result<String, Failure> {
    let header = "crates/capi/include/standpipe.h";
    let text = fs::read_to_string(root().join(header)).map_err(|why| Failure(format!("{header}: {why}")))?;
    let program = text.split_once("#endif").and_then(|(before, _)| before.split_once('\n'));
    let (_, program) = program.ok_or_else(|| Failure(format!("{header} begins with no program")))?;
    Ok(program.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_the_headers_first_lines() {
        let program = first_program().expect("it is there");
        assert!(program.starts_with("#include <standpipe.h>\n") && program.ends_with("}\n"), "{program}");
        assert!(!program.contains("#if") && program.lines().count() < 60, "{program}");
    }
}
