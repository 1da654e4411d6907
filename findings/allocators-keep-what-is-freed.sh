#!/usr/bin/env bash
# Guess: a freed block of 4 MiB goes back to the system, at once or soon: glibc's free does so, and the decay times of
#   jemalloc (10 s) and mimalloc (10 ms) promise it.
# Is: with jemalloc and mimalloc the block stays mapped, with its old bytes, for as long as the program does not
#   allocate: both look at the time in later calls only. 12 seconds after the free every byte can still be read.
# Seen with jemalloc 5.3.0-1 and mimalloc 2.0.9+ds-2 of Debian 12; glibc 2.36; Linux 6.18.
# So: that memory is there says nothing of whether it is still the same object's; only its owner can tell.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
cd "$folder"
apt-get download --quiet=2 libjemalloc2=5.3.0-1 libmimalloc2.0=2.0.9+ds-2
for package in ./*.deb; do dpkg -x "$package" .; done

# Asks the kernel to read the freed block: the program itself touches it no more.
cat >freed.c <<'C'
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { LEN = 4 << 20 };
static char copy[LEN];

int main(void)
{
    char *block = malloc(LEN);
    uintptr_t at = (uintptr_t)block;
    long kept = 0;

    memset(block, 7, LEN);
    free(block);
    sleep(12);
    struct iovec to = { copy, LEN }, from = { (void *)at, LEN };
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) > 0)
        for (long i = 0; i < LEN; i++)
            kept += copy[i] == 7;
    printf("%s\n", kept > LEN / 2 ? "kept" : "gone");
    return 0;
}
C
cc -O1 -fno-builtin -o freed freed.c
library() { find "$folder/usr" -name "$1" | head -n 1; }
./freed >glibc &
LD_PRELOAD=$(library 'libjemalloc.so.2') ./freed >jemalloc &
LD_PRELOAD=$(library 'libmimalloc.so.2') ./freed >mimalloc &
wait
said="glibc: $(cat glibc), jemalloc: $(cat jemalloc), mimalloc: $(cat mimalloc)"
echo "12 s after free: $said"
[ "$said" = "glibc: gone, jemalloc: kept, mimalloc: kept" ] || { echo "changed"; exit 1; }
echo "as found"
