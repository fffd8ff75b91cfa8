// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A provider's domain with its memory-region calls intercepted: counted, and failed when a test says so.
#pragma once

#include "support/doubles/fault_points.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>

namespace pinfold::testing {

/// Intercepts one domain at a time, and must be destroyed before that domain. Thread-safe.
class watched_domain {
 public:
  explicit watched_domain(::fid_domain* domain) : domain_(domain), real_(domain->mr), own_(*domain->mr) {
    now_ = this;
    own_.regattr = [](::fid* of, const ::fi_mr_attr* what, std::uint64_t flags, ::fid_mr** made) {
      return now_->open(of, what, flags, made);
    };
    domain_->mr = &own_;
  }
  ~watched_domain() {
    domain_->mr = real_;
    now_ = nullptr;
  }
  watched_domain(const watched_domain&) = delete;
  watched_domain& operator=(const watched_domain&) = delete;

  [[nodiscard]] std::size_t open_count() const {
    const std::lock_guard guard(mutex_);
    return open_.size();
  }

  fault_points faults;  ///< of fi_mr_regattr and fi_close

 private:
  struct region {
    ::fi_ops* real;
    ::fi_ops own;
  };

  int open(::fid* of, const ::fi_mr_attr* what, std::uint64_t flags, ::fid_mr** made) {
    if (const int fault = faults.strike("fi_mr_regattr")) return -fault;
    const int refused = real_->regattr(of, what, flags, made);
    if (refused != 0) return refused;
    const std::lock_guard guard(mutex_);
    auto& here = open_[&(*made)->fid];
    here = {(*made)->fid.ops, *(*made)->fid.ops};
    here.own.close = [](::fid* which) { return now_->close(which); };
    (*made)->fid.ops = &here.own;
    return 0;
  }
  int close(::fid* which) {
    const int fault = faults.strike("fi_close");
    if (fault == FI_EBUSY || fault == FI_EAGAIN) return -fault;
    ::fi_ops* const real = forget(which);
    const int refused = real->close(which);
    return fault != 0 ? -fault : refused;
  }

  ::fi_ops* forget(::fid* which) {
    const std::lock_guard guard(mutex_);
    which->ops = open_.at(which).real;
    open_.erase(which);
    return which->ops;
  }

  static inline watched_domain* now_ = nullptr;
  ::fid_domain* domain_;
  ::fi_ops_mr* real_;
  ::fi_ops_mr own_;
  mutable std::mutex mutex_;
  std::map<::fid*, region> open_;
};

}  // namespace pinfold::testing
