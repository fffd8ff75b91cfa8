// SPDX-License-Identifier: BSD-3-Clause
// What `automatic` becomes under the default filters of containers: R54. Each test runs in a process of its own.
#include "support/doubles/pipe_device.hpp"
#include "support/host/container_filter.hpp"
#include "support/host/privileges.hpp"
#include "support/host/sanitized.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <string>
#include <string_view>
#include <sys/mman.h>

namespace pinfold::testing::containers_test {
namespace {

constexpr std::size_t bytes = 16384;
constexpr int rounds = 50;
constexpr int usable = PROT_READ | PROT_WRITE, own = MAP_PRIVATE | MAP_ANONYMOUS;

/// The report of a process in a container.
struct seen {
  bool possible = false;  // the filter and the namespace were possible
  bool watched = false;   // the memory's content was checked
  int stale = 0;          // rounds with old bytes
  std::uint64_t hits = 0;
  std::uint64_t unmonitored = 0;
  std::array<char, 512> monitors{};

  [[nodiscard]] std::string text() const { return monitors.data(); }
};

using unmap_function = long(void*, std::size_t);

long unmap_by_libc(void* at, std::size_t size) { return ::munmap(at, size); }

// Returns null when the library cannot be loaded.
unmap_function* unmap_by_library() {
  void* const library = ::dlopen(PINFOLD_INLINE_MUNMAP, RTLD_NOW);
  return library == nullptr ? nullptr : reinterpret_cast<unmap_function*>(::dlsym(library, "unmap_inline"));
}

void keep(cache<pipe_registrar>& kept, void* at) {
  std::memset(at, 'A', bytes);
  {
    const auto held = kept.acquire(at, bytes);
  }
  {
    const auto held = kept.acquire(at, bytes);
  }
}

// Returns whether old bytes arrive.
bool is_stale(cache<pipe_registrar>& kept, void* at, unmap_function* unmap) {
  unmap(at, bytes);
  if (::mmap(at, bytes, usable, own | MAP_FIXED_NOREPLACE, -1, 0) != at) return true;
  std::memset(at, 'B', bytes);
  const auto held = kept.acquire(at, bytes);
  const auto arrived = held ? bytes_behind(held->registration()) : std::vector<char>{};
  return arrived.size() != bytes || std::ranges::count(arrived, 'B') != static_cast<std::ptrdiff_t>(bytes);
}

seen use_cache(monitor_choice monitor, bool look, const std::function<unmap_function*()>& load) {
  seen made;
  made.possible = true;
  cache_options options;
  options.monitor = monitor;
  unmap_function* unmap = load();
  cache<pipe_registrar> kept(pipe_registrar{}, options);
  void* const at = ::mmap(nullptr, bytes, usable, own, -1, 0);
  for (int i = 0; i < rounds && look; ++i) {
    keep(kept, at);
    if (unmap == nullptr) unmap = unmap_by_library();
    made.stale += is_stale(kept, at, unmap) ? 1 : 0;
  }
  made.watched = look;
  made.hits = kept.statistics().hits;
  made.unmonitored = kept.statistics().unmonitored;
  const auto text = kept.monitors();
  std::memcpy(made.monitors.data(), text.data(), std::min(text.size(), made.monitors.size() - 1));
  return made;
}

// Enters a container as a user without access to /dev/userfaultfd, which a container has only if it is given it.
bool enter_container() {
  const bool no_user_of_the_device = ::access("/dev/userfaultfd", W_OK) != 0 || become_nobody();
  return no_user_of_the_device && ::prctl(PR_SET_DUMPABLE, 1) == 0 && enter_user_namespace();
}

template <class F>
seen in_container(std::span<const refused_call> refused, bool with_namespace, F&& body) {
  child_process child([&](line& parent) {
    const bool inside = (!with_namespace || enter_container()) && refuse_calls(refused);
    return parent.send(inside ? body() : seen{}) ? 0 : 1;
  });
  const auto said = child.talk().receive<seen>();
  EXPECT_EQ(child.reap(), 0);
  return said.value_or(seen{});
}

auto with_libc_only(monitor_choice monitor = monitor_choice::automatic) {
  return [=] { return use_cache(monitor, true, [] { return &unmap_by_libc; }); };
}
auto with_library(monitor_choice monitor = monitor_choice::automatic) {
  return [=] { return use_cache(monitor, true, unmap_by_library); };
}

class containers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "the sanitizer's allocator is not libc's";
  }
};

