// SPDX-License-Identifier: BSD-3-Clause
// A registrar with several ways to register: which step serves, what is known of the others, and faults at each step.
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/fallback.hpp>
#include <pinfold/registrars/null.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace pinfold {

template class fallback_registrar<testing::fake_registrar::registration_type>;
static_assert(registrar<fallback_registrar<testing::fake_registrar::registration_type>>);

}  // namespace pinfold

namespace pinfold::testing::fallback_registrar_test {
namespace {

using made_type = fake_registrar::registration_type;
using registrar_type = fallback_registrar<made_type>;
constexpr std::uintptr_t place = 0x100000;
constexpr range memory{place, place + 0x2000};

struct heard {
  std::string step;
  error why;
};

struct three_steps {
  std::array<std::shared_ptr<fake_device>, 3> devices{std::make_shared<fake_device>(), std::make_shared<fake_device>(),
                                                      std::make_shared<fake_device>()};
  std::atomic<int> staged{0};
  std::vector<heard> told;
  bool next_when_full = false;

  registrar_type made() {
    std::vector<fallback_step<made_type>> steps;
    steps.push_back(as_step("dma-buf", fake_registrar(devices[0])));
    steps.back().next_when_full = next_when_full;
    steps.push_back(as_step("peer memory", fake_registrar(devices[1])));
    steps.push_back(staging_step("host staging", fake_registrar(devices[2]),
                                 {.allocate = [this](std::size_t bytes) -> result<void*> {
                                    ++staged;
                                    return std::malloc(bytes);
                                  },
                                  .free =
                                      [this](void* what, std::size_t) {
                                        --staged;
                                        std::free(what);
                                      }}));
    return *registrar_type::create(
        std::move(steps), [this](const refused_step& step, const range&) { told.push_back({step.step, step.why}); });
  }
  void refuse(std::size_t number, errc why, int native) {
    devices[number]->fail_opens(
        [=](const range&, access_flags) { return error{why, native_kind::posix, native, "refused by the test"}; });
  }
  void expect_nothing_open() {
    for (const auto& one : devices) {
      EXPECT_EQ(one->open_count(), 0U);
      EXPECT_EQ(one->misuses, 0U);
    }
    EXPECT_EQ(staged, 0);
  }
};

TEST(fallback_registrar, the_first_step_serves_if_it_can) {
  three_steps t;
  auto all = t.made();
  const auto made = all.open(memory, local_access);
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_STREQ(made->served_by(), "dma-buf");
  EXPECT_TRUE(made->refusals().empty());
  EXPECT_FALSE(made->staged());
  EXPECT_EQ(made->address_for(reinterpret_cast<void*>(place + 5)), reinterpret_cast<void*>(place + 5));
  EXPECT_TRUE(all.close(*made));
  EXPECT_TRUE(t.told.empty());
  t.expect_nothing_open();
}

TEST(fallback_registrar, says_why_each_earlier_step_refused) {
  three_steps t;
  t.refuse(0, errc::unsupported, EOPNOTSUPP);
  t.refuse(1, errc::invalid_range, EFAULT);
  auto all = t.made();
  const auto made = all.open(memory, local_access);
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_STREQ(made->served_by(), "host staging");
  ASSERT_EQ(made->refusals().size(), 2U);
  EXPECT_STREQ(made->refusals()[0].step, "dma-buf");
  EXPECT_EQ(made->refusals()[0].why.native, EOPNOTSUPP);
  EXPECT_STREQ(made->refusals()[1].step, "peer memory");
  EXPECT_EQ(made->refusals()[1].why.code, errc::invalid_range);
  EXPECT_EQ(made->refusals()[1].why.native, EFAULT);
  ASSERT_TRUE(made->staged());
  auto* const first = static_cast<std::byte*>(made->address_for(reinterpret_cast<void*>(place)));
  EXPECT_EQ(made->address_for(reinterpret_cast<void*>(place + 0x1fff)), first + 0x1fff);
  const auto registered = t.devices[2]->now().at(made->key).memory;
  EXPECT_EQ(registered.begin, reinterpret_cast<std::uintptr_t>(first)) << "the staged memory, not the device's";
  EXPECT_EQ(registered.size(), memory.size());
  EXPECT_TRUE(all.close(*made));
  t.expect_nothing_open();
  ASSERT_EQ(t.told.size(), 2U);
  EXPECT_EQ(t.told[1].step, "peer memory");
}

TEST(fallback_registrar, returns_the_last_error_and_tells_of_all_if_every_step_refuses) {
  three_steps t;
  t.refuse(0, errc::unsupported, EOPNOTSUPP);
  t.refuse(1, errc::invalid_range, EFAULT);
  t.refuse(2, errc::driver_error, EIO);
  auto all = t.made();
  const auto made = all.open(memory, local_access);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().native, EIO);
  ASSERT_EQ(t.told.size(), 3U);
  EXPECT_EQ(t.told[0].why.native, EOPNOTSUPP);
  EXPECT_EQ(t.told[2].why.native, EIO);
  t.expect_nothing_open();
}

TEST(fallback_registrar, a_full_driver_lets_the_cache_make_room_first) {
  three_steps t;
  t.devices[0]->capacity = 1;
  pinfold::cache<registrar_type> cache(t.made(), keeping());
  {
    ASSERT_TRUE(cache.acquire(reinterpret_cast<void*>(place), 0x1000));
  }
  const auto second = cache.acquire(reinterpret_cast<void*>(place + 0x10000), 0x1000);
  ASSERT_TRUE(second) << describe(second.error());
  EXPECT_STREQ(second->registration().served_by(), "dma-buf") << "the idle registration was closed for it";
  const auto third = cache.acquire(reinterpret_cast<void*>(place + 0x20000), 0x1000);
  EXPECT_EQ(third.error(), errc::out_of_resources);
  EXPECT_EQ(t.devices[1]->opened, 0U);
}

TEST(fallback_registrar, next_when_full_goes_on_at_once) {
  three_steps t;
  t.devices[0]->capacity = 0;
  t.next_when_full = true;
  auto all = t.made();
  const auto made = all.open(memory, local_access);
  ASSERT_TRUE(made);
  EXPECT_STREQ(made->served_by(), "peer memory");
  EXPECT_EQ(made->refusals()[0].why.code, errc::out_of_resources);
  EXPECT_TRUE(all.close(*made));
  t.expect_nothing_open();
}

TEST(fallback_registrar, limits_of_a_step_refuse_without_a_call) {
  three_steps t;
  t.devices[0]->limits.max_bytes = 0x1000;
  t.devices[1]->limits.supported = access_flags::local_read;
  auto all = t.made();
  EXPECT_EQ(all.limits().max_bytes, unlimited);
  const auto made = all.open(memory, local_access);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->step, 2U);
  EXPECT_EQ(made->refusals()[0].why.code, errc::too_large);
  EXPECT_EQ(made->refusals()[1].why.code, errc::unsupported);
  EXPECT_EQ(t.devices[0]->calls + t.devices[1]->calls, 0U);
  EXPECT_TRUE(all.close(*made));
  t.expect_nothing_open();
}

