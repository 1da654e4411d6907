// operator new and delete, and the containers on them.
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

struct alignas(256) Wide {
    char bytes[300];
};

int main() {
    std::map<std::string, std::vector<int>> table;
    for (int i = 0; i < 10000; i++) table[std::to_string(i % 100)].push_back(i);
    size_t count = 0;
    for (auto &row : table) count += row.second.size();
    auto wide = std::make_unique<Wide>();
    bool refused = false;
    try {
        volatile size_t most = SIZE_MAX / 2;
        // The function, as a compiler may leave out both of the operators.
        ::operator delete(::operator new(most));
    } catch (const std::bad_alloc &) {
        refused = true;
    }
    bool holds = count == 10000 && reinterpret_cast<uintptr_t>(wide.get()) % 256 == 0 && refused;
    std::puts(holds ? "all is as it should be" : "something is not");
    return holds ? 0 : 1;
}
