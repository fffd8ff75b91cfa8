// SPDX-License-Identifier: BSD-3-Clause
#include "support/fixtures/unique_names.hpp"

#include <pinfold/error.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <type_traits>

namespace error_test {
namespace {

using pinfold::errc;
using pinfold::error;
using pinfold::native_kind;

static_assert(std::is_trivially_copyable_v<error>);

TEST(name_of, every_code_has_a_unique_name) {
  pinfold::testing::expect_unique_names(errc::closed);
  EXPECT_STREQ(pinfold::name_of(static_cast<errc>(200)), "unknown");
}

TEST(describe_error, prints_code_message_and_name_of_the_native_code) {
  EXPECT_EQ(pinfold::describe(pinfold::fail_errno(errc::stale_handle, EBADF, "the exporter has freed it").value()),
            "stale_handle: the exporter has freed it (EBADF 9: Bad file descriptor)");
}

TEST(describe_error, omits_missing_parts) {
  EXPECT_EQ(pinfold::describe(error{.code = errc::closed}), "closed");
  EXPECT_EQ(pinfold::describe(pinfold::fail(errc::too_large, "too much").value()), "too_large: too much");
}

TEST(describe_error, takes_an_error_without_a_message) {
  EXPECT_EQ(pinfold::describe({errc::driver_error, native_kind::none, 0, nullptr}), "driver_error");
  EXPECT_EQ(pinfold::describe({errc::driver_error, native_kind::posix, EIO, nullptr}),
            "driver_error (EIO 5: Input/output error)");
}

TEST(describe_error, prints_the_number_of_an_unnamed_native_code) {
  EXPECT_EQ(pinfold::describe({errc::driver_error, native_kind::posix, 99999, ""}), "driver_error (errno 99999)");
  EXPECT_EQ(pinfold::describe({errc::already_mapped, native_kind::cuda, 208, "mapped"}),
            "already_mapped: mapped (CUresult 208: CUDA_ERROR_ALREADY_MAPPED)");
  EXPECT_EQ(pinfold::describe({errc::driver_error, native_kind::cuda, 12345, "odd"}),
            "driver_error: odd (CUresult 12345)");
  EXPECT_EQ(pinfold::describe({errc::driver_error, native_kind::libfabric, 4711, "odd"}),
            "driver_error: odd (fi_errno 4711)");
}

TEST(describe_error, distinguishes_libfabric_codes_from_errno) {
  EXPECT_EQ(pinfold::describe({errc::in_use_conflict, native_kind::libfabric, 266, "keys"}),
            "in_use_conflict: keys (fi_errno 266: FI_ENOKEY)");
  EXPECT_EQ(pinfold::describe({errc::out_of_resources, native_kind::libfabric, ENOMEM, "full"}),
            "out_of_resources: full (FI_ENOMEM 12: Cannot allocate memory)");
}

}  // namespace
}  // namespace error_test