TEST_F(containers, R54_hooks_alone_keep_registrations_if_no_other_code_makes_system_calls) {
  const auto found = in_container(refused_by_docker(), true, with_libc_only());
  if (!found.possible) GTEST_SKIP() << "no user namespace or no filter here";
  EXPECT_TRUE(found.text().starts_with("hooks (userfaultfd: ")) << found.text();
  EXPECT_EQ(found.stale, 0);
  EXPECT_GE(found.hits, static_cast<std::uint64_t>(rounds));
  EXPECT_EQ(found.unmonitored, 0U);
}

TEST_F(containers, R54_cache_keeps_nothing_beside_a_library_with_inline_system_calls) {
  const auto found = in_container(refused_by_docker(), true, with_library());
  if (!found.possible) GTEST_SKIP() << "no user namespace or no filter here";
  EXPECT_TRUE(found.text().starts_with("none (userfaultfd: ")) << found.text();
  EXPECT_NE(found.text().find("inline_munmap.so: munmap by its own instruction at +0x"), std::string::npos)
      << found.text();
  EXPECT_EQ(found.stale, 0);
  EXPECT_EQ(found.hits, 0U);
  EXPECT_GE(found.unmonitored, static_cast<std::uint64_t>(rounds));
}

TEST_F(containers, R54_cache_keeps_nothing_after_a_library_with_inline_calls_is_loaded) {
  const auto found = in_container(refused_by_docker(), true, [] {
    return use_cache(monitor_choice::automatic, true, [] { return static_cast<unmap_function*>(nullptr); });
  });
  if (!found.possible) GTEST_SKIP() << "no user namespace or no filter here";
  EXPECT_EQ(found.stale, 0);
  EXPECT_EQ(found.hits, 1U) << "before it was loaded";
  EXPECT_NE(found.text().find("inline_munmap.so: munmap by its own instruction at +0x"), std::string::npos)
      << found.text();
  EXPECT_GE(found.unmonitored, static_cast<std::uint64_t>(rounds));
}

TEST_F(containers, R54_hooks_chosen_explicitly_keep_nothing_beside_inline_system_calls) {
  const auto found = in_container(refused_by_docker(), true, with_library(monitor_choice::hooks));
  if (!found.possible) GTEST_SKIP() << "no user namespace or no filter here";
  EXPECT_TRUE(found.text().starts_with("none (hooks alone: inline_munmap.so: munmap")) << found.text();
  EXPECT_EQ(found.stale, 0);
}

// The control: without the rule, wrong bytes arrive.
TEST_F(containers, manual_monitor_overrides_the_rule_and_stale_bytes_arrive) {
  const auto found =
      in_container(refused_by_docker(), true, with_library(monitor_choice::hooks | monitor_choice::manual));
  if (!found.possible) GTEST_SKIP() << "no user namespace or no filter here";
  EXPECT_EQ(found.text(), "manual+hooks");
  EXPECT_GT(found.stale, 0) << "these tests could not fail";
}

TEST_F(containers, rule_holds_with_the_calls_that_podman_refuses) {
  const auto found = in_container(refused_by_podman(), true, [] {
    return use_cache(monitor_choice::automatic, false, [] { return &unmap_by_libc; });
  });
  if (!found.possible) GTEST_SKIP() << "no user namespace or no filter here";
  EXPECT_TRUE(found.text().starts_with("hooks (userfaultfd: ")) << found.text();
  const auto other = in_container(refused_by_podman(), true,
                                  [] { return use_cache(monitor_choice::automatic, false, unmap_by_library); });
  EXPECT_NE(other.text().find("inline_munmap.so: munmap by its own instruction"), std::string::npos) << other.text();
}

TEST_F(containers, device_file_gives_userfaultfd_when_the_system_call_is_refused) {
  if (::access("/dev/userfaultfd", R_OK | W_OK) != 0) GTEST_SKIP() << "/dev/userfaultfd is not there, or not ours";
  const auto found = in_container(refused_by_docker(), false, with_library());
  if (!found.possible) GTEST_SKIP() << "no filter here";
  EXPECT_EQ(found.text(), "hooks+userfaultfd");
  EXPECT_EQ(found.stale, 0);
  EXPECT_GE(found.hits, static_cast<std::uint64_t>(rounds));
}

TEST_F(containers, allowed_system_call_gives_userfaultfd) {
  std::vector<refused_call> others;
  std::ranges::copy_if(refused_by_docker(), std::back_inserter(others),
                       [](const refused_call& one) { return one.number != SYS_userfaultfd; });
  const auto found = in_container(others, true, with_library());
  if (!found.possible) GTEST_SKIP() << "no user namespace or no filter here";
  EXPECT_EQ(found.text(), "hooks+userfaultfd");
  EXPECT_EQ(found.stale, 0);
}

}  // namespace
}  // namespace pinfold::testing::containers_test
