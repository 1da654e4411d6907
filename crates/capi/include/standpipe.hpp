#if 0 // A whole program. c++ -std=c++17 hello.cc $(pkg-config --cflags --libs standpipe); standpipe run -n 2 -- ./a.out
#include <cstdio>
#include <standpipe.hpp>

int main() {
    auto node = sp::node::open().value(); // value() throws sp::error, whose what() says all
    unsigned rank = node.rank(), right = (rank + 1) % node.size();

    // 64 bytes that peers reach: box.at() is how they name the first one, box.data() where it lies here.
    auto box = node.alloc<char>(64).value();
    node.publish("box of " + std::to_string(rank), box.at()).value();
    auto theirs = node.lookup_wait<sp::remote>("box of " + std::to_string(right), std::chrono::seconds(10)).value();
    node.put(theirs, "hello from " + std::to_string(rank)).value(); // it is there when this returns
    node.barrier().value(); // all have put
    std::printf("%u: %s\n", rank, box.data());
}
#endif

// standpipe.hpp: standpipe.h for C++17 and later; standpipe_await.hpp adds co_await for C++20.
//
//   - A method does what the function of its name does: node.put_nb is sp_put_nb. Its threads, waits and errors stand
//     there. All other functions are called by sp::done, yes, many, out and whole: sp::done(sp_fence, node).
//   - Every operation returns sp::result<T>: ask it (if (r) ... *r ... r.error()), or throw by r.value(). One form for
//     both keeps this a header that can be read. With -fno-exceptions value() is not there. RTTI is never needed.
//   - Classes own their handles and only move. Destructors do not throw. They give up what is under way, and wait until
//     its memory is free again: wait for events, or forget() them. In a handler, let none end that has to wait.
//   - Memory is given by plain values, arrays, and all that has data() and size(): vectors, strings, spans. Calls that
//     go on after their return (_nb, queues, co_await) take no temporaries but spans and string views.
//   - No exception crosses C. A condition's leaves wait_until. The first one out of a node's handlers is kept, and ends
//     wait_until: the next progress, wait_until, barrier, quiet or close of the node throws it, in any thread. Of later
//     ones stderr has the handler's name. A node that is destroyed with one names it there and calls std::terminate.
#ifndef STANDPIPE_HPP
#define STANDPIPE_HPP

#include <standpipe.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>
#if __cplusplus >= 202002L
#include <span>
#endif

