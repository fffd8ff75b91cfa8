// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Writes to a page word by word: other threads write concurrently, and other processes read.
#pragma once

#include <pinfold/observation/layout.hpp>

#include <atomic>
#include <cstdint>

namespace pinfold::observation {

template <class Word>
void set(Word& to, Word value) noexcept {
  std::atomic_ref(to).store(value, std::memory_order_relaxed);
}
template <class Word>
[[nodiscard]] Word get(Word& from) noexcept {
  return std::atomic_ref(from).load(std::memory_order_relaxed);
}
inline std::uint64_t add(std::uint64_t& to, std::uint64_t amount = 1) noexcept {
  return std::atomic_ref(to).fetch_add(amount, std::memory_order_relaxed);
}

inline void record(histogram& to, std::uint64_t value) noexcept {
  add(to.counts[bucket_of(value)]);
  add(to.sum, value);
  const std::atomic_ref largest(to.largest);
  auto seen = largest.load(std::memory_order_relaxed);
  while (seen < value && !largest.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

/// Writes an element of a ring: `write` sets all but the mark. A reader accepts it only if the mark is the number plus
/// 1 before and after its read.
template <class Element, class Write>
void write_marked(Element& to, std::uint64_t number, Write write) noexcept {
  set(to.mark, std::uint64_t{0});
  std::atomic_thread_fence(std::memory_order_release);
  write();
  std::atomic_ref(to.mark).store(number + 1, std::memory_order_release);
}

}  // namespace pinfold::observation
