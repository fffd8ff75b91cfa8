// SPDX-License-Identifier: BSD-3-Clause
// One export for all rails of a request, and no descriptor left over. A memfd stands in for a dma-buf.
#include "support/fixtures/local_fixture.hpp"
#include "support/host/process_limits.hpp"
#include "support/processes/process_1.hpp"

#include <pinfold/cache_set.hpp>
#include <pinfold/dma_buf.hpp>
#include <pinfold/registrars/fallback.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::shared_dma_buf_test {
namespace {

using namespace std::chrono_literals;

constexpr range allocation{0x200000, 0x400000};
constexpr range memory{0x210000, 0x220000};

::ino_t file_of(int descriptor) {
  struct stat found{};
  EXPECT_EQ(::fstat(descriptor, &found), 0);
  return found.st_ino;
}

// Exports allocations of 2 MiB; a range outside all of them is memory of the process.
struct exporter {
  std::atomic<int> calls{0};
  std::atomic<int> refuse{0};  // an errno value
  std::chrono::milliseconds takes{0};

  shared_dma_buf::export_function function() {
    return [this](const range& wanted) -> result<std::optional<exported_dma_buf>> {
      ++calls;
      std::this_thread::sleep_for(takes);
      if (refuse != 0) return fail_errno(errc::driver_error, refuse, "the driver exports nothing");
      if (wanted.begin >= 0x10000000) return std::nullopt;
      const auto begin = wanted.begin / 0x200000 * 0x200000;
      return exported_dma_buf{::memfd_create("allocation", MFD_CLOEXEC), {begin, begin + 0x200000}, 0x1000};
    };
  }
};

// A registrar that asks for a dma-buf as that of verbs does, and closes the descriptor.
class dma_buf_registrar : public fake_registrar {
 public:
  dma_buf_registrar(std::shared_ptr<fake_device> device, shared_dma_buf from)
      : fake_registrar(std::move(device)), from_(std::move(from)) {}
  [[nodiscard]] result<registration_type> open(range wanted, access_flags access) noexcept {
    const auto found = from_.position(wanted);
    if (!found) return tl::unexpected(found.error());
    if (*found) {
      EXPECT_EQ((*found)->offset, 0x1000 + wanted.begin % 0x200000);
      EXPECT_GT(file_of((*found)->descriptor), 0U);
    }
    auto made = fake_registrar::open(wanted, access);
    if (*found) ::close((*found)->descriptor);
    return made;
  }

 private:
  shared_dma_buf from_;
};

struct rails {
  explicit rails(std::size_t count = 4) {
    for (std::size_t i = 0; i < count; ++i) {
      devices.push_back(std::make_shared<fake_device>());
      each.push_back(
          std::make_unique<pinfold::cache<dma_buf_registrar>>(dma_buf_registrar(devices[i], shared), keeping()));
      caches.push_back(each[i].get());
    }
  }
  exporter device;
  shared_dma_buf shared{device.function()};
  std::vector<std::shared_ptr<fake_device>> devices;
  std::vector<std::unique_ptr<pinfold::cache<dma_buf_registrar>>> each;
  std::vector<pinfold::cache<dma_buf_registrar>*> caches;

  auto acquire(const range& wanted = memory, set_options how = {}) {
    how.dma_bufs = &shared;
    return cache_set<dma_buf_registrar>(caches).acquire(reinterpret_cast<void*>(wanted.begin), wanted.size(),
                                                        local_access, how);
  }
};

TEST(shared_dma_buf, is_exported_once_for_all_rails_and_closed_after_the_last) {
  rails t;
  ASSERT_TRUE(t.acquire({0x600000, 0x601000}));  // the first use opens what the process keeps
  const int before = open_descriptors();
  for (const auto policy : {set_policy::all, set_policy::fixed_order}) {
    for (const auto& one : t.caches) one->invalidate(nullptr, SIZE_MAX);
    const int calls = t.device.calls;
    const auto got = t.acquire(memory, {.policy = policy});
    ASSERT_TRUE(got) << describe(got.error());
    EXPECT_EQ(t.device.calls, calls + 1);
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(t.shared.counts().open, 0U);
  }
  EXPECT_EQ(t.shared.counts().exports, 3U);
  EXPECT_EQ(t.shared.counts().given, 12U);
}

TEST(shared_dma_buf, without_a_request_each_registration_exports) {
  rails t;
  const int before = open_descriptors();
  ASSERT_TRUE(cache_set<dma_buf_registrar>(t.caches).acquire(reinterpret_cast<void*>(memory.begin), memory.size()));
  EXPECT_EQ(t.device.calls, 4);
  EXPECT_EQ(open_descriptors(), before);
}

TEST(shared_dma_buf, an_export_that_fails_reaches_the_caller) {
  rails t;
  t.device.refuse = EIO;
  const auto got = t.acquire();
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().native, EIO);
  EXPECT_GE(t.shared.counts().failures, 1U);
  EXPECT_EQ(t.shared.counts().open, 0U);
}

