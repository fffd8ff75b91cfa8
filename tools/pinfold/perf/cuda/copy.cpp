// SPDX-License-Identifier: BSD-3-Clause
// The copy case with GPU memory: whole messages read through the cache, without it, and from mappings that stay open.
#include "cli/progress.hpp"
#include "perf/cuda/cuda.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>

namespace tool {
namespace {

constexpr std::array subjects{"uncached", "floor", "pinfold"};

struct measured {
  std::vector<latency> runs;
  std::uint64_t errors = 0;
};

using all_measured = std::map<std::string_view, measured>;

void measure_once(const cuda_run& run, const char* subject, const std::vector<gpu_message>& messages, gpu_target& into,
                  measured& results) {
  gpu_cache cache(pinfold::cuda_ipc_importer({.device = run.options.cuda.device}), run.options.cache);
  const auto how = make_gpu_reader(subject, cache, run.options.cuda.device);
  gpu_copies copies(*how, into);
  for (const auto& message : messages) copies.copy({message, 0, message.size});
  const bool any = !copies.samples.empty();
  copies.samples.clear();  // those copies were the warm-up
  stint rest(run.options);
  for (std::size_t i = 0; any && rest.goes_on(); ++i) {
    const auto& message = messages[i % messages.size()];
    copies.copy({message, 0, message.size});
  }
  results.errors += copies.errors;
  results.runs.push_back(summarise(std::move(copies.samples)));
}

// Subjects take turns, so that other load on the machine affects all of them.
all_measured measure_size(const cuda_run& run, const std::vector<gpu_message>& messages, progress_bar& progress) {
  all_measured results;
  gpu_target into(run.device, run.options.cuda.to, messages.front().size);
  for (unsigned repeat = 0; repeat < run.options.repeats; ++repeat) {
    for (const char* subject : subjects) {
      measure_once(run, subject, messages, into, results[subject]);
      progress.step();
    }
  }
  return results;
}

void add_rows(json& rows, const cuda_run& run, std::size_t size, all_measured results) {
  const auto uncached = median_run(results.at("uncached").runs).average;
  for (const char* subject : subjects) {
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

}  // namespace

json run_cuda_copy(const cuda_run& run) {
  auto rows = json::array();
  progress_bar progress(run.options.sizes.size() * run.options.repeats * subjects.size());
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
    run.peer.take_back(*messages);
  }
  return rows;
}

}  // namespace tool
