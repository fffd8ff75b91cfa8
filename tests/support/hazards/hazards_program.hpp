// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What an ordinary program does without regard to the kernel: it allocates, ends threads, unloads libraries.
#pragma once

#include "os/thread_stack.hpp"
#include "support/hazards/hazards_memory.hpp"
#include "support/host/sanitized.hpp"

#include <atomic>
#include <dlfcn.h>
#include <malloc.h>
#include <thread>
#include <vector>

namespace pinfold::testing::hazards {

inline constexpr std::size_t kibibyte = 1024, mebibyte = 1024 * kibibyte;

/// Brings glibc's allocator to its initial state: default thresholds, and no free memory that could serve. Returns
/// false for other allocators, and under sanitizers.
inline bool glibc_as_it_begins() {
#if defined(__GLIBC__)
  const bool done = !sanitized && ::mallopt(M_MMAP_THRESHOLD, 128 * kibibyte) == 1 &&
                    ::mallopt(M_TRIM_THRESHOLD, 128 * kibibyte) == 1;
  if (done) ::malloc_trim(0);
  return done;
#else
  return false;
#endif
}

inline target allocated(std::size_t bytes) { return {static_cast<std::byte*>(std::malloc(bytes)), bytes}; }

/// Frees the block, and allocates it again.
template <std::size_t Bytes>
answer free_and_malloc(stage& on) {
  if (!glibc_as_it_begins()) return answer::unknown_here;
  const auto first = allocated(Bytes);
  on.before(first);
  std::free(first.data);
  const auto second = allocated(Bytes);
  return first.data == second.data ? on.after(second) : answer::unknown_here;
}

/// Registers the last of four blocks, and frees all four in order.
/// Leaves free small chunks to this thread, so that what a driver allocates for a registration does not lie behind the
/// registered block, and keep the heap's top from being given back.
inline void free_small_chunks() {
  constexpr std::size_t each = 7;  // as many as glibc keeps for a thread
  std::vector<void*> chunks;
  chunks.reserve(each * 65);
  for (std::size_t bytes = 24; bytes <= 1032; bytes += 16)
    for (std::size_t i = 0; i < each; ++i) chunks.push_back(std::malloc(bytes));
  for (void* one : chunks) std::free(one);
}

inline answer top_of_the_heap(stage& on) {
  if (!glibc_as_it_begins()) return answer::unknown_here;
  on.warm_up();
  free_small_chunks();
  constexpr std::size_t each = 100 * kibibyte;
  std::array<target, 4> blocks{};
  for (auto& one : blocks) one = allocated(each);
  on.before(blocks[3]);
  for (const auto& one : blocks) std::free(one.data);
  target again{};
  for (std::size_t i = 0; i < blocks.size(); ++i) again = allocated(each);
  return again.data == blocks[3].data ? on.after(again) : answer::unknown_here;
}

inline answer in_the_arena_of_a_thread(stage& on) {
  auto seen = answer::unknown_here;
  std::thread([&] { seen = top_of_the_heap(on); }).join();
  return seen;
}

inline answer trimmed_in_the_middle(stage& on) {
  if (!glibc_as_it_begins()) return answer::unknown_here;
  constexpr std::size_t each = 64 * kibibyte;
  std::array<target, 3> blocks{};
  for (auto& one : blocks) one = allocated(each);
  on.before(blocks[1]);
  std::free(blocks[1].data);
  ::malloc_trim(0);
  const auto again = allocated(each);
  return again.data == blocks[1].data ? on.after(again) : answer::unknown_here;
}

/// The block moves, and new memory is mapped at the old address.
inline answer realloc_moves(stage& on) {
  if (!glibc_as_it_begins()) return answer::unknown_here;
  const auto block = allocated(mebibyte);
  const target whole{block.data + 4096 - 16, mebibyte - 4096};  // whole pages, if the block is a mapping of its own
  if (reinterpret_cast<std::uintptr_t>(whole.data) % 4096 != 0) return answer::unknown_here;
  on.before(whole);
  if (std::realloc(block.data, 64 * mebibyte) == block.data) return answer::unknown_here;
  mend(whole);
  return on.after(whole);
}

inline answer break_moves(stage& on) {
  constexpr std::intptr_t bytes = usual_bytes;
  if (sanitized) return answer::unknown_here;
  auto* const end = static_cast<std::byte*>(::sbrk(0));
  auto* const first = end + (4096 - reinterpret_cast<std::uintptr_t>(end) % 4096) % 4096;
  if (::sbrk(first - end + bytes) != end) return answer::unknown_here;
  const target all{first, usual_bytes};
  on.before(all);
  if (::sbrk(0) != first + bytes) return answer::unknown_here;
  ::sbrk(-bytes);
  if (::sbrk(bytes) != first) return answer::unknown_here;
  return on.after(all);
}

/// A thread that waits for `end`. `where` is a part of its stack that it does not use.
class short_lived {
 public:
  short_lived() : thread_([this] { run(); }) { where_.wait(nullptr); }
  [[nodiscard]] std::byte* where() const { return where_.load(); }
  void end() {
    go_.store(true);
    go_.notify_one();
    thread_.join();
  }

 private:
  void run() {
    const auto stack = os::stack_of_this_thread();
    where_.store(stack.data() + stack.size() / 2);
    where_.notify_one();
    go_.wait(false);
  }

  std::atomic<std::byte*> where_{nullptr};
  std::atomic<bool> go_{false};
  std::thread thread_;
};

inline answer stacks(stage& on) {
  if (sanitized) return answer::unknown_here;
  short_lived first;
  const target at{first.where(), usual_bytes};
  on.before(at);
  first.end();
  short_lived second;
  const auto seen = second.where() == at.data ? on.after(at) : answer::unknown_here;
  second.end();
  return seen;
}

#if defined(PINFOLD_UNLOADABLE)
inline answer libraries(stage& on) {
  const auto load = [] { return ::dlopen(PINFOLD_UNLOADABLE, RTLD_NOW | RTLD_LOCAL); };
  if (sanitized) return answer::unknown_here;
  const auto data = [](void* library) { return static_cast<std::byte*>(::dlsym(library, "unloadable_data")); };
  void* library = load();
  if (library == nullptr) return answer::unknown_here;
  const target at{data(library), usual_bytes};
  on.before(at);
  ::dlclose(library);
  library = load();
  return library != nullptr && data(library) == at.data ? on.after(at) : answer::unknown_here;
}
#else
inline answer libraries(stage&) { return answer::unknown_here; }
#endif

inline const std::vector<hazard>& of_programs() {
  static const std::vector<hazard> list{
      {"free of 1 MiB, and malloc", all_monitors, true, free_and_malloc<mebibyte>},
      {"free of 64 MiB, and malloc", all_monitors, true, free_and_malloc<64 * mebibyte>},
      {"free of 64 KiB, and malloc", all_monitors, false, free_and_malloc<64 * kibibyte>},
      {"free at the top of the heap, and malloc", all_monitors, true, top_of_the_heap},
      {"free at the top of a thread's arena, and malloc", all_monitors, true, in_the_arena_of_a_thread},
      {"malloc_trim in the middle of the heap, and malloc", all_monitors, true, trimmed_in_the_middle},
      {"realloc to another place, and mmap", all_monitors, true, realloc_moves},
      {"sbrk back and forth", all_monitors, true, break_moves},
      {"the stack of a thread that ends, and of the next", all_monitors, true, stacks},
      {"dlclose and dlopen of a library: its data", all_monitors, true, libraries},
  };
  return list;
}

}  // namespace pinfold::testing::hazards
