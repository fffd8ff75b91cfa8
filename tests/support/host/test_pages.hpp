// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Pages for one test.
#pragma once

#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <sys/mman.h>

namespace pinfold::testing {

/// Pages of this process, followed by inaccessible ones.
class test_pages {
 public:
  static constexpr std::size_t page = 4096;
  explicit test_pages(std::size_t count) : bytes_(count * page) {
    void* const got = ::mmap(nullptr, bytes_ + guard, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED || ::mprotect(got, bytes_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    begin_ = reinterpret_cast<std::uintptr_t>(got);
  }
  ~test_pages() { ::munmap(reinterpret_cast<void*>(begin_), bytes_ + guard); }
  test_pages(const test_pages&) = delete;
  test_pages& operator=(const test_pages&) = delete;

  [[nodiscard]] range pages(std::size_t first, std::size_t count) const {
    return {begin_ + first * page, begin_ + (first + count) * page};
  }
  [[nodiscard]] void* at(std::size_t number) const { return reinterpret_cast<void*>(begin_ + number * page); }

 private:
  static constexpr std::size_t guard = 8 * page;

  std::size_t bytes_;
  std::uintptr_t begin_ = 0;
};

}  // namespace pinfold::testing
