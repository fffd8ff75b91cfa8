// SPDX-License-Identifier: BSD-3-Clause
// The size case: the cost of one registration, by size and kind of pages. The pages are populated before, so it
// measures pinning them.
#include "cli/progress.hpp"
#include "cli/sizes.hpp"
#include "perf/local/register.hpp"

#include <array>
#include <map>
#include <utility>

namespace tool {
namespace {

using pinfold::page_kind;

constexpr std::array all_kinds{page_kind::plain, page_kind::thp, page_kind::hugetlb};
constexpr std::uint64_t hits = 1000;

// The measurements of one run.
struct costs {
  latency opened;
  latency closed;
  double hit = 0;  // nanoseconds, on average
};

// One kind of pages that the system has, and its measurements.
struct subject {
  page_kind kind;
  paged_memory memory;
  std::vector<costs> runs;
  std::optional<pinfold::error> failed;
};

pinfold::result<double> time_of_hit(uring_cache& cache, const paged_memory& memory) {
  const auto first = cache.acquire(memory.bytes());
  if (!first) return tl::unexpected(first.error());
  pinfold::result<void> outcome;
  const auto took = time_of([&] {
    for (std::uint64_t i = 0; i < hits && outcome; ++i)
      outcome = cache.acquire(memory.bytes()).map([](const auto& lease) { static_cast<void>(lease); });
  });
  return outcome.map([&] { return static_cast<double>(took) / hits; });
}

// Registers and unregisters again and again, without the cache.
pinfold::result<costs> measure(const register_run& run, uring_cache& cache, const paged_memory& memory) {
  auto& registrar = cache.backend();
  if (memory.bytes().size() > registrar.limits().max_bytes)
    return pinfold::fail(pinfold::errc::too_large, "the size exceeds io_uring's largest buffer");
  nanoseconds opens;
  nanoseconds closes;
  for (stint rest(run.options); rest.goes_on();) {
    pinfold::result<pinfold::io_uring_registrar::registration_type> made;
    opens.push_back(time_of([&] { made = registrar.open(memory.where(), pinfold::local_access); }));
    if (!made) return tl::unexpected(made.error());
    pinfold::result<void> closed;
    closes.push_back(time_of([&] { closed = registrar.close(*made); }));
    if (!closed) return tl::unexpected(closed.error());
  }
  const auto hit = time_of_hit(cache, memory);
  if (!hit) return tl::unexpected(hit.error());
  return costs{summarise(std::move(opens)), summarise(std::move(closes)), *hit};
}

std::vector<page_kind> kinds_of(const register_options& options) {
  if (options.pages) return {*options.pages};
  return {all_kinds.begin(), all_kinds.end()};
}

// Returns the kinds that the system has. Notes the missing ones, for the largest size only.
std::vector<subject> subjects_of(const register_run& run, std::size_t size, std::map<page_kind, std::string>& missing) {
  std::vector<subject> found;
  for (const auto kind : kinds_of(run.options)) {
    auto memory = paged_memory::map(size, kind);
    if (!memory) {
      missing[kind] = missing_pages_note(kind, size, memory.error());
    } else {
      found.push_back({kind, std::move(*memory), {}, {}});
    }
  }
  return found;
}

json row_of(const register_run& run, std::size_t size, const subject& measured) {
  auto row = run.row("register", size);
  row["pages"] = pages_name(measured.kind);
  if (!measured.memory.doubt().empty()) row["pages_doubt"] = measured.memory.doubt();
  if (measured.failed) {
    add_failure(row, *measured.failed);
    return row;
  }
  const auto median = median_by(measured.runs, [](const costs& one) { return one.opened.average; });
  add_latency(row, median.opened);
  row["unregister_ns"] = rounded(median.closed.average);
  row["hit_ns"] = rounded(median.hit);
  row["errors"] = 0;
  return row;
}

// Kinds of pages take turns, so that other load on the machine affects all of them.
void measure_all(const register_run& run, std::vector<subject>& subjects, progress_bar& progress) {
  for (unsigned repeat = 0; repeat < run.options.repeats; ++repeat) {
    for (auto& one : subjects) {
      auto cache = run.ring.cache(run.options.cache);
      auto measured = one.failed ? tl::unexpected(*one.failed) : measure(run, cache, one.memory);
      if (measured) one.runs.push_back(*measured);
      if (!measured) one.failed = measured.error();
      progress.step();
    }
  }
}

json run_size(const register_run& run) {
  auto rows = json::array();
  std::map<page_kind, std::string> missing;
  progress_bar progress(run.options.sizes.size() * run.options.repeats * kinds_of(run.options).size());
  for (const auto size : run.options.sizes) {
    auto subjects = subjects_of(run, size, missing);
    measure_all(run, subjects, progress);
    for (const auto& one : subjects) rows.push_back(row_of(run, size, one));
    keep_rows(rows);
  }
  add_gains(rows, "ns_per_op", figure_of::time,
            [](const json& base, const json& row) { return base.at("pages") == "4k" && same("size", base, row); });
  for (auto& [kind, note] : missing) run.notes.push_back(std::move(note));
  return rows;
}

std::vector<column> size_columns() {
  return with_errors({size("#bytes", "size"), words("pages", "pages"), count("#registrations", "iterations"),
                      microseconds("p50[us]", "p50_ns", 2), microseconds("p99[us]", "p99_ns", 2),
                      microseconds("average[us]", "ns_per_op", 2), microseconds("unregister[us]", "unregister_ns", 2),
                      microseconds("hit[us]", "hit_ns", 3), number("x 4k", "gain", 1, 2)});
}

}  // namespace

const perf_case<register_run> size_case{"size", run_size, size_columns, "4K,64K,1M,16M,256M"};

}  // namespace tool
