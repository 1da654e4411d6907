// co_await by standpipe_await.hpp: several coroutines in a thread, errors, and those that are destroyed while they wait.
#include <cstdlib>
#include <poll.h>
#include <standpipe_await.hpp>

#define CHECK(condition)                                                                                      \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            std::fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #condition, sp_error_text());          \
            std::_Exit(1);                                                                                    \
        }                                                                                                     \
    } while (0)

// A coroutine that begins at once, and is destroyed with this.
struct task {
    struct promise_type {
        task get_return_object() { return task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::abort(); }
    };
    std::coroutine_handle<promise_type> it;
    explicit task(std::coroutine_handle<promise_type> it) : it(it) {}
    task(task &&other) noexcept : it(std::exchange(other.it, nullptr)) {}
    ~task() { if (it) it.destroy(); }
};

static int ended = 0;

static task copies(sp::event_loop &loop, sp::remote at, int value) {
    int back = 0;
    CHECK((co_await loop.put(at, value)).ok());
    CHECK((co_await loop.get(at, back)).ok() && back == value);
    ended++;
}

static task adds(sp::event_loop &loop, sp::node &node, sp::remote word) {
    for (sp::u64 expected = 0; expected < 5; expected++) {
        auto add = sp::out<sp::event>(sp_fetch_nb, node, word, SP_U64, SP_ADD, 1).value();
        auto old = co_await loop.ended(std::move(add));
        CHECK(old.ok() && *old == expected);
    }
    ended++;
}

static task fails(sp::event_loop &loop, sp::remote nowhere, sp::event collective) {
    int value = 1;
    auto put = co_await loop.put(nowhere, value);
    CHECK(!put && put.status() == SP_ERR_NO_SUCH_PEER);
    auto added = co_await loop.ended(std::move(collective));
    CHECK(!added && added.status() == SP_ERR_ARGUMENT);
    ended++;
}

static task never_ends(sp::event_loop &loop, sp::remote at) {
    std::vector<char> soon(4096); // goes with the coroutine, after the operation has been given up
    (void)co_await loop.get(at, soon);
    CHECK(!"it is resumed");
}

int main() {
    auto node = sp::node::open().value();
    auto world = node.world().value();
    auto box = node.alloc<sp::u64>(1024).value();
    std::vector<sp::remote> boxes(node.size());
    auto mine = box.at();
    sp::done(sp_team_all_gather, world, &mine, boxes.data(), sizeof mine).value();
    auto theirs = boxes[(node.rank() + 1) % node.size()];
    sp::event_loop loop(node.queue_new(64).value());
    CHECK(*loop.run(sp::forever) == 0);

    std::vector<task> tasks;
    for (int i = 0; i < 20; i++) tasks.push_back(copies(loop, theirs + 64 + 8 * sp::u64(i), i));
    tasks.push_back(adds(loop, node, theirs));
    sp_collective barrier{};
    barrier.size = sizeof barrier;
    auto collective = sp::out<sp::event>(sp_team_start, world, &barrier).value();
    tasks.push_back(fails(loop, sp_remote{node.size() + 5, SP_HEAP, 0}, std::move(collective)));
    { auto destroyed = never_ends(loop, theirs); }
    while (ended < 22) {
        pollfd readable{loop.fd(), POLLIN, 0};
        auto resumed = loop.run(sp::duration(0));
        CHECK(resumed.ok());
        if (*resumed == 0 && ended < 22) CHECK(poll(&readable, 1, 10000) == 1);
    }
    for (auto &task : tasks) CHECK(task.it.done());

    // The queue has room for two.
    sp::event_loop small(node.queue_new(2).value());
    { task first = never_ends(small, theirs), second = never_ends(small, theirs); }
    std::vector<task> few;
    for (int i = 0; i < 2; i++) few.push_back(copies(small, theirs + 512 + 8 * sp::u64(i), i));
    while (*small.run(sp::forever) > 0) {}
    CHECK(ended == 24);
    node.barrier().value();
    std::printf("%d coroutines\n", ended);
}
