// SPDX-License-Identifier: BSD-3-Clause
#include "info/memory_facts.hpp"

#include "cli/sizes.hpp"

#include <fmt/format.h>
#include <fstream>
#include <iomanip>
#include <linux/capability.h>
#include <sstream>
#include <string_view>
#include <sys/resource.h>
#include <sys/stat.h>

namespace tool {
namespace {

// Returns the text after `name:` in a file of /proc; empty where there is none.
std::string field(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name) && line.size() > name.size() && line[name.size()] == ':')
      return line.substr(name.size() + 1);
  }
  return {};
}

std::size_t number_in(const std::string& text, int base = 10) {
  std::size_t number = 0;
  std::istringstream stream(text);
  stream >> std::setbase(base) >> number;
  return number;
}

std::size_t of_meminfo(std::string_view name) { return number_in(field("/proc/meminfo", name)); }

// Each namespace has a number; the first one's is the same on every system.
bool in_first_user_namespace() {
  constexpr ino_t first = 0xEFFFFFFDU;
  struct stat seen{};
  return ::stat("/proc/self/ns/user", &seen) == 0 && seen.st_ino == first;
}

// A process with this right has no limit; the kernel checks the right in the first user namespace.
bool may_lock_without_limit() {
  return ((number_in(field("/proc/self/status", "CapEff"), 16) >> CAP_IPC_LOCK) & 1U) != 0 && in_first_user_namespace();
}

json memlock_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return nullptr;
  return limit.rlim_cur;
}

// Returns the word in brackets, of `always [madvise] never`.
std::string thp_mode() {
  std::string line;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), line);
  const auto begin = line.find('[');
  const auto end = line.find(']');
  return begin == std::string::npos || end == std::string::npos ? "none" : line.substr(begin + 1, end - begin - 1);
}

}  // namespace

void add_memory_facts(json& host) {
  host["memlock"] = memlock_limit();
  host["memlock_exempt"] = may_lock_without_limit();
  host["hugetlb_size"] = of_meminfo("Hugepagesize") * 1024;
  host["hugetlb_total"] = of_meminfo("HugePages_Total");
  host["hugetlb_free"] = of_meminfo("HugePages_Free");
  host["thp"] = thp_mode();
}

std::string memlock_line(const json& host) {
  const auto& limit = host.at("memlock");
  if (limit.is_null()) return "memory can be pinned without limit";
  return fmt::format(
      "RLIMIT_MEMLOCK {}{}", size_text(limit.get<std::size_t>()),
      host.at("memlock_exempt").get<bool>() ? ", which does not apply to this process (CAP_IPC_LOCK)" : "");
}

std::string huge_pages_line(const json& host) {
  return fmt::format("hugetlb {} of {} free, {} each; transparent: {}", host.at("hugetlb_free").get<std::size_t>(),
                     host.at("hugetlb_total").get<std::size_t>(), size_text(host.at("hugetlb_size").get<std::size_t>()),
                     host.at("thp").get<std::string>());
}

}  // namespace tool
