// SPDX-License-Identifier: BSD-3-Clause
// A listener's thread that is closing memory, or waits for its turn to, delays no open (R66).
#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include "support/processes/retiring_peer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>

namespace pinfold::testing::release_busy_listener_test {
namespace {

using namespace std::chrono_literals;

/// What a close waits for.
struct gate {
  std::atomic<bool> armed{false};
  std::latch closing{1};
  std::latch opened{1};
};

class gated_importer {
 public:
  static constexpr const char* name = memfd_importer::name;
  static constexpr bool allows_duplicates = memfd_importer::allows_duplicates;
  using handle_type = memfd_importer::handle_type;
  using registration_type = memfd_importer::registration_type;

  explicit gated_importer(std::shared_ptr<gate> in) : gate_(std::move(in)) {}

  [[nodiscard]] result<range> check(const memfd_handle& handle) const noexcept { return below_.check(handle); }
  [[nodiscard]] result<imported<registration_type>> open(peer_id peer, const memfd_handle& handle) noexcept {
    return below_.open(peer, handle);
  }
  [[nodiscard]] result<void> close(const registration_type& mapping) noexcept {
    if (gate_->armed.exchange(false)) {
      gate_->closing.count_down();
      gate_->opened.wait();
    }
    return below_.close(mapping);
  }

 private:
  std::shared_ptr<gate> gate_;
  memfd_importer below_{{.access = memfd_access::read_write}};
};

template <class Cache>
bool reads(Cache& cache, const memfd_handle& handle) {
  const auto lease = cache.acquire(peer_id{handle.exporter}, handle, handle.base, handle.size);
  EXPECT_TRUE(lease) << describe(lease.error());
  return lease.has_value();
}

TEST(release_busy_listener, R66_a_slow_close_delays_no_open) {
  retiring_peer one, other;
  const auto held = std::make_shared<gate>();
  auto listener = release_listener::create().value();
  import_cache cache(releasing_importer<gated_importer>(gated_importer(held), listener));
  const auto attached = listener.attach(cache).value();
  ASSERT_TRUE(reads(cache, one.allocate(1).handle));
  held->armed = true;
  ASSERT_TRUE(one.begin(30s).done);
  held->closing.wait();  // on the listener's thread
  EXPECT_TRUE(reads(cache, other.allocate(1).handle));
  EXPECT_TRUE(reads(cache, one.allocate(1).handle)) << "of the exporter whose memory is being closed";
  held->opened.count_down();
}

TEST(release_busy_listener, R66_opens_of_a_serial_cache_need_no_turn_of_the_listener) {
  retiring_peer peer;
  auto listener = release_listener::create().value();
  import_cache cache(releasing_importer<memfd_importer>(memfd_importer({.access = memfd_access::read_write}), listener),
                     {.serial = true});
  const auto attached = listener.attach(cache).value();
  for (int round = 0; round < 300; ++round) {
    ASSERT_TRUE(reads(cache, peer.allocate(1).handle)) << "round " << round;
    ASSERT_TRUE(peer.order_begin(5s));  // the request comes while the next memory is opened
    const auto next = peer.answer();
    ASSERT_TRUE(next && next->done);
  }
}

}  // namespace
}  // namespace pinfold::testing::release_busy_listener_test
