// SPDX-License-Identifier: BSD-3-Clause
// libfabric's version and providers on this host, and whether the providers cache registrations themselves.
#include "info/drivers/facts.hpp"

#include <pinfold/registrars/libfabric.hpp>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <string>

namespace {

using json = nlohmann::ordered_json;

struct provider {
  bool pins = false;
  bool caches_too = false;
};

// Merges the providers by name: each is offered many times, for each kind of endpoint, device and address.
std::map<std::string, provider> by_name(const ::fi_info* offered) {
  std::map<std::string, provider> found;
  for (const auto* one = offered; one != nullptr; one = one->next) {
    if (one->fabric_attr == nullptr || one->fabric_attr->prov_name == nullptr) continue;
    auto& known = found[one->fabric_attr->prov_name];
    const auto rules = pinfold::libfabric_rules_of(one);
    known.pins = known.pins || (rules && rules->allocated);
    known.caches_too = known.caches_too || pinfold::libfabric_caches_too(one);
  }
  return found;
}

json all_facts() {
  ::fi_info* offered = nullptr;
  const int refused = ::fi_getinfo(FI_VERSION(1, 15), nullptr, nullptr, 0, nullptr, &offered);
  const std::unique_ptr<::fi_info, decltype(&::fi_freeinfo)> all(offered, &::fi_freeinfo);
  auto providers = json::array();
  bool cache = false;
  for (const auto& [name, is] : by_name(all.get())) {
    providers.push_back({{"name", name}, {"pins", is.pins}, {"caches_too", is.caches_too}});
    cache = cache || is.caches_too;
  }
  const auto version = ::fi_version();
  return {{"works", !providers.empty()},
          {"why_not", refused == 0 ? "" : std::string("no provider: ") + ::fi_strerror(-refused)},
          {"version", std::to_string(FI_MAJOR(version)) + "." + std::to_string(FI_MINOR(version))},
          {"caches_too", cache},
          {"providers", providers}};
}

}  // namespace

const char* pinfold_driver_facts() {
  static std::string text;
  text = all_facts().dump();
  return text.c_str();
}
