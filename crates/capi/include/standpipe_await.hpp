// standpipe_await.hpp: co_await for standpipe.hpp, by C++20.
//
//     sp::event_loop loop(node.queue_new(64).value());
//     task pull(...) { sp::result<sp::u64> got = co_await loop.get(block, buffer); ... } // any coroutine type
//     while (*loop.run(sp::forever) > 0) {}                                              // until nothing is under way
#ifndef STANDPIPE_AWAIT_HPP
#define STANDPIPE_AWAIT_HPP

#include <standpipe.hpp>

#include <coroutine>
#include <deque>
#include <unordered_map>

namespace sp {

// Awaits puts, gets and events. Any executor drives it: run(duration(0)) until it returns 0, sleep until fd() can be
// read, and again. No other thread resumes anything, and one thread at a time uses it. A coroutine that is destroyed
// while it waits gives its operation up. A full queue, and a collective's event, are errors of the co_await.
class event_loop {
    struct pending {
        std::coroutine_handle<> who;
        result<u64> end;
        bool has_ended = false;
    };
    struct state {
        queue ends;
        std::unordered_map<u64, pending *> all;
        std::deque<u64> ready;
        u64 last = 0;

        void note(const sp_completion &end) {
            auto it = all.find(end.token);
            if (it == all.end()) return;
            it->second->end = end.status < 0 ? result<u64>(error(end.status, end.peer)) : result<u64>(end.value);
            it->second->has_ended = true;
            ready.push_back(end.token);
        }
    };
    template <class Start> class operation : pending {
        std::shared_ptr<state> loop_;
        Start start_;
        u64 token_;

    public:
        operation(std::shared_ptr<state> loop, Start start)
            : loop_(std::move(loop)), start_(std::move(start)), token_(++loop_->last) {}
        operation(operation &&) = delete;
        ~operation() {
            if (!loop_->all.count(token_)) return; // resumed, or never started
            sp_completion end;
            sp_queue_cancel(loop_->ends.c(), token_);
            while (!this->has_ended && sp_queue_wait(loop_->ends.c(), &end, 1, SP_FOREVER) > 0) loop_->note(end);
            loop_->all.erase(token_);
        }
        bool await_ready() const noexcept { return false; }
        bool await_suspend(std::coroutine_handle<> who) {
            this->who = who;
            loop_->all.emplace(token_, static_cast<pending *>(this));
            auto started = start_(loop_->ends, token_);
            if (!started) loop_->all.erase(token_), this->end = started.error();
            return started.ok();
        }
        result<u64> await_resume() { return std::move(this->end); } // of a fetching atomic, the old value; else 0
    };
    std::shared_ptr<state> it_;
    template <class Start> operation<Start> await(Start start) { return {it_, std::move(start)}; }

public:
    explicit event_loop(queue ends) : it_(std::make_shared<state>()) { it_->ends = std::move(ends); }
    int fd() const { return it_->ends.fd(); }
    auto put(remote to, lasting from) {
        return await([=](queue &ends, u64 token) { return ends.put(token, to, from); });
    }
    auto get(remote from, target into) {
        return await([=](queue &ends, u64 token) { return ends.get(token, from, into); });
    }
    auto ended(event event) {
        return await([e = std::move(event)](queue &ends, u64 token) mutable { return ends.add(token, std::move(e)); });
    }
    // Waits at most so long for an end, and resumes the coroutines whose operations have ended, in this thread. Returns
    // how many; 0 at once where nothing is under way.
    result<size_t> run(duration most) {
        sp_completion some[16];
        auto taken = it_->ends.wait(some, it_->ready.empty() ? most : duration(0));
        if (!taken) return taken;
        for (size_t i = 0; i < *taken; i++) it_->note(some[i]);
        size_t resumed = 0;
        for (auto left = it_->ready.size(); left > 0; left--) {
            auto found = it_->all.find(it_->ready.front());
            it_->ready.pop_front();
            if (found == it_->all.end()) continue; // destroyed meanwhile
            auto who = found->second->who;
            it_->all.erase(found);
            resumed++;
            who.resume();
        }
        return resumed;
    }
};
} // namespace sp
#endif