TEST(shared_dma_buf, an_export_that_throws_is_an_error_each_time) {
  shared_dma_buf from([](const range&) -> result<std::optional<exported_dma_buf>> { throw 42; });
  const auto request = from.begin(memory);
  ASSERT_TRUE(request);
  for (int time = 0; time < 2; ++time)
    EXPECT_EQ(from.position(memory).error(), errc::driver_error) << "no wait of 60 s";
  EXPECT_EQ(shared_dma_buf({}).position(memory).error(), errc::driver_error);
}

TEST(shared_dma_buf, R37_a_child_shares_nothing) {
  exporter calls;
  shared_dma_buf from(calls.function());
  const auto request = from.begin(memory);
  const auto first = from.position(memory);
  ASSERT_TRUE(first && *first);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto own = from.position(memory);
    const bool exported = own && *own && file_of((*own)->descriptor) != file_of((*first)->descriptor);
    ::_exit(exported ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the allocation may be another one there";
  ::close((*first)->descriptor);
}

TEST(shared_dma_buf, R37_a_child_with_the_pid_of_its_parent_shares_nothing) {
  const auto status = in_process_1([] {
    exporter calls;
    shared_dma_buf from(calls.function());
    const auto request = from.begin(memory);
    const auto first = from.position(memory);
    if (!first || !*first) return -2;
    return in_another_process_1([&] {
      const auto own = from.position(memory);
      return own && *own && file_of((*own)->descriptor) != file_of((*first)->descriptor) ? 0 : 1;
    });
  });
  if (!status) GTEST_SKIP() << "no PID namespace may be made here";
  EXPECT_EQ(*status, 0);
}

TEST(shared_dma_buf, a_rail_that_fails_leaks_no_descriptor) {
  rails t;
  ASSERT_TRUE(t.acquire({0x600000, 0x601000}));
  const int before = open_descriptors();
  t.devices[2]->fail_opens([](const range&, access_flags) { return error{errc::driver_error}; });
  EXPECT_FALSE(t.acquire());
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(t.shared.counts().open, 0U);
}

// closefrom(3) closes the kept descriptor, and a file of the program gets its number.
TEST(shared_dma_buf, number_that_the_program_reuses_is_neither_given_nor_closed) {
  exporter device;
  int kept = -1;
  shared_dma_buf shared([&, all = device.function()](const range& wanted) {
    auto made = all(wanted);
    kept = made.value()->descriptor;
    return made;
  });
  auto request = shared.begin(memory);
  ASSERT_TRUE(request);
  const auto first = shared.position(memory);
  ::close(first.value()->descriptor);
  const int programs = ::memfd_create("program", MFD_CLOEXEC);
  const int number = kept;
  ASSERT_EQ(::dup2(programs, number), number);
  const auto second = shared.position(memory);
  EXPECT_EQ(device.calls, 2);
  EXPECT_NE(file_of(second.value()->descriptor), file_of(programs));
  ::close(second.value()->descriptor);
  *request = {};
  EXPECT_EQ(file_of(number), file_of(programs)) << "still open";
  ::close(number);
  ::close(programs);
}

TEST(shared_dma_buf, memory_of_the_process_has_none) {
  rails t;
  EXPECT_TRUE(t.acquire({0x10000000, 0x10001000}));
  EXPECT_EQ(t.shared.counts().exports, 0U);
}

TEST(shared_dma_buf, requests_for_one_allocation_share_until_the_last_ends) {
  exporter device;
  shared_dma_buf shared(device.function());
  auto first = shared.begin({0x200000, 0x201000});
  auto second = shared.begin({0x300000, 0x301000});
  const auto one = shared.position({0x200000, 0x201000});
  const auto other = shared.position({0x300000, 0x301000});
  ASSERT_TRUE(one && *one && other && *other);
  EXPECT_EQ(device.calls, 1);
  EXPECT_EQ(file_of((*one)->descriptor), file_of((*other)->descriptor));
  EXPECT_EQ((*other)->offset, 0x101000U);
  *first = {};
  EXPECT_EQ(shared.counts().open, 1U);
  *second = {};
  EXPECT_EQ(shared.counts().open, 0U);
  ::close((*one)->descriptor);
  ::close((*other)->descriptor);
}

TEST(shared_dma_buf, refuses_what_makes_no_sense) {
  exporter device;
  shared_dma_buf shared(device.function());
  EXPECT_EQ(shared.begin({5, 5}).error(), errc::invalid_range);
  const int before = open_descriptors();
  const auto request = shared.begin(allocation);
  EXPECT_EQ(shared.position({0x300000, 0x500000}).error(), errc::invalid_range) << "more than one allocation";
  EXPECT_EQ(open_descriptors(), before);
}

TEST(shared_dma_buf, no_descriptor_is_left) {
  exporter device;
  shared_dma_buf shared(device.function());
  const auto request = shared.begin(memory);
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int before = open_descriptors();
  const int next = ::memfd_create("next", MFD_CLOEXEC);
  ::close(next);
  const rlimit tight{static_cast<rlim_t>(next) + 1, limit.rlim_max};  // room for the export alone
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  const auto refused = shared.position(memory);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().native, EMFILE);
  EXPECT_EQ(open_descriptors(), before) << "the export was given back";
  EXPECT_EQ(shared.counts().open, 0U);
}

