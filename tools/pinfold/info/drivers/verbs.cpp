// SPDX-License-Identifier: BSD-3-Clause
// The RDMA devices of this host, as libibverbs has them.
#include "info/drivers/facts.hpp"

#include <pinfold/registrars/verbs.hpp>

#include <cerrno>
#include <infiniband/verbs.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

namespace {

using json = nlohmann::ordered_json;

// Returns whether the driver registers dma-bufs, found out by trying: a driver without them says so before it looks at
// the descriptor.
bool takes_dma_bufs([[maybe_unused]] ::ibv_context* context) {
#if defined(PINFOLD_HAS_REG_DMABUF_MR)
  const std::unique_ptr<::ibv_pd, decltype(&::ibv_dealloc_pd)> domain(::ibv_alloc_pd(context), &::ibv_dealloc_pd);
  if (!domain) return false;
  if (auto* const region = ::ibv_reg_dmabuf_mr(domain.get(), 0, 4096, 0, -1, 0)) return ::ibv_dereg_mr(region) == 0;
  return errno != EOPNOTSUPP && errno != ENOSYS;
#else
  return false;
#endif
}

json facts_of(::ibv_device* device) {
  json facts{{"name", ::ibv_get_device_name(device)}};
  const std::unique_ptr<::ibv_context, decltype(&::ibv_close_device)> opened(::ibv_open_device(device),
                                                                             &::ibv_close_device);
  const auto can = pinfold::verbs_capabilities_of(opened.get());
  facts["why_not"] = can ? "" : opened ? pinfold::describe(can.error()) : "the device cannot be opened";
  if (!can) return facts;
  facts["regions"] = can->max_mr;
  facts["largest"] = can->max_mr_bytes;
  facts["atomics"] = can->atomics;
  facts["on_demand_paging"] = can->on_demand_paging;
  facts["implicit_on_demand_paging"] = can->implicit_on_demand_paging;
  facts["dma_bufs"] = takes_dma_bufs(opened.get());
  return facts;
}

json all_facts() {
  auto devices = json::array();
  int count = 0;
  if (auto* const list = ::ibv_get_device_list(&count)) {
    for (int i = 0; i < count; ++i) devices.push_back(facts_of(list[i]));  // NOLINT(*-pointer-arithmetic): a C list
    ::ibv_free_device_list(list);
  }
  bool works = false;
  for (const auto& one : devices) works = works || one.at("why_not").get<std::string>().empty();
  const char* const why_not = works ? "" : devices.empty() ? "no RDMA device" : "no usable RDMA device";
  return {{"works", works}, {"why_not", why_not}, {"devices", devices}};
}

}  // namespace

const char* pinfold_driver_facts() {
  static std::string text;
  text = all_facts().dump();
  return text.c_str();
}