TEST(fallback_registrar, a_close_that_fails_changes_nothing) {
  three_steps t;
  t.refuse(0, errc::unsupported, EOPNOTSUPP);
  t.refuse(1, errc::unsupported, EOPNOTSUPP);
  auto all = t.made();
  const auto made = all.open(memory, local_access);
  ASSERT_TRUE(made);
  t.devices[2]->fail_closes(1);
  EXPECT_EQ(all.close(*made).error().native, 5);
  EXPECT_EQ(made->refusals().size(), 2U) << "still there";
  EXPECT_EQ(t.staged, 1);
  EXPECT_TRUE(all.close(*made));
  t.expect_nothing_open();
}

TEST(fallback_registrar, memory_for_staging_may_be_refused) {
  std::vector<fallback_step<null_registrar::registration_type>> steps;
  steps.push_back(staging_step("staging", null_registrar(),
                               {.allocate = [](std::size_t) -> result<void*> {
                                  return fail_errno(errc::driver_error, ENOSPC, "the pool is used up");
                                },
                                .free = [](void*, std::size_t) { FAIL() << "there is nothing to free"; }}));
  auto all = fallback_registrar<null_registrar::registration_type>::create(std::move(steps));
  ASSERT_TRUE(all);
  EXPECT_EQ(all->open(memory, local_access).error().native, ENOSPC);
}

