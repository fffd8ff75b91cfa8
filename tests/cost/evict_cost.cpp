// SPDX-License-Identifier: BSD-3-Clause
// Requests twice as many regions as the budget has room for, in turn, beside leases on others: every request misses,
// and all but the first evict; scripts/hit-cost counts the instructions.
#include "addresses.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/null.hpp>

#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

using namespace pinfold::testing;

int main(int count, char** arguments) {
  if (count < 3) return std::fprintf(stderr, "usage: evict_cost <regions> <misses> [<shards> [<leases>]]\n"), 2;
  const auto regions = std::strtoull(arguments[1], nullptr, 10);
  const auto misses = std::strtoull(arguments[2], nullptr, 10);
  const auto shards = count > 3 ? static_cast<std::uint32_t>(std::strtoul(arguments[3], nullptr, 10)) : 0;
  const auto leases = count > 4 ? std::strtoull(arguments[4], nullptr, 10) : 0;
  const auto all = addresses(2 * regions + leases, 1);
  pinfold::cache cache(pinfold::null_registrar(),
                       {.max_count = regions + leases, .monitor = pinfold::monitor_choice::manual, .shards = shards});
  std::size_t failed = 0;
  std::vector<decltype(cache)::lease> held;
  for (std::size_t i = 0; i < leases; ++i) {
    auto got = cache.acquire(reinterpret_cast<void*>(all[2 * regions + i]), region);
    failed += !got;
    if (got) held.push_back(std::move(*got));
  }
  for (std::size_t i = 0; i < misses; ++i)
    failed += !cache.acquire(reinterpret_cast<void*>(all[i % (2 * regions)]), region);
  // The end of the cache closes what is registered: not counted.
  std::_Exit(failed == 0 && cache.statistics().misses == misses + leases ? 0 : 1);
}
