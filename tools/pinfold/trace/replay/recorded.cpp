// SPDX-License-Identifier: BSD-3-Clause
#include "trace/replay/recorded.hpp"

#include "trace/replay/earlier_registrations.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

namespace tool {
namespace {

struct registration_key {
  std::uint64_t peer;
  std::uintptr_t begin;
  std::uintptr_t end;
  bool operator==(const registration_key&) const = default;
};

struct key_hash {
  std::size_t operator()(const registration_key& one) const noexcept {
    constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;
    const auto mixed = ((one.peer * odd ^ one.begin) * odd ^ one.end) * odd;
    return mixed ^ mixed >> 32U;
  }
};

double median(std::vector<double>& of) {
  const auto middle = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

// Sets the median time of each object's opens. Objects whose open is not in the trace get the usual time for their
// bytes: a request joined the open of another, whose own line is missing.
void set_recorded_costs(recorded_cache& of) {
  auto& objects = of.work.objects;
  std::vector<std::vector<double>> opens(objects.size());
  for (const auto& one : of.misses) opens[of.work.requests[one.request]].push_back(static_cast<double>(one.opened_ns));
  double time = 0;
  double bytes = 0;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    if (opens[i].empty()) continue;
    objects[i].open_ns = median(opens[i]);
    time += objects[i].open_ns;
    bytes += static_cast<double>(objects[i].bytes);
  }
  for (std::size_t i = 0; i < objects.size(); ++i)
    if (opens[i].empty() && bytes > 0) objects[i].open_ns = time / bytes * static_cast<double>(objects[i].bytes);
}

void set_costs_of_model(workload& of, const cost_model& costs) {
  for (auto& one : of.objects) {
    one.open_ns = costs.open_ns(one.bytes);
    one.close_ns = costs.close_ns(one.bytes);
  }
}

}  // namespace

/// The requests of one cache, while they are gathered.
class trace_gatherer::gathered {
 public:
  gathered(std::string name, std::uint32_t number) {
    made_.work.name = std::move(name);
    made_.number = number;
  }

  void add(const pinfold::traced_request& one) {
    const auto peer = one.peer.value;
    const registration_key key{peer, one.registered.begin, one.registered.end};
    const auto [found, fresh] = numbers_.try_emplace(key, static_cast<std::uint32_t>(numbers_.size()));
    if (!one.hit) {
      const auto kind = fresh ? earlier_.kind_of(peer, one.asked) : miss_kind::again;
      made_.misses.push_back({made_.work.requests.size(), kind, one.opened_for.count()});
    }
    if (fresh) {
      made_.work.objects.push_back({.bytes = one.registered.size(), .room = one.registered.size()});
      made_.registrations.push_back({peer, one.registered});
      earlier_.add(peer, one.registered);
    }
    made_.work.requests.push_back(found->second);
  }

  recorded_cache finish(const cost_model* costs) {
    if (costs == nullptr) set_recorded_costs(made_);
    if (costs != nullptr) set_costs_of_model(made_.work, *costs);
    return std::move(made_);
  }

 private:
  recorded_cache made_;
  std::unordered_map<registration_key, std::uint32_t, key_hash> numbers_;
  earlier_registrations earlier_;
};

trace_gatherer::trace_gatherer() = default;
trace_gatherer::~trace_gatherer() = default;

void trace_gatherer::add(const pinfold::traced_request& request, const std::vector<std::string>& caches) {
  if (request.cache >= caches_.size()) caches_.resize(caches.size());
  auto& own = caches_[request.cache];
  if (!own) {
    own = std::make_unique<gathered>(caches[request.cache], request.cache);
    order_.push_back(request.cache);
  }
  own->add(request);
}

std::vector<recorded_cache> trace_gatherer::finish(const cost_model* costs) {
  std::vector<recorded_cache> all;
  for (const auto cache : std::exchange(order_, {}))
    all.push_back(std::exchange(caches_[cache], nullptr)->finish(costs));
  return all;
}

std::vector<workload> workloads_of(const pinfold::recorded_trace& trace, const cost_model* costs) {
  trace_gatherer gatherer;
  for (const auto& one : trace.requests) gatherer.add(one, trace.caches);
  std::vector<workload> all;
  for (auto& one : gatherer.finish(costs)) all.push_back(std::move(one.work));
  return all;
}

}  // namespace tool
