// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/guard.hpp"

#include "monitors/hooks/plain.hpp"
#include "os/check.hpp"

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

// Constant-initialised and without a destructor, because a hook may run at any time.
std::array<kept_path, paths> all;
std::atomic<std::size_t> used{0};
std::atomic<int> writable_words{0};

/// The approximate extent of nearby words: one for libc's code, one for the dynamic linker's.
struct span {
  static constexpr std::uintptr_t reach = std::uintptr_t{2} << 20U;
  std::atomic<std::uintptr_t> begin{UINTPTR_MAX};
  std::atomic<std::uintptr_t> end{0};
};
std::array<span, 8> spans;  // the last covers the rest

void cover(std::uintptr_t at) noexcept {
  PINFOLD_ASSERT(at % sizeof(std::uint64_t) == 0, "the words that are compared are aligned");
  for (auto& one : spans) {
    const auto begin = one.begin.load(std::memory_order_seq_cst), end = one.end.load(std::memory_order_seq_cst);
    const bool near = end != 0 && at + span::reach >= begin && at < end + span::reach;
    if (end != 0 && !near && &one != &spans.back()) continue;
    one.begin.store(std::min(begin, at), std::memory_order_seq_cst);
    one.end.store(std::max(end, at + sizeof(std::uint64_t)), std::memory_order_seq_cst);
    return;
  }
}

void set_writable(std::atomic<bool>& state, bool now) noexcept {
  if (state.exchange(now, std::memory_order_seq_cst) != now)
    writable_words.fetch_add(now ? 1 : -1, std::memory_order_seq_cst);
}

PINFOLD_PLAIN std::uint64_t held_by(word at) noexcept { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

template <class F>
void for_each_word(F&& each) noexcept {
  for (std::size_t i = 0; i < used.load(std::memory_order_acquire); ++i) {
    for (auto& one : all[i]) {
      const word at = one.at.load(std::memory_order_acquire);
      if (at == nullptr) break;
      each(one, at);
    }
  }
}

}  // namespace

// A reader that sees a mixture of two paths detects a change and checks more closely.
void keep(std::size_t number, const words& path) noexcept {
  PINFOLD_ASSERT(number < paths, "each path has its place");
  for (std::size_t i = 0; i < words::most; ++i) {
    kept_word& one = all[number][i];
    if (one.at.load(std::memory_order_relaxed) != path.at[i]) set_writable(one.writable, false);
    one.at.store(nullptr, std::memory_order_release);
    one.expected.store(path.expected[i], std::memory_order_release);
    one.at.store(path.at[i], std::memory_order_release);
    if (path.at[i] != nullptr) cover(reinterpret_cast<std::uintptr_t>(path.at[i]));
  }
  used.store(std::max(used.load(std::memory_order_seq_cst), number + 1), std::memory_order_seq_cst);
}

void forget_all() noexcept {
  used.store(0, std::memory_order_seq_cst);
  for (auto& path : all) {
    for (auto& one : path) {
      one.at.store(nullptr, std::memory_order_seq_cst);
      set_writable(one.writable, false);
    }
  }
}

bool intact() noexcept {
  bool same = true;
  for_each_word([&](const kept_word& one, word at) {
    if (held_by(at) != one.expected.load(std::memory_order_acquire)) same = false;
  });
  return same;
}

bool may_touch(const range& pages) noexcept {
  return std::any_of(spans.begin(), spans.end(), [&](const span& one) {
    return pages.begin < one.end.load(std::memory_order_relaxed) &&
           pages.end > one.begin.load(std::memory_order_relaxed);
  });
}

bool protect(const range& pages, bool now_writable) noexcept {
  if (!may_touch(pages)) return false;
  bool touched = false;
  for_each_word([&](kept_word& one, word at) {
    const auto address = reinterpret_cast<std::uintptr_t>(at);
    if (!pages.overlaps({address, address + sizeof(std::uint64_t)})) return;
    set_writable(one.writable, now_writable);
    touched = true;
  });
  return touched && now_writable;
}

bool writable() noexcept { return writable_words.load(std::memory_order_acquire) > 0; }

}  // namespace pinfold::monitors::guard
