// SPDX-License-Identifier: BSD-3-Clause
#include "node_budget/process_limits.hpp"

#include "node_budget/process.hpp"
#include "os/check.hpp"

#include <pinfold/limits.hpp>

#include <algorithm>
#include <charconv>
#include <new>
#include <string>
#include <string_view>
#include <sys/resource.h>

namespace pinfold::node {

namespace {

// Returns the number after `label` at the beginning of a line.
std::size_t number_after(std::string_view text, std::string_view label, int base) noexcept {
  const auto line = text.find(label);
  if (line == std::string_view::npos) return 0;
  const auto begin = text.find_first_not_of(" \t", line + label.size());
  if (begin == std::string_view::npos) return 0;
  std::size_t number = 0;
  std::from_chars(text.data() + begin, text.data() + text.size(), number, base);
  return number;
}

bool may_lock_all(std::string_view status) noexcept {
  constexpr unsigned ipc_lock = 14;  // capability.h
  constexpr int hexadecimal = 16;
  return (number_after(status, "CapEff:", hexadecimal) >> ipc_lock & 1U) != 0;
}

std::size_t number_in(const std::string& path, std::size_t otherwise) {
  const auto text = read_text(path.c_str());
  std::size_t number = otherwise;  // for "max", which is no number
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Returns the path of the process's cgroup below the mount, from the line "0::/path", without a slash at its end.
std::string own_cgroup() {
  const auto text = read_text("/proc/self/cgroup");
  const auto line = text.starts_with("0::/") ? 0 : text.find("\n0::/");
  if (line == std::string::npos) return {};
  const auto begin = text.find('/', line);
  auto path = text.substr(begin, text.find('\n', begin) - begin);
  if (path.find("/..") != std::string::npos || path == "/") path.clear();  // outside this cgroup namespace, or its root
  return path;
}

system_limit limit_of(const std::string& folder) {
  return {number_in(folder + "/memory.max", unlimited), number_in(folder + "/memory.current", 0)};
}

std::size_t room_in(const system_limit& one) noexcept {
  return one.max == unlimited ? unlimited : one.max - std::min(one.used, one.max);
}

}  // namespace

system_limit memlock_limit() noexcept try {
  constexpr std::size_t kibibyte = 1024;
  constexpr int decimal = 10;
  const auto status = read_text("/proc/thread-self/status");
  const auto used = kibibyte * (number_after(status, "VmLck:", decimal) + number_after(status, "VmPin:", decimal));
  rlimit limit{};
  if (may_lock_all(status) || ::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return {unlimited, used};
  return {limit.rlim_cur, used};
} catch (const std::bad_alloc&) {  // unknown
  return {unlimited, 0};
}

system_limit cgroup_limit() noexcept try {
  const std::string mount = "/sys/fs/cgroup";
  auto path = own_cgroup();
  auto least = limit_of(mount);
  auto least_max = least.max;
  for (; !path.empty(); path.resize(path.rfind('/'))) {
    PINFOLD_ASSERT(path.front() == '/', "a path of a cgroup that is not empty begins with a slash");
    const auto here = limit_of(mount + path);
    least_max = std::min(least_max, here.max);
    if (room_in(here) < room_in(least)) least = here;
  }
  least.least_max = least_max;
  return least;
} catch (const std::bad_alloc&) {  // unknown
  return {unlimited, 0};
}

}  // namespace pinfold::node
