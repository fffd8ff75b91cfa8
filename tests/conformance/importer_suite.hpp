// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What every importer has to pass. An instantiation gives a rig, with exporters in whatever process its driver needs:
///
///     struct rig {
///       using importer_type = my_importer;
///       importer_type make_importer();
///       my_handle allocate(std::size_t bytes, std::uint32_t seed);  // a new allocation that holds the seed's pattern
///       void free(const my_handle& allocation);
///       void end_exporter();  // ends the process that has the memory; the last call
///       bool holds(const void* data, std::size_t bytes, std::uint32_t seed);  // whether mapped memory has the pattern
///     };
///     INSTANTIATE_TYPED_TEST_SUITE_P(mine, importer_suite, rig);
#pragma once

#include <pinfold/importer.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing {

template <class Rig>
class importer_suite : public ::testing::Test {
 protected:
  using importer_type = typename Rig::importer_type;
  using handle_type = typename importer_type::handle_type;
  using registration_type = typename importer_type::registration_type;
  static_assert(importer<importer_type>);

  static constexpr std::size_t page = 4096;
  static constexpr peer_id peer{1};

  static std::string bytes_of(const handle_type& handle) {
    std::string bytes(sizeof handle, '\0');
    std::memcpy(bytes.data(), &handle, sizeof handle);
    return bytes;
  }

  /// Opens the handle and looks at all of its memory.
  imported<registration_type> opened(importer_type& importer, const handle_type& handle, std::size_t bytes,
                                     std::uint32_t seed) {
    const auto made = importer.open(peer, handle);
    if (!made) {
      ADD_FAILURE() << describe(made.error());
      return {};
    }
    EXPECT_GE(made->covered.size(), bytes);
    EXPECT_TRUE(rig.holds(made->data, bytes, seed));
    return *made;
  }

  /// Expects `can_open` and then `open` to refuse the handle with this code.
  static void expect_both_refuse(importer_type& importer, const handle_type& handle, errc code)
    requires can_open_importer<importer_type>
  {
    const auto asked = importer.can_open(handle);
    const auto made = importer.open(peer, handle);
    ASSERT_FALSE(asked) << "could be opened, although " << name_of(code) << " was expected";
    ASSERT_FALSE(made) << "opened, although " << name_of(code) << " was expected";
    EXPECT_EQ(asked.error(), code) << describe(asked.error());
    EXPECT_EQ(made.error(), code) << describe(made.error());
  }

  /// Returns the handle with other bits in one byte.
  static handle_type damaged(handle_type handle, std::size_t at) {
    auto* const bytes = reinterpret_cast<unsigned char*>(&handle);
    bytes[at] ^= 0x5aU;
    return handle;
  }

  Rig rig;
};

TYPED_TEST_SUITE_P(importer_suite);

TYPED_TEST_P(importer_suite, mapping_of_any_size_shows_the_exporters_bytes) {
  auto importer = this->rig.make_importer();
  std::uint32_t seed = 0;
  for (const std::size_t bytes : {this->page, 3 * this->page, std::size_t{1} << 20U}) {
    const auto handle = this->rig.allocate(bytes, ++seed);
    const auto checked = importer.check(handle);
    ASSERT_TRUE(checked) << describe(checked.error());
    const auto made = this->opened(importer, handle, bytes, seed);
    EXPECT_TRUE(made.covered.contains(*checked));
    EXPECT_GE(made.bytes, made.covered.size());
    EXPECT_TRUE(importer.close(made.registration));
  }
}

TYPED_TEST_P(importer_suite, handles_are_unique_even_at_one_address) {
  std::set<std::string> seen;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    const auto handle = this->rig.allocate(this->page, seed);
    EXPECT_TRUE(seen.insert(this->bytes_of(handle)).second);
    this->rig.free(handle);
  }
}

TYPED_TEST_P(importer_suite, opens_again_after_each_close) {
  auto importer = this->rig.make_importer();
  const auto handle = this->rig.allocate(this->page, 5);
  for (int i = 0; i < 10; ++i) {
    const auto made = this->opened(importer, handle, this->page, 5);
    ASSERT_TRUE(importer.close(made.registration)) << i;
  }
}

TYPED_TEST_P(importer_suite, second_open_succeeds_if_the_importer_allows_duplicates) {
  auto importer = this->rig.make_importer();
  const auto handle = this->rig.allocate(this->page, 6);
  const auto first = this->opened(importer, handle, this->page, 6);
  const auto second = importer.open(this->peer, handle);
  ASSERT_EQ(second.has_value(), TypeParam::importer_type::allows_duplicates);
  if (second) {
    EXPECT_TRUE(importer.close(second->registration));
  } else {
    EXPECT_EQ(second.error(), errc::already_mapped) << describe(second.error());
  }
  EXPECT_TRUE(this->rig.holds(first.data, this->page, 6)) << "the first open has suffered";
  EXPECT_TRUE(importer.close(first.registration));
}

TYPED_TEST_P(importer_suite, invalid_handle_is_refused_by_check_and_open) {
  auto importer = this->rig.make_importer();
  const typename TypeParam::importer_type::handle_type nothing{};
  const auto checked = importer.check(nothing);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error(), errc::invalid_handle);
  const auto made = importer.open(this->peer, nothing);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error(), errc::invalid_handle);
}

