// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The memory that the monitor's thread uses.
#pragma once

#include "os/check.hpp"
#include "os/page_bytes.hpp"

#include <pinfold/range.hpp>

#include <cstdint>
#include <sys/mman.h>

namespace pinfold::monitors::uffd {

/// A stack, and a bell: a page that is discarded to end the monitor's thread. Both lie between inaccessible pages, so
/// that the kernel never merges them with a watched neighbour into one mapping. A child of fork(2) has copies: the C
/// library keeps its record of the thread in the stack, and edits it there.
class own_pages {
 public:
  own_pages() noexcept : page_(os::page_bytes()) {
    void* const fresh = ::mmap(nullptr, bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (fresh == MAP_FAILED) return;
    at_ = reinterpret_cast<std::uintptr_t>(fresh);
    if (open_up(stack()) && open_up(bell())) return;
    give_back();
  }
  own_pages(const own_pages&) = delete;
  own_pages& operator=(const own_pages&) = delete;
  ~own_pages() = default;  // a child's copy stays

  void give_back() noexcept {
    if (at_ != 0) ::munmap(reinterpret_cast<void*>(at_), bytes());
    at_ = 0;
  }

  [[nodiscard]] bool are_there() const noexcept { return at_ != 0; }
  [[nodiscard]] range stack() const noexcept {
    PINFOLD_ASSERT(are_there(), "the pages are there until the thread has ended");
    return {at_ + page_, at_ + page_ + stack_bytes};
  }
  [[nodiscard]] range bell() const noexcept { return {stack().end + page_, stack().end + 2 * page_}; }

 private:
  static constexpr std::size_t stack_bytes = std::size_t{1} << 20U;  // the sanitizers' thread-locals are on it, too

  [[nodiscard]] std::size_t bytes() const noexcept { return stack_bytes + 4 * page_; }
  static bool open_up(const range& pages) noexcept {
    return ::mprotect(reinterpret_cast<void*>(pages.begin), pages.size(), PROT_READ | PROT_WRITE) == 0;
  }

  std::size_t page_;
  std::uintptr_t at_ = 0;
};

}  // namespace pinfold::monitors::uffd
