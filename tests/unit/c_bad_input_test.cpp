// SPDX-License-Identifier: BSD-3-Clause
// Bad input to the C interface gets a clear error and changes nothing.
#include "support/fixtures/c_fixture.hpp"

#include <pinfold/pinfold.h>

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace pinfold::testing::c_bad_input_test {
namespace {

TEST(c_bad_input, null_is_refused_everywhere) {
  pinfold_cache* made = nullptr;
  const auto options = c_options();
  pinfold_statistics counters{};
  counters.size = sizeof counters;
  EXPECT_EQ(pinfold_create(nullptr, nullptr, &options, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_import(nullptr, nullptr, &options, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_mlock(&options, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_io_uring(nullptr, 0, &options, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire(nullptr, &counters, 1, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_find(nullptr, &counters, 1, 1).pin, 0U);
  EXPECT_EQ(pinfold_import(nullptr, 0, &counters, 8, 1, 1).pin, 0U);
  EXPECT_EQ(pinfold_find_import(nullptr, 0, &counters, 8, 1, 1).pin, 0U);
  EXPECT_EQ(pinfold_handle_bytes(nullptr), 0U);
  EXPECT_EQ(pinfold_release({}), PINFOLD_OK);
  EXPECT_EQ(pinfold_share({}).pin, 0U);
  EXPECT_EQ(pinfold_is_stale({}), 0);
  EXPECT_EQ(pinfold_is_closed({}), 1);
  EXPECT_EQ(pinfold_covered({}, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_registration_of({}), nullptr);
  EXPECT_EQ(pinfold_detach({}), nullptr);
  EXPECT_EQ(pinfold_release_registration(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire_batch(nullptr, nullptr, 0, 1, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_batch(nullptr, 0), PINFOLD_OK);
  EXPECT_EQ(pinfold_release_batch(nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire_chunks(nullptr, &counters, 1, 1, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_next_chunk(nullptr, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_end_chunks(nullptr);
  pinfold_announce_gone(nullptr, 0);
  EXPECT_EQ(pinfold_close_idle_in_process(nullptr, nullptr, 1), 0);
  EXPECT_EQ(pinfold_close_idle_in_process("cuda_host", nullptr, 0), 0);
  EXPECT_EQ(pinfold_invalidate(nullptr, nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_invalidate_peer(nullptr, 0, 0, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_drop_peer(nullptr, 0), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_unpersist(nullptr, nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_GT(pinfold_monitors(nullptr, nullptr, 0), 0U);
  EXPECT_EQ(pinfold_flush(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_quiesce(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_progress(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_evict(nullptr, 1), 0U);
  EXPECT_EQ(pinfold_statistics_of(nullptr, &counters), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_GT(pinfold_describe(nullptr, nullptr, 0), 0U);
  EXPECT_EQ(pinfold_dump(nullptr, [](void*, const pinfold_entry*) { return 0; }, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_destroy(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_options_init(nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_options_from_environment(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_options_from_text(nullptr, ""), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_exporter_create(0, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_allocate(nullptr, 1, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_data(nullptr), nullptr);
  EXPECT_EQ(pinfold_memfd_size(nullptr), 0U);
  EXPECT_EQ(pinfold_memfd_handle(nullptr, nullptr, 0), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_memfd_free(nullptr);
  pinfold_memfd_exporter_destroy(nullptr);
  EXPECT_EQ(pinfold_cuda_exporter_create(nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_cuda_share(nullptr, 0, 0, nullptr, 0), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_cuda_exporter_destroy(nullptr);
  pinfold_cache* cache = nullptr;
  EXPECT_EQ(pinfold_create_cuda_host(-1, nullptr, &cache), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_create_cuda_ipc(-1, nullptr, &cache), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_GT(pinfold_describe_error(nullptr, nullptr, 0), 0U);
}

TEST(c_bad_input, unknown_bits_and_numbers_are_refused) {
  c_fixture f;
  const auto expect_refused = [&](auto change) {
    auto options = c_options();
    change(options);
    pinfold_cache* made = f.cache;
    const auto table = f.device.table();
    EXPECT_EQ(pinfold_create(&table, &f.device, &options, &made), PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(made, nullptr);
  };
  expect_refused([](pinfold_options& o) { o.flags = 2048; });
  expect_refused([](pinfold_options& o) { o.merge = 3; });
  expect_refused([](pinfold_options& o) { o.shards = 65; });
  expect_refused([](pinfold_options& o) { o.monitor = 16; });
  expect_refused([](pinfold_options& o) { o.full = 3; });
  expect_refused([](pinfold_options& o) { std::memset(o.name, 'x', sizeof o.name); });
  expect_refused([](pinfold_options& o) { o.size = 0; });
  expect_refused([](pinfold_options& o) { --o.size; });
  for (const std::uint32_t access : {0U, 32U, 33U, 0xffffffffU}) {
    EXPECT_EQ(f.acquire(0x1000, 0x2000, access).pin, 0U);
    EXPECT_EQ(last_code(), PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(pinfold_find(f.cache, reinterpret_cast<void*>(0x1000), 1, access).pin, 0U);
  }
  pinfold_acquire_options how{};
  how.size = sizeof how;
  how.flags = 8;
  EXPECT_EQ(pinfold_acquire_with(f.cache, &how, 1, 1, &how).pin, 0U);
  how.flags = PINFOLD_FILE;
  how.file = -1;
  EXPECT_EQ(pinfold_acquire_with(f.cache, &how, 1, 1, &how).pin, 0U);
  how = {};
  EXPECT_EQ(pinfold_acquire_with(f.cache, &how, 1, 1, &how).pin, 0U) << "without a size";
  const pinfold_batch_options batch{};
  const pinfold_range where{0x1000, 1};
  pinfold_lease lease{};
  EXPECT_EQ(pinfold_acquire_batch(f.cache, &where, 1, 1, &batch, &lease), PINFOLD_E_INVALID_ARGUMENT);
  const pinfold_chunk_options pieces{};
  pinfold_chunks* chunks = nullptr;
  EXPECT_EQ(pinfold_acquire_chunks(f.cache, &how, 1, 1, &pieces, &chunks), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_memfd_exporter* exporter = nullptr;
  EXPECT_EQ(pinfold_memfd_exporter_create(4, &exporter), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_cache* made = nullptr;
  EXPECT_EQ(pinfold_create_memfd(8, nullptr, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(f.device.device->calls, 0U);
  EXPECT_EQ(f.device.finished, 0) << "a cache that was not made does not own the application's object";
}

// What a newer program knows, and this library does not.
TEST(c_bad_input, longer_structure_is_accepted_while_the_rest_is_zero) {
  struct newer {
    pinfold_options known;
    std::uint64_t more;
  } options{c_options(), 0};
  options.known.size = sizeof options;
  c_device device;
  const auto table = device.table();
  pinfold_cache* made = nullptr;
  ASSERT_EQ(pinfold_create(&table, &device, &options.known, &made), PINFOLD_OK);
  EXPECT_EQ(pinfold_destroy(made), PINFOLD_OK);
  options.more = 1;
  EXPECT_EQ(pinfold_create(&table, &device, &options.known, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(made, nullptr);
}

TEST(c_bad_input, bad_tables_are_refused) {
  const c_device device;
  const auto expect_refused = [&](auto change) {
    auto table = device.table();
    change(table);
    pinfold_cache* made = nullptr;
    EXPECT_EQ(pinfold_create(&table, nullptr, nullptr, &made), PINFOLD_E_INVALID_ARGUMENT);
  };
  expect_refused([](pinfold_registrar& t) { t.name = nullptr; });
  expect_refused([](pinfold_registrar& t) { t.open = nullptr; });
  expect_refused([](pinfold_registrar& t) { t.close = nullptr; });
  expect_refused([](pinfold_registrar& t) { t.granularity = 3; });
  expect_refused([](pinfold_registrar& t) { t.granularity = std::size_t{1} << 30U; });
  expect_refused([](pinfold_registrar& t) { t.access = 32; });
  expect_refused([](pinfold_registrar& t) { t.size = 8; });
}

TEST(c_bad_input, ranges_that_are_empty_or_wrap_around_are_refused) {
  c_fixture f;
  EXPECT_EQ(pinfold_acquire(f.cache, reinterpret_cast<void*>(0x1000), 0, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(pinfold_acquire(f.cache, reinterpret_cast<void*>(0x1000), SIZE_MAX, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(pinfold_invalidate(f.cache, nullptr, 0), PINFOLD_E_INVALID_RANGE);
  const pinfold_range wrong{UINT64_MAX, 2};
  pinfold_lease lease{};
  EXPECT_EQ(pinfold_acquire_batch(f.cache, &wrong, 1, 1, nullptr, &lease), PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(f.device.device->calls, 0U);
}

TEST(c_bad_input, calls_of_the_other_kind_are_refused) {
  c_fixture f;
  const std::uint64_t handle = 0;
  EXPECT_EQ(pinfold_import(f.cache, 1, &handle, sizeof handle, 1, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_drop_peer(f.cache, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_handle_bytes(f.cache), 0U);
}

TEST(c_bad_input, second_release_of_a_hit_is_noticed) {
  c_fixture f;
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  const auto hit = f.acquire(0x1000, 0x2000);
  EXPECT_EQ(pinfold_release(hit), PINFOLD_OK);
  EXPECT_EQ(pinfold_release(hit), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(f.counters().leases_now, 0U);
}

TEST(c_bad_input, size_that_was_never_set_is_refused) {
  const c_device device;
  const auto table = device.table();
  pinfold_cache* made = nullptr;
  for (const std::size_t size : {SIZE_MAX, SIZE_MAX - 100, std::size_t{1} << 40U, std::size_t{4097}}) {
    auto options = c_options();
    options.size = size;
    EXPECT_EQ(pinfold_create(&table, nullptr, &options, &made), PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(pinfold_options_init(&options, size), PINFOLD_E_INVALID_ARGUMENT);
  }
}

TEST(c_bad_input, program_of_a_newer_version_initializes_its_longer_options) {
  struct newer {
    pinfold_options known;
    std::uint64_t more = 7;
  } options;
  ASSERT_EQ(pinfold_options_init(&options.known, sizeof options), PINFOLD_OK);
  EXPECT_EQ(options.known.size, sizeof options);
  EXPECT_EQ(options.more, 0U);
}

TEST(c_bad_input, address_that_is_no_registration_is_refused) {
  c_fixture f;
  const auto lease = f.acquire(0x1000, 0x2000);
  alignas(16384) static std::array<std::byte, 16384> elsewhere;  // the library looks at the beginning of such a block
  std::memcpy(elsewhere.data() + 4096, pinfold_registration_of(lease), sizeof(pinfold_registration));
  EXPECT_EQ(pinfold_release_registration(elsewhere.data() + 4096), PINFOLD_E_INVALID_ARGUMENT) << "a copy";
  const auto* inside = static_cast<const std::byte*>(pinfold_registration_of(lease)) + 8;
  EXPECT_EQ(pinfold_release_registration(inside), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release_registration(reinterpret_cast<void*>(24)), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
}

TEST(c_bad_input, settings_text_changes_options_or_nothing) {
  auto options = c_options();
  const auto before = options;
  EXPECT_EQ(pinfold_options_from_text(&options, "PINFOLD_MAX_COUNT=7\nPINFOLD_WHEN_FULL=wait\n"), PINFOLD_OK);
  EXPECT_EQ(options.max_count, 7U);
  EXPECT_EQ(options.full, static_cast<std::uint32_t>(PINFOLD_FULL_WAIT));
  options = before;
  EXPECT_EQ(pinfold_options_from_text(&options, "PINFOLD_MAX_COUNT=7\nPINFOLD_NONSENSE=1\n"),
            PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(std::memcmp(&options, &before, sizeof options), 0);
  EXPECT_NE(std::strstr(pinfold_last_error()->message, "PINFOLD_NONSENSE"), nullptr) << pinfold_last_error()->message;
}

TEST(c_bad_input, codes_have_names) {
  EXPECT_STREQ(pinfold_error_name(PINFOLD_OK), "ok");
  EXPECT_STREQ(pinfold_error_name(PINFOLD_E_CLOSED), "closed");
  EXPECT_STREQ(pinfold_error_name(PINFOLD_E_INVALID_RANGE), "invalid_range");
  EXPECT_STREQ(pinfold_error_name(1), "unknown");
  EXPECT_STREQ(pinfold_error_name(-17), "unknown");
  EXPECT_STREQ(pinfold_event_name(-1), "unknown");
  EXPECT_EQ(pinfold_version(), PINFOLD_API_VERSION);
}

}  // namespace
}  // namespace pinfold::testing::c_bad_input_test
