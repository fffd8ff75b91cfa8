// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Disturbances beside the steps: caches that are destroyed and made, threads that begin and end, forks, libraries.
#pragma once

#include "look_up.hpp"

#include <chrono>
#include <dlfcn.h>
#include <sys/wait.h>
#include <thread>

namespace pinfold::testing::hazard_fuzz {

/// The disturbances; used by the thread that makes the caches.
class disturbances {
 public:
  explicit disturbances(run& in) : in_(in) {}

  /// Makes all caches anew.
  void make_caches(choices& random) {
    for (std::size_t i = 0; i < caches::count; ++i) in_.registered.make(i, random);
  }

  void step_of(choices& random) {
    switch (random.below(9)) {
      case 0:
      case 1: return in_.registered.make(random.number(), random);
      case 2: return random.one_in(4) ? drop_all(random) : in_.registered.drop(random.number());
      case 3: return fork_child();
      case 4: return load_library();
      case 5: return short_lived_threads(random);
      case 6: return in_.patch.step_of(random);
      default: std::this_thread::sleep_for(std::chrono::microseconds(random.below(4000)));
    }
  }

 private:
  /// Drops all caches and makes new ones: the monitors end with the last cache, and begin with the next.
  void drop_all(choices& random) {
    for (std::size_t i = 0; i < caches::count; ++i) in_.registered.drop(i);
    make_caches(random);
  }

  void fork_child() {
    const auto by = in_.registered.get(0);
    const pid_t child = ::fork();
    if (child == 0) {
      slot& of = in_.own_small_slot(0);
      const bool lease = by != nullptr && by->cache().find(of.at(), of.bytes()).has_value();
      ::_exit(lease ? 1 : 0);
    }
    int status = 0;
    while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) in_.found.add({in_.seed, 0, 0}, "a lease in a child of fork", std::to_string(status));
  }

  static void load_library() {
    if (void* const loaded = ::dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL); loaded != nullptr) ::dlclose(loaded);
  }

  void short_lived_threads(choices& random) {
    const auto by = in_.registered.get(random.number());
    if (by == nullptr) return;
    const auto alone = in_.alone_with_addresses();
    std::vector<std::jthread> all;
    for (int i = 0; i < 3; ++i)
      all.emplace_back([&] {
        alignas(page_bytes) std::array<std::byte, 2 * page_bytes> memory{};
        static_cast<void>(by->cache().acquire(memory));
        if (in_.by.announces) announce_gone(memory.data(), memory.size());
      });
  }

  run& in_;
};

}  // namespace pinfold::testing::hazard_fuzz
