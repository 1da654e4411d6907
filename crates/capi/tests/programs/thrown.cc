// A node that ends with what its handler has thrown.
#include <standpipe.hpp>
#include <stdexcept>

int main() {
    auto node = sp::node::open(sp::config::defaults().value(), SP_ALONE).value();
    bool has_run = false;
    auto fail = node.on("test", "fails", [&](sp::call &) {
        has_run = true;
        throw std::runtime_error("nobody waits for this");
    });
    node.request(0, fail.value()).value();
    sp::done(sp_wait_until, node, +[](void *has_run) -> int { return *static_cast<bool *>(has_run); },
             static_cast<void *>(&has_run)).value();
}
