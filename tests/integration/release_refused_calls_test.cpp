// SPDX-License-Identifier: BSD-3-Clause
// Each call that the release protocol makes of libc fails once, in each plausible way (R66): the result is an error
// with the system's code, or success; nothing leaks; and the next try works.
#include "support/host/pattern.hpp"
#include "support/host/process_limits.hpp"
#include "support/host/refused_case.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/release_stop.hpp"

#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace pinfold::testing::release_refused_calls_test {
namespace {

using namespace std::chrono_literals;
using cache = import_cache<releasing_importer<memfd_importer>>;

constexpr std::size_t bytes = 16384;

/// What one use of the protocol came to.
struct outcome {
  const char* at = "";  ///< the call that failed, empty where all went well
  error failure{};
  bool right = true;
  bool freed = true;

  [[nodiscard]] bool failed() const noexcept { return *at != 0; }
};

outcome fails(const char* at, const error& failure) { return {.at = at, .failure = failure}; }

/// Imports memory, reads it, retires it, and imports other memory.
outcome lend_and_retire(memfd_exporter& exporter, cache& importer, std::uint32_t seed) {
  auto buffer = exporter.allocate(bytes);
  if (!buffer) return fails("allocate", buffer.error());
  write_pattern(buffer->data(), bytes, seed);
  const auto handle = buffer->handle();
  bool right = true;
  {
    const auto lease = importer.acquire({1}, handle, handle.base, bytes);
    if (!lease) return fails("acquire", lease.error());
    right = holds_pattern(lease->data(), bytes, seed);
  }
  const auto report = exporter.retire(std::move(*buffer), 30s);
  if (!report) return fails("retire", report.error());
  return {.right = right, .freed = report->all_let_go()};
}

/// Makes an exporter and an importer in this process, and uses them twice; the second time nothing is refused.
outcome scenario(memfd_via via, outcome& second) try {
  auto exporter = memfd_exporter::create({.serve = true, .release = true});
  if (!exporter) return fails("create an exporter", exporter.error());
  auto listener = release_listener::create();
  if (!listener) return fails("create a listener", listener.error());
  cache importer(releasing_importer<memfd_importer>(memfd_importer({.via = via}), *listener));
  auto attached = listener->attach(importer);
  if (!attached) return fails("attach", attached.error());
  const outcome first = lend_and_retire(*exporter, importer, 1);
  refuse_none();
  second = lend_and_retire(*exporter, importer, 2);
  return first;
} catch (const std::bad_alloc&) {
  return fails("create a cache", {.code = errc::out_of_resources, .native = ENOMEM, .message = "std::bad_alloc"});
}

struct verdict {
  bool refused = false;
  outcome with;    ///< the texts are literals, at the same addresses in both processes
  outcome second;  ///< with the same objects
  outcome after;   ///< with other objects
  outcome after_second;
  footprint before, end;
};

/// Runs the scenario in this process with one call refused, and then again.
verdict judge(memfd_via via, const refusable& which, int nth, int native) {
  verdict found;
  const library_calls counted;
  refuse_none();
  static_cast<void>(scenario(via, found.second));  // so that all is loaded, and made once
  found.before = footprint::here();
  found.second = {};
  refuse_one(which, nth, native);
  found.with = scenario(via, found.second);
  found.refused = refusals.load() != 0;
  refuse_none();
  found.after = scenario(via, found.after_second);
  // A joined thread may be in /proc for another moment, and another thread may close what others use, also when
  // `before` was taken.
  const auto left = [&] {
    found.end = footprint::here();
    return found.end.descriptors > found.before.descriptors || found.end.mappings > found.before.mappings ||
           found.end.threads > found.before.threads;
  };
  for (int i = 0; i < 12'000 && left(); ++i) std::this_thread::sleep_for(5ms);
  return found;
}

/// The exporter's thread turns an importer away if it is short of something, and cannot tell it of what.
bool turned_away(const error& failure) noexcept { return failure == errc::unsupported && failure.native == ECONNRESET; }

class release_refused_calls : public ::testing::TestWithParam<refused_case> {
 protected:
  static std::optional<verdict> run(memfd_via via, int nth) {
    const auto [which, native] = GetParam();
    child_process child(
        [=](line& parent) { return parent.send(judge(via, refusable_calls[which], nth, native)) ? 0 : 2; });
    limit_waits(child.talk(), 200s);
    return child.talk().receive<verdict>();
  }

  static void expect_clean(const verdict& seen) {
    EXPECT_TRUE(seen.with.right) << "wrong bytes";
    if (seen.with.failed()) {
      EXPECT_TRUE(seen.with.failure.native == GetParam().native || turned_away(seen.with.failure))
          << seen.with.at << ": " << describe(seen.with.failure);
    } else {
      EXPECT_TRUE(seen.with.freed) << "the memory is not freed";
    }
    expect_works(seen.second, "the same objects, again");
    expect_works(seen.after, "other objects");
    expect_works(seen.after_second, "other objects, again");
    EXPECT_LE(seen.end.descriptors, seen.before.descriptors);
    EXPECT_LE(seen.end.mappings, seen.before.mappings);
    EXPECT_LE(seen.end.threads, seen.before.threads);
  }

  static void expect_works(const outcome& seen, const char* which) {
    EXPECT_FALSE(seen.failed()) << which << ": " << seen.at << ": " << describe(seen.failure);
    EXPECT_TRUE(seen.right) << which << ": wrong bytes";
    EXPECT_TRUE(seen.freed) << which << ": the memory is not freed";
  }
};

}  // namespace

TEST_P(release_refused_calls, R66_any_refused_call_is_reported_or_overcome) {
  if (sanitized) GTEST_SKIP() << "the sanitizer's runtime replaces these functions";
  int runs = 0;
  for (const memfd_via via : {memfd_via::automatic, memfd_via::scm}) {
    bool more = true;
    for (int nth = 1; more && !HasFailure(); ++nth, ++runs) {
      ASSERT_LT(nth, 1000) << "the scenario makes ever more calls";
      SCOPED_TRACE("call " + std::to_string(nth) + (via == memfd_via::scm ? ", over a socket" : ""));
      const auto seen = run(via, nth);
      ASSERT_TRUE(seen) << "the process ended, or hung";
      more = seen->refused;
      expect_clean(*seen);
    }
  }
  std::printf("%d runs\n", runs);
}

INSTANTIATE_TEST_SUITE_P(all, release_refused_calls, ::testing::ValuesIn(all_refused_cases()),
                         [](const auto& one) { return one.param.name(); });

}  // namespace pinfold::testing::release_refused_calls_test
