// SPDX-License-Identifier: BSD-3-Clause
// The emulated driver's streams, events and pools.
#include "support/fixtures/emulated_cuda_test.hpp"

#include <chrono>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace emulated_cuda_streams_test {
namespace {

using namespace pinfold::cuda;
using pinfold::testing::kib;
using pinfold::testing::mib;

constexpr unsigned slow = 150000;  // microseconds before each piece of work

class emulated_cuda_streams : public pinfold::testing::emulated_cuda_fixture {
 protected:
  stream create(unsigned flags = stream_non_blocking) {
    stream made = nullptr;
    EXPECT_EQ(cu.stream_create(&made, flags), status::success);
    return made;
  }
  event create_event(unsigned flags = event_disable_timing) {
    event made = nullptr;
    EXPECT_EQ(cu.event_create(&made, flags), status::success);
    return made;
  }
  void copy_into(device_pointer to, const std::vector<char>& from, stream in) {
    EXPECT_EQ(cu.memcpy_async(to, reinterpret_cast<device_pointer>(from.data()), from.size(), in), status::success);
  }
  char first_of(device_pointer at) { return *reinterpret_cast<const volatile char*>(at); }

  /// Returns whether `submit` took less time than a slow stream rests before its first piece of work. If not, that work
  /// may be done: on a busy machine this thread may have had no processor meanwhile.
  template <class Submit>
  static bool ends_before_the_work_begins(Submit&& submit) {
    const auto start = std::chrono::steady_clock::now();
    submit();
    return std::chrono::steady_clock::now() - start < std::chrono::microseconds(slow);
  }
  static constexpr int tries = 50;
};

TEST_F(emulated_cuda_streams, work_is_asynchronous_and_in_order) {
  const device_pointer at = alloc(kib);
  const std::vector<char> first(kib, 'a');
  const std::vector<char> second(kib, 'b');
  const stream in = create();
  bool in_time = false;
  for (int i = 0; i < tries && !in_time; ++i) {
    control.stream_delay(0);
    ASSERT_EQ(cu.memset_d8(at, 0, kib), status::success);
    control.stream_delay(slow);
    char seen = 0;
    in_time = ends_before_the_work_begins([&] {
      copy_into(at, first, in);
      copy_into(at, second, in);
      seen = first_of(at);
    });
    EXPECT_TRUE(seen == 0 || !in_time) << "not yet";
    EXPECT_EQ(cu.stream_synchronize(in), status::success);
    EXPECT_EQ(first_of(at), 'b');
  }
  EXPECT_TRUE(in_time) << "this machine is too busy";
  EXPECT_EQ(cu.stream_destroy(in), status::success);
  EXPECT_EQ(cu.stream_destroy(in), status::invalid_handle);
  EXPECT_EQ(cu.stream_synchronize(in), status::invalid_handle);
}

TEST_F(emulated_cuda_streams, an_event_orders_two_streams) {
  const device_pointer at = alloc(kib);
  const device_pointer copied = alloc(kib);
  const std::vector<char> bytes(kib, 'e');
  const stream writes = create();
  const stream reads = create();
  const event done = create_event();
  EXPECT_EQ(cu.event_query(done), status::success) << "of nothing";
  control.stream_delay(slow);
  bool in_time = false;
  for (int i = 0; i < tries && !in_time; ++i) {
    ASSERT_EQ(cu.stream_synchronize(writes), status::success);
    status seen = status::unknown;
    in_time = ends_before_the_work_begins([&] {
      copy_into(at, bytes, writes);
      ASSERT_EQ(cu.event_record(done, writes), status::success);
      seen = cu.event_query(done);
    });
    EXPECT_TRUE(seen == status::not_ready || !in_time);
  }
  EXPECT_TRUE(in_time) << "this machine is too busy";
  control.stream_delay(0);
  ASSERT_EQ(cu.stream_wait_event(reads, done, 0), status::success);
  ASSERT_EQ(cu.memcpy_async(copied, at, kib, reads), status::success);
  ASSERT_EQ(cu.stream_synchronize(reads), status::success);
  EXPECT_EQ(first_of(copied), 'e');
  EXPECT_EQ(cu.event_query(done), status::success);
  EXPECT_EQ(cu.event_destroy(done), status::success);
  EXPECT_EQ(cu.event_destroy(done), status::invalid_handle);
  EXPECT_EQ(cu.event_record(done, writes), status::invalid_handle);
}

TEST_F(emulated_cuda_streams, default_stream_and_blocking_streams_wait_for_each_other) {
  const device_pointer at = alloc(kib);
  const std::vector<char> first(kib, 'f');
  const std::vector<char> second(kib, 's');
  const stream other = create(stream_default);
  for (const auto& [slow_one, quick_one] : {std::pair{other, stream{}}, std::pair{stream{}, other}}) {
    control.stream_delay(slow);
    copy_into(at, first, slow_one);
    std::this_thread::sleep_for(std::chrono::microseconds(slow / 3));  // until the stream has begun the delay
    control.stream_delay(0);
    copy_into(at, second, quick_one);
    std::vector<char> got(kib);
    ASSERT_EQ(cu.memcpy_d_to_h(got.data(), at, kib), status::success);
    EXPECT_EQ(got[0], 's');
  }
}

TEST_F(emulated_cuda_streams, failure_in_a_stream_is_returned_by_synchronize) {
  const std::vector<char> bytes(kib, 'x');
  const auto from = reinterpret_cast<device_pointer>(bytes.data());
  const stream in = create();
  bool submitted = false;
  for (int i = 0; i < tries && !submitted; ++i) {
    const device_pointer at = alloc(kib);
    control.stream_delay(slow);
    const bool in_time = ends_before_the_work_begins([&] {
      ASSERT_EQ(cu.mem_free_async(at, in), status::success);
      submitted = cu.memcpy_async(at, from, kib, in) == status::success;  // refused once the memory is freed
    });
    EXPECT_TRUE(submitted || !in_time);
    EXPECT_EQ(cu.ctx_synchronize(), submitted ? status::illegal_address : status::success);
  }
  EXPECT_TRUE(submitted) << "this machine is too busy";
}

TEST_F(emulated_cuda_streams, interprocess_event_requires_disabled_timing) {
  event made = nullptr;
  EXPECT_EQ(cu.event_create(&made, event_interprocess), status::invalid_value);
  ipc_event_handle handle{};
  const event plain = create_event();
  EXPECT_EQ(cu.ipc_get_event_handle(&handle, plain), status::invalid_handle);
  const event shared = create_event(event_interprocess | event_disable_timing);
  ASSERT_EQ(cu.ipc_get_event_handle(&handle, shared), status::success);
  EXPECT_EQ(cu.ipc_open_event_handle(&made, handle), status::invalid_context) << "own";
  EXPECT_EQ(cu.event_destroy(plain), status::success);
  EXPECT_EQ(cu.event_destroy(shared), status::success);
}

TEST_F(emulated_cuda_streams, threads_share_a_stream) {
  const device_pointer at = alloc(64 * kib);
  const stream in = create();
  on_four_threads([&](std::size_t t) {
    const std::vector<char> bytes(kib, static_cast<char>(t));
    const event done = create_event();
    for (std::size_t i = 0; i < 50; ++i) {
      // Nothing orders the two streams, so each has a place of its own.
      copy_into(at + (2 * t + i % 2) * kib, bytes, i % 2 == 0 ? in : nullptr);
      EXPECT_EQ(cu.event_record(done, in), status::success);
      EXPECT_EQ(cu.event_synchronize(done), status::success);
    }
    EXPECT_EQ(cu.event_destroy(done), status::success);
    EXPECT_EQ(cu.ctx_synchronize(), status::success);  // the copies read `bytes`
  });
  for (unsigned place = 0; place < 8; ++place) EXPECT_EQ(first_of(at + place * kib), static_cast<char>(place / 2));
}

class emulated_cuda_pools : public emulated_cuda_streams {
 protected:
  memory_pool create_pool(allocation_handle_type types) {
    const pool_properties wanted{.type = allocation_type::pinned,
                                 .handle_types = types,
                                 .where = {location_type::on_device, 0},
                                 .win32_security_attributes = nullptr,
                                 .max_size = 0,
                                 .usage = 0,
                                 .reserved = {}};
    memory_pool made = nullptr;
    EXPECT_EQ(cu.mem_pool_create(&made, &wanted), status::success);
    return made;
  }
};

TEST_F(emulated_cuda_pools, pool_memory_has_no_ipc_handle) {
  const memory_pool pool = create_pool(allocation_handle_type::posix_file_descriptor);
  device_pointer at = 0;
  ASSERT_EQ(cu.mem_alloc_from_pool_async(&at, kib, pool, nullptr), status::success);
  EXPECT_EQ(attribute<memory_pool>(pointer_attribute::mempool_handle, at), pool);
  EXPECT_EQ(attribute<int>(pointer_attribute::is_legacy_cuda_ipc_capable, at), 0);
  EXPECT_EQ(attribute<std::uint64_t>(pointer_attribute::allowed_handle_types, at), 1U);
  ipc_memory_handle handle{};
  EXPECT_EQ(cu.ipc_get_mem_handle(&handle, at), status::invalid_value);
  const device_pointer plain = alloc(kib);
  EXPECT_NE(attribute<unsigned long long>(pointer_attribute::memory_block_id, at),
            attribute<unsigned long long>(pointer_attribute::memory_block_id, plain));
  EXPECT_EQ(cu.mem_pool_destroy(pool), status::success);
  EXPECT_EQ(cu.mem_pool_destroy(pool), status::invalid_value);
  EXPECT_EQ(cu.memset_d8(at, 1, kib), status::success) << "memory outlives its pool";
  EXPECT_EQ(cu.mem_free_async(at, nullptr), status::success);
  EXPECT_EQ(cu.ctx_synchronize(), status::success);
  EXPECT_EQ(cu.memset_d8(at, 1, kib), status::invalid_value);
}

TEST_F(emulated_cuda_pools, only_pools_with_a_shareable_handle_type_are_exported) {
  const memory_pool plain = create_pool(allocation_handle_type::none);
  device_pointer at = 0;
  ASSERT_EQ(cu.mem_alloc_async(&at, kib, nullptr), status::success);
  const auto usual = attribute<memory_pool>(pointer_attribute::mempool_handle, at);
  constexpr auto posix = allocation_handle_type::posix_file_descriptor;
  int number = -1;
  EXPECT_EQ(cu.mem_pool_export_to_shareable_handle(&number, plain, posix, 0), status::invalid_value);
  EXPECT_EQ(cu.mem_pool_export_to_shareable_handle(&number, usual, posix, 0), status::invalid_value);
  EXPECT_EQ(cu.mem_pool_destroy(usual), status::invalid_value) << "the device's own";
  pool_pointer_export exported{};
  EXPECT_EQ(cu.mem_pool_export_pointer(&exported, at), status::invalid_value);
  EXPECT_EQ(cu.mem_free(at), status::success);
  EXPECT_EQ(cu.mem_pool_destroy(plain), status::success);
}

TEST_F(emulated_cuda_pools, imported_pool_cannot_allocate) {
  const memory_pool pool = create_pool(allocation_handle_type::posix_file_descriptor);
  constexpr auto posix = allocation_handle_type::posix_file_descriptor;
  int number = -1;
  ASSERT_EQ(cu.mem_pool_export_to_shareable_handle(&number, pool, posix, 0), status::success);
  memory_pool imported = nullptr;
  ASSERT_EQ(
      cu.mem_pool_import_from_shareable_handle(&imported, reinterpret_cast<void*>(std::intptr_t{number}), posix, 0),
      status::success);
  device_pointer at = 0;
  EXPECT_EQ(cu.mem_alloc_from_pool_async(&at, kib, imported, nullptr), status::invalid_value);
  generic_allocation memory = 0;
  EXPECT_EQ(cu.mem_import_from_shareable_handle(&memory, reinterpret_cast<void*>(std::intptr_t{number}), posix),
            status::invalid_value)
      << "a pool is no memory";
  ::close(number);
  EXPECT_EQ(cu.mem_pool_destroy(imported), status::success);
  EXPECT_EQ(cu.mem_pool_destroy(pool), status::success);
}

}  // namespace
}  // namespace emulated_cuda_streams_test
