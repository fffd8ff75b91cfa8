// SPDX-License-Identifier: BSD-3-Clause
// Every driver call of a long scenario fails once, in every way, over real memfd mappings: nothing leaks, the counters
// add up, and the next call works (R7, R10, R41, R43).
#include "support/doubles/faulty_importer.hpp"
#include "support/doubles/through_c.hpp"
#include "support/fixtures/cache_checks.hpp"
#include "support/fixtures/interface.hpp"

#include <pinfold/importers/memfd.hpp>

#include <cstring>
#include <vector>

namespace pinfold::testing::fault_injection_test {
namespace {

using faulty = faulty_importer<memfd_importer>;

/// An exporter in this process, whose buffers carry their own serial.
class exporter {
 public:
  exporter() : real_(std::move(*memfd_exporter::create())) {}

  memfd_handle add(std::size_t bytes, void* where = nullptr) {
    auto made = real_.allocate(bytes, where);
    EXPECT_TRUE(made) << describe(made.error());
    std::memcpy(made->data(), &made->handle().serial, sizeof made->handle().serial);
    buffers_.push_back(std::move(*made));
    return buffers_.back().handle();
  }
  /// Frees the buffer of `old` and allocates `bytes` at the same address.
  memfd_handle regrow(const memfd_handle& old, std::size_t bytes) {
    std::erase_if(buffers_, [&](const auto& one) { return one.handle() == old; });
    return add(bytes, reinterpret_cast<void*>(old.base));
  }

 private:
  memfd_exporter real_;
  std::vector<memfd_buffer> buffers_;
};

template <class Cache>
void use(Cache& cache, const memfd_handle& handle) {
  auto lease = cache.acquire({1}, handle, handle.base, handle.size);
  if (!lease) return;  // the fault struck this call, or an earlier one whose effect is in the way
  EXPECT_EQ(serial_at(lease->data()), handle.serial);
}

/// Performs hits, misses, evictions, a replaced handle, a conflict, an invalidation, a dropped peer and a flush.
template <class Cache>
void scenario(Cache& cache, exporter& source) {
  std::vector<memfd_handle> handles;
  for (int i = 0; i < 5; ++i) handles.push_back(source.add(0x4000));
  for (int round = 0; round < 2; ++round)
    for (const auto& one : handles) use(cache, one);
  handles[4] = source.regrow(handles[4], 0x4000);
  use(cache, handles[4]);
  handles[4] = source.regrow(handles[4], 0x2000);
  handles[4] = source.regrow(handles[4], 0x3000);
  use(cache, handles[4]);
  cache.invalidate({1}, handles[4].allocation());
  use(cache, handles[3]);
  use(cache, handles[4]);
  static_cast<void>(cache.drop_peer({1}));  // its result depends on the fault; the counters check it
  use(cache, handles[0]);
  static_cast<void>(cache.flush());
}

/// Runs the scenario with one call failing; returns how many driver calls it made.
template <class Cache>
std::size_t run_with(std::size_t failing, const error& with, const cache_options& options) {
  exporter source;
  auto plan = std::make_shared<fault_plan>();
  plan->failing = failing;
  plan->with = with;
  Cache cache(faulty(memfd_importer{}, plan), options);
  scenario(cache, source);
  const auto calls = plan->calls.load();

  const auto after = source.add(0x1000);
  auto next = cache.acquire({1}, after, after.base, after.size);
  EXPECT_TRUE(next) << "the next call works: " << describe(next.error());
  EXPECT_TRUE(!next || next->release());
  EXPECT_TRUE(cache.flush());
  expect_nothing_open(cache.statistics());
  EXPECT_EQ(cache.backend().inner().held(), 0U) << "nothing is left open in the driver";
  return calls;
}

template <class Interface>
class fault_injection : public ::testing::Test {};
using interfaces = ::testing::Types<through_cpp, through_c>;
TYPED_TEST_SUITE(fault_injection, interfaces);

TYPED_TEST(fault_injection, R10_R41_any_single_fault_leaks_nothing) {
  const auto run = run_with<typename TypeParam::template import_cache<faulty>>;
  const error faults[] = {{errc::driver_error, native_kind::posix, 5, "injected: permanent"},
                          {errc::out_of_resources, native_kind::posix, 12, "injected: out of resources"},
                          {errc::already_mapped, native_kind::posix, 16, "injected: already mapped"},
                          {errc::stale_handle, native_kind::posix, 9, "injected: stale handle"}};
  for (const bool retain : {true, false})
    for (const auto closes : {close_policy::immediate, close_policy::deferred}) {
      const cache_options options{.retain = retain, .max_count = 4, .closes = closes};
      const auto calls = run(SIZE_MAX, faults[0], options);
      ASSERT_GT(calls, 15U) << "the scenario must reach the driver";
      for (const auto& with : faults)
        for (std::size_t call = 0; call < calls; ++call) {
          SCOPED_TRACE(::testing::Message() << with.message << ", call " << call << ", retain " << retain);
          run(call, with, options);
          if (this->HasFailure()) return;
        }
    }
}

}  // namespace
}  // namespace pinfold::testing::fault_injection_test
