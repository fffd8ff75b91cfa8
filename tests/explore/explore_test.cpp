// SPDX-License-Identifier: BSD-3-Clause
// Explores interleavings of the real engine: docs/understand/protocol.md, "Explored interleavings".
#include "runs.hpp"
#include "scenario.hpp"
#include "support/host/settings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pinfold::explore::explore_test {
namespace {

using testing::setting;
using testing::stress_time;
using testing::test_seed;

/// Returns the operations of local memory or of imports that PINFOLD_EXPLORE_ONLY names, or all.
std::vector<operation> chosen_operations(bool imports) {
  std::vector<operation> all(import_operations.begin(), import_operations.end());
  if (!imports) {
    all.clear();
    for (std::size_t i = 0; i < local_operations; ++i) all.push_back(static_cast<operation>(i));
  }
  const char* const given = std::getenv("PINFOLD_EXPLORE_ONLY");
  if (given == nullptr) return all;
  const std::string only = "," + std::string(given) + ",";
  std::erase_if(all,
                [&](operation one) { return only.find("," + std::string(name_of(one)) + ",") == std::string::npos; });
  if (all.empty()) throw std::invalid_argument("PINFOLD_EXPLORE_ONLY names no operation");
  return all;
}

std::string only_text() {
  const char* const given = std::getenv("PINFOLD_EXPLORE_ONLY");
  return given == nullptr ? std::string() : std::string(" PINFOLD_EXPLORE_ONLY=") + given;
}

constexpr unsigned cases = 6;  // that share the time

std::uint64_t mixed(std::uint64_t number) {
  number = (number ^ number >> 31U) * 0x7fb5d329728ea185;
  number = (number ^ number >> 27U) * 0x81dadef4bc2dd44d;
  return number ^ number >> 33U;
}

void explain(const std::string& failure, const scenario& what, std::uint64_t number) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  ADD_FAILURE() << failure << "\n  " << what.text() << "\n  replay with PINFOLD_TEST_SEED=" << test_seed()
                << " PINFOLD_TEST_SCHEDULE=" << number << only_text() << " --gtest_filter=" << test->test_suite_name()
                << "." << test->name();
}

/// Schedules with random operations, states, options and priorities, which their numbers choose.
struct by_priority {
  static constexpr std::uint64_t series = 100;  // a child process runs so many
  std::size_t threads;
  bool imports;
  std::vector<operation> from = chosen_operations(imports);

  [[nodiscard]] std::pair<scenario, plan> of(std::uint64_t number) const {
    std::mt19937_64 random(mixed(test_seed() + mixed(number)));
    scenario what{.threads = {}, .imports = imports};
    for (std::size_t i = 0; i < threads; ++i) what.threads.push_back(from[random() % from.size()]);
    what.with = static_cast<before>(random() % static_cast<std::uint64_t>(before::count));
    what.choices = random() % 4 == 0 ? 0 : random();
    return {what, {.seed = random(), .atomics = random() % 2 == 0}};
  }

  [[nodiscard]] series_outcome run_until(std::uint64_t last, bool traced) const {
    return run_series(last / series * series, last, [this, traced, last](std::uint64_t number) {
      auto one = of(number);
      one.second.traced = traced && number == last;
      return schedule{one.second, [what = one.first] { play(what); }};
    });
  }

  /// Runs the series of a schedule until that one. Returns the steps.
  [[nodiscard]] std::uint64_t check(std::uint64_t last) const {
    const auto got = run_until(last, false);
    if (got.last.failure.empty()) return got.steps;
    static_cast<void>(run_until(got.number, true));
    explain(got.last.failure, of(got.number).first, got.number);
    return got.steps;
  }
};

void explore_by_priority(std::size_t threads, bool imports) {
  const by_priority schedules{threads, imports};
  if (const auto one = setting("PINFOLD_TEST_SCHEDULE", UINT64_MAX); one != UINT64_MAX)
    return static_cast<void>(schedules.check(one));
  static_cast<void>(test_seed());  // prints it once, and not in each child
  const auto start = std::chrono::steady_clock::now();
  std::uint64_t steps = 0;
  std::uint64_t done = 0;
  std::chrono::duration<double> spent{};
  do {
    done += by_priority::series;
    steps += schedules.check(done - 1);
    if (::testing::Test::HasFailure()) return;
    spent = std::chrono::steady_clock::now() - start;
  } while (spent < stress_time(cases));
  std::printf("%llu schedules of %.0f steps, %.0f/s\n", static_cast<unsigned long long>(done),
              static_cast<double>(steps) / static_cast<double>(done), static_cast<double>(done) / spent.count());
}

/// A schedule of two plain operations with at most two preemptions.
struct exact {
  static constexpr std::size_t states = static_cast<std::size_t>(before::count);
  static std::size_t count(bool imports) {  // the order of two operations says which begins
    return chosen_operations(imports).size() * chosen_operations(imports).size() * states * 2;
  }

  bool imports = false;
  std::uint64_t scenario_number = 0;
  std::array<preemption, 2> preempted{};

