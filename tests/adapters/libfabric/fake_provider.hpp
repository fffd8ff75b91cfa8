// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A provider of libfabric that counts: a fabric whose domains number their regions, so that a test sees which
/// registration a caller got, and when it was made.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>

namespace pinfold::testing {

/// A domain; its regions have keys 1, 2, 3, ...
struct fake_domain {
  fid_domain base{};  // first: libfabric's functions get its address
  fi_ops fid_ops{};
  fi_ops_domain ops{};
  fi_ops_mr mr_ops{};
  std::atomic<std::uint64_t> opens{0};
  std::atomic<std::uint64_t> open{0};
  std::atomic<std::uint64_t> last_access{0};
  std::atomic<int> refusal{0};              ///< answer to every registration
  std::atomic<int> close_failure{0};        ///< answer to the close of every region, which is closed all the same
  std::atomic<std::uint64_t> no_access{0};  ///< refuses registrations with any of these bits
  bool closed = false;

  fake_domain();
  int open_region(std::uint64_t access, fid_mr** made, void* context);
};

/// A region. Its own close counts.
struct fake_region {
  fid_mr base{};
  fake_domain* domain = nullptr;
};

/// A fabric, whose fi_domain returns `next`.
struct fake_fabric {
  fid_fabric base{};
  fi_ops fid_ops{};
  fi_ops_fabric ops{};
  fake_domain* next = nullptr;
  bool closed = false;
  fake_fabric();
};

namespace fake {

inline fake_domain& domain(fid* of) { return *reinterpret_cast<fake_domain*>(of); }
inline fake_fabric& fabric(fid* of) { return *reinterpret_cast<fake_fabric*>(of); }

inline int close_region(fid* of) {
  const std::unique_ptr<fake_region> region(reinterpret_cast<fake_region*>(of));
  region->domain->open -= 1;
  return region->domain->close_failure;
}
inline int bind(fid*, fid*, std::uint64_t) { return 0; }
inline int control(fid*, int, void*) { return -FI_ENOSYS; }
inline fi_ops region_ops{.size = sizeof(fi_ops),
                         .close = close_region,
                         .bind = bind,
                         .control = control,
                         .ops_open = nullptr,
                         .tostr = nullptr,
                         .ops_set = nullptr};

inline int reg(fid* of, const void*, std::size_t, std::uint64_t access, std::uint64_t, std::uint64_t, std::uint64_t,
               fid_mr** made, void* context) {
  return domain(of).open_region(access, made, context);
}
inline int regv(fid* of, const iovec*, std::size_t, std::uint64_t access, std::uint64_t, std::uint64_t, std::uint64_t,
                fid_mr** made, void* context) {
  return domain(of).open_region(access, made, context);
}
inline int regattr(fid* of, const fi_mr_attr* what, std::uint64_t, fid_mr** made) {
  return domain(of).open_region(what->access, made, what->context);
}
inline int close_domain(fid* of) {
  if (domain(of).open != 0) return -FI_EBUSY;
  domain(of).closed = true;
  return 0;
}
inline int close_fabric(fid* of) {
  fabric(of).closed = true;
  return 0;
}
inline int open_counter(fid_domain*, fi_cntr_attr*, fid_cntr**, void*) { return 0; }
inline int open_domain(fid_fabric* of, fi_info*, fid_domain** made, void*) {
  *made = &fabric(&of->fid).next->base;
  return 0;
}

}  // namespace fake

inline fake_domain::fake_domain() {
  fid_ops.size = sizeof fid_ops;
  fid_ops.close = fake::close_domain;
  fid_ops.bind = fake::bind;
  ops.size = sizeof ops;
  ops.cntr_open = fake::open_counter;
  mr_ops.size = sizeof mr_ops;
  mr_ops.reg = fake::reg;
  mr_ops.regv = fake::regv;
  mr_ops.regattr = fake::regattr;
  base.fid.fclass = FI_CLASS_DOMAIN;
  base.fid.ops = &fid_ops;
  base.ops = &ops;
  base.mr = &mr_ops;
}

inline int fake_domain::open_region(std::uint64_t access, fid_mr** made, void* context) {
  if (refusal != 0) return refusal;
  if ((access & no_access) != 0) return -FI_EFAULT;
  auto region = std::make_unique<fake_region>();
  region->domain = this;
  region->base.fid = {FI_CLASS_MR, context, &fake::region_ops};
  region->base.key = ++opens;
  region->base.mem_desc = region.get();
  last_access = access;
  open += 1;
  *made = &region.release()->base;
  return 0;
}

inline fake_fabric::fake_fabric() {
  fid_ops.size = sizeof fid_ops;
  fid_ops.close = fake::close_fabric;
  ops.size = sizeof ops;
  ops.domain = fake::open_domain;
  base.fid.fclass = FI_CLASS_FABRIC;
  base.fid.ops = &fid_ops;
  base.ops = &ops;
  base.api_version = FI_VERSION(1, 17);
}

}  // namespace pinfold::testing
