// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A registrar around another one that measures the longest call.
#pragma once

#include "perf/startup/longest_time.hpp"

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>

#include <chrono>
#include <memory>
#include <utility>

namespace tool {

/// The registrar itself, with a clock around `open`.
template <pinfold::registrar R>
class timed_registrar {
 public:
  static constexpr const char* name = R::name;
  using registration_type = typename R::registration_type;

  explicit timed_registrar(R inner) : inner_(std::move(inner)), longest_(std::make_unique<longest_time>()) {}

  [[nodiscard]] pinfold::registrar_limits limits() const noexcept { return inner_.limits(); }

  [[nodiscard]] pinfold::result<registration_type> open(pinfold::range memory, pinfold::access_flags access) noexcept {
    const auto begin = std::chrono::steady_clock::now();
    auto made = inner_.open(memory, access);
    longest_->note(std::chrono::steady_clock::now() - begin);
    return made;
  }

  [[nodiscard]] pinfold::result<void> close(const registration_type& made) noexcept { return inner_.close(made); }

  /// Returns the time of the longest call, in seconds. That includes waiting for other calls of a driver that
  /// serialises. Any thread.
  [[nodiscard]] double longest() const noexcept { return longest_->seconds(); }

 private:
  R inner_;
  std::unique_ptr<longest_time> longest_;
};

}  // namespace tool
