// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory that a child of fork(2) finds empty.
#pragma once

#include <atomic>
#include <cstddef>
#include <sys/mman.h>

namespace pinfold::os {

/// Maps zeroed pages, enough for `bytes`, that the kernel wipes in a child (MADV_WIPEONFORK, Linux 4.14). Returns null
/// if the kernel cannot do that, or has no memory.
[[nodiscard]] inline void* wiped_pages(std::size_t bytes) noexcept {
  void* const fresh = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) return nullptr;
  if (::madvise(fresh, bytes, MADV_WIPEONFORK) == 0) return fresh;
  ::munmap(fresh, bytes);
  return nullptr;
}

/// Returns the object at `place`; the first call makes it, on such pages. Returns null if that fails. Thread-safe.
/// Replaces a function's static variable, which would block a child for ever if another thread initialized it during
/// the fork. The object must be valid as zero bytes, which is what a child finds; no constructor runs.
template <class T>
[[nodiscard]] T* wiped_object(std::atomic<T*>& place) noexcept {
  T* found = place.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  void* const pages = wiped_pages(sizeof(T));
  if (pages == nullptr) return nullptr;
  T* const made = static_cast<T*>(pages);  // a constructor would touch pages that may never be needed
  if (place.compare_exchange_strong(found, made, std::memory_order_acq_rel)) return made;
  ::munmap(pages, sizeof(T));  // another thread was faster
  return found;
}

}  // namespace pinfold::os
