"""Puts of BYTES under NIXL's UCX backend, many in one transfer: this process writes, another is written to. With READ
it gets instead. Prints nanoseconds of one, the median of 41 transfers.

    pip install --no-deps nixl-cu12 numpy && python nixl_flood.py BYTES PUTS [READ]
"""

import multiprocessing
import os
import sys
import time

ROUNDS = 41
LIMIT_NS = 20_000_000_000


def agent(name, bytes_in_all):
    """An agent, and memory that it has registered."""
    import numpy
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    one = nixl_agent(name, nixl_agent_config(backends=["UCX"]))
    memory = numpy.full(bytes_in_all, 5, dtype=numpy.uint8)
    one.register_memory([(memory.ctypes.data, memory.nbytes, 0, name)], "DRAM")
    return one, memory


def target(pipe, bytes_in_all):
    os.sched_setaffinity(0, {1})
    one, memory = agent("target", bytes_in_all)
    pipe.send((one.get_agent_metadata(), memory.ctypes.data))
    pipe.recv()


def nanoseconds(one, transfer, puts):
    begun = time.perf_counter_ns()
    state = one.transfer(transfer)
    while state != "DONE":
        if state == "ERR":
            sys.exit("the transfer failed")
        if time.perf_counter_ns() - begun > LIMIT_NS:
            sys.exit("the transfer takes more than 20 s")
        state = one.check_xfer_state(transfer)
    return (time.perf_counter_ns() - begun) / puts


def main():
    size, puts = int(sys.argv[1]), int(sys.argv[2])
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    other = spawning.Process(target=target, args=(there, size * puts), daemon=True)
    other.start()
    there.close()  # so that its end is heard
    os.sched_setaffinity(0, {0})
    one, memory = agent("initiator", size * puts)
    metadata, remote = here.recv()
    name = one.add_remote_agent(metadata)
    pieces = lambda start: one.get_xfer_descs([(start + size * at, size, 0) for at in range(puts)], "DRAM")
    operation = sys.argv[3] if len(sys.argv) > 3 else "WRITE"
    transfer = one.initialize_xfer(operation, pieces(memory.ctypes.data), pieces(remote), name)
    nanoseconds(one, transfer, puts)  # warms up
    times = sorted(nanoseconds(one, transfer, puts) for _ in range(ROUNDS))
    print(f"{times[ROUNDS // 2]:.1f}", flush=True)
    here.send(None)
    other.join(10)
    # Its destructors wait for each other at times.
    os._exit(0)


if __name__ == "__main__":
    main()
