// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// An importer around another one. Makes chosen calls fail without calling the inner importer.
#pragma once

#include <pinfold/importer.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace pinfold::testing {

/// Which calls fail. Shared by the test and the importer; thread-safe.
struct fault_plan {
  std::atomic<std::size_t> calls{0};           ///< opens and closes so far, failed ones included
  std::atomic<std::size_t> failing{SIZE_MAX};  ///< the number of the call that fails
  error with{errc::driver_error, native_kind::posix, 5, "injected"};

  [[nodiscard]] bool strikes() noexcept { return calls.fetch_add(1) == failing.load(); }
};

template <importer I>
class faulty_importer {
 public:
  static constexpr const char* name = I::name;
  static constexpr bool allows_duplicates = I::allows_duplicates;
  using handle_type = typename I::handle_type;
  using registration_type = typename I::registration_type;

  faulty_importer(I inner, std::shared_ptr<fault_plan> plan) : inner_(std::move(inner)), plan_(std::move(plan)) {}

  [[nodiscard]] result<range> check(const handle_type& handle) const noexcept { return inner_.check(handle); }

  [[nodiscard]] result<imported<registration_type>> open(peer_id peer, const handle_type& handle) noexcept {
    if (plan_->strikes()) return tl::unexpected(plan_->with);
    return inner_.open(peer, handle);
  }

  [[nodiscard]] result<void> close(const registration_type& mapping) noexcept {
    if (plan_->strikes()) return tl::unexpected(plan_->with);
    return inner_.close(mapping);
  }

  [[nodiscard]] I& inner() noexcept { return inner_; }

 private:
  I inner_;
  std::shared_ptr<fault_plan> plan_;
};

}  // namespace pinfold::testing
