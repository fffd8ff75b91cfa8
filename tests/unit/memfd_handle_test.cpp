// SPDX-License-Identifier: BSD-3-Clause
#include "importers/memfd/handle.hpp"
#include "os/page_bytes.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string_view>

namespace memfd_handle_test {
namespace {

using pinfold::errc;
using pinfold::memfd_handle;
using pinfold::memfd::checked;
using pinfold::memfd::completed;

memfd_handle good() {
  const std::uint64_t page = pinfold::os::page_bytes();
  return completed({.magic = 0,
                    .exporter = 7,
                    .serial = 1,
                    .base = 16 * page,
                    .size = 2 * page,
                    .inode = 99,
                    .start_time = 12345,
                    .pid = 42,
                    .descriptor = 0,
                    .access = 0,
                    .check = 0});
}

/// Returns a handle with one field changed, and a correct checksum.
template <class Change>
memfd_handle changed(Change change) {
  memfd_handle made = good();
  change(made);
  return completed(made);
}

TEST(memfd_handle, checksum_is_crc32c) {
  constexpr std::string_view digits = "123456789";  // the check value in catalogues of CRCs
  EXPECT_EQ(pinfold::fd_passing::crc32c(std::as_bytes(std::span(digits))), 0xe306'9283U);
}

TEST(memfd_handle, valid_handle_gives_its_allocation) {
  const auto allocation = checked(good());
  ASSERT_TRUE(allocation);
  EXPECT_EQ(*allocation, (pinfold::range{good().base, good().base + good().size}));
}

TEST(memfd_handle, every_flipped_bit_is_detected) {
  for (std::size_t bit = 0; bit < 8 * sizeof(memfd_handle); ++bit) {
    memfd_handle damaged = good();
    auto* bytes = reinterpret_cast<unsigned char*>(&damaged);
    bytes[bit / 8] = static_cast<unsigned char>(bytes[bit / 8] ^ (1U << (bit % 8)));
    const auto allocation = checked(damaged);
    ASSERT_FALSE(allocation) << "bit " << bit;
    EXPECT_EQ(allocation.error(), errc::invalid_handle);
  }
}

TEST(memfd_handle, handles_of_all_zeros_and_all_ones_are_refused) {
  EXPECT_EQ(checked(memfd_handle{}).error(), errc::invalid_handle);
  memfd_handle noise;
  std::memset(static_cast<void*>(&noise), 0xff, sizeof noise);
  EXPECT_EQ(checked(noise).error(), errc::invalid_handle);
}

TEST(memfd_handle, another_version_is_refused) {
  memfd_handle later = good();
  later.magic += 1;
  later.check = pinfold::memfd::checksum_of(later);
  EXPECT_EQ(checked(later).error(), errc::invalid_handle);
}

TEST(memfd_handle, impossible_values_are_refused_even_with_a_valid_checksum) {
  const std::uint64_t page = pinfold::os::page_bytes();
  const std::array impossible{
      changed([](memfd_handle& h) { h.exporter = 0; }),
      changed([](memfd_handle& h) { h.serial = 0; }),
      changed([](memfd_handle& h) { h.base = 0; }),
      changed([](memfd_handle& h) { h.base += 1; }),
      changed([](memfd_handle& h) { h.size = 0; }),
      changed([](memfd_handle& h) { h.size += 1; }),
      changed([=](memfd_handle& h) { h.base = 0 - page, h.size = 2 * page; }),
      changed([](memfd_handle& h) { h.pid = 0; }),
      changed([](memfd_handle& h) { h.pid = -1; }),
      changed([](memfd_handle& h) { h.descriptor = -1; }),
      changed([](memfd_handle& h) { h.access = 2; }),
      changed([](memfd_handle& h) { h.inode = 0; }),
  };
  for (const memfd_handle& handle : impossible) EXPECT_EQ(checked(handle).error(), errc::invalid_handle);
}

TEST(memfd_handle, the_highest_range_that_does_not_wrap_is_accepted) {
  const std::uint64_t page = pinfold::os::page_bytes();
  const auto highest = changed([=](memfd_handle& h) { h.base = 0 - 2 * page, h.size = page; });
  EXPECT_TRUE(checked(highest));
}

}  // namespace
}  // namespace memfd_handle_test
