// SPDX-License-Identifier: BSD-3-Clause
// A library with a copy of pinfold inside: its own monitors, its own event log. A test loads it whose program has
// another copy.
#include "invalidation/event_log.hpp"
#include "invalidation/registered_filter.hpp"
#include "monitors/selection/selection.hpp"
#include "os/background_closer.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace {

using namespace pinfold;

struct another_copy {
  monitors::chosen chosen;
  range memory;
  std::uint64_t cursor = 0;
  std::string reason;
};

}  // namespace

#define EXPORTED extern "C" [[gnu::visibility("default")]]

/// Chooses monitors as a cache does, and writes their names, or why there are none, into `text`.
EXPORTED void* another_copy_start(unsigned choice, char* text, std::size_t size) {
  auto* const made = new another_copy{monitors::choose(static_cast<monitor_choice>(choice)), {}, 0, {}};
  std::strncpy(text, made->chosen.text.c_str(), size - 1);
  return made;
}

/// Asks the monitors to watch the pages. Returns whether registrations of them may be kept.
EXPORTED int another_copy_watch(void* copy, std::uintptr_t begin, std::uintptr_t end) {
  auto& here = *static_cast<another_copy*>(copy);
  here.memory = {begin, end};
  here.cursor = invalidation::event_log::here().generation().load();
  here.reason.clear();
  if (!invalidation::registered_filter::here().prepare(here.memory)) {
    here.reason = "the memory cannot be prepared";
    return 0;
  }
  invalidation::registered_filter::here().add(here.memory);
  if (!here.chosen.keeps || here.chosen.set == nullptr) {
    here.reason = here.chosen.text;
    return 0;
  }
  const auto watched = here.chosen.set->watch(here.memory);
  if (!watched) here.reason = describe(watched.error());
  return watched ? 1 : 0;
}

/// Returns why the last `another_copy_watch` refused.
EXPORTED const char* another_copy_why(void* copy) { return static_cast<another_copy*>(copy)->reason.c_str(); }

/// Ends the watch. Returns whether an event came for the pages.
EXPORTED int another_copy_told(void* copy) {
  auto& here = *static_cast<another_copy*>(copy);
  bool told = false;
  range gone;
  while (invalidation::event_log::here().read(here.cursor, gone) != invalidation::read_status::nothing)
    told |= gone.overlaps(here.memory);
  invalidation::registered_filter::here().remove(here.memory);
  return told ? 1 : 0;
}

/// Closes a socket of another user's as a server does before Linux 6.16.
EXPORTED void another_copy_close(int socket) { os::background_closer(false).close(os::file(socket)); }

EXPORTED void another_copy_stop(void* copy) { delete static_cast<another_copy*>(copy); }