namespace sp {

// ==== 1 Words and results

using u32 = std::uint32_t;
using u64 = std::uint64_t;
using std::size_t;
using arguments = std::array<u64, 4>; // of a message
using duration = std::chrono::nanoseconds;
inline constexpr duration forever = duration::max();

#if __cplusplus >= 202002L
template <class T> using span = std::span<T>;
#else
template <class T> class span { // the part of std::span that is used here
    T *data_ = nullptr;
    size_t size_ = 0;

public:
    constexpr span() = default;
    constexpr span(T *data, size_t size) noexcept : data_(data), size_(size) {}
    template <class C, class = decltype(std::declval<C>().data())> span(C &&c) noexcept : span(c.data(), c.size()) {}
    template <size_t N> constexpr span(T (&all)[N]) noexcept : span(all, N) {}
    constexpr T *data() const noexcept { return data_; }
    constexpr size_t size() const noexcept { return size_; }
    constexpr T *begin() const noexcept { return data_; }
    constexpr T *end() const noexcept { return data_ + size_; }
    constexpr T &operator[](size_t at) const noexcept { return data_[at]; }
};
#endif

// A byte of a peer's memory: plain data. `remote + n` is n bytes further on.
struct remote : sp_remote {
    constexpr remote(sp_remote raw = {}) noexcept : sp_remote(raw) {}
    remote operator+(u64 bytes) const noexcept { return sp_plus(*this, bytes); }
};

// What went wrong: what() in words; error->peer, ->addr and so on as sp_error has them. It copies without failing.
class error : public std::exception {
    std::shared_ptr<sp_error> all_ = std::make_shared<sp_error>();

public:
    error() { all_->size = sizeof *all_, sp_last_error(all_.get()); } // the last one of this thread
    error(int status, u32 peer) {                                    // of a completion
        all_->size = sizeof *all_, all_->status = status, all_->peer = peer;
        std::snprintf(all_->text, sizeof all_->text, "peer %u: %s", unsigned(peer), sp_strerror(status));
    }
    const char *what() const noexcept override { return all_->text; }
    int status() const noexcept { return all_->status; }
    const sp_error *operator->() const noexcept { return all_.get(); }
};

// A value, or why there is none. `*` and `->` only where ok(), error() only where not.
template <class T = void> class [[nodiscard]] result {
    using stored = std::conditional_t<std::is_void_v<T>, std::monostate, T>;
    std::variant<stored, sp::error> it_;

public:
    result(stored value = {}) noexcept : it_(std::in_place_index<0>, std::move(value)) {}
    result(sp::error error) noexcept : it_(std::in_place_index<1>, std::move(error)) {}
    bool ok() const noexcept { return it_.index() == 0; }
    int status() const noexcept { return ok() ? int(SP_OK) : error().status(); }
    explicit operator bool() const noexcept {
        static_assert(!std::is_same_v<T, bool>, "of a result<bool>, ask ok() and then *");
        return ok();
    }
    stored &operator*() noexcept { return *std::get_if<0>(&it_); }
    stored *operator->() noexcept { return std::get_if<0>(&it_); }
    const sp::error &error() const noexcept { return *std::get_if<1>(&it_); }
#if defined(__cpp_exceptions)
    T value() { return ok() ? static_cast<T>(std::move(**this)) : throw error(); }
#endif
};

namespace detail {
template <class T> using bare = std::remove_cv_t<std::remove_reference_t<T>>;
template <class T, class = void> struct raw { using type = T; };
template <class T> struct raw<T, std::void_t<typename T::handle>> { using type = typename T::handle *; };
template <class T, class = void> struct range : std::false_type { using element = bare<T>; };
template <class T> struct range<T, std::void_t<decltype(std::declval<T>().data(), std::declval<T>().size())>>
    : std::true_type { using element = bare<decltype(*std::declval<T>().data())>; };
template <class T> inline constexpr bool is_view = std::is_same_v<T, std::string_view>;
template <class T> inline constexpr bool is_view<span<T>> = true;

// What C takes for an argument: of handles and messages c(), of memory and spans the start and how much it is.
template <class T, class = void> inline constexpr bool has_c = false;
template <class T> inline constexpr bool has_c<T, std::void_t<decltype(std::declval<const T &>().c())>> = true;
template <class T> auto args(const T &it) {
    if constexpr (std::is_same_v<T, std::string>) return std::make_tuple(it.c_str());
    else if constexpr (std::is_same_v<T, arguments>) return std::make_tuple(it.data());
    else if constexpr (is_view<T>) return std::make_tuple(it.data(), it.size());
    else if constexpr (has_c<T>) return std::tuple(it.c());
    else if constexpr (!std::is_convertible_v<T, duration>) return std::make_tuple(it);
    else return std::make_tuple(it >= forever ? SP_FOREVER : it.count() < 0 ? 0 : u64(duration(it).count()));
}
template <class F, class... Args> auto run(F function, const Args &...all) {
    return std::apply(function, std::tuple_cat(args(all)...));
}

template <class F> std::exception_ptr caught(F &&run) noexcept { // runs what must not throw across C
#if defined(__cpp_exceptions)
    try { return run(), nullptr; } catch (...) { return std::current_exception(); }
#else
    return run(), nullptr;
#endif
}
inline void tell(const std::string &whose) noexcept {
    std::fprintf(stderr, "standpipe: the handler \"%s\" has thrown an exception\n", whose.c_str());
}
} // namespace detail

// Calls a function of C: for its status; its yes or no; how many; and for what it writes to its last argument.
template <class F, class... Args> result<> done(F function, const Args &...args) {
    return detail::run(function, args...) < 0 ? result<>(error()) : result<>();
}
template <class F, class... Args> result<size_t> many(F function, const Args &...args) {
    auto n = detail::run(function, args...);
    return n < 0 ? result<size_t>(error()) : result<size_t>(size_t(n));
}
template <class F, class... Args> result<bool> yes(F function, const Args &...args) {
    auto n = many(function, args...);
    return n ? result<bool>(*n > 0) : result<bool>(n.error());
}
template <class T, class F, class... Args> result<T> out(F function, const Args &...args) {
    typename detail::raw<T>::type raw{};
    return detail::run(function, args..., &raw) < 0 ? result<T>(error()) : result<T>(T(raw));
}
// One that fills room and says how much it needs: text, or bytes.
template <class T, class F, class... Args> result<T> whole(F function, const Args &...args) {
    T all;
    for (size_t len = 255;;) {
        all.resize(len + 1);
        int status = detail::run(function, args..., all.data(), all.size(), &len);
        if (status >= 0) return all.resize(len), all;
        if (status != SP_ERR_LENGTH) return error();
    }
}

// Memory here, for one call, or (Lasts) until an operation has ended. A pointer comes with its bytes.
template <class Void, bool Lasts> struct memory {
    Void *data;
    size_t len;
    std::tuple<Void *, size_t> c() const { return {data, len}; }
    memory(Void *data, size_t len) noexcept : data(data), len(len) {}
    template <class T, class = std::enable_if_t<!std::is_same_v<detail::bare<T>, memory>>> memory(T &&from) noexcept {
        using element = typename detail::range<T>::element;
        static_assert(!std::is_pointer_v<detail::bare<T>>, "how long is the memory? Give {pointer, bytes}");
        static_assert(std::is_trivially_copyable_v<element>, "peers get bytes: this is no plain data");
        static_assert(std::is_lvalue_reference_v<T> || detail::is_view<T> || (!Lasts && std::is_const_v<Void>),
                      "the memory is needed after this expression: name a variable");
        if constexpr (detail::range<T>::value) data = from.data(), len = from.size() * sizeof(element);
        else data = std::addressof(from), len = sizeof from;
    }
};
using source = memory<const void, false>;
using lasting = memory<const void, true>;
using target = memory<void, true>;

// ==== 2 What is under way, and what is held

template <class H, void (*Free)(H *)> class owned { // a handle, and how it is freed
    struct frees { void operator()(H *it) const noexcept { Free(it); } };
    std::unique_ptr<H, frees> it_;

public:
    using handle = H;
    owned() = default;
    explicit owned(H *it) noexcept : it_(it) {}
    H *c() const noexcept { return it_.get(); }
    H *release() noexcept { return it_.release(); } // the caller's from now on
};

namespace detail {
inline void cancel(sp_event *event) { sp_event_cancel(event); }
inline void revoke(sp_grant *grant) { sp_grant_wait_idle(grant, SP_FOREVER), sp_grant_free(grant); }
inline void drain(sp_queue *queue) {
    sp_completion ended;
    sp_queue_cancel_all(queue);
    while (sp_queue_wait(queue, &ended, 1, SP_FOREVER) > 0) {}
    sp_queue_free(queue);
}
} // namespace detail

// An operation that was started. wait, wait_value, cancel and forget end it; its destructor cancels it.
struct event : owned<sp_event, detail::cancel> {
    using owned::owned;
    bool test() { return sp_event_test(c()) == 1; }
    result<bool> wait_for(duration most) { return yes(sp_event_wait_for, *this, most); }
    result<> wait() { return done(sp_event_wait, release()); }
    result<u64> wait_value() { return out<u64>(sp_event_wait_value, release()); }
    result<> cancel() { return done(sp_event_cancel, release()); }
    void forget() { sp_event_forget(release()); }
};

// Operations by tokens. Its destructor cancels what is under way.
struct queue : owned<sp_queue, detail::drain> {
    using owned::owned;
    result<> put(u64 token, remote to, lasting from) { return done(sp_queue_put, *this, token, to, from); }
    result<> get(u64 token, remote from, target into) { return done(sp_queue_get, *this, token, from, into); }
    result<> add(u64 token, event event) { // where it is refused, it is cancelled
        auto added = done(sp_queue_add, *this, token, event);
        return added ? void(event.release()) : void(), added;
    }
    result<size_t> take(span<sp_completion> into) { return many(sp_queue_take, *this, into); }
    result<size_t> wait(span<sp_completion> into, duration most) { return many(sp_queue_wait, *this, into, most); }
    int fd() const { return sp_queue_fd(c()); }
};

using exposed = owned<sp_exposed, sp_unexpose>;
using payload = owned<sp_payload, sp_payload_free>;
using pin = owned<sp_pin, sp_unpin>;
using prepared = owned<sp_prepared, sp_prepared_free>;
using rendezvous = owned<sp_rendezvous, sp_rendezvous_free>;

// A right to memory. Its destructor takes it back: it waits until no peer uses the memory any more.
struct grant : owned<sp_grant, detail::revoke> {
    using owned::owned;
    result<sp_name> name() const { return out<sp_name>(sp_grant_name, *this); }
    result<> revoke() { return done(sp_grant_revoke, *this); }
    result<> wait_idle(duration within) { return done(sp_grant_wait_idle, *this, within); }
};

struct team : owned<sp_team, sp_team_free> {
    using owned::owned;
    u32 rank() const { return sp_team_rank(c()); }
    u32 size() const { return sp_team_size(c()); }
    result<team> split(std::int64_t colour, std::int64_t key) { return out<team>(sp_team_split, *this, colour, key); }
    result<> barrier() { return done(sp_team_barrier, *this); }
    result<> broadcast(target bytes, u32 root) { return done(sp_team_broadcast, *this, bytes, root); }
    template <class T> result<> all_reduce(T &&values, sp_reduction by) { // a number, or a range of them
        using number = typename detail::range<T>::element;
        static_assert(std::is_arithmetic_v<number> && sizeof(number) <= 8, "no number");
        constexpr int size = sizeof(number) == 8 ? 3 : sizeof(number) == 4 ? 2 : sizeof(number) == 2 ? 1 : 0;
        constexpr int first = std::is_floating_point_v<number> ? SP_F64 - 3 : std::is_signed_v<number> ? SP_I8 : SP_U8;
        target all(values);
        return done(sp_team_all_reduce, *this, all.data, all.len / sizeof(number), first + size, by);
    }
};

// Elements in a node's heap, zero at first. When it goes, so do they: peers must not use them any more.
template <class T> class array {
    struct frees {
        std::shared_ptr<sp_node> node;
        remote at;
        void operator()(T *) const noexcept { sp_free(node.get(), at); }
    };
    std::unique_ptr<T, frees> here_;
    size_t size_ = 0;

public:
    array() = default;
    array(std::shared_ptr<sp_node> node, remote at, void *here, size_t size)
        : here_(static_cast<T *>(here), frees{std::move(node), at}), size_(size) {}
    remote at(size_t index = 0) const { return here_.get_deleter().at + index * sizeof(T); }
    T *data() const noexcept { return here_.get(); }
    size_t size() const noexcept { return here_ ? size_ : 0; }
    T &operator[](size_t index) const noexcept { return here_.get()[index]; }
};

// ==== 3 Messages

// A message, in its handler. call->from, ->args and so on are as sp_call has them.
class call {
    sp_call *it_;

public:
    explicit call(sp_call *it) noexcept : it_(it) {}
    sp_call *c() const noexcept { return it_; }
    const sp_call *operator->() const noexcept { return it_; }
    span<const std::byte> payload() const {
        auto first = static_cast<const std::byte *>(sp_call_payload(it_));
        return {first, first ? it_->payload_len : 0};
    }
    result<> read(size_t from, target into) { return done(sp_call_read, *this, from, into); }
    result<> reply(u64 id, const arguments &args = {}) { return done(sp_reply, *this, id, args); }
    result<> reply(u64 id, const arguments &args, source with) { return done(sp_reply_medium, *this, id, args, with); }
};

namespace detail {
struct core { // a node's handlers, and the first that they have thrown
    struct handler {
        core *of;
        std::string name;
        std::shared_ptr<void> function;
        void (*run)(void *function, call &message);
    };
    std::mutex lock;
    std::vector<std::unique_ptr<handler>> handlers;
    std::exception_ptr thrown;
    std::string whose;          // which of them
    std::shared_ptr<core> self; // where some may still run after all has closed

