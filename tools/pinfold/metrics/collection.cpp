// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/collection.hpp"

#include "cli/failure.hpp"
#include "cli/page_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <string_view>

namespace tool {
namespace {

namespace observation = pinfold::observation;

bool is_wanted(std::string_view path, const std::vector<std::size_t>& pids) {
  const auto name = path.substr(path.rfind('/') + 1);
  return pids.empty() ||
         std::ranges::any_of(pids, [&](std::size_t pid) { return name.starts_with(fmt::format("{}.", pid)); });
}

}  // namespace

std::string collected::text(observation::metrics_format as) const {
  return observation::open_metrics(processes, as, complaints.size());
}

collected collect(const std::vector<std::size_t>& pids) {
  collected all;
  const auto folder = find_page_folder(pids);
  for (const auto& path : need(observation::list_pages(folder.path), folder.path)) {
    if (!is_wanted(path, pids)) continue;
    if (auto one = observation::read_page(path, folder.owner))
      all.processes.push_back(*std::move(one));
    else if (one.error().native != ENOENT)
      all.complaints.push_back(fmt::format("{}: {}", path, pinfold::describe(one.error())));
  }
  return all;
}

}  // namespace tool
