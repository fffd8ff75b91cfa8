// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/registrars/libfabric.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <rdma/fabric.h>
#include <string_view>

namespace pinfold {

namespace {

using std::string_view_literals::operator""sv;

constexpr const char* size_of_cache = "FI_MR_CACHE_MAX_COUNT";
constexpr const char* efa_cache = "FI_EFA_MR_CACHE_ENABLE";
// These providers copy through the kernel or the processor, and register nothing with hardware.
constexpr std::array without_hardware{"tcp"sv, "net"sv, "udp"sv, "sockets"sv, "shm"sv};

bool equals(const char* variable, std::string_view wanted) noexcept {
  const char* const value = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): documented
  return value != nullptr && value == wanted;
}

// fi_mr(3), "Memory registration cache": either setting turns it off; the monitor's setting is for system memory only.
bool turned_off(bool device_memory) noexcept {
  return equals(size_of_cache, "0") || (!device_memory && equals("FI_MR_CACHE_MONITOR", "disabled"));
}

// fi_efa(7): its cache has a switch and sizes of its own.
bool efa_keeps_nothing() noexcept {
  return std::ranges::any_of(std::array{"0", "no", "off", "false"}, [](auto* no) { return equals(efa_cache, no); });
}

// Returns "tcp" of "tcp;ofi_rxm": the layers above use its registrations.
std::string_view lowest_provider(const ::fi_info* info) noexcept {
  if (info == nullptr || info->fabric_attr == nullptr || info->fabric_attr->prov_name == nullptr) return {};
  const std::string_view name = info->fabric_attr->prov_name;
  return name.substr(0, name.find(';'));
}

}  // namespace

bool turn_off_libfabric_cache() noexcept {
  // NOLINTBEGIN(concurrency-mt-unsafe): documented
  ::setenv(size_of_cache, "0", 0);
  ::setenv(efa_cache, "0", 0);
  // NOLINTEND(concurrency-mt-unsafe)
  return turned_off(true) && efa_keeps_nothing();
}

bool libfabric_caches_too(const ::fi_info* info) noexcept {
  const auto lowest = lowest_provider(info);
  const auto rules = libfabric_rules_of(info);
  if (lowest.find("efa"sv) != std::string_view::npos) return !efa_keeps_nothing() && !(rules && rules->local);
  return !turned_off(rules && rules->device_memory) &&
         std::ranges::find(without_hardware, lowest) == without_hardware.end();
}

}  // namespace pinfold
