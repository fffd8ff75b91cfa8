// SPDX-License-Identifier: BSD-3-Clause
// The self test of the monitors, while another thread of the program maps memory.
#include "monitors/self_test/self_test.hpp"
#include "invalidation/monitor_set.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::self_test_test {
namespace {

/// Takes the place of what a probe has unmapped at once, as another thread may.
class quick_thread final : public invalidation::monitor {
 public:
  ~quick_thread() override {
    for (void* const one : taken) ::munmap(one, page_);
  }
  [[nodiscard]] const char* name() const noexcept override { return "quick"; }
  [[nodiscard]] result<void> watch(const range& pages) noexcept override {
    watched_ = pages;
    return {};
  }
  std::uint64_t drain() noexcept override {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    for (auto at = watched_.begin; at < watched_.end; at += page_) {
      void* const wanted = reinterpret_cast<void*>(at);
      if (::mmap(wanted, page_, PROT_READ | PROT_WRITE, flags, -1, 0) == wanted) taken.push_back(wanted);
    }
    return 0;
  }
  /// Whether all that it took is still mapped.
  [[nodiscard]] bool has_all() const {
    unsigned char resident = 0;
    for (void* const one : taken)
      if (::mincore(one, page_, &resident) != 0) return false;
    return true;
  }

  std::vector<void*> taken;

 private:
  const std::size_t page_ = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  range watched_{};
};

TEST(self_test, probes_unmap_no_memory_that_another_thread_maps_where_theirs_was) {
  std::size_t taken = 0;
  for (const auto& probe : monitors::system_calls()) {
    const auto thread = std::make_shared<quick_thread>();
    const invalidation::monitor_set watched_by({thread});
    monitors::sources seen = 0;
    static_cast<void>(probe.run(watched_by, seen));
    EXPECT_TRUE(thread->has_all()) << probe.event;
    taken += thread->taken.size();
  }
  EXPECT_GT(taken, 0U);
}

}  // namespace
}  // namespace pinfold::testing::self_test_test
