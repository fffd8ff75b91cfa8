// SPDX-License-Identifier: BSD-3-Clause
// A program whose dlopen is not libc's, and does not find loaded libraries: like UCX's, which searches paths of its
// own. The hooks find libc and the dynamic linker without it.
#include "support/fixtures/hooked.hpp"
#include "support/host/sanitized.hpp"

#include <dlfcn.h>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && !defined(__clang__)

namespace {

int asked = 0;

}  // namespace

extern "C" [[gnu::visibility("default")]] void* dlopen(const char* /*file*/, int /*flags*/) noexcept {
  ++asked;
  return nullptr;
}

namespace pinfold::testing::hooks_dlopen_test {
namespace {

TEST(hooks_dlopen, R38_dlopen_that_is_not_libcs_is_never_called) {
  ASSERT_EQ(::dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), nullptr);
  ASSERT_EQ(std::exchange(asked, 0), 1);
  const auto made = hooks_here();
#if defined(__x86_64__) && defined(__GLIBC__)
  ASSERT_TRUE(made) << describe(made.error());
#endif
  EXPECT_EQ(asked, 0);
}

}  // namespace
}  // namespace pinfold::testing::hooks_dlopen_test

#else

TEST(hooks_dlopen, R38_dlopen_that_is_not_libcs_is_never_called) {
  GTEST_SKIP() << "the sanitizers and clang's runtime have a dlopen of their own";
}

#endif
