// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Short names and expectations for tests of the memfd importer.
#pragma once

#include "support/exporter_peer.hpp"
#include "support/forged.hpp"
#include "support/process_limits.hpp"

#include <gtest/gtest.h>

#include <string>

namespace pinfold::testing {

inline constexpr peer_id any_peer{1};
inline constexpr std::size_t kib = 1024;

/// Expects the open to fail with this error, and to leave nothing open.
inline void expect_refused(memfd_importer& importer, const memfd_handle& handle, errc code, int native = 0) {
  const std::size_t held = importer.held();
  const int mappings = memfd_mappings();
  const auto made = importer.open(any_peer, handle);
  ASSERT_FALSE(made) << "opened, although " << name_of(code) << " was expected";
  EXPECT_EQ(made.error(), code) << describe(made.error());
  EXPECT_EQ(made.error().native, native) << describe(made.error());
  EXPECT_EQ(importer.held(), held);
  EXPECT_EQ(memfd_mappings(), mappings);
}

/// Expects the open to show the pattern, and the close to work.
inline void expect_round_trip(memfd_importer& importer, const memfd_handle& handle, std::uint32_t seed) {
  const auto made = importer.open(any_peer, handle);
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_EQ(made->covered, handle.allocation());
  EXPECT_EQ(made->bytes, handle.size);
  EXPECT_TRUE(holds_pattern(made->data, made->bytes, seed));
  EXPECT_TRUE(importer.close(made->mapping));
}

/// Tests that hold for every way to fetch a descriptor.
class each_via : public ::testing::TestWithParam<memfd_via> {
 public:
  static std::string name(const ::testing::TestParamInfo<memfd_via>& info) {
    switch (info.param) {
      case memfd_via::automatic: return "automatic";
      case memfd_via::pidfd: return "pidfd";
      case memfd_via::scm: return "scm";
    }
    return "unknown";
  }

 protected:
  [[nodiscard]] static memfd_exporter_options serving(memfd_access access = memfd_access::read_only) {
    return {.access = access, .serve = GetParam() == memfd_via::scm};
  }
  [[nodiscard]] static memfd_importer importer(memfd_access access = memfd_access::read_only) {
    return memfd_importer({.via = GetParam(), .access = access});
  }
};

}  // namespace pinfold::testing
