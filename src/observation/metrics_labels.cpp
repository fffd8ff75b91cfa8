// SPDX-License-Identifier: BSD-3-Clause
#include "observation/metrics_labels.hpp"

#include "observation/metrics_text.hpp"

#include <cstddef>
#include <set>
#include <utility>

namespace pinfold::observation {

namespace {

// Returns a label not yet taken: pages in two folders may have one name, and two caches of a damaged page one number.
std::string unlike(std::set<std::string>& taken, const std::string& wanted) {
  auto text = wanted;
  for (std::size_t again = 2; !taken.insert(text).second; ++again) text = wanted + "#" + std::to_string(again);
  return text;
}

}  // namespace

processes label_all(std::span<const process_snapshot> of) {
  processes all;
  std::set<std::string> pages;
  for (const auto& one : of) {
    const auto page = unlike(pages, one.path.substr(one.path.rfind('/') + 1));
    labelled_process made{
        &one,
        label("pid", std::to_string(one.pid)) + "," + label("page", page) + "," + label("command", one.command),
        {}};
    std::set<std::string> numbers;
    for (const auto& cache : one.caches) {
      if (one.state == process_state::ended) break;
      made.caches.push_back({&cache, made.labels + "," + label("cache", cache.name) + "," +
                                         label("number", unlike(numbers, std::to_string(cache.number))) + "," +
                                         label("registrar", cache.kind)});
    }
    all.push_back(std::move(made));
  }
  return all;
}

}  // namespace pinfold::observation
