// SPDX-License-Identifier: BSD-3-Clause
// Everything that takes the pages from under a registration, and what the device then sends: R30, R32, R37.
#include "support/child_process.hpp"
#include "support/hazard_table.hpp"
#include "support/hazards_files.hpp"
#include "support/hazards_program.hpp"
#include "support/sanitized.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <iostream>

namespace pinfold::testing {
namespace {

std::vector<hazard> all_hazards() {
  std::vector<hazard> all;
  for (const auto* list : {&hazards::of_memory(), &hazards::of_files(), &hazards::of_programs()})
    all.insert(all.end(), list->begin(), list->end());
  return all;
}

// What a child says of itself.
struct verdict {
  answer what = answer::unknown_here;
  monitor_choice watching{};  // those that proved themselves
  bool keeps = false;         // somebody tells
};

verdict try_in_this_process(const watch_case& who, const hazard& what) {
  constexpr unsigned most_seconds = 60;
  ::alarm(most_seconds);
  stage on(who);
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

// Events take the heap, the break and the ring with them: each has a process of its own.
verdict try_in_child(const watch_case& who, const hazard& what) {
  child_process child([&](line& parent) {
    try {
      return parent.send(try_in_this_process(who, what)) ? 0 : 1;
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

class hazards_of : public ::testing::TestWithParam<watch_case> {
 protected:
  static bool writing() { return std::getenv("PINFOLD_HAZARDS_WRITE") != nullptr; }
  void expect_sound(const hazard& what, const verdict& seen);
  void compare(const hazard& what, const verdict& seen);

  const watch_case& who_ = GetParam();
  const bool control_ = who_.monitor == monitor_choice::explicit_ && !who_.announces;
  hazard_table table_{PINFOLD_MONITORS_PAGE};
};

void hazards_of::expect_sound(const hazard& what, const verdict& seen) {
  const bool brings_old_bytes = seen.what == answer::stale;
  if (control_) {
    const bool tried = seen.what != answer::unknown_here && seen.what != answer::refused;
    EXPECT_TRUE(brings_old_bytes || !what.dangerous || !tried) << "this test could not fail: " << words(seen.what);
    return;
  }
  // Each of those that watch would have to tell. Where none claims it, the documentation says so.
  const auto claims = static_cast<std::uint8_t>(what.claimed_by) & static_cast<std::uint8_t>(seen.watching);
  const bool must_hold = who_.announces || !seen.keeps || claims != 0;
  EXPECT_FALSE(brings_old_bytes && must_hold);
}

void hazards_of::compare(const hazard& what, const verdict& seen) {
  const bool has_one = who_.column != nullptr && seen.what != answer::unknown_here;
  if (!has_one || (!seen.keeps && who_.monitor != monitor_choice::none)) return;
  if (writing()) return table_.set(what.name, who_.column, words(seen.what));
  if (!table_.readable() || sanitized) return;  // a sanitizer's own allocator and calls are not this host's
  EXPECT_EQ(table_.cell(what.name, who_.column).value_or("nothing"), words(seen.what))
      << "docs/monitors.md says otherwise: scripts/hazards-table writes what is so";
}

TEST_P(hazards_of, R30_no_old_bytes_where_somebody_says_that_he_sees_it) {
  std::vector<std::string> rows, columns;
  for (const auto& what : all_hazards()) {
    SCOPED_TRACE(what.name);
    if (sanitized && std::string_view(what.name).find("vfork") != std::string_view::npos)
      continue;  // the thread sanitizer's own state is damaged by a child that shares it
    const auto seen = try_in_child(who_, what);
    std::cout << what.name << ": " << words(seen.what) << '\n';
    expect_sound(what, seen);
    compare(what, seen);
    rows.emplace_back(what.name);
  }
  for (const auto& one : all_watch_cases())
    if (one.column != nullptr) columns.emplace_back(one.column);
  if (writing()) table_.write(rows, columns);
}

INSTANTIATE_TEST_SUITE_P(watched_by, hazards_of, ::testing::ValuesIn(all_watch_cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace pinfold::testing
