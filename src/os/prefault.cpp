// SPDX-License-Identifier: BSD-3-Clause
#include "os/prefault.hpp"

#include "os/page_bytes.hpp"

#include <pinfold/detail/pages.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <ctime>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::os {

namespace {

#ifndef MADV_POPULATE_WRITE
constexpr int MADV_POPULATE_READ = 22;  // Linux 5.14
constexpr int MADV_POPULATE_WRITE = 23;
#endif

// The kernel holds the lock of all mappings during a call: for about 5 ms with small pages.
constexpr std::size_t step_bytes = std::size_t{16} << 20U;

void* at(std::uintptr_t address) noexcept { return reinterpret_cast<void*>(address); }

range whole_pages(const range& memory) noexcept { return detail::aligned_out(memory, page_bytes()); }

int advice_for(page_use use) noexcept { return use == page_use::write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ; }

// The kernel checks the advice before it finds that the range is empty.
bool has_advice(int advice) noexcept { return ::madvise(nullptr, 0, advice) == 0; }

// MS_ASYNC does nothing, and fails if there is no mapping.
bool is_mapped(const range& pages) noexcept { return ::msync(at(pages.begin), pages.size(), MS_ASYNC) == 0; }

tl::unexpected<error> refused(const range& pages, int native) noexcept {
  switch (native) {
    case EFAULT:
      return fail_errno(errc::invalid_range, native,
                        "touching the memory would raise a signal: behind the end of its file, or no room for it");
    case ENOMEM:
      if (!is_mapped(pages)) return fail_errno(errc::invalid_range, native, "a part of the memory is not mapped");
      return fail_errno(errc::out_of_resources, native, "no memory for the pages");
    case EINVAL:
      return fail_errno(errc::unsupported, native,
                        "the pages cannot be made present: the mapping does not allow it, or is not of memory");
    case EHWPOISON: return fail_errno(errc::driver_error, native, "a page of the memory is broken");
    default: return fail_errno(errc::driver_error, native, "the kernel refused to make the pages present");
  }
}

// Returns 0 or an errno. FUTEX_WAIT makes the kernel read the word; it does not wait, because the timeout is over.
int read_by_kernel(std::uintptr_t word) noexcept {
  const std::timespec at_once{};
  if (::syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0, &at_once, nullptr, 0) == 0) return 0;
  return errno == EAGAIN || errno == ETIMEDOUT || errno == EINTR ? 0 : errno;
}

// Returns 0 or an errno. The kernel writes word | 0 in one atomic step, so that no concurrent store is lost. A thread
// that waits for this word may wake; it may do so without a reason at any time.
int written_by_kernel(std::uintptr_t word) noexcept {
  std::uint32_t other = 0;
  constexpr auto or_nothing = FUTEX_OP(FUTEX_OP_OR, 0, FUTEX_OP_CMP_LT, 0);
  return ::syscall(SYS_futex, &other, FUTEX_WAKE_OP_PRIVATE, 1, nullptr, word, or_nothing) >= 0 ? 0 : errno;
}

result<void> populate(const range& pages, int advice) noexcept {
  for (range left = pages; !left.empty();) {
    const range step{left.begin, left.begin + std::min(left.size(), step_bytes)};
    if (::madvise(at(step.begin), step.size(), advice) != 0) return refused(step, errno);
    left.begin = step.end;
  }
  return {};
}

}  // namespace

void advise_huge_pages(const range& memory) noexcept {
  const auto pages = whole_pages(memory);
  static_cast<void>(::madvise(at(pages.begin), pages.size(), MADV_HUGEPAGE));
}

result<void> prefault(const range& memory, page_use use) noexcept {
  const int advice = advice_for(use);
  return has_advice(advice) ? populate(whole_pages(memory), advice) : touch_pages(memory, use);
}

result<void> touch_pages(const range& memory, page_use use) noexcept {
  const auto pages = whole_pages(memory);
  const auto page = page_bytes();
  for (auto word = pages.begin; word < pages.end; word += page) {
    const int native = use == page_use::write ? written_by_kernel(word) : read_by_kernel(word);
    if (native != 0) return refused({word, word + page}, native);
  }
  return {};
}

}  // namespace pinfold::os
