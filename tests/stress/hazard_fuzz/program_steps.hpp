// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Steps on memory of the program's allocator, stacks, break and libraries. The bytes show stale registrations.
#pragma once

#include "look_up.hpp"

#include <cstdlib>
#include <dlfcn.h>
#include <malloc.h>
#include <thread>
#include <vector>

namespace pinfold::testing::hazard_fuzz {

/// The steps of one thread. Only the main thread's steps move the break: no other thread allocates there
/// (`own_arenas`).
class program_steps {
 public:
  program_steps(run& in, unsigned thread) : in_(in), thread_(thread) {}

  /// Gives each thread but the main one an arena of its own from now on; only malloc_trim trims them.
  static void own_arenas() {
    ::mallopt(M_ARENA_MAX, 256);
    ::mallopt(M_TRIM_THRESHOLD, INT32_MAX);
    ::mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  }

  void step_of(std::uint64_t number, choices& random) {
    const auto by = begin(number, random);
    if (by == nullptr) return;
    const auto alone = in_.alone_with_addresses();
    switch (random.below(4)) {
      case 0: return stack(*by);
      case 1: return library(*by);
      default: return block(*by, sizes[random.below(sizes.size())]);
    }
  }

  void step_of_main_thread(std::uint64_t number, choices& random) {
    const auto by = begin(number, random);
    if (by == nullptr || sanitized) return;
    const auto alone = in_.alone_with_addresses();
    if (random.one_in(2)) return top_of_the_heap(*by);
    const auto via = random.one_in(2) ? mechanism::libc : mechanism::inline_syscall;
    if (in_.by.sees(memory_event::unmap, via)) move_break(*by, via);
  }

 private:
  static constexpr std::array<std::size_t, 4> sizes{64U << 10U, 300U << 10U, 1U << 20U, 8U << 20U};

  /// Begins a step and returns a cache with a device, or null.
  std::shared_ptr<cache_and_device> begin(std::uint64_t number, choices& random) {
    when_ = {in_.seed, thread_, number};
    fill_with_ = random.number();
    auto by = in_.registered.get(random.below(2));
    return by != nullptr && by->has_device() ? by : nullptr;
  }

  /// Fills memory, registers some of it, and checks the bytes that the device sends.
  void check(const char* what, cache_and_device& by, std::byte* at, std::size_t bytes) {
    const auto sent = std::min(bytes, 2 * page_bytes);
    const auto got = by.cache().acquire(at, bytes);
    if (!got) return count(in_.done.refused);
    count(in_.done.leases);
    fill(at, sent, ++fill_with_);
    const auto answer = by.send(at, sent, got->registration());
    count(answer == cache_and_device::answer::refused ? in_.done.not_sent : in_.done.sent);
    if (answer == cache_and_device::answer::wrong)
      in_.found.add(when_, std::string(what) + " (" + by.monitors() + ", bytes)", "");
  }

  void is_going(const void* at, std::size_t bytes) const {
    if (in_.by.announces) announce_gone(at, bytes);
  }

  void block(cache_and_device& by, std::size_t bytes) {
    for (int i = 0; i < 2; ++i) {
      auto* const at = static_cast<std::byte*>(std::malloc(bytes));
      if (at == nullptr) return;
      check("free and malloc", by, at, bytes);
      is_going(at, bytes);
      std::free(at);
    }
    count(in_.done.events, 2);
  }

  void stack(cache_and_device& by) {
    for (int i = 0; i < 2; ++i)
      std::thread([&] {
        alignas(page_bytes) std::array<std::byte, 4 * page_bytes> memory;
        check("the stack of a thread", by, memory.data(), memory.size());
        is_going(memory.data(), memory.size());
      }).join();
    count(in_.done.events, 2);
  }

  void library(cache_and_device& by) {
    static std::mutex one_at_a_time;
    const std::unique_lock taken(one_at_a_time, std::try_to_lock);
    if (!taken || thread_sanitized) return;
    for (int i = 0; i < 2; ++i) {
      void* const loaded = ::dlopen(PINFOLD_UNLOADABLE, RTLD_NOW | RTLD_LOCAL);
      if (loaded == nullptr) return;
      auto* const data = static_cast<std::byte*>(::dlsym(loaded, "unloadable_data"));
      constexpr std::size_t bytes = 65536;
      check("a library's data", by, data, bytes);
      is_going(data, bytes);
      ::dlclose(loaded);
    }
    count(in_.done.events, 2);
  }

  void top_of_the_heap(cache_and_device& by) {
    constexpr std::size_t each = 100 * 1024;
    for (int i = 0; i < 2; ++i) {
      std::array<std::byte*, 4> blocks{};
      for (auto& one : blocks) one = static_cast<std::byte*>(std::malloc(each));
      check("the top of the heap", by, blocks[3], each);
      for (auto* const one : blocks) {
        is_going(one, each);
        std::free(one);
      }
      ::malloc_trim(0);
    }
    count(in_.done.events, 2);
  }

  static bool set_break(std::byte* to, mechanism via) {
    if (via == mechanism::libc) return ::brk(to) == 0;
    return raw_call(SYS_brk, to, 0) == static_cast<long>(reinterpret_cast<std::uintptr_t>(to));
  }

  /// Makes the allocator take enough from the break that it does not move the break during the step.
  static void fill_up_the_heap() {
    void* volatile room = std::malloc(100 * 1024);
    std::free(room);
  }

  void move_break(cache_and_device& by, mechanism via) {
    constexpr std::size_t bytes = 16 * page_bytes;
    fill_up_the_heap();
    auto* const end = static_cast<std::byte*>(::sbrk(0));
    const auto past = reinterpret_cast<std::uintptr_t>(end) % page_bytes;
    auto* const first = end + (page_bytes - past) % page_bytes;
    for (int i = 0; i < 2; ++i) {
      if (!set_break(first + bytes, via)) break;
      check(via == mechanism::libc ? "the break" : "the break, moved inline", by, first, bytes);
      is_going(first, bytes);
      if (!set_break(first, via)) break;
      count(in_.done.events);
    }
    static_cast<void>(set_break(end, via));
  }

  run& in_;
  unsigned thread_;
  occasion when_;
  std::uint64_t fill_with_ = 0;
};

}  // namespace pinfold::testing::hazard_fuzz
