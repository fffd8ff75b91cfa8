// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A domain without a provider: it registers nothing, records the requests, and refuses those that a test chooses.
#pragma once

#include "support/doubles/fault_points.hpp"

#include <pinfold/registrars/libfabric.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <set>
#include <stdexcept>
#include <string>
#include <sys/uio.h>
#include <utility>
#include <vector>

namespace pinfold::testing {

class fake_domain {
 public:
  explicit fake_domain(int mr_mode, std::uint64_t capabilities = FI_MSG | FI_RMA | FI_REMOTE_READ | FI_REMOTE_WRITE) {
    attributes.mr_mode = mr_mode;
    attributes.mr_key_size = 8;
    info.domain_attr = &attributes;
    info.fabric_attr = &fabric;
    fabric.prov_name = provider.data();
    info.caps = capabilities;
    domain.mr = &registering_;
    domain.fid.context = this;
    registering_.regattr = [](::fid* of, const ::fi_mr_attr* what, std::uint64_t, ::fid_mr** made) {
      return static_cast<fake_domain*>(of->context)->add(*what, made);
    };
    region_calls_.close = [](::fid* region) { return owner_of(region).remove(region); };
    region_calls_.bind = [](::fid* region, ::fid* endpoint, std::uint64_t) {
      owner_of(region).bound.push_back(endpoint);
      if (const int fault = owner_of(region).faults.strike("fi_mr_bind")) return -fault;
      return owner_of(region).refuse_bind;
    };
    region_calls_.control = [](::fid* region, int command, void*) {
      owner_of(region).enabled += command == FI_ENABLE ? 1 : 0;
      if (const int fault = owner_of(region).faults.strike("fi_mr_enable")) return -fault;
      return owner_of(region).refuse_enable;
    };
  }
  fake_domain(const fake_domain&) = delete;
  fake_domain& operator=(const fake_domain&) = delete;

  [[nodiscard]] libfabric_registrar registrar(libfabric_registrar_options options = {}) {
    auto made = libfabric_registrar::create(&domain, &info, std::move(options));
    if (!made) throw std::runtime_error(describe(made.error()));
    return std::move(*made);
  }

  ::fi_domain_attr attributes{};
  ::fi_fabric_attr fabric{};
  std::string provider = "tcp";  ///< a provider that libfabric's own cache does not serve
  ::fi_info info{};
  ::fid_domain domain{};
  std::vector<::fi_mr_attr> asked;  ///< the `mr_iov` pointers dangle; `iovs` has the contents
  std::vector<::iovec> iovs;
  std::set<std::uint64_t> keys;  ///< in use; a second request for one of them is refused
  std::map<::fid*, std::unique_ptr<::fid_mr>> regions;
  std::vector<::fid*> bound;
  int enabled = 0, closes = 0;
  int refuse = 0, refuse_bind = 0, refuse_enable = 0, refuse_close = 0;  ///< negative fi_errno
  std::uint64_t provider_key = 70;
  fault_points faults;  ///< of fi_mr_regattr, fi_mr_bind, fi_mr_enable and fi_close
  int misuses = 0;      ///< closes of what is not open

  /// After any other failure of fi_close the region may be gone. Here, and in `watched_domain`, it is gone.
  static bool stays_open(int fault) { return fault == FI_EBUSY || fault == FI_EAGAIN; }

 private:
  static fake_domain& owner_of(::fid* region) { return *static_cast<fake_domain*>(region->context); }

  int add(const ::fi_mr_attr& what, ::fid_mr** made) {
    asked.push_back(what);
    iovs.push_back(*what.mr_iov);
    if (const int fault = faults.strike("fi_mr_regattr")) return -fault;
    if (refuse != 0) return refuse;
    const bool provides = (attributes.mr_mode & FI_MR_PROV_KEY) != 0;
    const auto key = provides ? provider_key++ : what.requested_key;
    if (!keys.insert(key).second) return -FI_ENOKEY;
    auto region = std::make_unique<::fid_mr>();
    region->fid.ops = &region_calls_;
    region->fid.context = this;
    region->key = key;
    region->mem_desc = region.get();
    *made = region.get();
    regions[&region->fid] = std::move(region);
    return 0;
  }
  int remove(::fid* region) {
    ++closes;
    if (refuse_close != 0) return refuse_close;
    const int fault = faults.strike("fi_close");
    if (stays_open(fault)) return -fault;
    const auto at = regions.find(region);
    if (at == regions.end()) return ++misuses, -FI_EINVAL;
    keys.erase(at->second->key);
    regions.erase(at);
    return -fault;
  }

  ::fi_ops_mr registering_{.size = sizeof(::fi_ops_mr), .reg = nullptr, .regv = nullptr, .regattr = nullptr};
  ::fi_ops region_calls_{};
};

}  // namespace pinfold::testing
