// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Random choices that depend only on the seed, the thread and the number of the step, so that they replay under any
/// schedule.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pinfold::testing::hazard_fuzz {

/// SplitMix64. Not thread-safe; make one for each step, which costs nothing.
class choices {
 public:
  choices(std::uint64_t seed, std::uint64_t stream, std::uint64_t step) noexcept
      : state_(seed ^ mixed(stream * 0x9e3779b97f4a7c15U) ^ mixed(~step)) {}

  std::uint64_t number() noexcept { return mixed(state_ += 0x9e3779b97f4a7c15U); }

  /// Returns a number below `end`, which is not 0.
  std::size_t below(std::size_t end) noexcept { return static_cast<std::size_t>(number() % end); }

  bool one_in(std::size_t count) noexcept { return below(count) == 0; }

  template <class T, std::size_t N>
  T one_of(const std::array<T, N>& all) noexcept {
    return all[below(N)];
  }
  template <class T>
  T one_of(std::span<const T> all) noexcept {
    return all[below(all.size())];
  }

 private:
  static std::uint64_t mixed(std::uint64_t x) noexcept {
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }

  std::uint64_t state_;
};

}  // namespace pinfold::testing::hazard_fuzz