    template <class F> handler *add(std::string name, F &&f) {
        using function = std::decay_t<F>;
        auto run = [](void *it, call &message) { (*static_cast<function *>(it))(message); };
        std::unique_ptr<handler> it(new handler{this, name, std::make_shared<function>(std::forward<F>(f)), run});
        std::lock_guard<std::mutex> locked(lock);
        return handlers.push_back(std::move(it)), handlers.back().get();
    }
    static void run(sp_call *message, void *context) noexcept {
        auto &it = *static_cast<handler *>(context);
        call call(message);
        auto thrown = caught([&] { it.run(it.function.get(), call); });
        std::lock_guard<std::mutex> locked(it.of->lock);
        if (thrown && it.of->thrown) tell(it.name);
        else if (thrown) it.of->thrown = thrown, it.of->whose = it.name;
    }
    static int close(const std::shared_ptr<core> &it, sp_node *node, u64 within) noexcept {
        int status = sp_close(node, within);
        if (status == SP_OK) it->handlers.clear(); // none runs any more
        else if (it && status != SP_ERR_CLOSED) it->self = it;
        return status;
    }
    bool has_thrown() { return std::lock_guard<std::mutex>(lock), thrown != nullptr; }
    std::exception_ptr take() {
        std::lock_guard<std::mutex> locked(lock);
        return std::exchange(thrown, nullptr);
    }
};
} // namespace detail

// ==== 4 The node

class config : public owned<sp_config, sp_config_free> {
    std::shared_ptr<detail::core> core_ = std::make_shared<detail::core>();
    friend class node;

public:
    using owned::owned;
    static result<config> from_env() { return out<config>(sp_config_new); }
    static result<config> defaults() { return out<config>(sp_config_defaults); }
    result<> set(const std::string &name, const std::string &value) { return done(sp_config_set, *this, name, value); }
    template <class F> result<> on(const std::string &name, F &&handler) { // as node::on, before the node opens
        return done(sp_config_handler, *this, name, core_->run, core_->add(name, std::forward<F>(handler)));
    }
};

// This process's part in a job. It closes, within 10 s, when it and its arrays are gone.
class node {
    std::shared_ptr<sp_node> it_;
    std::shared_ptr<detail::core> core_ = std::make_shared<detail::core>(); // none where it was moved from

