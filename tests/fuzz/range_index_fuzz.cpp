// SPDX-License-Identifier: BSD-3-Clause
// Inserts and erases any ranges in any order: the index finds what a list finds.
#include "support/fixtures/index_pair.hpp"

#include <fuzzer/FuzzedDataProvider.h>

#include <cstdlib>

namespace {

pinfold::range some_range(FuzzedDataProvider& data) {
  const auto begin = data.ConsumeIntegral<std::uintptr_t>() >> (data.ConsumeIntegral<std::uint8_t>() % 64U);
  const auto bytes = data.ConsumeIntegral<std::uintptr_t>() >> (data.ConsumeIntegral<std::uint8_t>() % 64U);
  const auto made = pinfold::range::of(begin, bytes);
  return made ? *made : pinfold::range{begin / 2, begin / 2 + 1};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  FuzzedDataProvider data(bytes, size);
  pinfold::testing::index_pair both;
  while (data.remaining_bytes() > 0) {
    const auto choice = data.ConsumeIntegral<std::uint8_t>();
    const pinfold::peer_id peer{choice % 3U};
    if (choice % 4U == 0) {
      both.erase(data.ConsumeIntegral<std::uint16_t>());
    } else if (both.size() < 100) {
      both.insert(peer, some_range(data));
    }
    if (!both.agree_on(peer, some_range(data)) || !both.sound()) std::abort();
  }
  return 0;
}
