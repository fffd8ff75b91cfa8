// SPDX-License-Identifier: BSD-3-Clause
// Requests twice as many regions as the budget has room for, in turn: every request misses, and all but the first
// evict; scripts/hit-cost counts the instructions.
#include "addresses.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/null.hpp>

#include <cstdio>
#include <cstdlib>

using namespace pinfold::testing;

int main(int count, char** arguments) {
  if (count < 3) return std::fprintf(stderr, "usage: evict_cost <regions> <misses> [<shards>]\n"), 2;
  const auto regions = std::strtoull(arguments[1], nullptr, 10);
  const auto misses = std::strtoull(arguments[2], nullptr, 10);
  const auto shards = count > 3 ? static_cast<std::uint32_t>(std::strtoul(arguments[3], nullptr, 10)) : 0;
  const auto all = addresses(2 * regions, 1);
  pinfold::cache cache(pinfold::null_registrar(),
                       {.max_count = regions, .monitor = pinfold::monitor_choice::manual, .shards = shards});
  std::size_t failed = 0;
  for (std::size_t i = 0; i < misses; ++i)
    failed += !cache.acquire(reinterpret_cast<void*>(all[i % all.size()]), region);
  // The end of the cache closes what is registered: not counted.
  std::_Exit(failed == 0 && cache.statistics().misses == misses ? 0 : 1);
}