  [[nodiscard]] std::uint64_t number() const {
    std::uint64_t all = scenario_number;
    for (const preemption& each : preempted) all = (all << 20U) + (each.step << 4U) + each.to;
    return all;
  }
  static exact of(std::uint64_t number, bool imports) {
    exact all{.imports = imports};
    for (auto* each : {&all.preempted[1], &all.preempted[0]}) {
      *each = {static_cast<std::uint32_t>(number >> 4U & 0xffffU), static_cast<std::uint32_t>(number & 0xfU)};
      number >>= 20U;
    }
    all.scenario_number = number;
    return all;
  }
  [[nodiscard]] scenario what() const {
    const auto pair = scenario_number / 2 / states;
    const auto from = chosen_operations(imports);
    return {.threads = {from.at(pair / from.size()), from.at(pair % from.size())},
            .imports = imports,
            .with = static_cast<before>(scenario_number / 2 % states),
            .choices = scenario_number % 2};
  }
  /// Runs the schedule, and explains how to repeat it if it fails.
  outcome check() const {
    const auto what = this->what();
    plan how{.by_priority = false, .preempted = preempted};
    auto got = explore::run(how, [&] { play(what); });
    if (got.failure.empty()) return got;
    how.traced = true;
    static_cast<void>(explore::run(how, [&] { play(what); }));
    explain(got.failure, what, number());
    return got;
  }
};

class exhaustive {
 public:
  explicit exhaustive(bool imports) : imports_(imports) {}
  void run() {
    if (const auto one = setting("PINFOLD_TEST_SCHEDULE", UINT64_MAX); one != UINT64_MAX) {
      static_cast<void>(exact::of(one, imports_).check());
      return;
    }
    std::vector<std::uint64_t> scenarios(exact::count(imports_));
    std::iota(scenarios.begin(), scenarios.end(), 0);
    std::mt19937_64 random(mixed(test_seed()));
    std::shuffle(scenarios.begin(), scenarios.end(), random);
    std::size_t done = 0;
    for (; done < scenarios.size() && goes_on(); ++done) preempt_once(scenarios[done]);
    std::printf("%zu of %zu scenarios with one preemption", done, scenarios.size());
    const auto total = std::transform_reduce(firsts_.begin(), firsts_.end(), std::size_t{0}, std::plus<>(),
                                             [](const auto& each) { return each.later.size(); });
    std::shuffle(firsts_.begin(), firsts_.end(), random);
    for (std::size_t i = 0; !firsts_.empty() && goes_on(); ++i) preempt_again(i % firsts_.size(), random);
    std::printf(", %zu of %zu schedules with two; %zu schedules, %.0f/s\n", twice_, total, runs_,
                static_cast<double>(runs_) / spent().count());
  }

 private:
  struct first {
    exact how;
    std::vector<preemption> later;
  };

  [[nodiscard]] std::chrono::duration<double> spent() const { return std::chrono::steady_clock::now() - start_; }
  [[nodiscard]] bool goes_on() const { return !::testing::Test::HasFailure() && spent() < stress_time(cases); }

  outcome run_one(const exact& how) {
    ++runs_;
    return how.check();
  }

  void preempt_once(std::uint64_t number) {
    const auto steps = run_one({imports_, number, {}}).steps;
    for (std::uint32_t step = 1; step <= steps && goes_on(); ++step) {
      std::uint32_t others = 1;
      for (std::uint32_t to = 0; to < others; ++to) {
        const exact how{imports_, number, {{{step, to}, {}}}};
        const auto got = run_one(how);
        others = got.others;
        if (others == 0) break;
        first known{how, {}};
        for (auto later = step + 1; later <= got.steps; ++later)
          for (std::uint32_t then = 0; then < others; ++then) known.later.push_back({later, then});
        firsts_.push_back(std::move(known));
      }
    }
  }

  // Runs one that was not run yet.
  void preempt_again(std::size_t which, std::mt19937_64& random) {
    auto& later = firsts_[which].later;
    if (later.empty()) {
      std::swap(firsts_[which], firsts_.back());
      firsts_.pop_back();
      return;
    }
    std::swap(later[random() % later.size()], later.back());
    exact how = firsts_[which].how;
    how.preempted[1] = later.back();
    later.pop_back();
    static_cast<void>(run_one(how));
    ++twice_;
  }

  bool imports_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<first> firsts_;
  std::size_t runs_ = 0;
  std::size_t twice_ = 0;
};

TEST(explore, pairs_of_operations_with_two_preemptions) { exhaustive(false).run(); }
TEST(explore, pairs_of_operations_by_priority) { explore_by_priority(2, false); }
TEST(explore, triples_of_operations_by_priority) { explore_by_priority(3, false); }
TEST(explore_imports, pairs_of_operations_with_two_preemptions) { exhaustive(true).run(); }
TEST(explore_imports, pairs_of_operations_by_priority) { explore_by_priority(2, true); }
TEST(explore_imports, triples_of_operations_by_priority) { explore_by_priority(3, true); }

}  // namespace
}  // namespace pinfold::explore::explore_test
