// SPDX-License-Identifier: BSD-3-Clause
// The copy case: whole messages read through the cache, without it, and from mappings that stay open.
#include "cli/progress.hpp"
#include "peer/reader.hpp"
#include "perf/import/import.hpp"
#include "perf/measure.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <utility>

namespace tool {
namespace {

using make_reader = std::function<std::unique_ptr<reader>()>;

constexpr std::array subjects{"uncached", "floor", "pinfold"};

// The work of one thread, or of all together, in one run.
struct tally {
  nanoseconds samples;
  std::uint64_t errors = 0;
  std::optional<pinfold::error> first;

  void add(tally other) {
    samples.insert(samples.end(), other.samples.begin(), other.samples.end());
    errors += other.errors;
    if (!first) first = other.first;
  }
};

constexpr pinfold::error wrong_bytes{pinfold::errc::driver_error, pinfold::native_kind::none, 0,
                                     "a message arrived with wrong bytes"};

class copy_loop {
 public:
  copy_loop(const import_options& options, const std::vector<message>& messages)
      : options_(options), messages_(messages), buffer_(messages.front().size) {}

  // Copies every message once, untimed, so that all subjects start warm. Returns false when not one arrived: the timed
  // copies would fail in the same way, as fast as the machine can.
  [[nodiscard]] bool warm_up(reader& how) {
    for (const auto& wanted : messages_) copy(how, wanted);
    const bool any = !done_.samples.empty();
    if (any) done_ = {};
    return any;
  }

  [[nodiscard]] tally take() { return std::exchange(done_, {}); }

  tally run(reader& how) {
    stint rest(options_);
    for (std::size_t i = 0; rest.goes_on(); ++i) copy(how, messages_[i % messages_.size()]);
    return std::move(done_);
  }

 private:
  // Wipes before and checks after the copy, outside the timed region: only this copy can have brought the right bytes.
  void copy(reader& how, const message& wanted) {
    std::memset(buffer_.data(), 0xa5, buffer_.size());
    pinfold::result<void> outcome;
    const auto took = time_of([&] { outcome = how.read(wanted, buffer_.data()); });
    if (!outcome) return count(outcome.error());
    if (!holds(buffer_, wanted.seed)) return count(wrong_bytes);
    done_.samples.push_back(took);
  }

  void count(const pinfold::error& why) {
    ++done_.errors;
    if (!done_.first) done_.first = why;
  }

  const import_options& options_;
  const std::vector<message>& messages_;
  std::vector<std::byte> buffer_;
  tally done_;
};

tally run_threads(const import_options& options, const std::vector<message>& messages, const make_reader& make,
                  unsigned count) {
  std::vector<tally> parts(count);
  std::barrier start(static_cast<std::ptrdiff_t>(count));
  const auto work = [&](unsigned number) {
    const auto how = make();
    copy_loop loop(options, messages);
    const bool warm = loop.warm_up(*how);
    start.arrive_and_wait();
    parts[number] = warm ? loop.run(*how) : loop.take();
  };
  std::vector<std::jthread> others;
  for (unsigned number = 1; number < count; ++number) others.emplace_back(work, number);
  work(0);
  others.clear();
  for (unsigned number = 1; number < count; ++number) parts[0].add(std::move(parts[number]));
  return std::move(parts[0]);
}

// An uncached thread gets an importer of its own, since one importer refuses to open a handle twice.
make_reader maker_for(std::string_view subject, const import_run& run, memfd_cache& cache) {
  if (subject == "pinfold") return [&cache] { return std::make_unique<cached_reader>(cache); };
  if (subject == "floor") return [&run] { return std::make_unique<floor_reader>(run.importer()); };
  return [&run] { return std::make_unique<uncached_reader>(run.importer()); };
}

struct measured {
  std::vector<latency> runs;
  std::uint64_t errors = 0;
};

json copy_row(const import_run& run, const char* subject, std::size_t size, unsigned threads, const measured& results) {
  auto row = run.row(subject, size, threads);
  const auto median = median_run(results.runs);
  row["buffers"] = run.options.buffers;
  add_latency(row, median);
  if (median.average > 0) row["gb_per_s"] = rounded(threads * static_cast<double>(size) / median.average);
  row["errors"] = results.errors;
  return row;
}

// Subjects take turns, so that other load on the machine affects all of them.
std::map<std::string_view, measured> measure_size(const import_run& run, const std::vector<message>& messages,
                                                  unsigned threads, progress_bar& progress) {
  std::map<std::string_view, measured> results;
  for (unsigned repeat = 0; repeat < run.options.repeats; ++repeat) {
    for (const char* subject : subjects) {
      memfd_cache cache(run.importer(), run.options.cache);
      auto outcome = run_threads(run.options, messages, maker_for(subject, run, cache), threads);
      if (outcome.first && results[subject].errors == 0) report_error(subject, *outcome.first);
      results[subject].errors += outcome.errors;
      results[subject].runs.push_back(summarise(std::move(outcome.samples)));
      progress.step();
    }
  }
  return results;
}

}  // namespace

json run_copy(const import_run& run) {
  const auto threads = run.options.threads.value_or(1);
  const auto count = run.options.peers * run.options.buffers;
  auto rows = json::array();
  progress_bar progress(run.options.sizes.size() * run.options.repeats * subjects.size());
  for (const auto size : run.options.sizes) {
    const auto results = measure_size(run, run.provide(count, size), threads, progress);
    run.take_back(count);
    const auto uncached = median_run(results.at("uncached").runs).average;
    for (const char* subject : subjects) {
      rows.push_back(copy_row(run, subject, size, threads, results.at(subject)));
      const auto average = median_run(results.at(subject).runs).average;
      if (average > 0) rows.back()["speedup"] = rounded(uncached / average);
    }
  }
  return rows;
}

std::vector<column> copy_columns() {
  return {size("#bytes", "size"),
          words("subject", "subject"),
          number("#iterations", "iterations", 1, 0),
          number("p50[us]", "p50_ns", 1e-3, 2),
          number("p99[us]", "p99_ns", 1e-3, 2),
          number("p99.9[us]", "p999_ns", 1e-3, 2),
          number("average[us]", "ns_per_op", 1e-3, 2),
          number("GB/s", "gb_per_s", 1, 2),
          number("x uncached", "speedup", 1, 1),
          number("errors", "errors", 1, 0)};
}

}  // namespace tool
