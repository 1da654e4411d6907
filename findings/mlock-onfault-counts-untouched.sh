#!/usr/bin/env bash
# Guess: `mlockall(MCL_FUTURE | MCL_ONFAULT)` locks only pages that are touched. So only these count in the limit of
#   locked memory, and a large untouched mapping, or one that nobody may touch (PROT_NONE), can be made.
# Is: the kernel counts the whole mapping when it is made, and mmap fails with EAGAIN beyond the limit.
# Seen with Linux 6.18, python 3.11 (ctypes alone: nothing is installed).
# So: a library that maps a heap larger than `ulimit -l` names the limit in its error, and not MCL_ONFAULT as a way out.
set -euo pipefail
unshare --user true 2>/dev/null || { echo "skipped: no user namespaces, which take CAP_IPC_LOCK away here"; exit 0; }
said=$(unshare --user python3 - <<'PY'
import ctypes, mmap, os, resource
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
limit = hard if hard != resource.RLIM_INFINITY else 64 << 20
resource.setrlimit(resource.RLIMIT_MEMLOCK, (limit, limit))
MCL_FUTURE, MCL_ONFAULT, PROT_NONE = 2, 4, 0
if libc.mlockall(MCL_FUTURE | MCL_ONFAULT) != 0:
    raise SystemExit("mlockall: " + os.strerror(ctypes.get_errno()))
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE
address = libc.mmap(None, 4 * limit, PROT_NONE, flags, -1, 0)
failed = address == ctypes.c_void_p(-1).value
print("EAGAIN" if failed and ctypes.get_errno() == 11 else ctypes.get_errno() if failed else "mapped")
PY
) || true
echo "four times the limit, untouched, PROT_NONE: $said"
[ "$said" = EAGAIN ] || { echo "changed: it was EAGAIN"; exit 1; }
echo "as found"