    template <class R> R after(R ended) { // what a call has returned, unless a handler has thrown
        if (auto thrown = core_ ? core_->take() : nullptr) std::rethrow_exception(thrown);
        return ended;
    }

public:
    node() = default;
    node(node &&) = default;
    node &operator=(node &&) = default;
    node(std::shared_ptr<sp_node> it, std::shared_ptr<detail::core> core) : it_(it), core_(core) {}
    static result<node> open(int as = SP_OWN) {
        auto settings = config::from_env();
        return settings ? open(std::move(*settings), as) : result<node>(settings.error());
    }
    static result<node> open(config with, int as = SP_OWN) {
        auto it = out<sp_node *>(sp_open_as, with.release(), as);
        auto closes = [core = with.core_](sp_node *it) noexcept {
            detail::core::close(core, it, 10 * SP_SECOND);
            if (auto thrown = core->take()) detail::tell(core->whose), std::rethrow_exception(thrown); // std::terminate
        };
        return it ? result<node>(node({*it, closes}, with.core_)) : result<node>(it.error());
    }
    result<> close(duration within) { return after(done(detail::core::close, core_, c(), within)); }
    result<node> within(duration most) const { // the same one, whose calls wait at most so long
        auto it = out<sp_node *>(sp_within, *this, most);
        return it ? result<node>(node({*it, sp_release}, core_)) : result<node>(it.error());
    }
    sp_node *c() const noexcept { return it_.get(); }
    u32 rank() const { return sp_rank(c()); }
    u32 size() const { return sp_size(c()); }
    result<> barrier() { return after(done(sp_barrier, *this)); }
    result<> quiet() { return after(done(sp_quiet, *this)); }
    result<bool> progress() { return after(yes(sp_progress, *this)); }
    template <class F> result<> wait_until(F &&condition) {
        struct { F &condition; detail::core *core; std::exception_ptr thrown; } asked{condition, core_.get(), nullptr};
        auto ask = [](void *context) noexcept -> int {
            auto &it = *static_cast<decltype(asked) *>(context);
            bool is_over = it.core->has_thrown();
            if (!is_over) it.thrown = detail::caught([&] { is_over = it.condition(); });
            return is_over || it.thrown;
        };
        auto ended = done(sp_wait_until, *this, +ask, static_cast<void *>(&asked));
        return asked.thrown ? std::rethrow_exception(asked.thrown) : void(), after(ended);
    }

