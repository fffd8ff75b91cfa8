// SPDX-License-Identifier: BSD-3-Clause
// What pinfold knows of the mappings under a range, and the descriptor that it keeps open for the query (R24).
#include "os/own_maps.hpp"
#include "support/host/process_limits.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/detail/pages.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace pinfold::testing::pages_test {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t huge = std::size_t{2} << 20U;

/// Adjacent pages, in one mapping or in two.
class two_pages {
 public:
  two_pages() : at_(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  two_pages(const two_pages&) = delete;
  two_pages& operator=(const two_pages&) = delete;
  ~two_pages() { ::munmap(at_, 2 * page); }

  [[nodiscard]] std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(at_); }
  void split() { ::mprotect(static_cast<std::byte*>(at_) + page, page, PROT_NONE); }
  [[nodiscard]] bool seen_as_one() const { return detail::same_mapping(begin(), begin() + page); }

 private:
  void* at_;
};

bool kernel_answers() { return two_pages().seen_as_one(); }

// Returns this process's open descriptors of some process's maps.
std::vector<int> open_maps() {
  std::vector<int> found;
  for (int number = 0; number < 256; ++number) {
    char name[64] = {};
    const auto link = "/proc/self/fd/" + std::to_string(number);
    if (::readlink(link.c_str(), name, sizeof name - 1) > 0 && std::string(name).ends_with("/maps"))
      found.push_back(number);
  }
  return found;
}

// Runs the body in a child, which begins without a kept descriptor, so that no test uses up another's renewals.
void in_child(void (*body)()) {
  child_process child([body](line&) {
    for (const int number : open_maps()) ::close(number);  // the parent's
    body();
    std::fflush(nullptr);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(child.reap(), 0);
}

class pages : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kernel_answers()) GTEST_SKIP() << "no PROCMAP_QUERY before Linux 6.11";
  }
};

TEST_F(pages, R24_ranges_in_huge_pages_are_rounded_out_to_whole_huge_pages) {
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT);
  void* const memory = ::mmap(nullptr, 2 * huge, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no huge pages are reserved (vm.nr_hugepages)";
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  EXPECT_EQ(detail::rounded_out({at + 100, at + 200}, page), (range{at, at + huge}));
  EXPECT_EQ(detail::rounded_out({at + 100, at + huge + 1}, page), (range{at, at + 2 * huge}));
  EXPECT_EQ(detail::rounded_out({at, at + huge}, page), (range{at, at + huge}));
  ::munmap(memory, 2 * huge);
}

TEST_F(pages, R24_each_end_is_rounded_to_the_page_size_of_its_own_mapping) {
  two_pages memory;
  const auto at = memory.begin();
  for (const bool split : {false, true}) {
    if (split) memory.split();
    EXPECT_EQ(detail::rounded_out({at + 1, at + page + 1}, page), (range{at, at + 2 * page})) << split;
    EXPECT_EQ(detail::rounded_out({at, at + page}, page), (range{at, at + page})) << split;
  }
  EXPECT_EQ(detail::rounded_out({at + 1, at + 2}, 1), (range{at + 1, at + 2})) << "what is exact, stays so";
}

TEST_F(pages, unmapped_memory_is_rounded_to_the_granularity) {
  EXPECT_EQ(detail::rounded_out({quiet_address + 1, quiet_address + 2}, page),
            (range{quiet_address, quiet_address + page}));
  EXPECT_FALSE(detail::same_mapping(quiet_address, quiet_address + 1));
}

TEST_F(pages, one_descriptor_stays_open) {
  const auto open = open_descriptors();
  for (int i = 0; i < 100; ++i) static_cast<void>(two_pages().seen_as_one());
  EXPECT_EQ(open_descriptors(), open);
  ASSERT_EQ(open_maps().size(), 1U);
  EXPECT_NE(::fcntl(open_maps().front(), F_GETFD) & FD_CLOEXEC, 0) << "not for other programs";
}

