// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Tells somebody about every call of another registrar.
#pragma once

#include <pinfold/registrar.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace pinfold {

/// One call of a registrar.
struct traced_call {
  enum class kind : std::uint8_t { open, close };
  kind what;
  range memory;   ///< for `close` empty: the registrar is not told the range
  rights access;  ///< for `open`
  std::chrono::nanoseconds took;
  const error* failure;  ///< null when it succeeded; valid during the call back
};

/// A registrar around another. The call back runs on the thread that called, without a lock, possibly on several
/// threads at once; it must not throw.
template <registrar R>
class trace_registrar {
 public:
  static constexpr const char* name = R::name;
  using registration_type = typename R::registration_type;
  using listener = std::function<void(const traced_call&)>;

  trace_registrar(R inner, listener told) : inner_(std::move(inner)), told_(std::move(told)) {}

  [[nodiscard]] registrar_limits limits() const noexcept { return inner_.limits(); }

  [[nodiscard]] result<registration_type> open(range memory, rights access) noexcept {
    const auto start = std::chrono::steady_clock::now();
    auto made = inner_.open(memory, access);
    told_({traced_call::kind::open, memory, access, std::chrono::steady_clock::now() - start,
           made ? nullptr : &made.error()});
    return made;
  }

  [[nodiscard]] result<void> close(const registration_type& registration) noexcept {
    const auto start = std::chrono::steady_clock::now();
    auto closed = inner_.close(registration);
    told_({traced_call::kind::close,
           {},
           rights::none,
           std::chrono::steady_clock::now() - start,
           closed ? nullptr : &closed.error()});
    return closed;
  }

 private:
  R inner_;
  listener told_;
};

}  // namespace pinfold
