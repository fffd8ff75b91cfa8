// SPDX-License-Identifier: BSD-3-Clause
// Finds what this process's allocator gives back to the kernel, and which monitors see it. Tests the memory itself: an
// allocator may keep freed memory, and no interface reports that.
#include "monitors/self_test/self_test.hpp"
#include "os/check.hpp"
#include "os/page_bytes.hpp"
#include "os/thread_stack.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <exception>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <pthread.h>
#include <sys/uio.h>
#include <thread>
#include <unistd.h>

namespace pinfold::monitors {

namespace {

using invalidation::source;

constexpr sources all_sources = only(source::hooks) | only(source::userfaultfd) | only(source::bpf);
constexpr std::size_t mebibyte = std::size_t{1} << 20U;

/// Marks some pages of memory that may be unmapped. Touches only those pages.
class marks {
 public:
  marks(std::byte* begin, std::size_t bytes) noexcept {
    const auto page = os::page_bytes();
    PINFOLD_ASSERT(bytes / at_.size() >= page, "each mark has a page of its own");
    for (std::size_t i = 0; i < at_.size(); ++i) {
      const auto offset = (bytes / at_.size() * i + page / 2) & ~std::size_t{63};
      at_[i] = begin + offset;  // in the middle of a page: allocators write at the start and the end
      *static_cast<volatile std::byte*>(at_[i]) = written;
    }
  }

  /// Returns whether any mark is unmapped or empty. Reads through the kernel, because the memory may be unmapped or
  /// have another owner by now.
  [[nodiscard]] bool gone() const noexcept {
    return std::any_of(at_.begin(), at_.end(), [](std::byte* one) {
      std::byte now{};
      const iovec here{&now, 1}, there{one, 1};
      return ::process_vm_readv(::gettid(), &here, 1, &there, 1, 0) != 1 || now == std::byte{0};
    });
  }

 private:
  static constexpr std::byte written{0xa5};
  std::array<std::byte*, 8> at_{};
};

range as_range(const std::byte* begin, std::size_t bytes) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  return {at, at + bytes};
}

outcome what_became_of(const marks& written, const registered_memory& watched) noexcept {
  if (!watched.is_watched()) return outcome::unknown_here;
  return written.gone() ? outcome::gone : outcome::kept;
}

template <std::size_t Bytes>
outcome free_of(const invalidation::monitor_set& by, sources& seen) noexcept {
  auto* block = static_cast<std::byte*>(std::malloc(Bytes));
  if (block == nullptr) return outcome::unknown_here;
  const marks written(block, Bytes);
  const registered_memory watched(by, as_range(block, Bytes));
  std::free(block);
  seen = watched.seen_by();
  return what_became_of(written, watched);
}

outcome realloc_down(const invalidation::monitor_set& by, sources& seen) noexcept {
  constexpr std::size_t before = 64 * mebibyte, after = mebibyte;
  constexpr std::size_t rest = 2 * mebibyte;  // skips the pages in which the smaller block ends
  auto* block = static_cast<std::byte*>(std::malloc(before));
  if (block == nullptr) return outcome::unknown_here;
  const marks written(block + rest, before - rest);
  const registered_memory watched(by, as_range(block + rest, before - rest));
  void* const smaller = std::realloc(block, after);
  seen = watched.seen_by();
  const auto became = what_became_of(written, watched);
  std::free(smaller != nullptr ? smaller : block);
  return became;
}

// Frees blocks at the end of the heap of glibc's main arena, or of this thread's arena, so that the heap shrinks:
// enough blocks for that, each too small for a mapping of its own. Watches the topmost block.
outcome heap_trim(const invalidation::monitor_set& by, sources& seen) noexcept {
#if defined(__GLIBC__)
  constexpr std::size_t bytes = mebibyte / 16;
  std::array<std::byte*, 64> blocks{};
  for (auto& each : blocks) each = static_cast<std::byte*>(std::malloc(bytes));
  const auto free_all = [&] { std::for_each(blocks.begin(), blocks.end(), [](std::byte* each) { std::free(each); }); };
  if (std::find(blocks.begin(), blocks.end(), nullptr) != blocks.end()) return free_all(), outcome::unknown_here;
  std::byte* const top = *std::max_element(blocks.begin(), blocks.end());
  const marks written(top, bytes);
  const registered_memory watched(by, as_range(top, bytes));
  free_all();
  if (!written.gone()) ::malloc_trim(0);
  seen = watched.seen_by();
  return what_became_of(written, watched);
#else
  static_cast<void>(by), static_cast<void>(seen);
  return outcome::unknown_here;
#endif
}

/// Runs a thread until its memory is watched, and then ends it.
template <class Where>
outcome end_of_thread(const invalidation::monitor_set& by, sources& seen, Where&& where) noexcept try {
  std::atomic<std::byte*> begin{nullptr};
  std::atomic<bool> go{false};
  std::size_t bytes = 0;
  std::thread short_lived([&] {
    auto [at, size] = where();
    bytes = size;
    begin.store(at, std::memory_order_seq_cst);
    begin.notify_one();
    go.wait(false, std::memory_order_seq_cst);
  });
  begin.wait(nullptr, std::memory_order_seq_cst);
  const marks written(begin.load(std::memory_order_seq_cst), bytes);
  const registered_memory watched(by, as_range(begin.load(std::memory_order_seq_cst), bytes));
  go.store(true, std::memory_order_seq_cst);
  go.notify_one();
  short_lived.join();
  seen = watched.seen_by();
  return what_became_of(written, watched);
} catch (const std::exception&) {  // no thread, or no memory for one
  return outcome::unknown_here;
}

struct block {
  std::byte* at;
  std::size_t bytes;
};

// Returns the lower part of the stack, which the thread does not use.
block unused_stack() noexcept {
  const auto stack = os::stack_of_this_thread();
  return {stack.data() + stack.size() / 4, stack.size() / 4};
}

outcome thread_stack(const invalidation::monitor_set& by, sources& seen) noexcept {
  return end_of_thread(by, seen, unused_stack);
}

}  // namespace

outcome free_of_64_mebibytes(const invalidation::monitor_set& watched_by, sources& seen) noexcept {
  return free_of<64 * mebibyte>(watched_by, seen);
}

std::span<const probe> allocator_habits() noexcept {
  static constexpr std::array<probe, 6> habits{{
      {"free of 1 MiB", all_sources, free_of<mebibyte>},
      {"free of 64 MiB", all_sources, free_of_64_mebibytes},
      {"free of 1 GiB", all_sources, free_of<1024 * mebibyte>},
      {"realloc from 64 MiB to 1 MiB", all_sources, realloc_down},
      {"free at the end of the heap", all_sources, heap_trim},
      {"the stack of a thread that ends", all_sources, thread_stack},
  }};
  return habits;
}

}  // namespace pinfold::monitors
