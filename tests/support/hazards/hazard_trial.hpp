// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Runs one event in a process of its own, and checks whether its result is acceptable.
#pragma once

#include "support/hazards/hazards.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <iostream>
#include <unistd.h>

namespace pinfold::testing {

/// A child's report on itself.
struct verdict {
  answer what = answer::unknown_here;
  monitor_choice watching{};  // the monitors that proved themselves
  bool keeps = false;         // the cache keeps registrations: a monitor or the application tells it
};

template <sending_device Device>
verdict try_in_this_process(const watch_case& who, const hazard& what) {
  constexpr unsigned most_seconds = 250;
  ::alarm(most_seconds);
  stage_on<Device> on(who);
  const auto text = on.monitors();
  verdict made;
  made.keeps = !text.starts_with("none");
  for (const auto& [name, one] : {std::pair{"hooks", monitor_choice::hooks},
                                  {"userfaultfd", monitor_choice::userfaultfd},
                                  {"bpf", monitor_choice::bpf}})
    if (text.find(name) != std::string::npos) made.watching = made.watching | one;
  made.what = what.run(on);
  return made;
}

/// Runs the event in a child: events damage the heap, the break and the ring, so each has a process of its own.
template <sending_device Device>
verdict try_in_child(const watch_case& who, const hazard& what) {
  child_process child([&](line& parent) {
    try {
      return parent.send(try_in_this_process<Device>(who, what)) ? 0 : 1;
    } catch (const std::exception& failed) {
      std::cerr << failed.what() << '\n';
      return 2;
    }
  });
  const auto seen = child.talk().receive<verdict>();
  const int status = child.reap();
  EXPECT_EQ(status, 0) << "the process of this event failed; negative: the signal that it died of";
  return seen.value_or(verdict{});
}

/// Whether this is the control: nothing tells the cache of events, though it keeps registrations, so dangerous events
/// must bring old bytes.
inline bool is_control(const watch_case& who) { return who.monitor == monitor_choice::manual && !who.announces; }

inline void expect_sound(const watch_case& who, const hazard& what, const verdict& seen) {
  const bool brings_old_bytes = seen.what == answer::stale;
  if (is_control(who)) {
    const bool tried = seen.what != answer::unknown_here && seen.what != answer::refused;
    EXPECT_TRUE(brings_old_bytes || !what.dangerous || !tried) << "this test could not fail: " << words(seen.what);
    return;
  }
  // Each watching monitor that claims the event has to tell. Where none claims it, the documentation says so.
  const auto claims = static_cast<std::uint8_t>(what.claimed_by) & static_cast<std::uint8_t>(seen.watching);
  const bool must_hold = who.announces || !seen.keeps || claims != 0;
  EXPECT_FALSE(brings_old_bytes && must_hold);
}

}  // namespace pinfold::testing
