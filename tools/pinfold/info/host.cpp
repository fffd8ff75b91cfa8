// SPDX-License-Identifier: BSD-3-Clause
#include "info/host.hpp"

#include "cli/sizes.hpp"
#include "info/memory_facts.hpp"

#include <pinfold/version.hpp>

#include <fmt/format.h>
#include <fstream>
#include <sys/utsname.h>
#include <unistd.h>

namespace tool {
namespace {

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
  json facts{{"pinfold", PINFOLD_VERSION},
             {"kernel", fmt::format("{} {}", system.sysname, system.release)},
             {"machine", system.machine},
             {"cpus", system_number(_SC_NPROCESSORS_ONLN)},
             {"cpu_model", cpu_model()},
             {"page_size", page},
             {"memory", page * system_number(_SC_PHYS_PAGES)}};
  add_memory_facts(facts);
  return facts;
}

std::string host_line(const json& facts) {
  return fmt::format("{}, {} x {}, {} memory", facts.at("kernel").get<std::string>(),
                     facts.at("cpus").get<std::size_t>(), facts.at("cpu_model").get<std::string>(),
                     size_text(facts.at("memory").get<std::size_t>()));
}

}  // namespace tool
