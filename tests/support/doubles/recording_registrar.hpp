// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A real registrar whose registrations a `fake_device` records. It refuses what that device refuses. For registrars
/// whose registration has an `mr` that belongs to it alone.
#pragma once

#include "support/doubles/fake_registrar.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace pinfold::testing {

/// The device's numbers of the open regions. Thread-safe.
class region_numbers {
 public:
  void add(const void* region, std::uint64_t number) {
    const std::lock_guard guard(mutex_);
    numbers_[region] = number;
  }
  void remove(const void* region) {
    const std::lock_guard guard(mutex_);
    numbers_.erase(region);
  }
  [[nodiscard]] std::uint64_t of(const void* region) const {
    const std::lock_guard guard(mutex_);
    return numbers_.at(region);
  }

 private:
  mutable std::mutex mutex_;
  std::map<const void*, std::uint64_t> numbers_;
};

template <registrar R>
class recording_registrar {
 public:
  static constexpr const char* name = R::name;
  using registration_type = typename R::registration_type;

  recording_registrar(R real, std::shared_ptr<fake_device> device, std::shared_ptr<region_numbers> numbers)
      : real_(std::move(real)), device_(std::move(device)), numbers_(std::move(numbers)) {}

  [[nodiscard]] registrar_limits limits() const noexcept { return real_.limits(); }
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    const auto number = device_->enter(memory, access);
    if (!number) return tl::unexpected(number.error());
    auto made = real_.open(memory, access);  // a failed open stays recorded, so that the test sees it
    if (made) numbers_->add(made->mr, *number);
    return made;
  }
  [[nodiscard]] result<void> close(const registration_type& made) noexcept {
    if (auto left = device_->leave(numbers_->of(made.mr)); !left) return left;
    numbers_->remove(made.mr);  // before another region gets the same address
    return real_.close(made);
  }

 private:
  R real_;
  std::shared_ptr<fake_device> device_;
  std::shared_ptr<region_numbers> numbers_;
};

}  // namespace pinfold::testing