TEST(fallback_registrar, refuses_lists_that_make_no_sense) {
  EXPECT_EQ(registrar_type::create({}).error(), errc::invalid_argument);
  EXPECT_EQ(registrar_type::create({{"nothing", {}, {}, {}}}).error(), errc::invalid_argument);
  std::vector<fallback_step<made_type>> many(9, as_step("same", fake_registrar(std::make_shared<fake_device>())));
  EXPECT_EQ(registrar_type::create(std::move(many)).error(), errc::invalid_argument);
  three_steps t;
  auto old = t.made();
  const auto now = std::move(old);
  EXPECT_EQ(old.open(memory, local_access).error(), errc::closed);
  EXPECT_FALSE(old.close({}));
}

// Each thread sees the reasons of its own registrations, whatever the steps answer meanwhile.
TEST(fallback_registrar, serves_many_threads_in_a_cache) {
  three_steps t;
  std::atomic<unsigned> turn{0};
  for (int i = 0; i < 2; ++i)
    t.devices[static_cast<std::size_t>(i)]->fail_opens([&, i](const range&, access_flags) -> std::optional<error> {
      if (turn++ % 2 == 0) return std::nullopt;
      return error{errc::unsupported, native_kind::posix, 100 + i, "in turn"};
    });
  std::vector<fallback_step<made_type>> steps;
  for (std::size_t i = 0; i < 3; ++i) steps.push_back(as_step("step", fake_registrar(t.devices[i])));
  {
    pinfold::cache<registrar_type> cache(*registrar_type::create(std::move(steps)), keeping({.max_count = 6}));
    std::vector<std::jthread> threads;
    for (std::uintptr_t thread = 0; thread < 4; ++thread)
      threads.emplace_back([&, thread] {
        for (std::uintptr_t i = 0; i < 2000; ++i) {
          const auto at = place + ((i * 7 + thread * 3) % 16) * 0x10000;
          const auto lease = cache.acquire(reinterpret_cast<void*>(at), 0x1000);
          if (!lease) continue;  // the budget is used up
          const auto made = lease->registration();
          ASSERT_EQ(made.refusals().size(), made.step);
          for (std::uint32_t step = 0; step < made.step; ++step)
            ASSERT_EQ(made.refusals()[step].why.native, static_cast<int>(100 + step));
        }
      });
  }
  t.expect_nothing_open();
}

/// A registrar of registrations that the program may end, which is told of memory that is gone.
class borrowing : public fake_registrar {
 public:
  borrowing(std::shared_ptr<fake_device> device, std::atomic<int>& told)
      : fake_registrar(std::move(device)), told_(&told) {}
  [[nodiscard]] bool may_keep(const registration_type& /*made*/) const noexcept { return false; }
  void invalidated(const registration_type& /*made*/) noexcept { ++*told_; }

 private:
  std::atomic<int>* told_;
};

TEST(fallback_registrar, R10_registration_that_the_program_may_end_is_kept_for_one_lease) {
  three_steps t;
  std::atomic<int> told{0};
  std::vector<fallback_step<made_type>> steps;
  steps.push_back(as_step("borrowed", borrowing(t.devices[0], told)));
  steps.push_back(as_step("plain", fake_registrar(t.devices[1])));
  pinfold::cache<registrar_type> cache(*registrar_type::create(std::move(steps)), keeping());
  auto* const at = reinterpret_cast<void*>(place);
  auto lease = cache.acquire(at, 0x1000);
  ASSERT_TRUE(lease);
  cache.invalidate(at, 0x1000);
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(lease->release());
  static_cast<void>(cache.acquire(at, 0x1000));
  EXPECT_EQ(t.devices[0]->opened, 2U);
  EXPECT_EQ(t.devices[0]->open_count(), 0U) << "nothing is kept";
  t.devices[0]->fail_opens([](const range&, access_flags) { return error{errc::unsupported}; });
  static_cast<void>(cache.acquire(at, 0x1000));
  EXPECT_EQ(t.devices[1]->open_count(), 1U) << "the other step's is kept";
}

}  // namespace
}  // namespace pinfold::testing::fallback_registrar_test
