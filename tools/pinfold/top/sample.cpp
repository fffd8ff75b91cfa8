// SPDX-License-Identifier: BSD-3-Clause
#include "top/sample.hpp"

#include "top/figures.hpp"

#include <pinfold/observation/counters.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace tool::top {
namespace {

using pinfold::observation::statistics_of;
using pinfold::observation::values_of;

// A damaged page may say anything: a counter that shrank did not grow.
pinfold::statistics growth(const pinfold::statistics& before, const pinfold::statistics& now) {
  auto grown = values_of(now);
  const auto old = values_of(before);
  for (std::size_t i = 0; i < grown.size(); ++i) grown[i] -= std::min(grown[i], old[i]);
  return statistics_of(grown);
}

double in_seconds(std::chrono::nanoseconds time) { return std::max(0.0, std::chrono::duration<double>(time).count()); }

}  // namespace

sampler::sampler(page_folder folder, std::vector<std::size_t> only)
    : folder_(std::move(folder)), only_(std::move(only)) {}

sample sampler::take() {
  const auto start = std::chrono::steady_clock::now();
  sample taken;
  std::map<key, earlier> published;
  auto read = read_pages(folder_, only_);
  for (auto& one : read.processes) taken.processes.push_back(compared(std::move(one), published));
  taken.unreadable = std::move(read.unreadable);
  earlier_ = std::move(published);
  taken.reading = std::chrono::steady_clock::now() - start;
  return taken;
}

process_sample sampler::compared(pinfold::observation::process_snapshot read, std::map<key, earlier>& published) const {
  process_sample made;
  const auto at = read.age - read.since_published;
  for (auto& cache : read.caches) {
    cache_sample one{std::move(cache), {}, 0};
    const key which(read.path, one.page.number);
    const auto found = earlier_.find(which);
    const bool first = found == earlier_.end();
    one.since = first ? one.page.counters : growth(found->second.counters, one.page.counters);
    one.seconds = in_seconds(first ? one.page.age - read.since_published : at - found->second.published);
    published[which] = {one.page.counters, at};
    made.caches.push_back(std::move(one));
  }
  made.held = holdings_of(made.caches);
  read.caches.clear();
  made.page = std::move(read);
  return made;
}

std::vector<std::size_t> sampler::missing_from(const sample& taken) const {
  std::vector<std::size_t> missing;
  std::ranges::copy_if(only_, std::back_inserter(missing), [&](std::size_t pid) {
    return std::ranges::none_of(taken.processes,
                                [&](const auto& one) { return static_cast<std::size_t>(one.page.pid) == pid; });
  });
  return missing;
}

}  // namespace tool::top
