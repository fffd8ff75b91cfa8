// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What every importer has to pass. An instantiation gives a rig, with exporters in whatever process its driver needs:
///
///     struct rig {
///       using importer_type = my_importer;
///       importer_type make_importer();
///       my_handle allocate(std::size_t bytes, std::uint32_t seed);  // a new allocation that holds the seed's pattern
///       void free(const my_handle& allocation);
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

REGISTER_TYPED_TEST_SUITE_P(importer_suite, mapping_of_any_size_shows_the_exporters_bytes,
                            handles_are_unique_even_at_one_address, opens_again_after_each_close,
                            second_open_succeeds_if_the_importer_allows_duplicates,
                            invalid_handle_is_refused_by_check_and_open,
                            freed_allocation_is_refused_as_stale_without_leaks, a_mapping_closes_once,
                            R8_different_handles_open_and_close_on_many_threads, mappings_move_with_their_importer);

}  // namespace pinfold::testing
