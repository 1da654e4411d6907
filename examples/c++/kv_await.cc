// A KV pull with co_await: rank 0 grants the blocks of a cache; the others pull many at once, each by a coroutine, in
// one thread that sleeps in poll with whatever else the program watches.
//
// standpipe run -n 2 -- ./kv_await
#include <cstdio>
#include <cstdlib>
#include <poll.h>
#include <standpipe_await.hpp>

constexpr size_t BLOCKS = 256, BLOCK = 16 * 1024, WORKERS = 8;
using block = std::array<unsigned char, BLOCK>;

// A coroutine that begins at once and frees itself at its end. Any coroutine type will do.
struct worker {
    struct promise_type {
        worker get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::abort(); }
    };
};

struct pulls {
    std::vector<sp_name> names;
    size_t next = 0, come = 0, wrong = 0;
};

// Pulls the next block that nobody pulls, again and again.
worker pull(sp::event_loop &loop, pulls &pulls) {
    auto into = std::make_unique<block>();
    while (pulls.next < pulls.names.size()) {
        size_t index = pulls.next++;
        sp::remote from;
        sp::out<sp::u64>(sp_granted, sp::u32(0), &pulls.names[index], &from).value();
        auto got = co_await loop.get(from, *into);
        if (!got) std::fprintf(stderr, "block %zu: %s\n", index, got.error().what());
        pulls.wrong += !got || into->front() != index % 251 || into->back() != index % 251;
        pulls.come++;
    }
}

void serve(sp::node &node) {
    std::vector<block> cache(BLOCKS);
    std::vector<sp::grant> grants;
    std::vector<sp_name> names;
    for (size_t index = 0; index < BLOCKS; index++) {
        cache[index].fill(static_cast<unsigned char>(index % 251));
        grants.push_back(node.grant_memory(cache[index], SP_READ).value());
        names.push_back(grants.back().name().value());
    }
    node.publish("blocks", names).value();
    node.barrier().value(); // all have pulled; each grant waits until its block is this rank's alone
}

int main() {
    auto node = sp::node::open().value();
    if (node.rank() == 0) {
        serve(node);
        return 0;
    }
    pulls pulls;
    pulls.names.resize(BLOCKS);
    auto seconds = sp::duration(std::chrono::seconds(10));
    sp::out<size_t>(sp_lookup_wait, node, "blocks", seconds, sp::target(pulls.names)).value();

    sp::event_loop loop(node.queue_new(WORKERS).value());
    for (size_t i = 0; i < WORKERS; i++) pull(loop, pulls);
    while (pulls.come < BLOCKS) {
        if (loop.run(sp::duration(0)).value() > 0) continue; // until there is none: then the descriptor says
        pollfd sources[] = {{loop.fd(), POLLIN, 0}};         // and the program's own
        if (pulls.come < BLOCKS) poll(sources, 1, -1);
    }
    std::printf("kv_await: rank %u pulled %zu blocks, %zu of them wrong\n", node.rank(), pulls.come, pulls.wrong);
    node.barrier().value();
    return pulls.wrong != 0;
}
