#!/usr/bin/env bash
# Guess: userfaultfd on a part of a mapping reports events of that part, and leaves the program's own calls alone.
# Is: it cuts the mapping in two, so that the program's own mremap of the whole fails with EFAULT. glibc's realloc of a
#   large block then copies, and returns the old block by munmap: a move has become a removal. With the whole mapping
#   registered, mremap works.
# Seen with Linux 6.18.
# So: who watches memory of others' by userfaultfd registers whole mappings.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cat >"$folder/grow.c" <<'C'
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

/* Grows a mapping of 8 MiB of which so much is registered; gives mremap's error. */
static const char *grow(size_t registered)
{
    char *at = mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = { .api = UFFD_API };
    struct uffdio_register range = { .range = { (unsigned long)at, registered }, .mode = UFFDIO_REGISTER_MODE_MISSING };

    memset(at, 1, 8 * MIB);
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0 || (registered && ioctl(fd, UFFDIO_REGISTER, &range) < 0))
        return "not allowed here";
    return mremap(at, 8 * MIB, 16 * MIB, MREMAP_MAYMOVE) == MAP_FAILED ? strerror(errno) : "works";
}

int main(void)
{
    printf("nothing registered: mremap %s\n", grow(0));
    printf("half registered: %s\n", grow(4 * MIB));
    printf("all registered: mremap %s\n", grow(8 * MIB));
    return 0;
}
C
cc -O1 -o "$folder/grow" "$folder/grow.c"
said=$("$folder/grow")
echo "Linux $(uname -r):"
echo "$said"
case $said in *"not allowed here"*) echo "skipped: this process may not use userfaultfd"; exit 77 ;; esac
[ "$said" = "nothing registered: mremap works
half registered: Bad address
all registered: mremap works" ] || { echo "changed"; exit 1; }
echo "as found: mremap fails where half of a mapping is registered"
