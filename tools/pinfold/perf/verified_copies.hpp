// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Copies of messages that are timed, counted and verified.
#pragma once

#include "cli/progress.hpp"
#include "peer/reader.hpp"
#include "perf/measure.hpp"
#include "perf/perf.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace tool {

/// The copies of one thread, or of all together, in one run.
struct copy_tally {
  nanoseconds samples;
  std::uint64_t errors = 0;
  std::optional<pinfold::error> first;

  void count(const pinfold::error& why) {
    ++errors;
    if (!first) first = why;
  }
  void add(const copy_tally& other) {
    samples.insert(samples.end(), other.samples.begin(), other.samples.end());
    errors += other.errors;
    if (!first) first = other.first;
  }
};

/// Copies with one reader to one target.
template <class Message, class Target>
class verified_copies {
 public:
  verified_copies(reader<Message, Target>& how, Target& into) noexcept : how_(how), into_(into) {}

  /// Wipes before and checks after the copy, outside the timed region: only this copy can have brought the right bytes.
  void copy(const part_of<Message>& wanted) {
    const auto took = timed(wanted);
    if (took) done.samples.push_back(*took);
    if (!took) done.count(took.error());
  }

  /// Copies every message once, untimed, so that all subjects start warm. Returns false when not one arrived: the timed
  /// copies would fail in the same way, as fast as the machine can.
  [[nodiscard]] bool warm_up(const std::vector<Message>& messages) {
    for (const auto& one : messages) copy(whole(one));
    return !std::exchange(done.samples, {}).empty();
  }

  /// Copies the messages in turn.
  void run(const measuring& how, const std::vector<Message>& messages) {
    stint rest(how);
    for (std::size_t i = 0; rest.goes_on(); ++i) copy(whole(messages[i % messages.size()]));
  }

  copy_tally done;

 private:
  [[nodiscard]] pinfold::result<std::uint64_t> timed(const part_of<Message>& wanted) {
    if (const auto wiped = into_.wipe(wanted.bytes); !wiped) return tl::unexpected(wiped.error());
    pinfold::result<void> outcome;
    const auto took = time_of([&] { outcome = how_.read(wanted, into_); });
    if (!outcome) return tl::unexpected(outcome.error());
    const auto right = into_.holds(wanted.bytes, wanted.of.seed, wanted.offset);
    if (!right) return tl::unexpected(right.error());
    if (!*right) return pinfold::fail(pinfold::errc::driver_error, "a message arrived with wrong bytes");
    return took;
  }

  reader<Message, Target>& how_;
  Target& into_;
};

inline constexpr std::array copy_subjects{"uncached", "floor", "pinfold"};

/// The runs of one subject.
struct copy_runs {
  std::vector<latency> runs;
  std::uint64_t errors = 0;
};
using copy_results = std::map<std::string_view, copy_runs>;

/// Runs `measure(subject)` again and again. Subjects take turns, so that other load on the machine affects all of them.
template <class Measure>
[[nodiscard]] copy_results copies_in_turn(const measuring& how, progress_bar& progress, Measure measure) {
  copy_results results;
  for (unsigned repeat = 0; repeat < how.repeats; ++repeat) {
    for (const char* subject : copy_subjects) {
      copy_tally done = measure(subject);
      auto& own = results[subject];
      if (done.first && own.errors == 0) report_error(subject, *done.first);
      own.errors += done.errors;
      own.runs.push_back(summarise(std::move(done.samples)));
      progress.step();
    }
  }
  return results;
}

}  // namespace tool