    template <class T> result<array<T>> alloc(size_t count) {
        static_assert(std::is_trivially_copyable_v<T> && alignof(T) <= 64, "peers get bytes: this is no plain data");
        remote at;
        auto bytes = count > SIZE_MAX / sizeof(T) ? SIZE_MAX : count * sizeof(T);
        auto here = out<void *>(sp_alloc, *this, bytes, &at);
        return here ? result<array<T>>(array<T>(it_, at, *here, count)) : result<array<T>>(here.error());
    }
    result<> put(remote to, source from) { return done(sp_put, *this, to, from); }
    result<> get(remote from, target into) { return done(sp_get, *this, from, into); }
    template <class T> result<T> get(remote from) {
        T value{};
        auto got = get(from, value);
        return got ? result<T>(value) : result<T>(got.error());
    }
    result<event> put_nb(remote to, lasting from) { return out<event>(sp_put_nb, *this, to, from); }
    result<event> get_nb(remote from, target into) { return out<event>(sp_get_nb, *this, from, into); }
    result<> put_nbi(remote to, source from) { return done(sp_put_nbi, *this, to, from); }
    result<> put_signal(remote to, source from, sp_signal then) { return done(sp_put_signal, *this, to, from, then); }
    result<u64> wait_signal(const sp_wait &wait) { return out<u64>(sp_wait_signal, *this, &wait); }
    result<queue> queue_new(size_t capacity) { return out<queue>(sp_queue_new, *this, capacity); }
    result<team> world() { return out<team>(sp_world, *this); }
    result<grant> grant_memory(target range, int rights, span<const u32> to = {}) { // without `to`: every peer
        sp_grant_params params{sizeof params, rights, to.size() ? to.data() : nullptr, to.size(), nullptr, nullptr};
        return out<grant>(sp_grant_memory, *this, range, &params);
    }

