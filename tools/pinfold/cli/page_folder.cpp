// SPDX-License-Identifier: BSD-3-Clause
#include "cli/page_folder.hpp"

#include "cli/failure.hpp"

#include <pinfold/observation/reader.hpp>

#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <optional>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#include <utility>

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

page_folder find_page_folder(const std::vector<std::size_t>& processes) {
  const char* const chosen = std::getenv("PINFOLD_STATS_DIR");  // NOLINT(concurrency-mt-unsafe): there is one thread
  const bool is_chosen = chosen != nullptr && *chosen != '\0';
  for (const auto process : processes) {
    const auto user = user_of(process);
    if (is_chosen || !user) continue;
    auto folder = fmt::format("/dev/shm/pinfold-stats-{}", *user);
    struct stat seen{};
    if (::lstat(folder.c_str(), &seen) == 0 && S_ISDIR(seen.st_mode) && seen.st_uid == *user)
      return {std::move(folder), user};
    break;
  }
  auto folder = pinfold::observation::page_directory();
  struct stat seen{};
  if (!is_chosen && ::lstat(folder.c_str(), &seen) == 0 && seen.st_uid != ::geteuid())
    throw failure(
        fmt::format("{} belongs to user {}, and cannot have the pages of this user's processes", folder, seen.st_uid));
  return {std::move(folder), is_chosen ? std::nullopt : std::optional<std::uint32_t>(::geteuid())};
}

std::string no_page(std::size_t process, const std::string& folder) {
  return fmt::format("process {} publishes no statistics page in {}; PINFOLD_STATS=on lets it", process, folder);
}

}  // namespace tool
