// SPDX-License-Identifier: BSD-3-Clause
// The events that a sink in C receives.
#include "support/fixtures/c_fixture.hpp"

#include "c/event.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

namespace pinfold::testing::c_event_test {
namespace {

using texts = std::map<int, std::string>;

void keep(void* self, const pinfold_event* what) { static_cast<texts*>(self)->emplace(what->kind, what->text); }

TEST(c_event, each_kind_has_a_text_of_its_own) {
  std::set<std::string> all;
  for (int kind = 0; kind <= PINFOLD_EVENT_REFUSED_BY_NODE_BUDGET; ++kind) {
    texts received;
    c::send({static_cast<event_kind>(kind), severity::info}, keep, &received);
    EXPECT_NE(received[kind], "") << pinfold_event_name(kind);
    all.insert(received[kind]);
  }
  EXPECT_EQ(all.size(), PINFOLD_EVENT_REFUSED_BY_NODE_BUDGET + 1U);
}

TEST(c_event, text_of_the_cache_is_kept) {
  event what{event_kind::monitor_degraded, severity::failure};
  what.text = "hooks: removed";
  texts received;
  c::send(what, keep, &received);
  EXPECT_EQ(received[PINFOLD_EVENT_MONITOR_DEGRADED], "hooks: removed");
}

TEST(c_event, sink_receives_texts_of_a_cache) {
  texts received;
  auto options = c_options();
  options.max_count = 1;
  options.flags = PINFOLD_STATISTICS_AT_EXIT | PINFOLD_TRACE_REQUESTS;
  options.sink = keep;
  options.sink_self = &received;
  {
    c_fixture f(options);
    EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
    const auto lease = f.acquire(0x3000, 0x4000);
    EXPECT_EQ(pinfold_invalidate(f.cache, lease.data, 0x1000), PINFOLD_OK);
    EXPECT_EQ(pinfold_progress(f.cache), PINFOLD_OK);
    f.device.device->fail_closes(1);
    EXPECT_EQ(pinfold_release(lease), PINFOLD_E_DRIVER_ERROR);
  }
  for (const int kind : {PINFOLD_EVENT_REQUESTED, PINFOLD_EVENT_EVICTED, PINFOLD_EVENT_INVALIDATED_WHILE_LEASED,
                         PINFOLD_EVENT_CLOSE_FAILED, PINFOLD_EVENT_STATISTICS})
    EXPECT_TRUE(received.contains(kind)) << pinfold_event_name(kind);
  for (const auto& [kind, text] : received) EXPECT_NE(text, "") << pinfold_event_name(kind);
}

}  // namespace
}  // namespace pinfold::testing::c_event_test
