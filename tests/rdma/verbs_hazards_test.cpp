// SPDX-License-Identifier: BSD-3-Clause
// Everything that takes the pages from under a memory region, and what the device then writes to a peer: R30, R32, R37.
#include "rdma/sending.hpp"
#include "support/hazard_trial.hpp"
#include "support/hazards_program.hpp"
#include "support/process_limits.hpp"
#include "support/sanitized.hpp"

#include <string_view>

namespace pinfold::testing {
namespace {

using namespace std::string_view_literals;

// A device's queues are those of the process that made them; and libibverbs allocates its record of a region where it
// keeps the top of the heap from being given back.
bool is_for_verbs(const hazard& what) {
  const std::string_view name = what.name;
  if (sanitized && name.find("vfork") != std::string_view::npos) return false;
  return name != "fork, and the child uses the cache" && name != "free at the top of the heap, and malloc";
}

class verbs_hazards : public ::testing::TestWithParam<watch_case> {};

// In a child, as all that monitors: the next child is to start without one.
bool keeps_here(const watch_case& who) {
  child_process child([&](line& parent) {
    const auto text = stage_on<rdma_sending>(who).monitors();
    std::cout << who.name << " is: " << text << '\n' << std::flush;
    return parent.send(!text.starts_with("none")) ? 0 : 1;
  });
  const bool keeps = child.talk().receive<bool>().value_or(false);
  EXPECT_EQ(child.reap(), 0);
  return keeps;
}

TEST_P(verbs_hazards, R30_no_old_bytes_where_somebody_says_that_he_sees_it) {
  if (!keeps_here(GetParam())) {
    const bool may_be_missing = sanitized || includes(GetParam().monitor, monitor_choice::userfaultfd);
    ASSERT_TRUE(may_be_missing) << "the hooks do not prove themselves";
    GTEST_SKIP() << "no such monitor here: userfaultfd needs Linux 6.7, hooks libc's own allocator";
  }
  const auto pinned = counted_by_kernel("VmPin");
  int stale = 0;
  for (const auto* list : {&hazards::of_memory(), &hazards::of_programs()})
    for (const auto& what : *list) {
      if (!is_for_verbs(what)) continue;
      SCOPED_TRACE(what.name);
      const auto seen = try_in_child<rdma_sending>(GetParam(), what);
      std::cout << GetParam().name << ": " << what.name << ": " << words(seen.what)
                << std::endl;  // or the next child says it too
      expect_sound(GetParam(), what, seen);
      stale += seen.what == answer::stale ? 1 : 0;
    }
  if (is_control(GetParam())) {
    EXPECT_GE(stale, 14) << "old bytes with status=success are what all this is about";
  }
  EXPECT_EQ(counted_by_kernel("VmPin"), pinned);
}

std::vector<watch_case> watchers() {
  std::vector<watch_case> list;
  for (const auto& one : all_watch_cases())
    if (one.name != "none"sv && one.name != "bpf"sv && one.name != "explicit"sv && !one.strict) list.push_back(one);
  return list;
}
INSTANTIATE_TEST_SUITE_P(watched_by, verbs_hazards, ::testing::ValuesIn(watchers()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace pinfold::testing
