// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Regions that could neither be enabled nor closed: their closes are owed.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <utility>

namespace pinfold::libfabric {

/// Returns whether the region is still open after this result of fi_close. After any other failure the provider may
/// have freed the object, but still have the key.
[[nodiscard]] constexpr bool stays_open(int answer) noexcept { return answer == -FI_EBUSY || answer == -FI_EAGAIN; }

/// Thread-safe.
class owed_regions {
 public:
  struct region {
    ::fid_mr* open = nullptr;
    std::uint64_t key = 0;
  };

  /// Memory for one region, allocated before it can be needed. Throws std::bad_alloc.
  using note = std::list<region>;
  [[nodiscard]] static note make_note() { return note(1); }

  void add(note&& of, const region& owed) noexcept {
    of.front() = owed;
    const std::scoped_lock guard(mutex_);
    owed_.splice(owed_.end(), of);
  }

  /// Closes the regions that can be closed now. Calls `freed` with their keys, except after a failure that leaves the
  /// key in doubt.
  template <class Freed>
  void retry(Freed&& freed) noexcept {
    std::list<region> tried = take_all();  // no lock is held while the provider works
    tried.remove_if([&](const region& one) {
      const int answer = ::fi_close(&one.open->fid);
      if (answer == 0) freed(one.key);
      return !stays_open(answer);
    });
    const std::scoped_lock guard(mutex_);
    owed_.splice(owed_.end(), tried);
  }

 private:
  [[nodiscard]] std::list<region> take_all() noexcept {
    const std::scoped_lock guard(mutex_);
    return std::exchange(owed_, {});
  }

  std::mutex mutex_;
  std::list<region> owed_;
};

}  // namespace pinfold::libfabric
