// SPDX-License-Identifier: BSD-3-Clause
// Memory that the application takes away while threads of the library register it (R55, R65): the registration of the
// old pages serves no request. A userfaultfd of the test's holds the application's call up where the memory is still
// there, and the hooks have told of it already.
#include "monitors/userfaultfd/kernel.hpp"
#include "support/doubles/fake_registrar.hpp"
#include "support/host/test_pages.hpp"
#include "support/host/watchdog.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <poll.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::background_discard_test {
namespace {

namespace uffd = monitors::uffd;

constexpr std::size_t page = test_pages::page;
constexpr std::size_t bytes = 8 * page;

struct taken_by {
  const char* name;
  bool (*takes)(void* at);
  bool leaves_a_hole = false;
};

constexpr std::array calls{
    taken_by{"madvise", [](void* at) { return ::madvise(at, bytes, MADV_DONTNEED) == 0; }},
    taken_by{"a_part", [](void* at) { return ::madvise(at, page, MADV_DONTNEED) == 0; }},
    taken_by{"madvise_free", [](void* at) { return ::madvise(at, bytes, MADV_FREE) == 0; }},
    taken_by{"syscall", [](void* at) { return ::syscall(SYS_madvise, at, bytes, MADV_DONTNEED) == 0; }},
    taken_by{"munmap", [](void* at) { return ::munmap(at, bytes) == 0; }, true},
    taken_by{"mmap",
             [](void* at) {
               constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
               return ::mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;
             }},
    taken_by{"mremap",
             [](void* at) {
               void* const moved = ::mremap(at, bytes, 2 * bytes, MREMAP_MAYMOVE);
               return moved != MAP_FAILED && ::munmap(moved, 2 * bytes) == 0;
             },
             true},
};

class background_discard : public ::testing::TestWithParam<taken_by> {
 protected:
  void SetUp() override {
    auto opened = uffd::open();
    if (!opened) GTEST_SKIP() << describe(opened.error());
    holds_up_ = *opened;
    if (cache_.monitors().find("hooks:") != std::string::npos) GTEST_SKIP() << cache_.monitors();  // a sanitizer's libc
    // With a neighbour behind it, so that mremap has to move it.
    room_ = ::mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(room_, MAP_FAILED);
    ASSERT_EQ(uffd::start_watching(holds_up_.number, all()), 0);
  }
  void TearDown() override {
    holds_up_.close();
    if (room_ == nullptr) return;
    ::munmap(static_cast<char*>(room_) + bytes, bytes);
    if (!GetParam().leaves_a_hole) ::munmap(room_, bytes);
  }
  [[nodiscard]] range all() const {
    const auto at = reinterpret_cast<std::uintptr_t>(room_);
    return {at, at + bytes};
  }

  /// Does `meanwhile` while another thread's call has told of the memory, and has not taken it yet.
  void while_it_goes(const std::function<void()>& meanwhile) {
    std::atomic<bool> returned{false};
    std::jthread takes([&] {
      EXPECT_TRUE(GetParam().takes(room_));
      returned = true;
    });
    while (!event_within(100)) {
    }
    meanwhile();
    while (!returned)
      if (event_within(1)) static_cast<void>(uffd::read_event(holds_up_.number));
  }
  [[nodiscard]] bool event_within(int milliseconds) const {
    pollfd event{.fd = holds_up_.number, .events = POLLIN, .revents = 0};
    return ::poll(&event, 1, milliseconds) == 1;
  }
  void expect_nothing_of_the_old_memory() {
    EXPECT_FALSE(cache_.find(room_, page)) << "this registration has the old pages";
    EXPECT_TRUE(cache_.acquire(room_, page)) << "registered anew";
  }

  std::shared_ptr<fake_device> device_ = std::make_shared<fake_device>();
  cache<fake_registrar> cache_{fake_registrar(device_), {.monitor = monitor_choice::hooks | monitor_choice::manual}};
  uffd::descriptor holds_up_;
  void* room_ = nullptr;
  watchdog guard{[] {}};
};

TEST_P(background_discard, R65_a_ticket_that_registers_meanwhile_keeps_nothing) {
  result<background_registration<fake_registrar>> ticket = fail(errc::closed, "not begun");
  while_it_goes([&] {
    ticket = cache_.register_in_background(room_, bytes, local_access, {.piece_bytes = 2 * page, .workers = 2});
    ASSERT_TRUE(ticket) << describe(ticket.error());
    ASSERT_TRUE(ticket->wait());
    EXPECT_TRUE(cache_.find(room_, page)) << "registered before the memory went";
  });
  expect_nothing_of_the_old_memory();
}

TEST_P(background_discard, R25_chunks_that_are_registered_meanwhile_are_stale) {
  result<chunk_stream<fake_registrar>> chunks = fail(errc::closed, "not begun");
  while_it_goes([&] {
    chunks = cache_.acquire_chunks(room_, bytes, local_access, {.chunk_bytes = 2 * page, .depth = 4, .workers = 2});
    ASSERT_TRUE(chunks) << describe(chunks.error());
    while (cache_.statistics().open < 4) std::this_thread::yield();
  });
  expect_nothing_of_the_old_memory();
}

INSTANTIATE_TEST_SUITE_P(each, background_discard, ::testing::ValuesIn(calls),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace pinfold::testing::background_discard_test
