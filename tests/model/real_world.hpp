// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A `local_model`'s world over a real registrar, with real memory.
#pragma once

#include "support/doubles/recording_registrar.hpp"
#include "support/host/test_pages.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace pinfold::testing {

template <registrar R>
struct real_world {
  using registrar_type = recording_registrar<R>;

  real_world(const test_pages& memory, std::function<R()> make_one)
      : begin(memory.pages(0, 1).begin), make(std::move(make_one)) {}

  [[nodiscard]] registrar_type registrar() const { return {make(), device, numbers}; }
  [[nodiscard]] std::uint64_t number_of(const typename R::registration_type& made) const {
    return numbers->of(made.mr);
  }
  /// Returns the sum of the sizes of all registrations; bytes that several cover count several times.
  [[nodiscard]] std::size_t bytes() const {
    std::size_t sum = 0;
    for (const auto& [number, one] : device->now()) sum += one.memory.size();
    return sum;
  }
  [[nodiscard]] bool sound() const { return !agrees || agrees(*this); }

  std::shared_ptr<fake_device> device = std::make_shared<fake_device>();
  std::shared_ptr<region_numbers> numbers = std::make_shared<region_numbers>();
  std::uintptr_t begin, unit = test_pages::page;
  std::function<R()> make;
  std::function<bool(const real_world&)> agrees{};  ///< compares the driver's count with the registrations
};

}  // namespace pinfold::testing
