// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A registrar whose calls sleep, opens and closes alike.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrars/null.hpp>

#include <chrono>
#include <thread>

namespace tool {

/// The null registrar with a sleep at the start of each call.
class pausing_registrar {
 public:
  static constexpr const char* name = "pausing";
  using registration_type = pinfold::null_registrar::registration_type;

  pausing_registrar(std::chrono::milliseconds open_delay, std::chrono::milliseconds close_delay) noexcept
      : open_delay_(open_delay), close_delay_(close_delay) {}

  [[nodiscard]] pinfold::registrar_limits limits() const noexcept { return inner_.limits(); }

  [[nodiscard]] pinfold::result<registration_type> open(pinfold::range memory, pinfold::access_flags access) noexcept {
    if (open_delay_.count() > 0) std::this_thread::sleep_for(open_delay_);
    return inner_.open(memory, access);
  }

  [[nodiscard]] pinfold::result<void> close(const registration_type& made) noexcept {
    if (close_delay_.count() > 0) std::this_thread::sleep_for(close_delay_);
    return inner_.close(made);
  }

 private:
  pinfold::null_registrar inner_;
  std::chrono::milliseconds open_delay_;
  std::chrono::milliseconds close_delay_;
};

}  // namespace tool
