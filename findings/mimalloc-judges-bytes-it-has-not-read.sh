#!/usr/bin/env bash
# Guess: a program that links an allocator, and takes one block of it, is silent under valgrind's memcheck.
# Is: memcheck reports a jump that depends on an uninitialised value, before main begins. mimalloc reads the kernel's
#   file /sys/kernel/mm/transparent_hugepage/enabled into 32 bytes, and looks for a word in all of the 32, of which it
#   has read fewer. By its source there is no report where the kernel has no such file: so it comes on one machine, and
#   not on the next.
# Seen with libmimalloc-sys 0.1.49 (mimalloc 3.3.2), valgrind 3.19, Linux 6.18.
# So: the heap that programs name as their allocator, or preload, is mimalloc. The test of the C library under valgrind
#   names this one report in crates/capi/tests/valgrind.supp, and no other.
set -euo pipefail

thp=/sys/kernel/mm/transparent_hugepage/enabled
[ -r "$thp" ] || { echo "skipped: this kernel has no $thp"; exit 0; }
for tool in cargo cc valgrind; do
  command -v "$tool" >/dev/null || { echo "skipped: there is no $tool"; exit 0; }
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "links_mimalloc"
version = "0.0.0"
edition = "2021"

[dependencies]
libmimalloc-sys = "=0.1.49"

[workspace]
TOML
cat >src/main.rs <<'RUST'
// One block, taken and given back.
fn main() {
    unsafe {
        let block = libmimalloc_sys::mi_malloc(64);
        assert!(!block.is_null());
        libmimalloc_sys::mi_free(block);
    }
    println!("done");
}
RUST
cargo build --quiet
program=target/debug/links_mimalloc

status=0
valgrind -q --error-exitcode=9 "$program" >said 2>&1 || status=$?
echo "$(cat "$thp") in $thp; memcheck's exit status: $status"
grep -m 4 -E 'uninitialised|unix_detect_thp|_mi_process_init|done' said || true
if [ "$status" = 9 ] && grep -q 'uninitialised value' said && grep -q unix_detect_thp said && grep -q '^done$' said; then
  echo "still so: the program ends well, and memcheck reports what mimalloc does before main"
else
  echo "changed: memcheck says"
  cat said
  exit 1
fi
