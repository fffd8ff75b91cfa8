// SPDX-License-Identifier: BSD-3-Clause
// The C interface over memory of other processes.
#include "support/fixtures/c_fixture.hpp"
#include "support/processes/in_child.hpp"

#include <pinfold/pinfold.h>

#include <gtest/gtest.h>

#include <array>
#include <cstring>

namespace pinfold::testing::c_import_test {
namespace {

struct plain_handle {
  std::uint64_t serial, base, bytes;
};

// An exporter whose memory is one array of this process.
struct c_world {
  std::array<char, 8192> memory{};
  int opens = 0;
  int closes = 0;
  void* last_argument = nullptr;

  [[nodiscard]] static pinfold_importer table() {
    pinfold_importer calls{};
    calls.size = sizeof calls;
    calls.name = "array";
    calls.handle_bytes = sizeof(plain_handle);
    calls.check = [](void*, const void* handle, std::uint64_t* base, std::uint64_t* bytes) -> int {
      plain_handle of{};
      std::memcpy(&of, handle, sizeof of);
      *base = of.base;
      *bytes = of.bytes;
      return of.serial == 0 ? PINFOLD_E_INVALID_HANDLE : PINFOLD_OK;
    };
    calls.open = [](void* self, const pinfold_open_request* what, pinfold_imported* made, pinfold_error*) -> int {
      auto& own = *static_cast<c_world*>(self);
      plain_handle of{};
      std::memcpy(&of, what->handle, sizeof of);
      ++own.opens;
      EXPECT_EQ(what->peer, 3U);
      own.last_argument = what->argument;
      made->base = of.base;
      made->bytes = of.bytes;
      made->data = own.memory.data();
      made->registration.words[1] = of.serial;
      return PINFOLD_OK;
    };
    calls.close = [](void* self, const pinfold_registration*, pinfold_error*) -> int {
      ++static_cast<c_world*>(self)->closes;
      return PINFOLD_OK;
    };
    return calls;
  }
};

TEST(c_import, replaced_handle_is_opened_anew) {
  c_world world;
  const auto table = c_world::table();
  pinfold_cache* cache = nullptr;
  ASSERT_EQ(pinfold_create_import(&table, &world, nullptr, &cache), PINFOLD_OK);
  EXPECT_EQ(pinfold_handle_bytes(cache), sizeof(plain_handle));
  plain_handle handle{1, 0x10000, 4096};
  for (int i = 0; i < 3; ++i) {
    const auto lease = pinfold_import(cache, 3, &handle, sizeof handle, 0x10010, 16);
    ASSERT_NE(lease.pin, 0U) << pinfold_last_error()->message;
    EXPECT_EQ(lease.data, world.memory.data() + 16);
    EXPECT_EQ(static_cast<const pinfold_registration*>(pinfold_registration_of(lease))->words[1], 1U);
    EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
  }
  EXPECT_EQ(world.opens, 1);
  std::array<char, sizeof handle + 1> packet{};
  std::memcpy(packet.data() + 1, &handle, sizeof handle);
  EXPECT_EQ(pinfold_release(pinfold_import(cache, 3, packet.data() + 1, sizeof handle, 0x10010, 16)), PINFOLD_OK);
  EXPECT_EQ(world.opens, 1) << "at an odd address, too";
  handle.serial = 2;
  EXPECT_EQ(pinfold_find_import(cache, 3, &handle, sizeof handle, 0x10010, 16).pin, 0U);
  EXPECT_EQ(pinfold_release(pinfold_import(cache, 3, &handle, sizeof handle, 0x10010, 16)), PINFOLD_OK);
  EXPECT_EQ(world.opens, 2);
  handle.serial = 3;
  pinfold_acquire_options how{};
  how.size = sizeof how;
  how.argument = &world;
  EXPECT_EQ(pinfold_release(pinfold_import_with(cache, 3, &handle, sizeof handle, 0x10010, 16, &how)), PINFOLD_OK);
  EXPECT_EQ(world.last_argument, &world);
  how.flags = PINFOLD_BYPASS;
  EXPECT_EQ(pinfold_import_with(cache, 3, &handle, sizeof handle, 0x10010, 16, &how).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_invalidate_peer(cache, 3, 0x10000, 1), PINFOLD_OK);
  EXPECT_EQ(pinfold_find_import(cache, 3, &handle, sizeof handle, 0x10010, 16).pin, 0U);
  EXPECT_EQ(pinfold_drop_peer(cache, 3), PINFOLD_OK);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
  EXPECT_EQ(world.opens, world.closes);
}

TEST(c_import, bad_handles_and_ranges_are_refused_without_an_open) {
  c_world world;
  const auto table = c_world::table();
  pinfold_cache* cache = nullptr;
  ASSERT_EQ(pinfold_create_import(&table, &world, nullptr, &cache), PINFOLD_OK);
  plain_handle handle{0, 0x10000, 4096};
  EXPECT_EQ(pinfold_import(cache, 3, &handle, sizeof handle, 0x10000, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_HANDLE);
  EXPECT_EQ(pinfold_import(cache, 3, &handle, 8, 0x10000, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_HANDLE);
  EXPECT_EQ(pinfold_import(cache, 3, nullptr, sizeof handle, 0x10000, 1).pin, 0U);
  handle = {1, 0x10000, 4096};
  EXPECT_EQ(pinfold_import(cache, 3, &handle, sizeof handle, 0x10fff, 2).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_RANGE);
  handle.bytes = 0;
  EXPECT_EQ(pinfold_import(cache, 3, &handle, sizeof handle, 0x10000, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_HANDLE);
  EXPECT_EQ(pinfold_acquire(cache, &handle, 1, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire_batch(cache, nullptr, 0, 1, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(world.opens, 0);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
}

// Imports the handle in a child process; returns 0 if the bytes are right.
int read_in_child(const std::array<char, PINFOLD_MEMFD_HANDLE_BYTES>& handle, std::uint64_t address) {
  pinfold_cache* cache = nullptr;
  if (pinfold_create_memfd(0, nullptr, &cache) != PINFOLD_OK) return 1;
  const auto lease = pinfold_import(cache, 1, handle.data(), handle.size(), address, 6);
  if (lease.pin == 0) return 2;
  const bool right = std::memcmp(lease.data, "shared", 6) == 0;
  if (pinfold_release(lease) != PINFOLD_OK || pinfold_destroy(cache) != PINFOLD_OK) return 3;
  return right ? 0 : 4;
}

TEST(c_import, memfd_buffer_is_read_by_another_process) {
  pinfold_memfd_exporter* exporter = nullptr;
  pinfold_memfd_buffer* buffer = nullptr;
  ASSERT_EQ(pinfold_memfd_exporter_create(PINFOLD_MEMFD_SERVE, &exporter), PINFOLD_OK);
  ASSERT_EQ(pinfold_memfd_allocate(exporter, 10'000, &buffer), PINFOLD_OK);
  EXPECT_EQ(pinfold_memfd_size(buffer) % 4096, 0U);
  std::memcpy(static_cast<char*>(pinfold_memfd_data(buffer)) + 5000, "shared", 6);
  std::array<char, PINFOLD_MEMFD_HANDLE_BYTES> handle{};
  EXPECT_EQ(pinfold_memfd_handle(buffer, handle.data(), 8), PINFOLD_E_INVALID_ARGUMENT);
  ASSERT_EQ(pinfold_memfd_handle(buffer, handle.data(), handle.size()), PINFOLD_OK);
  const auto address = reinterpret_cast<std::uintptr_t>(pinfold_memfd_data(buffer)) + 5000;
  run_in_child([&] { EXPECT_EQ(read_in_child(handle, address), 0); });
  pinfold_memfd_free(buffer);
  pinfold_memfd_exporter_destroy(exporter);
}

}  // namespace
}  // namespace pinfold::testing::c_import_test
