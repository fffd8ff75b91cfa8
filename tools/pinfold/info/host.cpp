// SPDX-License-Identifier: BSD-3-Clause
#include "info/host.hpp"

#include "cli/sizes.hpp"

#include <pinfold/version.hpp>

#include <fmt/format.h>
#include <fstream>
#include <iomanip>
#include <linux/capability.h>
#include <sstream>
#include <string_view>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

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

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// Returns zero where the system does not say.
std::size_t system_number(int name) {
  const auto number = ::sysconf(name);
  return number < 0 ? 0 : static_cast<std::size_t>(number);
}

}  // namespace

json host_facts() {
  utsname system{};
  ::uname(&system);
  const auto page = system_number(_SC_PAGESIZE);
  return {{"pinfold", PINFOLD_VERSION},
          {"kernel", fmt::format("{} {}", system.sysname, system.release)},
          {"machine", system.machine},
          {"cpus", system_number(_SC_NPROCESSORS_ONLN)},
          {"cpu_model", cpu_model()},
          {"page_size", page},
          {"memory", page * system_number(_SC_PHYS_PAGES)},
          {"memlock", memlock_limit()},
          {"memlock_exempt", may_lock_without_limit()},
          {"hugetlb_size", of_meminfo("Hugepagesize") * 1024},
          {"hugetlb_total", of_meminfo("HugePages_Total")},
          {"hugetlb_free", of_meminfo("HugePages_Free")},
          {"thp", thp_mode()}};
}

std::string host_line(const json& facts) {
  return fmt::format("{}, {} x {}, {} memory", facts.at("kernel").get<std::string>(),
                     facts.at("cpus").get<std::size_t>(), facts.at("cpu_model").get<std::string>(),
                     size_text(facts.at("memory").get<std::size_t>()));
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
