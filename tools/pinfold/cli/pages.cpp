// SPDX-License-Identifier: BSD-3-Clause
#include "cli/pages.hpp"

#include "cli/failure.hpp"

#include <pinfold/error.hpp>
#include <pinfold/observation/layout.hpp>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <map>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace tool {
namespace {

namespace observation = pinfold::observation;

// No page has more. A cache has up to 270 KiB of metrics, where its histograms are in use and its names need escapes.
constexpr std::size_t most_caches_with_pid = 4 * observation::most_caches;

constexpr auto too_many = "not shown, nor those after it: the process has too many pages or caches";

// The name begins with the number: `list_pages` returns no other files.
std::size_t pid_in_name(std::string_view path) {
  const auto name = path.substr(path.rfind('/') + 1);
  std::size_t pid = 0;
  std::from_chars(name.data(), name.data() + name.size(), pid);
  return pid;
}

bool is_wanted(std::size_t pid, const std::vector<std::size_t>& of) {
  return of.empty() || std::ranges::find(of, pid) != of.end();
}

// Returns whether only this user, or root, can put pages there.
bool is_own(const std::string& folder) {
  struct stat seen{};
  return ::stat(folder.c_str(), &seen) == 0 && seen.st_uid == ::geteuid() && (seen.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Returns whether a process has the file locked, as with the page of one that runs.
bool is_locked(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
  if (file < 0) return false;
  const bool locked = ::flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return locked;
}

void read_into(pages& all, std::string path, const page_folder& in, const std::vector<std::size_t>& of) {
  auto one = observation::read_page(path, in.owner);
  if (!one && one.error().native == ENOENT) return;
  if (!one)
    all.unreadable.push_back({std::move(path), pinfold::describe(one.error())});
  else if (is_wanted(static_cast<std::size_t>(one->pid), of))
    all.processes.push_back(*std::move(one));
}

std::vector<std::string> locked_first(std::vector<std::string> paths) {
  std::vector<std::pair<bool, std::string>> all;
  for (auto& path : paths) {
    const bool locked = is_locked(path);
    all.emplace_back(!locked, std::move(path));
  }
  std::ranges::sort(all);
  for (std::size_t i = 0; i < all.size(); ++i) paths[i] = std::move(all[i].second);
  return paths;
}

// Reads pages with one PID, until they are too many.
void read_some(pages& all, std::vector<std::string> paths, const page_folder& in, const std::vector<std::size_t>& of) {
  paths = locked_first(std::move(paths));
  std::size_t caches = 0;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (i == observation::most_pages_of_process) return all.unreadable.push_back({std::move(paths[i]), too_many});
    const auto before = all.processes.size();
    read_into(all, paths[i], in, of);
    if (all.processes.size() > before) caches += all.processes.back().caches.size();
    if (caches <= most_caches_with_pid) continue;
    all.processes.pop_back();
    return all.unreadable.push_back({std::move(paths[i]), too_many});
  }
}

}  // namespace

pages read_pages(const page_folder& in, const std::vector<std::size_t>& of) {
  pages all;
  const bool unlimited = of.empty() && is_own(in.path);
  std::map<std::size_t, std::vector<std::string>> with_pid;
  for (auto& path : need(observation::list_pages(in.path), in.path)) {
    const auto pid = pid_in_name(path);
    if (is_wanted(pid, of)) with_pid[pid].push_back(std::move(path));
  }
  for (auto& [pid, paths] : with_pid) {
    if (!unlimited)
      read_some(all, std::move(paths), in, of);
    else
      for (auto& path : paths) read_into(all, std::move(path), in, of);
  }
  return all;
}

}  // namespace tool
