// The first program, as standpipe.hpp begins with it.
//
// standpipe run -n 2 -- ./hello
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
