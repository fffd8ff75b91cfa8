// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/collection.hpp"

#include "cli/page_folder.hpp"
#include "cli/pages.hpp"

#include <fmt/format.h>
#include <utility>

namespace tool {

std::string collected::text(pinfold::observation::metrics_format as) const {
  return pinfold::observation::open_metrics(processes, as, complaints.size());
}

collected collect(const std::vector<std::size_t>& pids) {
  auto read = read_pages(find_page_folder(pids), pids);
  collected all{std::move(read.processes), {}};
  for (const auto& one : read.unreadable) all.complaints.push_back(fmt::format("{}: {}", one.path, one.why));
  return all;
}

}  // namespace tool
