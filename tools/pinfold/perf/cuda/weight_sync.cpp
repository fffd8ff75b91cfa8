// SPDX-License-Identifier: BSD-3-Clause
// The weight-sync case: one step in which a trainer hands all its weights to an inference process. Frameworks'
// allocators put several tensors into one allocation, and each tensor is sent as its allocation's handle and an offset:
// many more requests than allocations. Without a cache each request opens, copies and closes.
#include "cli/progress.hpp"
#include "perf/cuda/cuda.hpp"
#include "perf/verified_copies.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <numeric>

namespace tool {
namespace {

constexpr std::array subjects{"uncached", "pinfold"};

// Returns tensor number `number`: one of each allocation in turn, then the next of each.
part_of<gpu_message> tensor(const std::vector<gpu_message>& allocations, std::size_t number, std::size_t bytes) {
  return {allocations[number % allocations.size()], number / allocations.size() * bytes, bytes};
}

// Returns the size of the equal parts, in whole words.
std::size_t tensor_bytes(const cuda_run& run, std::size_t size) {
  const auto& cuda = run.options.cuda;
  const auto each = (cuda.requests + cuda.allocations - 1) / cuda.allocations;
  const auto bytes = size / each / sizeof(std::uint64_t) * sizeof(std::uint64_t);
  if (bytes == 0) throw usage_failure(fmt::format("weight-sync: {} tensors do not fit in {} bytes", each, size));
  return bytes;
}

// With a cache that may keep all allocations, each is opened exactly once.
std::uint64_t opens_too_many(const cuda_run& run, std::string_view subject, std::uint64_t opens) {
  const auto& cache = run.options.cache;
  if (subject != "pinfold" || !cache.retain || cache.max_bytes != pinfold::unlimited ||
      cache.max_count != pinfold::unlimited)
    return 0;
  const auto distinct = std::min(run.options.cuda.allocations, run.options.cuda.requests);
  return opens == distinct ? 0 : 1;
}

json sync_once(const cuda_run& run, const char* subject, const std::vector<gpu_message>& allocations,
               progress_bar& progress) {
  const auto& cuda = run.options.cuda;
  const auto size = allocations.front().size;
  const auto bytes = tensor_bytes(run, size);
  gpu_target into(run.device, cuda.to, bytes);
  gpu_cache cache(run.importer(), run.options.cache);
  const auto how = run.reader(subject, cache);
  verified_copies copies(*how, into);
  for (std::size_t i = 0; i < cuda.requests; ++i) {
    copies.copy(tensor(allocations, i, bytes));
    progress.step();
  }
  auto& done = copies.done;
  if (done.first) report_error(subject, *done.first);
  auto row = run.row(subject, size, run.kind());
  row["requests"] = cuda.requests;
  row["allocations"] = allocations.size();
  row["tensor_bytes"] = bytes;
  row["opens"] = how->opens();
  const auto sum = std::accumulate(done.samples.begin(), done.samples.end(), std::uint64_t{0});
  row["seconds"] = static_cast<double>(sum) * 1e-9;
  row["errors"] = done.errors + opens_too_many(run, subject, how->opens());
  add_latency(row, summarise(std::move(done.samples)));
  return row;
}

json run_weight_sync(const cuda_run& run) {
  auto rows = json::array();
  progress_bar progress(run.options.sizes.size() * subjects.size() * run.options.cuda.requests);
  for (const auto size : run.options.sizes) {
    static_cast<void>(tensor_bytes(run, size));
    const auto allocations =
        need(run.provide(run.kind(), run.options.cuda.allocations, size), "no GPU memory for weights");
    double uncached = 0;
    for (const char* subject : subjects) {
      rows.push_back(sync_once(run, subject, allocations, progress));
      const auto seconds = rows.back().at("seconds").get<double>();
      if (rows.back().at("subject") == "uncached") uncached = seconds;
      if (seconds > 0) rows.back()["speedup"] = rounded(uncached / seconds);
      keep_rows(rows);
    }
    run.peer.take_back(allocations);
  }
  return rows;
}

std::vector<column> weight_sync_columns() {
  return with_errors({size("#bytes", "size"), words("subject", "subject"), count("#allocations", "allocations"),
                      count("#requests", "requests"), count("#opens", "opens"), number("time[s]", "seconds", 1, 3),
                      microseconds("p50[us]", "p50_ns", 2), microseconds("p99[us]", "p99_ns", 2),
                      number("x uncached", "speedup", 1, 1)});
}

}  // namespace

const perf_case<cuda_run> weight_sync_case{"weight-sync", run_weight_sync, weight_sync_columns, "64K"};

}  // namespace tool