TEST_F(pages, child_sees_its_own_mappings) {
  two_pages memory;
  ASSERT_TRUE(memory.seen_as_one());
  child_process child([&](line&) {
    memory.split();
    return memory.seen_as_one() ? 1 : 0;
  });
  EXPECT_EQ(child.reap(), 0);
  EXPECT_TRUE(memory.seen_as_one()) << "the parent has not split it";
  memory.split();
  EXPECT_FALSE(memory.seen_as_one());
}

void close_it_once() {
  const two_pages memory;
  ASSERT_TRUE(memory.seen_as_one());
  ASSERT_EQ(open_maps().size(), 1U);
  ::close(open_maps().front());
  EXPECT_TRUE(memory.seen_as_one());
  EXPECT_EQ(open_maps().size(), 1U);
}

TEST_F(pages, closed_descriptor_is_opened_again) { in_child(close_it_once); }

// Makes every number that was ours mean the other file, which must be neither queried nor closed.
void reuse_for(int other, const two_pages& memory, bool expected) {
  ASSERT_EQ(memory.seen_as_one(), expected);
  const auto ours = open_maps();
  std::vector<int> reused;
  for (const int number : ours)
    if (number != other) reused.push_back(::dup2(other, number));
  ASSERT_FALSE(reused.empty());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(memory.seen_as_one(), expected);
  for (const int number : reused) EXPECT_EQ(::close(number), 0) << "it was closed behind our back";
  EXPECT_EQ(memory.seen_as_one(), expected);
}

void reuse_its_number() {
  two_pages memory;
  child_process sees_one([](line& parent) { return parent.receive<int>() ? 1 : 0; });
  const auto maps = "/proc/" + std::to_string(sees_one.pid()) + "/maps";
  const int of_child = ::open(maps.c_str(), O_RDONLY | O_CLOEXEC);
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  ASSERT_TRUE(of_child >= 0 && nothing >= 0);
  memory.split();  // the child still has one mapping
  reuse_for(of_child, memory, false);
  reuse_for(nothing, memory, false);
  ::close(of_child);
  ::close(nothing);
}

TEST_F(pages, reused_descriptor_number_is_neither_queried_nor_closed) { in_child(reuse_its_number); }

void close_it_again_and_again() {
  const two_pages memory;
  const auto open = open_descriptors();  // without one of ours
  for (int i = 0; i < 100; ++i) {
    for (const int number : open_maps()) ::close(number);
    ASSERT_TRUE(memory.seen_as_one()) << i;
  }
  EXPECT_EQ(open_descriptors(), open) << "by now each question opens and closes its own";
}

TEST_F(pages, query_works_while_the_program_keeps_closing_descriptors) { in_child(close_it_again_and_again); }

void reuse_the_number_of_one_query() {
  const two_pages memory;
  for (int i = 0; i < 20; ++i) {  // by now nothing stays open
    for (const int number : open_maps()) ::close(number);
    ASSERT_TRUE(memory.seen_as_one());
  }
  const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  int number = -1;
  {
    const detail::own_maps maps;
    number = maps.descriptor();
    ASSERT_EQ(::dup2(other, number), number);
  }
  EXPECT_EQ(::close(number), 0) << "it was closed behind our back";
  ::close(other);
}

TEST_F(pages, reused_number_of_one_query_is_not_closed) { in_child(reuse_the_number_of_one_query); }

TEST_F(pages, query_works_without_a_free_descriptor) {
  two_pages memory;
  ASSERT_TRUE(memory.seen_as_one());
  const lowered_limit none(RLIMIT_NOFILE, lowest_free_descriptor());
  EXPECT_TRUE(memory.seen_as_one());
  memory.split();
  EXPECT_FALSE(memory.seen_as_one());
}

TEST_F(pages, threads_query_mappings_concurrently) {
  for (const int number : open_maps()) ::close(number);
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int round = 0; round < 500; ++round) {
          two_pages memory;
          wrong += memory.seen_as_one() ? 0 : 1;
          memory.split();
          wrong += memory.seen_as_one() ? 1 : 0;
          const auto at = memory.begin();
          wrong += detail::rounded_out({at + 1, at + page + 1}, page) == range{at, at + 2 * page} ? 0 : 1;
        }
      });
  }
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace pinfold::testing::pages_test
