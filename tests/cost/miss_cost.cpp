// SPDX-License-Identifier: BSD-3-Clause
// Registers so many new regions, in an order that is theirs or is not; scripts/hit-cost counts the instructions.
#include "addresses.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/null.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

using namespace pinfold::testing;

namespace {

std::size_t opens = 0;

struct counting_registrar : pinfold::null_registrar {
  [[nodiscard]] pinfold::result<registration_type> open(const pinfold::range& extent,
                                                        pinfold::access_flags access) noexcept {
    ++opens;
    return null_registrar::open(extent, access);
  }
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return std::fprintf(stderr, "usage: miss_cost <regions> <misses> [<sort?>]\n"), 2;
  auto all = addresses(std::strtoull(arguments[1], nullptr, 10), 1);
  if (count > 3 && std::strtoull(arguments[3], nullptr, 10) != 0) std::sort(all.begin(), all.end());
  all.resize(std::min<std::size_t>(all.size(), std::strtoull(arguments[2], nullptr, 10)));
  pinfold::cache cache(counting_registrar(), {.monitor = pinfold::monitor_choice::manual});
  std::size_t failed = 0;
  for (const auto one : all) failed += !cache.acquire(reinterpret_cast<void*>(one), region);
  // The end of the cache closes what is registered: not counted.
  std::_Exit(failed == 0 && opens == all.size() ? 0 : 1);
}
