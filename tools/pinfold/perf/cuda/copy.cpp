// SPDX-License-Identifier: BSD-3-Clause
// The copy case with GPU memory: whole messages read through the cache, without it, and from mappings that stay open.
#include "cli/progress.hpp"
#include "perf/cuda/cuda.hpp"
#include "perf/verified_copies.hpp"

#include <algorithm>
#include <utility>

namespace tool {
namespace {

copy_tally measure_once(const cuda_run& run, const char* subject, const std::vector<gpu_message>& messages,
                        gpu_target& into) {
  gpu_cache cache(run.importer(), run.options.cache);
  const auto how = run.reader(subject, cache);
  verified_copies copies(*how, into);
  if (copies.warm_up(messages)) copies.run(run.options, messages);
  return std::move(copies.done);
}

copy_results measure_size(const cuda_run& run, const std::vector<gpu_message>& messages, progress_bar& progress) {
  gpu_target into(run.device, run.options.cuda.to, messages.front().size);
  return copies_in_turn(run.options, progress,
                        [&](const char* subject) { return measure_once(run, subject, messages, into); });
}

void add_rows(json& rows, const cuda_run& run, std::size_t size, const copy_results& results) {
  const auto uncached = median_run(results.at("uncached").runs).average;
  for (const char* subject : copy_subjects) {
    const auto median = median_run(results.at(subject).runs);
    auto row = run.row(subject, size, run.kind());
    add_latency(row, median);
    if (median.average > 0) {
      row["gb_per_s"] = rounded(static_cast<double>(size) / median.average);
      row["speedup"] = rounded(uncached / median.average);
    }
    row["errors"] = results.at(subject).errors;
    rows.push_back(std::move(row));
  }
}

void add_skipped(json& rows, const cuda_run& run, std::size_t size, const std::string& why) {
  rows.push_back(run.row("all", size, run.kind()));
  rows.back()["skipped"] = why;
}

// Uses half of the free memory for messages, so that there is room for a copy of one.
std::size_t buffers_for(const cuda_run& run, std::size_t size) {
  return std::min(run.options.buffers, need(run.device.free_bytes(), "GPU memory is unavailable") / 2 / size);
}

json run_cuda_copy(const cuda_run& run) {
  auto rows = json::array();
  progress_bar progress(run.options.sizes.size() * run.options.repeats * copy_subjects.size());
  for (const auto size : run.options.sizes) {
    const auto count = buffers_for(run, size);
    if (count == 0) {
      add_skipped(rows, run, size, "the device has less free memory than twice this size");
      continue;
    }
    const auto messages = run.provide(run.kind(), count, size);
    if (!messages) {
      add_skipped(rows, run, size, pinfold::describe(messages.error()));
      continue;
    }
    add_rows(rows, run, size, measure_size(run, *messages, progress));
    keep_rows(rows);
    run.peer.take_back(*messages);
  }
  return rows;
}

}  // namespace

const perf_case<cuda_run> cuda_copy_case{"copy", run_cuda_copy, copy_columns, "4K,64K,1M,16M,64M"};

}  // namespace tool
