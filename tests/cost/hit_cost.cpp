// SPDX-License-Identifier: BSD-3-Clause
// Acquires and releases as often as it is told; scripts/hit-cost counts the instructions.
#include "addresses.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/null.hpp>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

using namespace pinfold::testing;

int main(int count, char** arguments) {
  if (count < 3) return std::fprintf(stderr, "usage: hit_cost <regions> <acquires> [<regions apart>]\n"), 2;
  const auto all =
      addresses(std::strtoull(arguments[1], nullptr, 10), count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 1);
  pinfold::cache cache(pinfold::null_registrar(), {.monitor = pinfold::monitor_choice::manual});
  std::size_t failed = 0;
  for (const auto one : all) failed += !cache.acquire(reinterpret_cast<void*>(one), region);
  auto left = std::strtoull(arguments[2], nullptr, 10);
  for (std::size_t at = 0; left > 0; --left) {
    failed += !cache.acquire(reinterpret_cast<void*>(all[at]), region);
    if (++at == all.size()) at = 0;
  }
  return failed == 0 ? 0 : 1;
}
