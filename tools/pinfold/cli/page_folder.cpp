// SPDX-License-Identifier: BSD-3-Clause
#include "cli/page_folder.hpp"

#include <pinfold/observation/reader.hpp>

#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <optional>
#include <sys/stat.h>
#include <sys/types.h>

namespace tool {
namespace {

// Returns the effective user, which the owner of /proc/PID is not where the process may not be traced.
std::optional<uid_t> user_of(std::size_t process) {
  std::ifstream status(fmt::format("/proc/{}/status", process));
  for (std::string word; status >> word; status.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    uid_t real = 0;
    uid_t effective = 0;
    if (word == "Uid:" && status >> real >> effective) return effective;
  }
  return std::nullopt;
}

}  // namespace

std::string page_folder(const std::vector<std::size_t>& processes) {
  const char* const chosen = std::getenv("PINFOLD_STATS_DIR");  // NOLINT(concurrency-mt-unsafe): there is one thread
  const bool is_chosen = chosen != nullptr && *chosen != '\0';
  for (const auto process : processes) {
    const auto user = user_of(process);
    if (is_chosen || !user) continue;
    auto folder = fmt::format("/dev/shm/pinfold-stats-{}", *user);
    struct stat seen{};
    if (::lstat(folder.c_str(), &seen) == 0 && S_ISDIR(seen.st_mode) && seen.st_uid == *user) return folder;
    break;
  }
  return pinfold::observation::page_directory();
}

std::string no_page(std::size_t process, const std::string& folder) {
  return fmt::format("process {} publishes no statistics page in {}; PINFOLD_STATS=on lets it", process, folder);
}

}  // namespace tool
