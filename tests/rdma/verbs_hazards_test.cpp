// SPDX-License-Identifier: BSD-3-Clause
// All events that take the pages from under a memory region, and the bytes that the device then writes to a peer: R30,
// R32, R37.
#include "rdma/sending.hpp"
#include "support/hazards/hazard_trial.hpp"
#include "support/hazards/hazards_program.hpp"
#include "support/host/process_limits.hpp"
#include "support/host/sanitized.hpp"

#include <string_view>

namespace pinfold::testing::verbs_hazards_test {
namespace {

using namespace std::string_view_literals;

// Excludes two events: a device's queues belong to the process that made them, and libibverbs allocates its record of a
// region where it keeps the top of the heap from being given back.
bool is_for_verbs(const hazard& what) {
  const std::string_view name = what.name;
  if (sanitized && name.find("vfork") != std::string_view::npos) return false;
  return name != "fork, and the child uses the cache" && name != "free at the top of the heap, and malloc";
}

class verbs_hazards : public ::testing::TestWithParam<watch_case> {};

// Makes the monitors in a child, so that the next child starts without any.
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

void skip_without_monitor(const watch_case& who) {
  const bool may_be_missing =
      sanitized || who.monitor == monitor_choice::automatic || contains_any(who.monitor, monitor_choice::userfaultfd);
  ASSERT_TRUE(may_be_missing) << "the hooks do not prove themselves";
  GTEST_SKIP()
      << "no such monitor here: userfaultfd needs Linux 6.7, hooks libc's own allocator and no other code that unmaps";
}

// Returns whether old bytes arrived.
template <class Device>
bool brings_old_bytes(const watch_case& who, const hazard& what, const char* way) {
  SCOPED_TRACE(what.name);
  const auto seen = try_in_child<Device>(who, what);
  std::cout << who.name << way << ": " << what.name << ": " << words(seen.what)
            << std::endl;  // flushed, or the next child prints it as well
  expect_sound(who, what, seen);
  return seen.what == answer::stale;
}

TEST_P(verbs_hazards, R30_no_stale_bytes_are_sent_when_a_monitor_covers_the_event) {
  if (!keeps_here(GetParam())) return skip_without_monitor(GetParam());
  const auto pinned = counted_by_kernel("VmPin");
  int stale = 0;
  for (const auto* list : {&hazards::of_memory(), &hazards::of_programs()})
    for (const auto& what : *list)
      if (is_for_verbs(what) && brings_old_bytes<rdma_sending>(GetParam(), what, "")) ++stale;
  if (is_control(GetParam())) {
    EXPECT_GE(stale, 14) << "old bytes with status=success are what all this is about";
  }
  EXPECT_EQ(counted_by_kernel("VmPin"), pinned);
}

// The device looks the memory up in the same way for messages: a few events show that, at both ends.
TEST_P(verbs_hazards, R30_messages_neither_carry_stale_bytes_nor_arrive_in_old_memory) {
  if (!keeps_here(GetParam())) return skip_without_monitor(GetParam());
  int stale = 0;
  for (const auto& what : hazards::of_memory()) {
    const std::string_view name = what.name;
    if (name != "munmap, and mmap at the address" && name != "mremap of something else onto it" &&
        name != "madvise DONTNEED")
      continue;
    if (brings_old_bytes<rdma_moving<rdma_way::send>>(GetParam(), what, ", send")) ++stale;
    if (brings_old_bytes<rdma_moving<rdma_way::receive>>(GetParam(), what, ", receive")) ++stale;
  }
  EXPECT_EQ(stale, is_control(GetParam()) ? 6 : 0);
}

std::vector<watch_case> watchers() {
  std::vector<watch_case> list;
  for (const auto& one : all_watch_cases())
    if (one.name != "none"sv && one.name != "bpf"sv && one.name != "manual"sv && !one.strict) list.push_back(one);
  return list;
}
INSTANTIATE_TEST_SUITE_P(watched_by, verbs_hazards, ::testing::ValuesIn(watchers()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace pinfold::testing::verbs_hazards_test