TEST(shared_dma_buf, the_step_of_a_fallback_says_why_an_export_failed) {
  exporter device;
  device.refuse = ENOTSUP;
  const shared_dma_buf shared(device.function());
  std::vector<fallback_step<fake_registrar::registration_type>> steps;
  steps.push_back(as_step("dma-buf", dma_buf_registrar(std::make_shared<fake_device>(), shared)));
  steps.push_back(as_step("peer memory", fake_registrar(std::make_shared<fake_device>())));
  auto all = fallback_registrar<fake_registrar::registration_type>::create(std::move(steps));
  ASSERT_TRUE(all);
  const auto made = all->open(memory, local_access);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->refusals()[0].why.native, ENOTSUP);
  EXPECT_TRUE(all->close(*made));
}

// Threads acquire pieces of the same allocations while rails fail now and then.
TEST(shared_dma_buf, stress_leaks_no_descriptor) {
  rails t(3);
  ASSERT_TRUE(t.acquire({0x600000, 0x601000}));
  const int before = open_descriptors();
  std::atomic<unsigned> turn{0};
  t.devices[1]->fail_opens([&](const range&, access_flags) -> std::optional<error> {
    if (turn++ % 5 != 0) return std::nullopt;
    return error{errc::driver_error, native_kind::posix, EIO, "in turn"};
  });
  std::vector<std::jthread> threads;
  for (std::uintptr_t thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (std::uintptr_t i = 0; i < 300; ++i) {
        const auto begin = 0x200000 + (i + thread) % 3 * 0x200000 + i % 16 * 0x1000;
        if (i % 7 == 0) t.caches[thread % 3]->invalidate(reinterpret_cast<void*>(begin), 0x1000);
        if (i % 50 == 0) t.device.refuse = i % 100 == 0 ? EIO : 0;
        const auto got = t.acquire({begin, begin + 0x1000}, {.required = 1 + i % 3});
      }
    });
  threads.clear();
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(t.shared.counts().open, 0U);
}

}  // namespace
}  // namespace pinfold::testing::shared_dma_buf_test
