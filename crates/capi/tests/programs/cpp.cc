// standpipe.hpp by cases, each run by all ranks of a job: as C++17 and C++20, and what of it works without exceptions.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <standpipe.hpp>
#include <stdexcept>

#define CHECK(condition)                                                                                      \
    do {                                                                                                      \
        if (!(condition)) {                                                                                   \
            std::fprintf(stderr, "%s:%d: %s; %s\n", __FILE__, __LINE__, #condition, sp_error_text());          \
            std::_Exit(1);                                                                                    \
        }                                                                                                     \
    } while (0)

// The value of a result that has one.
template <class T> static T good(sp::result<T> made) {
    if (!made.ok()) std::fprintf(stderr, "%s\n", made.error().what()), std::_Exit(1);
    if constexpr (!std::is_void_v<T>) return std::move(*made);
}

struct point {
    double x, y;
    bool operator==(const point &other) const { return x == other.x && y == other.y; }
};

template <class T> constexpr bool only_moves =
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T> && !std::is_copy_constructible_v<T>;
static_assert(only_moves<sp::event> && only_moves<sp::queue> && only_moves<sp::team> && only_moves<sp::grant>);
static_assert(only_moves<sp::pin> && only_moves<sp::exposed> && only_moves<sp::payload> && only_moves<sp::prepared>);
static_assert(only_moves<sp::rendezvous> && only_moves<sp::array<int>> && only_moves<sp::config> && only_moves<sp::node>);
static_assert(std::is_trivially_copyable_v<sp::remote> && sizeof(sp::remote) == sizeof(sp_remote));
static_assert(std::is_nothrow_copy_constructible_v<sp::error>);

using job_name = std::array<char, 40>;

struct job {
    sp::node node;
    sp::team world;
    sp::array<sp::u64> box; // 1,024 words
    std::vector<sp::remote> boxes;
    sp::u32 rank, size, right;
    sp::remote theirs;
};

static void errors(job &job) {
    sp::remote nowhere = sp_remote{job.size + 7, SP_HEAP, 0};
    auto failed = job.node.put(nowhere, 5);
    CHECK(!failed && !failed.ok() && failed.status() == SP_ERR_NO_SUCH_PEER);
    CHECK(failed.error()->peer == nowhere.peer && failed.error()->expected == job.size);
    CHECK(std::strstr(failed.error().what(), "no peer") != nullptr);
    auto copy = failed.error();
    (void)job.node.get<int>(sp_remote{job.right, SP_HEAP, UINT64_MAX - 4096}); // another error leaves it
    CHECK(copy.status() == SP_ERR_NO_SUCH_PEER && std::strcmp(copy.what(), failed.error().what()) == 0);
    auto beyond = job.node.get<int>(sp_remote{job.right, SP_HEAP, UINT64_MAX - 4096});
    CHECK(!beyond && beyond.status() == SP_ERR_FAULT && beyond.error()->len == sizeof(int));
    CHECK(job.node.put(job.theirs, 5).ok() && job.node.put(job.theirs, 5).status() == SP_OK);
    sp::error ended(SP_ERR_CANCELLED, 3);
    CHECK(ended.status() == SP_ERR_CANCELLED && ended->peer == 3 && std::strstr(ended.what(), "cancelled"));
#if defined(__cpp_exceptions)
    try {
        job.node.put(nowhere, 5).value();
        CHECK(!"it has thrown");
    } catch (const sp::error &error) {
        CHECK(error.status() == SP_ERR_NO_SUCH_PEER && error->peer == nowhere.peer);
    }
#endif
    // Handles that were moved from are arguments like NULL.
    sp::event none;
    CHECK(none.wait().status() == SP_ERR_ARGUMENT && none.wait().status() == SP_ERR_ARGUMENT && !none.test());
    sp::node gone;
    CHECK(gone.barrier().status() == SP_ERR_ARGUMENT && gone.alloc<int>(1).status() == SP_ERR_ARGUMENT);
    CHECK(gone.wait_until([] { return true; }).status() == SP_ERR_ARGUMENT);
    CHECK(gone.close(sp::duration(0)).status() == SP_ERR_ARGUMENT);
}

static void settings(job &) {
    auto config = good(sp::config::defaults());
    good(config.set("STANDPIPE_HEAP", "8M"));
    CHECK(config.set("STANDPIPE_HEAP", "many").status() == SP_ERR_SETTING);
    auto heap = good(sp::whole<std::string>(sp_config_get, config, "STANDPIPE_HEAP"));
    CHECK(!heap.empty() && heap.find('\0') == std::string::npos);
    int called = 0;
    good(config.on("early", [&](sp::call &call) { called += int(call->args[0]); }));
    auto alone = good(sp::node::open(std::move(config), SP_ALONE));
    CHECK(alone.rank() == 0 && alone.size() == 1);
    good(alone.request(0, sp_handler_id("", "early"), {7}));
    good(alone.wait_until([&] { return called == 7; }));
    auto other = std::move(alone);
    good(other.barrier());
    other = good(sp::node::open(good(sp::config::defaults()), SP_ALONE)); // the first one closes
    good(other.close(std::chrono::seconds(5)));
    CHECK(other.barrier().status() == SP_ERR_CLOSED && other.close(sp::forever).status() == SP_ERR_CLOSED);
}

static void copies(job &job) {
    good(job.node.put(job.theirs, point{1.5, -2}));
    CHECK((good(job.node.get<point>(job.theirs)) == point{1.5, -2}));
    std::vector<int> some(100), back(100);
    std::iota(some.begin(), some.end(), int(job.rank));
    good(job.node.put(job.theirs + 64, some));
    good(job.node.get(job.theirs + 64, back));
    CHECK(some == back);
    good(job.node.put(job.theirs + 64, std::string("text")));
    char text[5] = "";
    good(job.node.get(job.theirs + 64, sp::span<char>(text, 4)));
    CHECK(std::strcmp(text, "text") == 0);
    good(job.node.put(job.theirs + 64, {some.data() + 50, 4 * sizeof(int)}));
    std::array<int, 4> four{};
    good(job.node.get(job.theirs + 64, four));
    CHECK(four[0] == int(job.rank) + 50 && four[3] == int(job.rank) + 53);
    auto put = good(job.node.put_nb(job.theirs + 64, some));
    while (!put.test()) CHECK(good(put.wait_for(std::chrono::seconds(10))));
    good(put.wait());
    CHECK(put.c() == nullptr);
    auto get = good(job.node.get_nb(job.theirs + 64, back));
    auto moved = std::move(get);
    good(moved.wait());
    CHECK(some == back && get.c() == nullptr);
    {
        std::vector<char> soon(1000);
        auto dropped = good(job.node.get_nb(job.theirs, soon)); // its destructor ends it before `soon` goes
    }
    auto given_up = good(job.node.put_nb(job.theirs + 64, some)).cancel().status();
    CHECK(given_up == SP_OK || given_up == SP_ERR_CANCELLED);
    good(job.node.put_nb(job.theirs + 64, some)).forget();
    good(job.node.put_nbi(job.theirs + 512, 42));
    good(job.node.quiet());
    CHECK(good(job.node.get<int>(job.theirs + 512)) == 42);
    // Functions that have no method.
    sp_piece pieces[2] = {{job.theirs, some.data(), 8}, {job.theirs + 100, some.data() + 2, 8}};
    good(sp::done(sp_put_list, job.node, sp::span<const sp_piece>(pieces)));
    good(sp::out<sp::event>(sp_put_list_nb, job.node, sp::span<const sp_piece>(pieces))).forget();
    good(sp::done(sp_fence, job.node));
    CHECK(good(sp::yes(sp_is_lost, job.node, job.right)) == false);
    auto pin = sp::out<sp::pin>(sp_pin_memory, job.node, sp::lasting(some)); // where a network wants pins
    CHECK(pin ? sp::yes(sp_pin_is_held, *pin).ok() : pin.status() == SP_ERR_NO_ROOM || pin.status() == SP_ERR_NOT_OFFERED);
    CHECK(good(sp::whole<std::string>(sp_metrics, job.node)).find("# EOF") != std::string::npos);
}

static void memory(job &job) {
    auto array = good(job.node.alloc<point>(10));
    CHECK(array.size() == 10 && array[9] == (point{0, 0}) && reinterpret_cast<std::uintptr_t>(array.data()) % 64 == 0);
    good(job.node.put(array.at(3), point{3, 4}));
    CHECK(array[3] == (point{3, 4}) && array.at(3).at == array.at().at + 3 * sizeof(point));
    auto moved = std::move(array);
    CHECK(array.size() == 0 && array.data() == nullptr && moved[3].x == 3);
    moved = good(job.node.alloc<point>(1)); // the old elements are free again
    CHECK(moved.size() == 1);
    CHECK(job.node.alloc<point>(SIZE_MAX / 8).status() < 0);
    auto config = good(sp::config::defaults());
    good(config.set("STANDPIPE_HEAP", "4M"));
    auto alone = good(sp::node::open(std::move(config), SP_ALONE));
    for (int i = 0; i < 20; i++) CHECK(alone.alloc<char>(1 << 20).ok()); // none stays
    // An array keeps its node open.
    auto kept = good(alone.alloc<int>(5));
    alone = sp::node();
    kept[4] = 5;
    std::array<char, 3> bytes{};
    sp::span<char> span(bytes);
    for (char &byte : span) byte = 'x';
    CHECK(span.size() == 3 && span[2] == 'x' && sp::source(span).len == 3 && sp::source(std::string_view("ab")).len == 2);
    CHECK(sp::source(point{}).len == 16 && sp::source(bytes).data == bytes.data() && sp::span<char>().data() == nullptr);
}

static void queues(job &job) {
    auto queue = good(job.node.queue_new(4));
    std::vector<int> out{1, 2, 3}, in(3);
    good(queue.put(7, job.theirs, out));
    sp_completion ended[4];
    CHECK(good(queue.wait(ended, std::chrono::seconds(10))) == 1 && ended[0].token == 7 && ended[0].status == 0);
    good(queue.get(8, job.theirs, in));
    good(queue.add(9, good(job.node.get_nb(job.theirs + 64, out))));
    CHECK(queue.fd() >= 0);
    for (size_t taken = 0; taken < 2;) taken += good(queue.wait(ended, std::chrono::seconds(10)));
    CHECK((in == std::vector<int>{1, 2, 3}) && good(queue.take(ended)) == 0);
    sp::event add = good(sp::out<sp::event>(sp_fetch_nb, job.node, job.theirs, SP_U64, SP_ADD, 5));
    good(add.wait_value());
    for (sp::u64 i = 0; i < 4; i++) good(queue.get(i, job.theirs, in));
    CHECK(queue.get(4, job.theirs, in).status() == SP_ERR_NO_ROOM);
    CHECK(queue.add(5, good(job.node.get_nb(job.theirs, out))).status() == SP_ERR_NO_ROOM);
    queue = good(job.node.queue_new(1)); // the old one waits for what it gives up
}

static void meeting(job &job) {
    std::string name = "value of " + std::to_string(job.rank);
    good(job.node.publish(name, point{double(job.rank), 1}));
    std::string theirs = "value of " + std::to_string(job.right);
    CHECK(good(job.node.lookup_wait<point>(theirs, std::chrono::seconds(10))).x == job.right);
    CHECK(job.node.lookup_wait<int>(theirs, std::chrono::seconds(10)).status() == SP_ERR_LENGTH);
    CHECK(job.node.lookup_wait<job_name>(theirs, std::chrono::seconds(10)).status() == SP_ERR_LENGTH);
    CHECK(job.node.lookup_wait<int>("nobody's", std::chrono::milliseconds(1)).status() == SP_ERR_TIMEOUT);
    CHECK(good(sp::whole<std::vector<char>>(sp_lookup, job.node, theirs)).size() == sizeof(point));
    auto first = good(sp::node::open(good(sp::config::defaults()), SP_ALONE));
    auto second = good(sp::node::open(good(sp::config::defaults()), SP_ALONE));
    auto peer = good(second.connect_to(good(first.address())));
    auto there = good(first.alloc<int>(1));
    sp::remote at = there.at();
    at.peer = peer;
    good(second.put(at, 77));
    CHECK(there[0] == 77);
    auto place = good(sp::out<sp::rendezvous>(sp_rendezvous_new, "127.0.0.1:1", std::string(64, 'a')));
    CHECK(place.c() != nullptr);
}

static void signals(job &job) {
    auto counters = good(job.node.alloc<sp::u64>(1));
    std::vector<sp::remote> all(job.size);
    auto mine = counters.at();
    good(sp::done(sp_team_all_gather, job.world, &mine, all.data(), sizeof mine));
    good(job.node.put_signal(job.theirs, 99, {all[job.right], 1, 0}));
    CHECK(good(job.node.wait_signal({counters.at(), SP_U64, SP_GE, 1, UINT32_MAX, 0})) == 1 && int(job.box[0]) == 99);
    good(job.node.barrier());
    CHECK(good(sp::out<sp::u64>(sp_fetch_add_u64, job.node, all[job.right], 4)) == 1);
    good(job.node.barrier());
    CHECK(counters[0] == 5);
    good(job.node.barrier());
}

static void messages(job &job) {
    auto hold = std::make_unique<int>(5); // a callable that only moves
    std::string text;
    int sum = 0, landed = 0;
    sp::payload kept;
    auto reply = good(job.node.on("test", "reply", [&](sp::call &call) { sum += int(call->args[1]); }));
    auto add = good(job.node.on("test", "add", [&, hold = std::move(hold)](sp::call &call) {
        text.assign(reinterpret_cast<const char *>(call.payload().data()), call.payload().size());
        char first = 0;
        if (!text.empty()) good(call.read(1, first));
        if (!text.empty()) kept = good(sp::out<sp::payload>(sp_call_keep, call));
        good(call.reply(reply, {0, call->args[0] + sp::u64(*hold) + sp::u64(first)}));
    }));
    auto land = good(job.node.on("test", "land", [&](sp::call &call) { landed += int(call->landed_len); }));
    CHECK(job.node.on("test", "add", [](sp::call &) {}).status() == SP_ERR_TAKEN);
    good(job.node.barrier());
    good(job.node.request(job.right, add, {10}));
    good(job.node.wait_until([&] { return sum == 15; }));
    good(job.node.request(job.right, add, {10}, std::string("a\x01payload")));
    good(job.node.wait_until([&] { return sum == 31; }));
    good(job.node.request(land, {}, job.theirs + 64, std::vector<int>(100)));
    good(job.node.wait_until([&] { return landed == 400 && kept.c(); }));
    size_t len = 0;
    CHECK(std::memcmp(sp_payload_bytes(kept.c(), &len), "a\x01payload", 9) == 0 && len == 9);
    good(job.node.barrier()); // the next payload is kept instead
    CHECK(good(sp::yes(sp_has_handler, job.node, job.right, add)));
    void *here = nullptr;
    auto room = good(sp::out<sp::prepared>(
        +[](sp_node *node, sp::u32 peer, void **here, sp_prepared **into) {
            return sp_prepare_medium(node, peer, 4, 64, into, here, nullptr);
        },
        job.node, job.right, &here));
    std::memcpy(here, "b\x02", 2);
    good(sp::done(sp_prepared_send, room.release(), add, sp::arguments{1}, size_t(2)));
    good(job.node.wait_until([&] { return sum == 39; }));
    good(job.node.barrier());
    for (auto id : {reply, add, land}) good(sp::done(sp_unregister, job.node, id));
    good(job.node.barrier());
}

#if defined(__cpp_exceptions)
static void exceptions(job &job) {
    // Out of a condition.
    try {
        good(job.node.wait_until([]() -> bool { throw std::out_of_range("asked"); }));
        CHECK(!"it has thrown");
    } catch (const std::out_of_range &error) {
        CHECK(std::strcmp(error.what(), "asked") == 0);
    }
    // Out of handlers: the first comes out of a wait, whoever ran the handler; the node goes on.
    std::atomic<int> ran{0};
    auto fail = good(job.node.on("test", "fail", [&](sp::call &call) {
        ran++;
        throw std::runtime_error(std::to_string(call->args[0]));
    }));
    good(sp::done(sp_barrier, job.node));
    good(job.node.request(job.right, fail, {41}));
    try {
        good(job.node.wait_until([] { return false; }));
        CHECK(!"it has thrown");
    } catch (const std::runtime_error &error) {
        CHECK(std::strcmp(error.what(), "41") == 0);
    }
    CHECK(ran == 1);
    good(sp::done(sp_barrier, job.node));
    good(job.node.request(job.right, fail, {42}));
    good(job.node.request(job.right, fail, {43})); // told on stderr alone
    good(sp::done(sp_wait_until, job.node, +[](void *ran) -> int { return *static_cast<std::atomic<int> *>(ran) == 3; },
                  static_cast<void *>(&ran)));
    good(sp::done(sp_barrier, job.node));
    try {
        (void)job.node.progress();
        CHECK(!"it has thrown");
    } catch (const std::runtime_error &error) {
        CHECK(std::strcmp(error.what(), "42") == 0);
    }
    good(job.node.quiet());
    // Destructors during unwinding.
    std::vector<char> bytes(100);
    try {
        auto event = good(job.node.get_nb(job.theirs, bytes));
        auto queue = good(job.node.queue_new(2));
        good(queue.get(1, job.theirs, bytes));
        throw 5;
    } catch (int five) {
        CHECK(five == 5);
    }
    good(sp::done(sp_unregister, job.node, fail));
    good(job.node.barrier());
}
#endif

static void teams(job &job) {
    CHECK(job.world.rank() == job.rank && job.world.size() == job.size);
    double sum = job.rank + 1.0;
    good(job.world.all_reduce(sum, SP_SUM));
    CHECK(sum == job.size * (job.size + 1) / 2.0);
    std::vector<std::int16_t> most{std::int16_t(job.rank), -5};
    good(job.world.all_reduce(most, SP_GREATEST));
    CHECK(most[0] == std::int16_t(job.size - 1) && most[1] == -5);
    float all[2] = {1, 2};
    good(job.world.all_reduce(sp::span<float>(all, 2), SP_SUM));
    CHECK(all[1] == 2.0f * float(job.size));
    sp::u64 bits = 1ull << job.rank;
    good(job.world.all_reduce(bits, SP_BITS_OR));
    CHECK(bits == (1ull << job.size) - 1);
    point from{double(job.rank), 9};
    good(job.world.broadcast(from, job.size - 1));
    CHECK(from.x == job.size - 1);
    auto part = good(job.world.split(job.rank % 2, 0));
    good(part.barrier());
    CHECK(good(job.world.split(-1, 0)).c() == nullptr);
    sp_collective barrier{};
    barrier.size = sizeof barrier;
    good(good(sp::out<sp::event>(sp_team_start, job.world, &barrier)).wait());
}

static void grants(job &job) {
    std::vector<int> memory(100, int(job.rank) + 5);
    std::vector<sp_name> names(job.size);
    auto grant = good(job.node.grant_memory(memory, SP_READ | SP_WRITE));
    auto name = good(grant.name());
    good(sp::done(sp_team_all_gather, job.world, &name, names.data(), sizeof name));
    sp::remote theirs;
    sp::u64 len = good(sp::out<sp::u64>(sp_granted, job.right, &names[job.right], &theirs));
    CHECK(len == 400 && good(job.node.get<int>(theirs + 396)) == int(job.right) + 5);
    good(job.node.barrier());
    good(grant.revoke());
    CHECK(grant.revoke().status() == SP_ERR_REVOKED);
    good(job.node.barrier());
    CHECK(job.node.get<int>(theirs).status() == SP_ERR_REVOKED);
    good(grant.wait_idle(std::chrono::seconds(10)));
    sp::u32 self = job.rank;
    auto own = good(job.node.grant_memory(memory, SP_READ, sp::span<const sp::u32>(&self, 1)));
    auto first = good(own.name());
    good(sp::out<sp::u64>(sp_granted, job.rank, &first, &theirs));
    CHECK(good(job.node.get<int>(theirs)) == int(job.rank) + 5);
    own = good(job.node.grant_memory(memory, SP_READ)); // the first is taken back
    CHECK(job.node.get<int>(theirs).status() == SP_ERR_REVOKED);
    auto exposed = good(sp::out<sp::exposed>(sp_expose, job.node, sp::lasting(memory), SP_READ));
    good(job.node.barrier());
}

static void limits(job &job) {
    auto limited = good(job.node.within(std::chrono::milliseconds(5)));
    CHECK(limited.wait_until([] { return false; }).status() == SP_ERR_TIMEOUT);
    auto array = good(limited.alloc<int>(4));
    limited = sp::node(); // the array still has it
    array[0] = 1;
    good(job.node.barrier());
}

int main() {
    job job;
    job.node = good(sp::node::open());
    job.rank = job.node.rank(), job.size = job.node.size(), job.right = (job.rank + 1) % job.size;
    job.world = good(job.node.world());
    job.box = good(job.node.alloc<sp::u64>(1024));
    job.boxes.resize(job.size);
    sp::remote mine = job.box.at();
    good(sp::done(sp_team_all_gather, job.world, &mine, job.boxes.data(), sizeof mine));
    job.theirs = job.boxes[job.right];
    int ran = 0;
    for (auto run : {errors, settings, copies, memory, queues, meeting, signals, messages, teams, grants, limits
#if defined(__cpp_exceptions)
                     , exceptions
#endif
         }) {
        run(job);
        good(job.node.barrier());
        ran++;
    }
    std::printf("%d cases\n", ran);
    job.box = {};
    job.world = {};
    good(job.node.close(std::chrono::seconds(10)));
}
