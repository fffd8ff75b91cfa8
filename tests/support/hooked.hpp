// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The hooks monitor in a test, memory that it watches, and what it posts.
#pragma once

#include "monitors/hooks/hooks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace pinfold::testing {

inline constexpr std::size_t hooked_page = 4096;

inline std::uintptr_t address_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

/// Counts a range as registered while it lives; its destructor posts nothing.
class watched {
 public:
  explicit watched(const range& memory) : memory_(memory) {
    EXPECT_TRUE(invalidation::registered_filter::here().prepare(memory));
    invalidation::registered_filter::here().add(memory);
  }
  watched(const void* at, std::size_t bytes) : watched({address_of(at), address_of(at) + bytes}) {}
  watched(const watched&) = delete;
  watched& operator=(const watched&) = delete;
  ~watched() { invalidation::registered_filter::here().remove(memory_); }

 private:
  range memory_;
};

/// Anonymous pages, alone in their 64 KiB: `registered_filter` counts memory in such granules. The destructor unmaps
/// them, if they are still there.
class some_pages {
 public:
  explicit some_pages(std::size_t pages, int flags = MAP_PRIVATE | MAP_ANONYMOUS)
      : bytes_((pages * hooked_page + 2 * granule - 1) / granule * granule + granule),
        all_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0)) {
    EXPECT_NE(all_, MAP_FAILED);
  }
  some_pages(const some_pages&) = delete;
  some_pages& operator=(const some_pages&) = delete;
  ~some_pages() { ::munmap(all_, bytes_); }

  [[nodiscard]] std::byte* at(std::size_t page = 0) const {
    const auto first = (address_of(all_) + granule - 1) / granule * granule + hooked_page;  // not of a huge page
    return reinterpret_cast<std::byte*>(first + page * hooked_page);
  }
  [[nodiscard]] range pages(std::size_t first, std::size_t end) const {
    return {address_of(at(first)), address_of(at(end))};
  }

 private:
  static constexpr std::size_t granule = 1U << 16U;
  std::size_t bytes_;
  void* all_;
};

/// Returns the ranges that were posted while `body` ran.
template <class F>
std::vector<range> posted(F&& body) {
  auto& event_log = invalidation::event_log::here();
  std::uint64_t cursor = event_log.generation().load();
  std::forward<F>(body)();
  std::vector<range> found;
  for (range gone; event_log.read(cursor, gone) != invalidation::read_status::nothing;) found.push_back(gone);
  return found;
}

inline bool any_overlaps(const std::vector<range>& found, const range& memory) {
  return std::any_of(found.begin(), found.end(), [&](const range& one) { return one.overlaps(memory); });
}

inline auto hooks_here() {
  return monitors::make_hooks(invalidation::event_log::here(), invalidation::registered_filter::here());
}

class hooked : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = hooks_here();
    if (!made && made.error() == errc::unsupported) GTEST_SKIP() << describe(made.error());
    ASSERT_TRUE(made) << describe(made.error());
    monitor_ = std::move(*made);
  }

  std::unique_ptr<invalidation::monitor> monitor_;
};

}  // namespace pinfold::testing
