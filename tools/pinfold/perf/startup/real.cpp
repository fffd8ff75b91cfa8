// SPDX-License-Identifier: BSD-3-Clause
// The real case: memory of this machine over io_uring and mlock, by kind of pages, and by the threads that make the
// pages present: the driver's calls, or the workers before these calls.
#include "cli/progress.hpp"
#include "cli/sizes.hpp"
#include "perf/local/local.hpp"
#include "perf/local/uring.hpp"
#include "perf/startup/mapped_range.hpp"
#include "perf/startup/register_all.hpp"
#include "perf/startup/startup.hpp"
#include "perf/startup/timed_registrar.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/io_uring.hpp>
#include <pinfold/registrars/mlock.hpp>

#include <array>
#include <fmt/format.h>
#include <functional>
#include <sys/mman.h>
#include <utility>

namespace tool {
namespace {

struct kind {
  const char* pages;
  bool huge;
  const char* present_by;
  pinfold::prefault_choice prefault;
};

constexpr std::array page_kinds{kind{"4k", false, "driver", pinfold::prefault_choice::none},
                                kind{"4k", false, "workers", pinfold::prefault_choice::pages},
                                kind{"thp", true, "driver", pinfold::prefault_choice::none},
                                kind{"thp", true, "workers", pinfold::prefault_choice::huge_pages}};

// What one row measures.
struct real_subject {
  const kind& of;
  unsigned workers;
};

using measurement = std::function<pinfold::result<timeline>(const pinfold::range&, const real_subject&)>;

pinfold::background_options options_for(const startup_run& run, const real_subject& what) {
  return {.piece_bytes = run.options.piece, .workers = what.workers, .prefault = what.of.prefault};
}

// The memory lives longer than the cache, so no monitor is needed.
template <class R>
pinfold::result<timeline> over(R registrar, const startup_run& run, const pinfold::range& memory,
                               const real_subject& what, progress_bar& progress) {
  pinfold::cache cache{timed_registrar<R>(std::move(registrar)), {.monitor = pinfold::monitor_choice::manual}};
  return register_all(cache, memory, options_for(run, what), progress);
}

json row_for(const startup_run& run, const char* registrar, std::size_t size, const real_subject& what,
             const measurement& once) {
  auto row = run.row(registrar, what.of.pages, size);
  row["present_by"] = what.of.present_by;
  row["workers"] = what.workers;
  std::vector<timeline> runs;
  for (unsigned i = 0; i < run.options.repeats; ++i) {
    const auto memory = mapped_range::map(size, what.of.huge);
    const auto seen = once(memory.where(), what);
    if (!seen) return add_failure(row, seen.error()), row;
    runs.push_back(*seen);
  }
  add_timeline(row, median_of(std::move(runs)), 1);
  return row;
}

void add_rows(json& rows, const startup_run& run, const char* registrar, std::size_t size, const measurement& once) {
  for (const auto& one : page_kinds)
    for (const auto workers : run.options.workers) {
      rows.push_back(row_for(run, registrar, size, {one, workers}, once));
      keep_rows(rows);
    }
}

void add_rows_of_uring(json& rows, const startup_run& run, std::size_t size, progress_bar& progress) {
  auto ring = uring::open(8, 0);
  if (!ring) return run.notes.push_back(fmt::format("io_uring is not measured: {}", pinfold::describe(ring.error())));
  add_rows(rows, run, "io_uring", size, [&](const pinfold::range& memory, const real_subject& what) {
    return (*ring)->registrar().and_then(
        [&](pinfold::io_uring_registrar made) { return over(std::move(made), run, memory, what, progress); });
  });
}

// A virtual machine may get its memory from its host at the first touch, which would slow down the first row only.
void use_once(std::size_t size) {
  const auto memory = mapped_range::map(size, false);
  static_cast<void>(::madvise(reinterpret_cast<void*>(memory.where().begin), size, MADV_POPULATE_WRITE));
}

json run_real(const startup_run& run) {
  const auto size = run.real_bytes();
  use_once(size);
  progress_bar progress(bar_steps * 2 * page_kinds.size() * run.options.workers.size() * run.options.repeats);
  auto rows = json::array();
  add_rows_of_uring(rows, run, size, progress);
  add_rows(rows, run, "mlock", size, [&](const pinfold::range& memory, const real_subject& what) {
    return over(pinfold::mlock_registrar(), run, memory, what, progress);
  });
  run.notes.push_back(
      fmt::format("real memory: {}, none of it present before; present by: the thread that faults the "
                  "pages in",
                  size_text(size)));
  add_startup_gains(rows);
  return rows;
}

std::vector<column> real_columns() {
  std::vector<column> all{words("registrar", "registrar"), words("pages", "pages"), words("present by", "present_by"),
                          count("workers", "workers")};
  for (auto& one : timeline_columns()) all.push_back(std::move(one));
  all.push_back(number("GB/s", "gb_per_s", 1, 2));
  return with_errors(std::move(all));
}

}  // namespace

const perf_case<startup_run> real_case{"real", run_real, real_columns, ""};

}  // namespace tool
