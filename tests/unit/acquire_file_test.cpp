// SPDX-License-Identifier: BSD-3-Clause
// `acquire_options::file`: a descriptor of another file than the caller says is refused.
#include "os/procmap.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <array>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace pinfold::testing::acquire_file_test {
namespace {

constexpr std::size_t page = 4096;

/// A memfd, and a mapping of it.
struct mapped_memfd {
  int file = ::memfd_create("pinfold-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  void* data = MAP_FAILED;

  mapped_memfd() {
    if (::ftruncate(file, page) == 0) data = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  mapped_memfd(const mapped_memfd&) = delete;
  mapped_memfd& operator=(const mapped_memfd&) = delete;
  ~mapped_memfd() {
    ::munmap(data, page);
    ::close(file);
  }
};

void expect_refused(void* memory, int file) {
  local_fixture f;
  const auto got = f.cache.acquire(memory, page, local_access, {.file = file});
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code, errc::invalid_argument) << describe(got.error());
  EXPECT_EQ(f.device->opened, 0U);
  EXPECT_EQ(f.cache.statistics().acquires, f.cache.statistics().failed_acquires);
}

TEST(acquire_file, R59_descriptor_that_is_not_open_is_refused) {
  const mapped_memfd memory;
  expect_refused(memory.data, 9999);
}

TEST(acquire_file, R59_descriptor_of_a_pipe_is_refused) {
  const mapped_memfd memory;
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  expect_refused(memory.data, ends[0]);
  for (const int end : ends) ::close(end);
}

TEST(acquire_file, R59_descriptor_of_a_memfd_not_mapped_in_the_range_is_refused) {
  const mapped_memfd memory;
  const mapped_memfd other;
  if (!detail::mapping_at(detail::own_maps(), reinterpret_cast<std::uintptr_t>(memory.data)))
    GTEST_SKIP() << "before Linux 6.11 the kernel does not say what is mapped";
  expect_refused(memory.data, other.file);
}

TEST(acquire_file, descriptor_of_the_mapped_memfd_is_accepted) {
  const mapped_memfd memory;
  local_fixture f;
  EXPECT_TRUE(f.cache.acquire(memory.data, page, local_access, {.file = memory.file}));
}

TEST(acquire_file, descriptor_of_a_file_without_seals_is_accepted_unverified) {
  const mapped_memfd memory;
  local_fixture f;
  const int program = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(program, 0);
  EXPECT_TRUE(f.cache.acquire(memory.data, page, local_access, {.file = program}));
  ::close(program);
}

}  // namespace
}  // namespace pinfold::testing::acquire_file_test
