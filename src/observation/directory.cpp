// SPDX-License-Identifier: BSD-3-Clause
// Finds the folder and the files of pages.
#include "observation/page_name.hpp"
#include "observation/page_source.hpp"
#include "os/file.hpp"
#include "os/no_cancellation.hpp"

#include <pinfold/observation/reader.hpp>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <dirent.h>
#include <memory>
#include <optional>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace pinfold::observation {

namespace {

std::optional<std::int32_t> pid_of(std::string_view name) noexcept {
  const auto pid = first_of_numbers(name, "...");
  const bool good = pid && *pid > 0 && *pid <= INT32_MAX;
  return good ? std::optional(static_cast<std::int32_t>(*pid)) : std::nullopt;
}

struct closes_directory {
  void operator()(DIR* open) const noexcept { ::closedir(open); }
};

std::string working_directory() {
  std::array<char, PATH_MAX> name{};
  return ::getcwd(name.data(), name.size()) != nullptr ? name.data() : ".";
}

// Makes the path absolute, so that a chdir(2) between two uses does not lead to a second folder.
std::string absolute(std::string folder) {
  if (folder.front() == '/') return folder;
  static const std::string first = working_directory();
  return first + "/" + folder;
}

// Reads the header only: a process's user may put any number of pages into the folder, each with many caches.
bool may_run(const std::string& path, std::optional<std::uint32_t> owner) {
  const detail::no_cancellation guard;
  const auto from = page_source::open(path, false, owner);
  const auto header = from ? from->header() : tl::unexpected(from.error());
  return header && from->life_of_process(*header) != process_life::ended;
}

}  // namespace

std::string page_directory() {
  const char* const chosen = ::secure_getenv("PINFOLD_STATS_DIR");
  if (chosen != nullptr && *chosen != '\0') return absolute(chosen);
  return "/dev/shm/pinfold-stats-" + std::to_string(::geteuid());
}

result<std::vector<std::string>> list_pages(const std::string& directory) {
  const std::unique_ptr<DIR, closes_directory> open(::opendir(directory.c_str()));
  if (open == nullptr && errno == ENOENT) return std::vector<std::string>{};
  if (open == nullptr) return os::fail_system("cannot read the folder of statistics pages");
  std::vector<std::pair<std::int32_t, std::string>> found;
  errno = 0;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread reads this stream
  while (const dirent* const one = ::readdir(open.get())) {
    if (const auto pid = pid_of(one->d_name)) found.emplace_back(*pid, directory + "/" + one->d_name);
    errno = 0;
  }
  if (errno != 0) return os::fail_system("cannot read the folder of statistics pages");
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  paths.reserve(found.size());
  for (auto& [pid, path] : found) paths.push_back(std::move(path));
  return paths;
}

result<std::string> find_page(const std::string& directory, std::int32_t pid, std::optional<std::uint32_t> owner) {
  const auto all = list_pages(directory);
  if (!all) return tl::unexpected(all.error());
  std::string last;
  for (const auto& path : *all) {
    if (pid_of(std::string_view(path).substr(directory.size() + 1)) != pid) continue;
    if (may_run(path, owner)) return path;
    last = path;
  }
  if (last.empty()) return fail_errno(errc::invalid_handle, ENOENT, "the process publishes no statistics page");
  return last;
}

}  // namespace pinfold::observation