TYPED_TEST_P(importer_suite, freed_allocation_is_refused_as_stale_without_leaks) {
  auto importer = this->rig.make_importer();
  const auto kept = this->rig.allocate(this->page, 7);
  const auto freed = this->rig.allocate(this->page, 8);
  this->rig.free(freed);
  for (int i = 0; i < 3; ++i) {
    const auto made = importer.open(this->peer, freed);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error(), errc::stale_handle) << describe(made.error());
  }
  const auto made = this->opened(importer, kept, this->page, 7);
  EXPECT_TRUE(importer.close(made.registration));
}

TYPED_TEST_P(importer_suite, a_mapping_closes_once) {
  auto importer = this->rig.make_importer();
  const auto handle = this->rig.allocate(this->page, 9);
  const auto made = this->opened(importer, handle, this->page, 9);
  ASSERT_TRUE(importer.close(made.registration));
  EXPECT_FALSE(importer.close(made.registration));
}

TYPED_TEST_P(importer_suite, R8_different_handles_open_and_close_on_many_threads) {
  auto importer = this->rig.make_importer();
  constexpr std::uint32_t threads = 4;
  std::vector<typename TypeParam::importer_type::handle_type> handles;
  for (std::uint32_t i = 0; i < threads; ++i) handles.push_back(this->rig.allocate(this->page, i));
  std::atomic<int> wrong{0};
  const auto work = [&](std::uint32_t own) {
    for (int round = 0; round < 200; ++round) {
      const auto made = importer.open(this->peer, handles[own]);
      const bool right = made && this->rig.holds(made->data, this->page, own) && importer.close(made->registration);
      if (!right) ++wrong;
    }
  };
  {
    std::vector<std::jthread> running;
    for (std::uint32_t i = 0; i < threads; ++i) running.emplace_back(work, i);
  }
  EXPECT_EQ(wrong, 0);
}

TYPED_TEST_P(importer_suite, mappings_move_with_their_importer) {
  auto importer = this->rig.make_importer();
  const auto handle = this->rig.allocate(this->page, 10);
  const auto made = this->opened(importer, handle, this->page, 10);
  auto moved = std::move(importer);
  EXPECT_TRUE(this->rig.holds(made.data, this->page, 10));
  EXPECT_TRUE(moved.close(made.registration));
}

TYPED_TEST_P(importer_suite, can_open_agrees_with_open) {
  if constexpr (can_open_importer<typename TypeParam::importer_type>) {
    auto importer = this->rig.make_importer();
    const auto handle = this->rig.allocate(this->page, 11);
    ASSERT_TRUE(importer.can_open(handle)) << describe(importer.can_open(handle).error());
    const auto made = this->opened(importer, handle, this->page, 11);
    EXPECT_TRUE(importer.can_open(handle)) << "also of memory that is open";
    EXPECT_TRUE(this->rig.holds(made.data, this->page, 11));
    EXPECT_TRUE(importer.close(made.registration));
    EXPECT_TRUE(importer.can_open(handle));
    this->rig.end_exporter();
    this->expect_both_refuse(importer, handle, errc::peer_gone);
  } else {
    GTEST_SKIP() << "the importer cannot tell without opening";
  }
}

TYPED_TEST_P(importer_suite, can_open_and_open_see_damage_in_each_byte) {
  if constexpr (can_open_importer<typename TypeParam::importer_type>) {
    auto importer = this->rig.make_importer();
    const auto handle = this->rig.allocate(this->page, 12);
    for (std::size_t at = 0; at < sizeof handle; ++at) {
      SCOPED_TRACE(at);
      this->expect_both_refuse(importer, this->damaged(handle, at), errc::invalid_handle);
    }
    const auto made = this->opened(importer, handle, this->page, 12);
    EXPECT_TRUE(importer.close(made.registration));
  } else {
    GTEST_SKIP() << "the importer cannot tell without opening";
  }
}

TYPED_TEST_P(importer_suite, can_open_of_freed_memory_succeeds_or_says_stale) {
  if constexpr (can_open_importer<typename TypeParam::importer_type>) {
    auto importer = this->rig.make_importer();
    const auto kept = this->rig.allocate(this->page, 13);
    const auto freed = this->rig.allocate(this->page, 14);
    this->rig.free(freed);
    const auto asked = importer.can_open(freed);  // need not know of the free
    EXPECT_TRUE(asked || asked.error() == errc::stale_handle) << describe(asked.error());
    const auto made = importer.open(this->peer, freed);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error(), errc::stale_handle) << describe(made.error());
    EXPECT_TRUE(importer.can_open(kept));
  } else {
    GTEST_SKIP() << "the importer cannot tell without opening";
  }
}

REGISTER_TYPED_TEST_SUITE_P(importer_suite, mapping_of_any_size_shows_the_exporters_bytes,
                            handles_are_unique_even_at_one_address, opens_again_after_each_close,
                            second_open_succeeds_if_the_importer_allows_duplicates,
                            invalid_handle_is_refused_by_check_and_open,
                            freed_allocation_is_refused_as_stale_without_leaks, a_mapping_closes_once,
                            R8_different_handles_open_and_close_on_many_threads, mappings_move_with_their_importer,
                            can_open_agrees_with_open, can_open_and_open_see_damage_in_each_byte,
                            can_open_of_freed_memory_succeeds_or_says_stale);

}  // namespace pinfold::testing
