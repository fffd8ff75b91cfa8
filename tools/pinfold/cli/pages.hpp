// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One reading of the statistics pages in a folder.
#pragma once

#include "cli/page_folder.hpp"

#include <pinfold/observation/reader.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace tool {

/// A page that cannot be read.
struct unreadable_page {
  std::string path;
  std::string why;
};

struct pages {
  std::vector<pinfold::observation::process_snapshot> processes;
  std::vector<unreadable_page> unreadable;
};

/// Reads the pages of these processes; of all, if there is none. Chooses them by the names of their files. With one PID
/// it reads at most `most_pages_of_process`, those of running processes first, and those only until they have more than
/// 256 caches, four times what a page of this release has: the user of the process may put any number into the folder.
/// Reads all, if no process is given and only this user can write to the folder: processes of many containers may have
/// one PID. A page that its process removes meanwhile is left out. Throws `failure` when the folder cannot be read.
[[nodiscard]] pages read_pages(const page_folder& in, const std::vector<std::size_t>& of);

}  // namespace tool