    result<> publish(const std::string &name, source value) { return done(sp_publish, *this, name, value); }
    template <class T> result<T> lookup_wait(const std::string &name, duration within) { // of exactly its bytes
        T value{};
        auto len = out<size_t>(sp_lookup_wait, *this, name, within, target(value));
        return !len ? len.error() : *len != sizeof value ? error(SP_ERR_LENGTH, UINT32_MAX) : result<T>(value);
    }
    result<std::vector<char>> address() { return whole<std::vector<char>>(sp_address, *this); }
    result<u32> connect_to(source address) { return out<u32>(sp_connect_to, *this, address); }

    // Registers handler(sp::call &), any callable, which lives as long as the node is open. The result is its id.
    template <class F> result<u64> on(const std::string &space, const std::string &name, F &&handler) {
        if (!core_) core_ = std::make_shared<detail::core>();
        return out<u64>(sp_register, *this, space, name, core_->run, core_->add(name, std::forward<F>(handler)));
    }
    result<> request(u32 peer, u64 id, const arguments &args = {}) { return done(sp_request, *this, peer, id, args); }
    result<> request(u32 peer, u64 id, const arguments &args, source with) {
        return done(sp_request_medium, *this, peer, id, args, with);
    }
    result<> request(u64 id, const arguments &args, remote to, source with) {
        return done(sp_request_long, *this, id, args, to, with);
    }
};
} // namespace sp
#endif
