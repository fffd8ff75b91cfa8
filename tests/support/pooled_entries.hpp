// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Entries as an engine has them, in pages with their records, without the engine.
#pragma once

#include "core/entry_pool.hpp"

#include <cstring>
#include <memory>
#include <stdexcept>

namespace pinfold::testing {

class pooled_entries {
 public:
  struct give_back {
    pooled_entries* to;
    void operator()(core::entry* done) const { to->pool_->put(done); }
  };
  using owned = std::unique_ptr<core::entry, give_back>;

  pooled_entries() : gate_(core::take_control_block()), pool_(std::make_unique<core::entry_pool>(*gate_, true)) {}
  ~pooled_entries() {
    pool_.reset();
    core::give_back(gate_);
  }
  pooled_entries(const pooled_entries&) = delete;
  pooled_entries& operator=(const pooled_entries&) = delete;

  owned make(peer_id peer, const range& covered) {
    if (pool_->empty()) {
      auto more = core::entry_pool::make_chunk(record_bytes);
      if (!more) throw std::bad_alloc();
      pool_->adopt(std::move(more));
    }
    owned made(pool_->take(), {this});
    const detail::imported_part beside{nullptr, peer};
    std::memcpy(static_cast<void*>(made->hot() + 1), &beside, sizeof beside);
    made->cover(covered);
    return made;
  }

 private:
  static constexpr std::size_t record_bytes = sizeof(detail::record) + sizeof(detail::imported_part);

  core::control_block* gate_;
  std::unique_ptr<core::entry_pool> pool_;
};

}  // namespace pinfold::testing
