// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A registrar as slow as a network card's: its calls sleep and do nothing else.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrars/null.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

namespace tool {

/// The null registrar with a sleep at the start of each call. Counts the opens.
class slow_registrar {
 public:
  static constexpr const char* name = "sleeping";
  using registration_type = pinfold::null_registrar::registration_type;

  explicit slow_registrar(std::chrono::milliseconds open_delay, std::chrono::milliseconds close_delay = {})
      : open_delay_(open_delay), close_delay_(close_delay), calls_(std::make_unique<std::atomic<std::uint64_t>>(0)) {}

  [[nodiscard]] pinfold::registrar_limits limits() const noexcept { return inner_.limits(); }

  [[nodiscard]] pinfold::result<registration_type> open(pinfold::range memory, pinfold::access_flags access) noexcept {
    calls_->fetch_add(1, std::memory_order_relaxed);
    if (open_delay_.count() > 0) std::this_thread::sleep_for(open_delay_);
    return inner_.open(memory, access);
  }

  [[nodiscard]] pinfold::result<void> close(const registration_type& made) noexcept {
    if (close_delay_.count() > 0) std::this_thread::sleep_for(close_delay_);
    return inner_.close(made);
  }

  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_->load(std::memory_order_relaxed); }

 private:
  pinfold::null_registrar inner_;
  std::chrono::milliseconds open_delay_;
  std::chrono::milliseconds close_delay_;
  std::unique_ptr<std::atomic<std::uint64_t>> calls_;
};

}  // namespace tool
