// SPDX-License-Identifier: BSD-3-Clause
// The room that an entry has for a back end's own data: the largest handles and registrations work, larger ones are
// refused.
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/import_cache.hpp>
#include <pinfold/registrars/cuda_memory.hpp>
#include <pinfold/registrars/libfabric.hpp>
#include <pinfold/registrars/trace.hpp>
#include <pinfold/registrars/verbs.hpp>

#include <array>
#include <stdexcept>

namespace pinfold::testing::entry_room_test {
namespace {

static_assert(identifying_registrar<cuda_memory<libfabric_registrar>>, "docs/use/gpu.md offers it");
static_assert(identifying_registrar<cuda_memory<verbs_registrar>>, "the same");
static_assert(identifying_registrar<cuda_memory<trace_registrar<libfabric_registrar>>>);
static_assert(registrar<trace_registrar<cuda_memory<libfabric_registrar>>>);

/// An importer that opens nothing.
struct wide_importer {
  static constexpr const char* name = "wide";
  static constexpr bool allows_duplicates = true;
  struct handle_type {
    std::uint64_t base;
    std::array<std::uint64_t, max_handle_bytes / 8 - 1> rest;
  };
  struct registration_type {
    std::array<std::uint64_t, max_imported_registration_bytes / 8> words;
  };
  static constexpr std::size_t bytes = 0x1000;

  [[nodiscard]] result<range> check(const handle_type& handle) const noexcept { return range::of(handle.base, bytes); }
  [[nodiscard]] result<imported<registration_type>> open(peer_id, const handle_type& handle) noexcept {
    registration_type made;
    made.words.fill(handle.rest.back());
    return imported<registration_type>{{handle.base, handle.base + bytes}, nullptr, bytes, made};
  }
  [[nodiscard]] result<void> close(const registration_type&) noexcept { return {}; }
};

wide_importer::handle_type wide_handle(std::uint64_t number) {
  wide_importer::handle_type made{};
  made.base = number * 0x10000;
  made.rest.fill(number);
  return made;
}

TEST(entry_room, holds_the_largest_handle) {
  import_cache cache(wide_importer{});
  for (int round = 0; round < 2; ++round)
    for (std::uint64_t i = 1; i <= 500; ++i) {
      const auto lease = cache.acquire({1}, wide_handle(i), i * 0x10000, 64);
      ASSERT_TRUE(lease) << describe(lease.error());
      for (const auto word : lease->registration().words) EXPECT_EQ(word, i);
    }
  EXPECT_EQ(cache.statistics().hits, 500U);
}

TEST(entry_room, compares_the_last_byte_of_the_largest_handle) {
  import_cache cache(wide_importer{});
  auto handle = wide_handle(1);
  ASSERT_TRUE(cache.acquire({1}, handle, handle.base, 64));
  handle.rest.back() ^= std::uint64_t{1} << 63U;
  ASSERT_TRUE(cache.acquire({1}, handle, handle.base, 64));
  EXPECT_EQ(cache.statistics().invalid, 1U);
}

/// A registrar that registers nothing, with registrations of the largest permitted size.
struct wide_registrar : fake_registrar {
  using fake_registrar::fake_registrar;
  struct registration_type {
    std::uint64_t key;
    std::array<std::uint64_t, max_registration_bytes / 8 - 1> copies;
  };
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    auto made = fake_registrar::open(memory, access);
    if (!made) return tl::unexpected(made.error());
    registration_type wide{made->key, {}};
    wide.copies.fill(made->key);
    return wide;
  }
  [[nodiscard]] result<void> close(const registration_type& made) noexcept {
    for (const auto copy : made.copies) EXPECT_EQ(copy, made.key);
    return fake_registrar::close({made.key});
  }
};

TEST(entry_room, holds_the_largest_registration) {
  local_fixture<wide_registrar> f;
  for (int round = 0; round < 2; ++round)
    for (std::uintptr_t i = 1; i <= 500; ++i) f.touch(i * 0x10000, i * 0x10000 + 0x1000);
  EXPECT_EQ(f.cache.statistics().hits, 500U);
  ASSERT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST(entry_room, refuses_larger_handles_and_registrations_at_construction) {
  const auto driver_with = [](std::size_t token_bytes, std::size_t object_bytes) {
    return detail::driver{.self = nullptr,
                          .name = "too large",
                          .token_bytes = token_bytes,
                          .object_bytes = object_bytes,
                          .allows_duplicates = true,
                          .check = nullptr,
                          .open = nullptr,
                          .close = nullptr};
  };
  EXPECT_TRUE(detail::make_engine(driver_with(max_handle_bytes, max_imported_registration_bytes), {}));
  for (const auto& [token, object] :
       {std::pair<std::size_t, std::size_t>{max_handle_bytes + 1, max_imported_registration_bytes},
        {4096, 8},
        {SIZE_MAX, 8},
        {0, max_registration_bytes + 1},
        {0, SIZE_MAX}})
    EXPECT_THROW(static_cast<void>(detail::make_engine(driver_with(token, object), keeping())), std::invalid_argument);
}

}  // namespace
}  // namespace pinfold::testing::entry_room_test
