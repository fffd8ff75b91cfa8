// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Where the statistics pages of processes are.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tool {

/// Returns the folder of the pages of these processes: that of the user of the first one that runs, if the folder
/// belongs to that user. Else the folder of this user's pages, or what PINFOLD_STATS_DIR names. Only root may read
/// another user's.
[[nodiscard]] std::string page_folder(const std::vector<std::size_t>& processes);

/// Returns a sentence for a process that has no page in that folder.
[[nodiscard]] std::string no_page(std::size_t process, const std::string& folder);

}  // namespace tool
