// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hints.hpp"

#include "monitors/probe.hpp"

#include <malloc.h>
#include <mutex>

namespace pinfold::monitors {

namespace {

// The defaults of glibc (mallopt(3)); what was set cannot be asked for.
constexpr int default_most_mappings = 65536;
constexpr int default_trim = 128 * 1024;

struct hints {
  hints() noexcept {
    ::mallopt(M_MMAP_MAX, 0);
    ::mallopt(M_TRIM_THRESHOLD, -1);
  }
  hints(const hints&) = delete;
  hints& operator=(const hints&) = delete;
  ~hints() {
    ::mallopt(M_MMAP_MAX, default_most_mappings);
    ::mallopt(M_TRIM_THRESHOLD, default_trim);
    ::malloc_trim(0);
  }
};

// Nobody need see it: the question is whether anything goes.
bool honoured() noexcept {
  const watch::monitor_set nobody({});
  sources seen = 0;
  return free_of_64_mebibytes(nobody, seen) == outcome::kept;
}

}  // namespace

std::shared_ptr<void> hint_allocator() {
  static std::mutex mutex;
  static std::weak_ptr<hints> given;
  const std::lock_guard guard(mutex);
  if (auto there = given.lock()) return there;
  if (honoured()) return nullptr;  // without a hint, too: then there is nothing to ask for
  auto made = std::make_shared<hints>();
  if (!honoured()) return nullptr;
  given = made;
  return made;
}

}  // namespace pinfold::monitors
