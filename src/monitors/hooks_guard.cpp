// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks_guard.hpp"

#include "monitors/hooks_plain.hpp"

#include <algorithm>
#include <atomic>

namespace pinfold::monitors::guard {

namespace {

using word = const std::uint64_t*;

struct kept_word {
  std::atomic<word> at{nullptr};
  std::atomic<std::uint64_t> expected{0};
  std::atomic<bool> writable{false};
};
using kept_path = std::array<kept_word, words::most>;

// Constant initialised, and with nothing to destroy, as a hook may run at any time.
std::array<kept_path, paths> all;
std::atomic<std::uintptr_t> lowest{UINTPTR_MAX};
std::atomic<std::uintptr_t> highest{0};
std::atomic<std::size_t> used{0};

PINFOLD_PLAIN std::uint64_t held_by(word at) noexcept { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

template <class F>
void for_each_word(F&& each) noexcept {
  for (std::size_t i = 0; i < used.load(std::memory_order_acquire); ++i)
    for (auto& one : all[i])
      if (const word at = one.at.load(std::memory_order_acquire); at != nullptr) each(one, at);
}

}  // namespace

// A reader that meets a mixture of two paths finds it changed, and looks closer.
void keep(std::size_t number, const words& path) noexcept {
  for (std::size_t i = 0; i < words::most; ++i) {
    kept_word& one = all[number][i];
    if (one.at.load(std::memory_order_relaxed) != path.at[i]) one.writable.store(false, std::memory_order_relaxed);
    one.at.store(nullptr, std::memory_order_release);
    one.expected.store(path.expected[i], std::memory_order_release);
    one.at.store(path.at[i], std::memory_order_release);
    if (path.at[i] == nullptr) continue;
    const auto address = reinterpret_cast<std::uintptr_t>(path.at[i]);
    lowest.store(std::min(lowest.load(), address));
    highest.store(std::max(highest.load(), address + sizeof(std::uint64_t)));
  }
  used.store(std::max(used.load(), number + 1));
}

void forget_all() noexcept {
  for_each_word([](kept_word& one, word) {
    one.at.store(nullptr);
    one.writable.store(false);
  });
  used.store(0);
  lowest.store(UINTPTR_MAX);
  highest.store(0);
}

bool intact() noexcept {
  bool same = true;
  for_each_word([&](const kept_word& one, word at) {
    if (held_by(at) != one.expected.load(std::memory_order_acquire)) same = false;
  });
  return same;
}

bool protect(const range& pages, bool now_writable) noexcept {
  if (pages.end <= lowest.load(std::memory_order_relaxed) || pages.begin >= highest.load(std::memory_order_relaxed))
    return false;
  bool touched = false;
  for_each_word([&](kept_word& one, word at) {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    if (!pages.overlaps({address, address + sizeof(std::uint64_t)})) return;
    one.writable.store(now_writable);
    touched = true;
  });
  return touched && now_writable;
}

bool writable() noexcept {
  bool any = false;
  for_each_word([&](const kept_word& one, word) {
    if (one.writable.load(std::memory_order_acquire)) any = true;
  });
  return any;
}

}  // namespace pinfold::monitors::guard
