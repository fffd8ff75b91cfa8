// SPDX-License-Identifier: BSD-3-Clause
// Caches of several processes share one budget of pinned memory.
#include <pinfold/cache.hpp>
#include <pinfold/node_budget.hpp>
#include <pinfold/registrars/mlock.hpp>

#include <cstdio>
#include <vector>

int main() {
  auto budget = pinfold::node_budget::open("example", {.max_bytes = std::size_t{64} << 20U});
  if (!budget) {
    std::fprintf(stderr, "%s\n", describe(budget.error()).c_str());
    return 1;
  }

  pinfold::cache cache(pinfold::mlock_registrar(), {.full = pinfold::when_full::wait, .node_budget = *budget});
  std::vector<char> memory(std::size_t{1} << 16U);
  {
    auto lease = cache.acquire(memory.data(), memory.size(), pinfold::local_access);
    if (!lease) {
      std::fprintf(stderr, "%s\n", describe(lease.error()).c_str());
      return 1;
    }
    for (const auto& one : (*budget)->members())
      std::printf("%s, process %d: %zu bytes, %lu requests refused\n", one.name.c_str(), one.pid, one.bytes,
                  static_cast<unsigned long>(one.refused));
  }
  static_cast<void>(pinfold::node_budget::remove("example"));
}
