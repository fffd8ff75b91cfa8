// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// libibverbs' functions as this program sees them: each fails when a test says so. Otherwise it calls the real one or,
/// over `fake_verbs`, records the registration. Include it in one source of a program: it defines them.
#pragma once

#include "support/doubles/fault_points.hpp"

#include <cerrno>
#include <cstdint>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <set>

namespace pinfold::testing {

/// The registrations of a pretend device or of a real one.
struct verbs_calls {
  fault_points faults;  ///< of the functions below, and of a pretend device's ibv_query_device_ex
  std::set<ibv_mr*> regions;
  std::size_t misuses = 0;

  template <class Register>
  ibv_mr* open(const char* call, ibv_pd* domain, Register real);
  int close(ibv_mr* region);
};
inline verbs_calls verbs_now;

/// A device without hardware, with paging on demand.
class fake_verbs {
 public:
  fake_verbs() {
    device_.query_device_ex = answer;
    device_.sz = sizeof device_;
    device_.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    device_.context.num_comp_vectors = mark;
    domain.context = &device_.context;
  }
  fake_verbs(const fake_verbs&) = delete;
  fake_verbs& operator=(const fake_verbs&) = delete;

  static bool owns(const ibv_pd* domain) { return domain->context->num_comp_vectors == mark; }
  ibv_pd domain{};

 private:
  static constexpr int mark = 0x7a57;
  static int answer(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* says, std::size_t) {
    if (const int fault = verbs_now.faults.strike("ibv_query_device_ex")) return fault;
    *says = {};
    says->orig_attr.max_mr_size = UINT64_MAX;
    says->orig_attr.max_mr = 1000;
    says->orig_attr.atomic_cap = IBV_ATOMIC_HCA;
    says->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
    return 0;
  }
  verbs_context device_{};
};

template <class F>
F* libibverbs(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

template <class Register>
ibv_mr* verbs_calls::open(const char* call, ibv_pd* domain, Register real) {
  if (const int fault = faults.strike(call)) return errno = fault, nullptr;
  const bool pretend = fake_verbs::owns(domain);
  ibv_mr* const made = pretend ? new ibv_mr() : real();
  if (pretend) made->pd = domain;
  if (made != nullptr) regions.insert(made);
  return made;
}

inline int verbs_calls::close(ibv_mr* region) {
  if (regions.count(region) == 0) return ++misuses, EINVAL;
  if (const int fault = faults.strike("ibv_dereg_mr")) return fault;
  const bool pretend = fake_verbs::owns(region->pd);
  const int refused = pretend ? 0 : libibverbs<decltype(::ibv_dereg_mr)>("ibv_dereg_mr")(region);
  if (refused == 0) regions.erase(region);
  if (pretend) delete region;
  return refused;
}

}  // namespace pinfold::testing

// The dynamic linker finds these before libibverbs' functions.
extern "C" ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* at, std::size_t bytes, std::uint64_t iova, unsigned access) {
  return pinfold::testing::verbs_now.open("ibv_reg_mr_iova2", domain, [&] {
    return pinfold::testing::libibverbs<decltype(::ibv_reg_mr_iova2)>("ibv_reg_mr_iova2")(domain, at, bytes, iova,
                                                                                          access);
  });
}
extern "C" int ibv_dereg_mr(ibv_mr* region) { return pinfold::testing::verbs_now.close(region); }
#if defined(PINFOLD_HAS_REG_DMABUF_MR)
extern "C" ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* domain, std::uint64_t, std::size_t, std::uint64_t, int, int) {
  return pinfold::testing::verbs_now.open("ibv_reg_dmabuf_mr", domain,
                                          []() -> ibv_mr* { return errno = EOPNOTSUPP, nullptr; });
}
#endif
