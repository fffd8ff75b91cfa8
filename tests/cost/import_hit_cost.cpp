// SPDX-License-Identifier: BSD-3-Clause
// As hit_cost, for imported memory.
#include "addresses.hpp"

#include <pinfold/import_cache.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace pinfold::testing;

namespace {

/// An importer that opens nothing. Its handles are as long as CUDA's.
struct null_importer {
  static constexpr const char* name = "null";
  static constexpr bool allows_duplicates = true;
  struct handle_type {
    std::uint64_t base;
    std::array<std::uint64_t, 7> serial;
  };
  struct registration_type {
    std::uint64_t key;
  };

  [[nodiscard]] pinfold::result<pinfold::range> check(const handle_type& handle) const noexcept {
    return pinfold::range::of(handle.base, region);
  }
  [[nodiscard]] pinfold::result<pinfold::imported<registration_type>> open(pinfold::peer_id /*peer*/,
                                                                           const handle_type& handle) noexcept {
    const pinfold::range covered{handle.base, handle.base + region};
    return pinfold::imported<registration_type>{covered, reinterpret_cast<void*>(handle.base), region, {handle.base}};
  }
  [[nodiscard]] pinfold::result<void> close(const registration_type& /*mapping*/) noexcept { return {}; }
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) return std::fprintf(stderr, "usage: import_hit_cost <regions> <acquires> [<regions apart>]\n"), 2;
  std::vector<null_importer::handle_type> all;
  for (const auto base :
       addresses(std::strtoull(arguments[1], nullptr, 10), count > 3 ? std::strtoull(arguments[3], nullptr, 10) : 1))
    all.push_back({base, {1, 2, 3, 4, 5, 6, 7}});
  pinfold::import_cache cache{null_importer()};
  std::size_t failed = 0;
  for (const auto& one : all) failed += !cache.acquire({1}, one, one.base, region);
  auto left = std::strtoull(arguments[2], nullptr, 10);
  for (std::size_t at = 0; left > 0; --left) {
    failed += !cache.acquire({1}, all[at], all[at].base, region);
    if (++at == all.size()) at = 0;
  }
  return failed == 0 ? 0 : 1;
}
