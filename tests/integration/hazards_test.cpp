// SPDX-License-Identifier: BSD-3-Clause
// All events that take the pages from under a registration, and the bytes that the device then sends: R30, R32, R37.
#include "support/doubles/ring_device.hpp"
#include "support/hazards/hazard_table.hpp"
#include "support/hazards/hazard_trial.hpp"
#include "support/hazards/hazards_files.hpp"
#include "support/hazards/hazards_identity.hpp"
#include "support/hazards/hazards_mechanisms.hpp"
#include "support/hazards/hazards_program.hpp"
#include "support/host/sanitized.hpp"

#include <gtest/gtest.h>

#include <iostream>

namespace pinfold::testing::hazards_test {
namespace {

std::vector<hazard> all_hazards() {
  std::vector<hazard> all;
  for (const auto* list : {&hazards::of_memory(), &hazards::of_mechanisms(), &hazards::of_files(),
                           &hazards::of_identity(), &hazards::of_programs()})
    all.insert(all.end(), list->begin(), list->end());
  return all;
}

class hazards_of : public ::testing::TestWithParam<watch_case> {
 protected:
  static bool writing() { return std::getenv("PINFOLD_HAZARDS_WRITE") != nullptr; }
  void compare(const hazard& what, const verdict& seen);

  const watch_case& who_ = GetParam();
  hazard_table table_{PINFOLD_MONITORS_PAGE};
};

void hazards_of::compare(const hazard& what, const verdict& seen) {
  const bool has_one = who_.column != nullptr && seen.what != answer::unknown_here;
  if (!has_one || (!seen.keeps && who_.monitor != monitor_choice::none)) return;
  if (writing()) return table_.set(what.name, who_.column, words(seen.what));
  if (!table_.readable() || sanitized) return;  // a sanitizer changes the allocator and the calls
  EXPECT_EQ(table_.cell(what.name, who_.column).value_or("nothing"), words(seen.what))
      << "docs/understand/monitors.md says otherwise: scripts/hazards-table writes what is so";
}

TEST_P(hazards_of, R30_no_stale_bytes_are_sent_when_a_monitor_covers_the_event) {
  const bool with_hooks =
      contains_any(who_.monitor, monitor_choice::hooks) || std::string_view(who_.name) == "strict_automatic";
  if (thread_sanitized && with_hooks)
    GTEST_SKIP() << "the sanitizer's allocator is not libc's: hooks do not start, and `automatic` shows that";
  std::vector<std::string> rows, columns;
  for (const auto& what : all_hazards()) {
    SCOPED_TRACE(what.name);
    if (sanitized && std::string_view(what.name).find("vfork") != std::string_view::npos)
      continue;  // a child that shares the thread sanitizer's state damages it
    const auto seen = try_in_child<ring_device>(who_, what);
    std::cout << what.name << ": " << words(seen.what) << '\n';
    expect_sound(who_, what, seen);
    compare(what, seen);
    rows.emplace_back(what.name);
  }
  for (const auto& one : all_watch_cases())
    if (one.column != nullptr) columns.emplace_back(one.column);
  if (writing()) table_.write(rows, columns);
}

// The page also lists events that the machine that wrote it could not cause; another machine can, and compares them.
TEST(hazards_page, page_has_an_answer_for_every_event_and_monitor) {
  const hazard_table table(PINFOLD_MONITORS_PAGE);
  if (!table.readable()) GTEST_SKIP() << "docs/understand/monitors.md is not readable by this user";
  for (const auto& what : all_hazards())
    for (const auto& one : all_watch_cases()) {
      if (one.column == nullptr) continue;
      const auto cell = table.cell(what.name, one.column);
      ASSERT_TRUE(cell) << what.name << ": no cell for " << one.column;
      EXPECT_NE(*cell, words(answer::unknown_here)) << what.name << ", " << one.column;
    }
}

INSTANTIATE_TEST_SUITE_P(watched_by, hazards_of, ::testing::ValuesIn(all_watch_cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace pinfold::testing::hazards_test
