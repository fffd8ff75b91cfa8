// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Where the statistics pages of processes are, and whose they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tool {

/// A folder of pages. Every user may make folders in /dev/shm, rename them, and would choose what this user sees: so
/// each page is judged by its file's owner when it is open.
struct page_folder {
  std::string path;
  std::optional<std::uint32_t> owner;  ///< of the pages to read; any user where PINFOLD_STATS_DIR names the folder
};

/// Returns the folder of the pages of these processes: that of the user of the first one that runs, if the folder
/// belongs to that user. Else the folder of this user's pages, or what PINFOLD_STATS_DIR names. Only root may read
/// another user's. Throws `failure` if another user has made the folder of this user's name.
[[nodiscard]] page_folder find_page_folder(const std::vector<std::size_t>& processes);

/// Returns a sentence for a process that has no page in that folder.
[[nodiscard]] std::string no_page(std::size_t process, const std::string& folder);

}  // namespace tool
