// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The memfd importer with opens as slow as those of other drivers: CUDA's take 0.1 to 1.3 ms, and more under load.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/importer.hpp>
#include <pinfold/importers/memfd.hpp>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>

namespace tool {

/// Sleeps before each real open. Counts the opens that have begun in `begun`, which must outlive it.
class slow_importer {
 public:
  static constexpr const char* name = pinfold::memfd_importer::name;
  static constexpr bool allows_duplicates = pinfold::memfd_importer::allows_duplicates;
  using handle_type = pinfold::memfd_importer::handle_type;
  using registration_type = pinfold::memfd_importer::registration_type;

  slow_importer(pinfold::memfd_importer real, std::chrono::milliseconds delay, std::atomic<unsigned>& begun) noexcept
      : real_(std::move(real)), delay_(delay), begun_(&begun) {}

  [[nodiscard]] pinfold::result<pinfold::range> check(const handle_type& handle) const noexcept {
    return real_.check(handle);
  }

  [[nodiscard]] pinfold::result<pinfold::imported<registration_type>> open(pinfold::peer_id peer,
                                                                           const handle_type& handle) noexcept {
    begun_->fetch_add(1, std::memory_order_relaxed);
    std::this_thread::sleep_for(delay_);
    return real_.open(peer, handle);
  }

  [[nodiscard]] pinfold::result<void> close(const registration_type& mapping) noexcept { return real_.close(mapping); }

 private:
  pinfold::memfd_importer real_;
  std::chrono::milliseconds delay_;
  std::atomic<unsigned>* begun_;
};

}  // namespace tool
