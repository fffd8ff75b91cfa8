// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Workloads from a recorded trace.
#pragma once

#include "trace/replay/cost_model.hpp"
#include "trace/replay/workload.hpp"

#include <pinfold/limits.hpp>
#include <pinfold/trace_file.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tool {

/// A recorded registration, the object of a workload: memory of one peer.
struct recorded_registration {
  std::uint64_t peer = 0;
  pinfold::range memory{};
};

/// The kinds of a recorded miss, by its registration and those before it.
enum class miss_kind : std::uint8_t {
  cold,    ///< the request overlaps no earlier registration
  extent,  ///< the request overlaps earlier registrations, and lies in none of them
  again,   ///< the request lies in an earlier registration
};
inline constexpr std::size_t miss_kinds = 3;

/// A recorded miss.
struct recorded_miss {
  std::size_t request = 0;  ///< index into `workload::requests`
  miss_kind kind = miss_kind::cold;
  std::int64_t opened_ns = 0;
};

/// The budget of a cache, as far as the trace has it.
struct recorded_budget {
  std::size_t bytes = pinfold::unlimited;
  std::size_t count = pinfold::unlimited;
};

/// What a trace says of a cache beside its requests.
struct recorded_notes {
  std::string name;
  recorded_budget budget;
  std::map<std::string, std::uint64_t> failed;  ///< acquires that failed, by the name of their error
};

/// The requests of one cache as a trace has them: 4 bytes for each hit and 28 for each miss.
struct recorded_cache {
  workload work;                                     ///< without costs of closes
  std::vector<recorded_registration> registrations;  ///< by the number of the object
  std::vector<recorded_miss> misses;                 ///< in the order of the trace
  std::uint32_t number = 0;                          ///< of the cache in the trace, from 0 on
  recorded_budget budget;                            ///< set by its user
};

/// Gathers the requests of a trace, in their order, by cache.
class trace_gatherer {
 public:
  trace_gatherer();
  trace_gatherer(const trace_gatherer&) = delete;
  trace_gatherer& operator=(const trace_gatherer&) = delete;
  ~trace_gatherer();

  /// Adds a request. `caches` are the names of the caches so far, as `pinfold::visit_trace` passes them.
  void add(const pinfold::traced_request& request, const std::vector<std::string>& caches);

  /// Returns the caches that have requests, in the order of their first requests, and leaves nothing behind. The cost
  /// of an object is the median time of its opens in the trace, and closes cost nothing, as no trace has them; `costs`,
  /// if given, is used instead.
  [[nodiscard]] std::vector<recorded_cache> finish(const cost_model* costs);

 private:
  class gathered;
  std::vector<std::unique_ptr<gathered>> caches_;  // by the cache's number; null without requests
  std::vector<std::uint32_t> order_;
};

/// Returns one workload for each cache that has requests, in the trace's order. An object is a registration, identified
/// by peer and range. The costs are those of `trace_gatherer::finish`.
[[nodiscard]] std::vector<workload> workloads_of(const pinfold::recorded_trace& trace, const cost_model* costs);

}  // namespace tool
