// SPDX-License-Identifier: BSD-3-Clause
// The identity case: the cost of a hit on registered GPU memory when the cache asks the driver on each hit whether it
// is still the same memory, and when the application announces its frees instead. The registrar does nothing.
#include "perf/cuda/cuda.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/cuda_memory.hpp>
#include <pinfold/registrars/null.hpp>

#include <utility>

namespace tool {
namespace {

using pinfold::cuda_freed;
using registrar = pinfold::cuda_memory<pinfold::null_registrar>;

// Reading the clock takes longer than a hit.
constexpr unsigned at_a_time = 64;

struct hits {
  nanoseconds samples;
  std::uint64_t errors = 0;
};

hits measure_hits(const cuda_run& run, const gpu_memory& memory, cuda_freed freed) {
  pinfold::cache<registrar> cache(registrar(pinfold::null_registrar{}, freed));
  auto* const at = reinterpret_cast<void*>(memory.at);
  static_cast<void>(need(cache.acquire(at, memory.bytes), "cannot register GPU memory"));
  hits done;
  for (stint rest(run.options); rest.goes_on();) {
    const auto took = time_of([&] {
      for (unsigned i = 0; i < at_a_time; ++i) done.errors += cache.acquire(at, memory.bytes) ? 0 : 1;
    });
    done.samples.push_back(took / at_a_time);
  }
  if (cache.statistics().opens != 1) ++done.errors;  // only hits count
  return done;
}

json hits_row(const cuda_run& run, const gpu_memory& memory, const char* subject, cuda_freed freed) {
  std::vector<json> rows;
  for (unsigned repeat = 0; repeat < run.options.repeats; ++repeat) {
    auto done = measure_hits(run, memory, freed);
    auto row = run.row(subject, memory.bytes, memory.kind);
    add_latency(row, summarise(std::move(done.samples)));
    row["errors"] = done.errors;
    rows.push_back(std::move(row));
  }
  return median_by(std::move(rows), [](const json& row) { return row.at("p50_ns").get<double>(); });
}

json run_cuda_identity(const cuda_run& run) {
  auto rows = json::array();
  for (const auto size : run.options.sizes) {
    const auto memory = need(run.device.allocate(run.kind(), size), "GPU memory is unavailable");
    rows.push_back(hits_row(run, memory, "announced", cuda_freed::announced));
    rows.push_back(hits_row(run, memory, "compared", cuda_freed::compared));
    need(run.device.free(memory), "cannot free GPU memory");
  }
  return rows;
}

std::vector<column> cuda_identity_columns() {
  return with_errors({words("memory", "memory"), size("#bytes", "size"), words("subject", "subject"),
                      count("p50[ns]", "p50_ns"), count("p99[ns]", "p99_ns")});
}

}  // namespace

const perf_case<cuda_run> cuda_identity_case{"identity", run_cuda_identity, cuda_identity_columns, "64K"};

}  // namespace tool
