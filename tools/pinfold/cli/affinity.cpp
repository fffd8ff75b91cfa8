// SPDX-License-Identifier: BSD-3-Clause
#include "cli/affinity.hpp"

#include <cerrno>
#include <sched.h>

namespace tool {

pinfold::result<std::vector<int>> allowed_cpus() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) {
    return pinfold::fail_errno(pinfold::errc::unsupported, errno, "cannot read the CPUs that this process may use");
  }
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

pinfold::result<void> run_only_on(int cpu) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) {
    return pinfold::fail_errno(pinfold::errc::unsupported, errno, "cannot pin the thread to this CPU");
  }
  return {};
}

}  // namespace tool
