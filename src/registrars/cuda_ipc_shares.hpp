// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What an exporter has shared, and the descriptors that its peers ask for.
#pragma once

#include "exchange/source.hpp"
#include "registrars/cuda_context.hpp"
#include "registrars/cuda_ipc_handle.hpp"
#include "registrars/cuda_pointer.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <sys/types.h>
#include <vector>

namespace pinfold::cuda_ipc {

/// Thread-safe. Descriptors are made when they are asked for and closed when they are sent: one that is kept would keep
/// memory that the application has freed.
class shares final : public exchange::source {
 public:
  explicit shares(const cuda::driver_table& calls) noexcept;

  /// The handle of what lies at these addresses, made by `make` unless it is known. What is known is no longer so once
  /// something else lies there. Ranges of segments may overlap: each has a handle of its own.
  ///
  /// `segments` is empty for anything but segments; then `buffer_id` tells whether it is the same.
  struct subject {
    range where;
    std::uint64_t buffer_id;
    std::vector<cuda::segment_facts> segments;
    friend bool operator==(const subject&, const subject&) noexcept = default;
  };
  using make_handle = std::function<result<cuda_ipc_handle>(std::uint64_t serial)>;
  [[nodiscard]] result<cuda_ipc_handle> find_or_make(const subject& what, const make_handle& make) noexcept;

  /// The serial of a pool, which stays the same while the exporter lives.
  [[nodiscard]] std::uint64_t serial_of(cuda::memory_pool pool);

  [[nodiscard]] result<void> lend(std::uint64_t serial, const std::function<void(int)>& use) noexcept override;
  [[nodiscard]] bool inherited() const noexcept override;
  [[nodiscard]] pid_t process() const noexcept { return process_; }

 private:
  struct shared {
    subject what;
    cuda_ipc_handle handle;
  };
  struct lent {
    cuda::memory_pool pool = nullptr;
    std::vector<std::size_t> sizes;  ///< of all segments, when those are asked for
    cuda::segment_facts segment;     ///< the one that is asked for
  };

  [[nodiscard]] result<lent> look_up(std::uint64_t serial);
  [[nodiscard]] result<void> lend_segment(const cuda::segment_facts& wanted,
                                          const std::function<void(int)>& use) noexcept;
  [[nodiscard]] result<void> lend_pool(cuda::memory_pool pool, const std::function<void(int)>& use) noexcept;
  [[nodiscard]] const shared* known(const subject& what) const noexcept;
  void forget_what_is_gone(const subject& now) noexcept;

  const cuda::driver_table& calls_;
  const pid_t process_;
  std::mutex mutex_;
  std::map<std::uint64_t, shared> shared_;                  ///< by serial
  std::multimap<std::uint64_t, std::uint64_t> by_address_;  ///< serials by first address
  std::uint64_t largest_ = 0;                               ///< bytes of the largest ever shared
  std::map<cuda::memory_pool, std::uint64_t> pools_;
  std::uint64_t last_serial_ = 0;
};

}  // namespace pinfold::cuda_ipc
