// SPDX-License-Identifier: BSD-3-Clause
// Making pages present: every page, no byte changed, and no signal where a touch would raise one.
#include "os/prefault.hpp"
#include "support/host/test_pages.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::prefault_test {
namespace {

using os::page_use;

constexpr std::size_t page = test_pages::page;
using way = result<void> (*)(const range&, page_use) noexcept;

std::size_t present(const range& memory) {
  std::vector<unsigned char> seen(memory.size() / page);
  EXPECT_EQ(::mincore(reinterpret_cast<void*>(memory.begin), memory.size(), seen.data()), 0);
  std::size_t count = 0;
  for (const auto one : seen) count += one & 1U;
  return count;
}

// A shared mapping of a file that is shorter than it.
class short_file {
 public:
  short_file(std::size_t mapped, std::size_t filled) : bytes_(mapped * page) {
    const int file = ::memfd_create("short", 0);
    EXPECT_EQ(::ftruncate(file, static_cast<off_t>(filled * page)), 0);
    memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    EXPECT_NE(memory_, MAP_FAILED);
    ::close(file);
  }
  ~short_file() { ::munmap(memory_, bytes_); }
  short_file(const short_file&) = delete;
  short_file& operator=(const short_file&) = delete;

  [[nodiscard]] range where() const {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory_);
    return {begin, begin + bytes_};
  }

 private:
  std::size_t bytes_;
  void* memory_;
};

class prefault : public ::testing::TestWithParam<way> {};

TEST_P(prefault, every_page_that_the_range_touches_becomes_present) {
  for (const auto use : {page_use::read, page_use::write}) {
    const test_pages memory(40);
    const auto inner = memory.pages(3, 30);
    ASSERT_TRUE(GetParam()({inner.begin + 5, inner.end - page + 1}, use));
    EXPECT_EQ(present(inner), 30U);
    EXPECT_EQ(present(memory.pages(0, 3)), 0U) << "more than was asked for";
    EXPECT_EQ(present(memory.pages(33, 7)), 0U) << "more than was asked for";
  }
}

TEST_P(prefault, no_byte_changes_while_other_threads_write) {
  const test_pages memory(64);
  std::atomic<bool> stop{false};
  std::jthread writer([&] {
    for (std::uint32_t value = 1; !stop.load(); ++value)
      for (std::size_t i = 0; i < 64; ++i) {
        const std::atomic_ref<std::uint32_t> word(*static_cast<std::uint32_t*>(memory.at(i)));
        word.store(value);
        if (word.load() != value) stop.store(true), ADD_FAILURE() << "a store was lost";
      }
  });
  for (int i = 0; i < 200 && !stop.load(); ++i) ASSERT_TRUE(GetParam()(memory.pages(0, 64), page_use::write));
  stop.store(true);
}

TEST_P(prefault, memory_behind_the_end_of_a_file_is_an_error_and_no_signal) {
  const short_file memory(8, 4);
  for (const auto use : {page_use::read, page_use::write}) {
    const auto done = GetParam()(memory.where(), use);
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, errc::invalid_range);
    EXPECT_EQ(done.error().native, EFAULT);
    EXPECT_EQ(done.error().kind, native_kind::posix);
    EXPECT_TRUE(GetParam()({memory.where().begin, memory.where().begin + 4 * page}, use));
  }
}

TEST_P(prefault, memory_that_is_not_mapped_is_an_error) {
  const test_pages memory(4);
  ::munmap(memory.at(2), page);
  const auto done = GetParam()(memory.pages(0, 4), page_use::write);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, errc::invalid_range);
  EXPECT_TRUE(done.error().native == ENOMEM || done.error().native == EFAULT) << done.error().native;
}

TEST_P(prefault, memory_that_may_not_be_written_can_be_read_only) {
  const test_pages memory(4);
  ASSERT_EQ(::mprotect(memory.at(0), 4 * page, PROT_READ), 0);
  EXPECT_TRUE(GetParam()(memory.pages(0, 4), page_use::read));
  const auto done = GetParam()(memory.pages(0, 4), page_use::write);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().native, 0);
}

TEST_P(prefault, memory_without_access_is_an_error_and_no_signal) {
  const test_pages memory(4);
  ASSERT_EQ(::mprotect(memory.at(0), 4 * page, PROT_NONE), 0);
  for (const auto use : {page_use::read, page_use::write}) EXPECT_FALSE(GetParam()(memory.pages(0, 4), use));
}

INSTANTIATE_TEST_SUITE_P(, prefault, ::testing::Values(way{os::prefault}, way{os::touch_pages}),
                         [](const auto& one) { return one.index == 0 ? "by_advice" : "page_by_page"; });

TEST(prefault_steps, memory_larger_than_a_step_becomes_present) {
  const test_pages memory(2 * 4096 + 7);
  ASSERT_TRUE(os::prefault(memory.pages(0, 2 * 4096 + 7), page_use::write));
  EXPECT_EQ(present(memory.pages(0, 2 * 4096 + 7)), 2 * 4096U + 7);
}

TEST(prefault_steps, an_error_leaves_what_is_present) {
  const short_file memory(4096 + 8, 4096 + 4);
  EXPECT_FALSE(os::prefault(memory.where(), page_use::write));
  EXPECT_GE(present({memory.where().begin, memory.where().begin + 4096 * page}), 4096U);
}

TEST(prefault_huge, advice_is_harmless_anywhere) {
  const test_pages memory(1024);
  os::advise_huge_pages(memory.pages(1, 1000));
  EXPECT_TRUE(os::prefault(memory.pages(1, 1000), page_use::write));
  os::advise_huge_pages({0x1000, 0x5000});
}

}  // namespace
}  // namespace pinfold::testing::prefault_test
