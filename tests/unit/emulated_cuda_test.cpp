// SPDX-License-Identifier: BSD-3-Clause
// The emulated driver alone, in one process: tests that use it are worth as much as it is.
#include "support/fixtures/emulated_cuda_test.hpp"

#include <string>
#include <thread>
#include <vector>

namespace emulated_cuda_test {
namespace {

using namespace pinfold::cuda;
using pinfold::testing::emulated;
using pinfold::testing::kib;
using pinfold::testing::mib;
using emulated_cuda_driver = pinfold::testing::emulated_cuda_fixture;

TEST_F(emulated_cuda_driver, device_name_marks_the_emulation) {
  char name[64];
  ASSERT_EQ(cu.device_get_name(name, sizeof name, 0), status::success);
  EXPECT_STREQ(name, "emulated GPU 0 (not real)");
  const char* text = nullptr;
  EXPECT_EQ(cu.get_error_name(status::already_mapped, &text), status::success);
  EXPECT_STREQ(text, "CUDA_ERROR_ALREADY_MAPPED");
  EXPECT_EQ(cu.get_error_name(static_cast<status>(-5), &text), status::invalid_value);
}

TEST_F(emulated_cuda_driver, devices_are_counted_and_identified) {
  int count = 0;
  ASSERT_EQ(cu.device_get_count(&count), status::success);
  device found = -1;
  EXPECT_EQ(cu.device_get(&found, count - 1), status::success);
  EXPECT_EQ(cu.device_get(&found, count), status::invalid_device);
  uuid id{};
  EXPECT_EQ(cu.device_get_uuid(&id, 0), status::success);
  EXPECT_EQ(std::string(id.bytes, 14), "emulated GPU 0");
}

TEST_F(emulated_cuda_driver, a_thread_without_a_context_is_refused) {
  std::thread([&] {
    device_pointer made = 0;
    EXPECT_EQ(cu.mem_alloc(&made, 1), status::invalid_context);
    context none = nullptr;
    EXPECT_EQ(cu.ctx_pop_current(&none), status::invalid_context);
    EXPECT_EQ(cu.ctx_get_current(&none), status::success);
    EXPECT_EQ(none, nullptr);
  }).join();
}

TEST_F(emulated_cuda_driver, contexts_form_a_stack) {
  context mine = nullptr;
  ASSERT_EQ(cu.ctx_get_current(&mine), status::success);
  EXPECT_EQ(cu.ctx_push_current(mine), status::success);
  context popped = nullptr;
  EXPECT_EQ(cu.ctx_pop_current(&popped), status::success);
  EXPECT_EQ(popped, mine);
  EXPECT_EQ(cu.ctx_set_current(nullptr), status::success);
  device of = 0;
  EXPECT_EQ(cu.ctx_get_device(&of), status::invalid_context);
  EXPECT_EQ(cu.ctx_push_current(reinterpret_cast<context>(&of)), status::invalid_context);
}

TEST_F(emulated_cuda_driver, reset_destroys_the_context_and_its_allocations) {
  const device_pointer gone = alloc(64 * kib);
  ASSERT_EQ(cu.device_primary_ctx_reset(0), status::success);
  EXPECT_EQ(emulated().counters().allocations, 0U);
  EXPECT_EQ(cu.mem_free(gone), status::context_is_destroyed);
  context again = nullptr;
  ASSERT_EQ(cu.device_primary_ctx_retain(&again, 0), status::success);
  EXPECT_EQ(cu.mem_free(gone), status::invalid_value);
  EXPECT_EQ(cu.mem_free(alloc(kib)), status::success);
}

TEST_F(emulated_cuda_driver, the_last_release_destroys_the_context) {
  ASSERT_EQ(cu.device_primary_ctx_release(0), status::success);
  device of = 0;
  EXPECT_EQ(cu.ctx_get_device(&of), status::context_is_destroyed);
  EXPECT_EQ(cu.device_primary_ctx_release(0), status::invalid_context);
}

TEST_F(emulated_cuda_driver, small_allocations_share_a_block_at_multiples_of_512) {
  const device_pointer first = alloc(1000);
  const device_pointer second = alloc(1);
  const device_pointer third = alloc(32 * kib);
  EXPECT_EQ(first % (2 * mib), 0U);
  EXPECT_EQ(second, first + 1024);
  EXPECT_EQ(third, first + 4 * kib);
  using enum pointer_attribute;
  EXPECT_EQ(attribute<unsigned long long>(memory_block_id, first),
            attribute<unsigned long long>(memory_block_id, third));
  EXPECT_EQ(attribute<device_pointer>(mapping_base_addr, third), first);
  EXPECT_EQ(attribute<std::size_t>(mapping_size, third), 2 * mib);
  const device_pointer large = alloc(2 * mib + 1);
  EXPECT_EQ(large, first + 2 * mib);
  EXPECT_EQ(attribute<std::size_t>(mapping_size, large), 4 * mib);
  for (const device_pointer each : {second, first, third, large}) EXPECT_EQ(cu.mem_free(each), status::success);
}

TEST_F(emulated_cuda_driver, freed_memory_is_reused_from_the_lowest_address) {
  const device_pointer a = alloc(32 * kib);
  const device_pointer b = alloc(32 * kib);
  const device_pointer c = alloc(32 * kib);
  const auto old_id = attribute<unsigned long long>(pointer_attribute::buffer_id, a);
  ASSERT_EQ(cu.mem_free(a), status::success);
  ASSERT_EQ(cu.mem_free(b), status::success);
  const device_pointer over_both = alloc(64 * kib);
  EXPECT_EQ(over_both, a);
  EXPECT_NE(attribute<unsigned long long>(pointer_attribute::buffer_id, over_both), old_id);
  EXPECT_EQ(alloc(32 * kib), c + 32 * kib);
}

TEST_F(emulated_cuda_driver, free_accepts_only_the_base_of_a_live_allocation) {
  const device_pointer made = alloc(8 * kib);
  EXPECT_EQ(cu.mem_free(made + 512), status::invalid_value);
  EXPECT_EQ(cu.mem_free(made), status::success);
  EXPECT_EQ(cu.mem_free(made), status::invalid_value);
  EXPECT_EQ(cu.mem_free(0), status::success);
}

TEST_F(emulated_cuda_driver, allocation_beyond_the_device_memory_is_refused) {
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_EQ(cu.mem_get_info(&free, &total), status::success);
  EXPECT_EQ(free, total);
  device_pointer made = 0;
  EXPECT_EQ(cu.mem_alloc(&made, total + 1), status::out_of_memory);
  const device_pointer most = alloc(total - 2 * mib);
  const device_pointer rest = alloc(mib);
  EXPECT_EQ(cu.mem_alloc(&made, 2 * mib), status::out_of_memory);
  EXPECT_EQ(cu.mem_alloc(&made, 0), status::invalid_value);
  ASSERT_EQ(cu.mem_free(most), status::success);
  ASSERT_EQ(cu.mem_free(rest), status::success);
  ASSERT_EQ(cu.mem_get_info(&free, &total), status::success);
  EXPECT_EQ(free, total);
}

TEST_F(emulated_cuda_driver, pointer_attributes_describe_the_address) {
  using enum pointer_attribute;
  const device_pointer made = alloc(10000);
  const device_pointer inside = made + 9999;
  EXPECT_EQ(attribute<int>(memory_type, inside), 2);
  EXPECT_EQ(attribute<device_pointer>(device_address, inside), inside);
  EXPECT_EQ(attribute<unsigned>(is_managed, inside), 0U);
  EXPECT_EQ(attribute<int>(device_ordinal, inside), 0);
  EXPECT_EQ(attribute<int>(is_legacy_cuda_ipc_capable, inside), 1);
  EXPECT_EQ(attribute<device_pointer>(range_start_addr, inside), made);
  EXPECT_EQ(attribute<std::size_t>(range_size, inside), 10000U);
  EXPECT_EQ(attribute<int>(mapped, inside), 1);
  EXPECT_EQ(attribute<std::uint64_t>(allowed_handle_types, inside), 0U);
  EXPECT_EQ(attribute<memory_pool>(mempool_handle, inside), nullptr);
  context mine = nullptr;
  ASSERT_EQ(cu.ctx_get_current(&mine), status::success);
  EXPECT_EQ(attribute<context>(owning_context, inside), mine);
  device_pointer base = 0;
  std::size_t bytes = 0;
  EXPECT_EQ(cu.mem_get_address_range(&base, &bytes, inside), status::success);
  EXPECT_EQ(base, made);
  EXPECT_EQ(bytes, 10000U);
  EXPECT_EQ(cu.mem_get_address_range(&base, &bytes, made + 10000), status::not_found);
}

TEST_F(emulated_cuda_driver, attributes_of_an_unknown_address_are_zero) {
  int here = 0;
  unsigned long long id = 1;
  EXPECT_EQ(cu.pointer_get_attribute(&id, pointer_attribute::buffer_id, reinterpret_cast<device_pointer>(&here)),
            status::invalid_value);
  int type = 1;
  pointer_attribute wanted[]{pointer_attribute::buffer_id, pointer_attribute::memory_type};
  void* values[]{&id, &type};
  EXPECT_EQ(cu.pointer_get_attributes(2, wanted, values, reinterpret_cast<device_pointer>(&here)), status::success);
  EXPECT_EQ(id, 0U);
  EXPECT_EQ(type, 0);
}

TEST_F(emulated_cuda_driver, copies_transfer_bytes_in_both_directions) {
  const device_pointer a = alloc(64 * kib);
  const device_pointer b = alloc(64 * kib);
  std::vector<char> sent(64 * kib, 'x');
  std::vector<char> got(64 * kib);
  ASSERT_EQ(cu.memcpy_h_to_d(a, sent.data(), sent.size()), status::success);
  ASSERT_EQ(cu.memset_d8(a, 'y', kib), status::success);
  ASSERT_EQ(cu.memcpy_d_to_d(b, a, sent.size()), status::success);
  ASSERT_EQ(cu.memcpy_d_to_h(got.data(), b, got.size()), status::success);
  EXPECT_EQ(got[0], 'y');
  EXPECT_EQ(got[kib - 1], 'y');
  EXPECT_EQ(got[kib], 'x');
  EXPECT_EQ(cu.memcpy_d_to_h(got.data(), b + 1, got.size()), status::invalid_value) << "past the end";
  ASSERT_EQ(cu.mem_free(b), status::success);
  EXPECT_EQ(cu.memcpy_d_to_h(got.data(), b, 1), status::invalid_value) << "freed";
}

TEST_F(emulated_cuda_driver, managed_memory_is_accessible_from_the_host) {
  device_pointer made = 0;
  EXPECT_EQ(cu.mem_alloc_managed(&made, kib, 0), status::invalid_value);
  ASSERT_EQ(cu.mem_alloc_managed(&made, kib, attach_global), status::success);
  EXPECT_EQ(attribute<unsigned>(pointer_attribute::is_managed, made), 1U);
  EXPECT_EQ(attribute<int>(pointer_attribute::is_legacy_cuda_ipc_capable, made), 0);
  *reinterpret_cast<char*>(made) = 'm';
  ipc_memory_handle handle{};
  EXPECT_EQ(cu.ipc_get_mem_handle(&handle, made), status::invalid_value);
}

TEST_F(emulated_cuda_driver, own_ipc_handle_cannot_be_opened) {
  ipc_memory_handle handle{};
  const device_pointer made = alloc(64 * kib);
  ASSERT_EQ(cu.ipc_get_mem_handle(&handle, made + 5), status::success);
  device_pointer mapped = 0;
  EXPECT_EQ(cu.ipc_open_mem_handle(&mapped, handle, ipc_lazy_enable_peer_access), status::invalid_context);
  EXPECT_EQ(cu.ipc_open_mem_handle(&mapped, handle, 0), status::invalid_value);
  handle.reserved[0] ^= 1;
  EXPECT_EQ(cu.ipc_open_mem_handle(&mapped, handle, ipc_lazy_enable_peer_access), status::invalid_handle);
  EXPECT_EQ(cu.ipc_close_mem_handle(made), status::invalid_value);
  EXPECT_EQ(emulated().counters().wrong_closes, 1U);
}

TEST_F(emulated_cuda_driver, injected_failure_hits_the_requested_call) {
  device_pointer made = 0;
  ASSERT_TRUE(control.fail("cuMemAlloc", 2, 2, false));
  EXPECT_EQ(cu.mem_alloc(&made, kib), status::success);
  EXPECT_EQ(cu.mem_alloc(&made, kib), status::out_of_memory);
  EXPECT_EQ(cu.mem_alloc(&made, kib), status::success);
  ASSERT_TRUE(control.fail("cuMemAlloc_v2", 1, 999, true));
  EXPECT_EQ(cu.mem_alloc(&made, kib), status::unknown);
  EXPECT_EQ(cu.mem_alloc(&made, kib), status::unknown);
  ASSERT_TRUE(control.fail("cuMemAlloc", 1, 0, true));
  EXPECT_EQ(cu.mem_alloc(&made, kib), status::success);
  EXPECT_EQ(control.calls("cuMemAlloc"), 6U);
  EXPECT_FALSE(control.fail("cuNothing", 1, 1, false));
}

TEST_F(emulated_cuda_driver, injected_delay_is_applied) {
  ASSERT_TRUE(control.delay("cuMemGetInfo", 20000));
  const auto before = std::chrono::steady_clock::now();
  std::size_t free = 0;
  std::size_t total = 0;
  ASSERT_EQ(cu.mem_get_info(&free, &total), status::success);
  EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(20));
}

TEST_F(emulated_cuda_driver, threads_allocate_and_free_concurrently) {
  on_four_threads([&](std::size_t t) {
    for (std::size_t i = 1; i < 200; ++i) {
      device_pointer made = 0;
      EXPECT_EQ(cu.mem_alloc(&made, i * 700 * (t + 1)), status::success);
      EXPECT_EQ(cu.memset_d8(made, static_cast<unsigned char>(t), i * 700 * (t + 1)), status::success);
      EXPECT_EQ(cu.mem_free(made), status::success);
    }
  });
}

}  // namespace
}  // namespace emulated_cuda_test
