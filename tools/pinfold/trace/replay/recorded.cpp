// SPDX-License-Identifier: BSD-3-Clause
#include "trace/replay/recorded.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

namespace tool {
namespace {

double median(std::vector<double>& of) {
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

/// The requests of one cache, while they are made into a workload.
class gathered {
 public:
  explicit gathered(std::string name) { made_.name = std::move(name); }

  void add(const pinfold::traced_request& one) {
    const auto key = std::tuple(one.peer.value, one.registered.begin, one.registered.end);
    const auto [found, fresh] = numbers_.try_emplace(key, static_cast<std::uint32_t>(made_.objects.size()));
    if (fresh) {
      made_.objects.push_back({.bytes = one.registered.size()});
      opens_.emplace_back();
    }
    if (!one.hit) opens_[found->second].push_back(static_cast<double>(one.opened_for.count()));
    made_.requests.push_back(found->second);
  }

  workload finish(const cost_model* costs) {
    const auto per_byte = usual_per_byte();
    for (std::size_t i = 0; i < made_.objects.size(); ++i) {
      auto& one = made_.objects[i];
      one.room = one.bytes;
      if (costs != nullptr) {
        one.open_ns = costs->open_ns(one.bytes);
        one.close_ns = costs->close_ns(one.bytes);
      } else {
        one.open_ns = opens_[i].empty() ? per_byte * static_cast<double>(one.bytes) : median(opens_[i]);
      }
    }
    return std::move(made_);
  }

 private:
  // Returns the usual cost, for objects whose open is not in the trace: a request joined the open of another, whose own
  // line is missing.
  double usual_per_byte() {
    double time = 0;
    double bytes = 0;
    for (std::size_t i = 0; i < made_.objects.size(); ++i) {
      if (opens_[i].empty()) continue;
      time += median(opens_[i]);
      bytes += static_cast<double>(made_.objects[i].bytes);
    }
    return bytes == 0 ? 0 : time / bytes;
  }

  workload made_;
  std::map<std::tuple<std::uint64_t, std::uintptr_t, std::uintptr_t>, std::uint32_t> numbers_;
  std::vector<std::vector<double>> opens_;
};

}  // namespace

std::vector<workload> workloads_of(const pinfold::recorded_trace& trace, const cost_model* costs) {
  std::vector<gathered> caches;
  std::map<std::uint32_t, std::size_t> places;
  for (const auto& one : trace.requests) {
    const auto [found, fresh] = places.try_emplace(one.cache, caches.size());
    if (fresh) caches.emplace_back(trace.caches[one.cache]);
    caches[found->second].add(one);
  }
  std::vector<workload> all;
  for (auto& one : caches) all.push_back(one.finish(costs));
  return all;
}

}  // namespace tool
