// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Turns exceptions into errors, for headers that must compile with -fno-exceptions too. Not for users; it may change
/// in any release.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>

#include <optional>
#include <type_traits>
#include <utility>

namespace pinfold::detail {

/// Calls `step(context)`, and returns `out_of_resources` if it throws: with the message `no_memory` for std::bad_alloc,
/// with `no_thread` for anything else, which is std::system_error.
[[nodiscard]] PINFOLD_EXPORT result<void> call_or_error(void* context, void (*step)(void*), const char* no_memory,
                                                        const char* no_thread) noexcept;

/// Throws std::bad_alloc.
[[noreturn]] PINFOLD_EXPORT void throw_bad_alloc();

/// Returns the result that `body` returns, or `out_of_resources` if it throws.
template <class Body>
[[nodiscard]] std::invoke_result_t<Body&> or_error(const char* no_memory, const char* no_thread, Body&& body) noexcept {
  struct call {
    std::remove_reference_t<Body>& body;
    std::optional<std::invoke_result_t<Body&>> answer{};
  } made{body};
  const auto step = [](void* context) {
    auto& own = *static_cast<call*>(context);
    own.answer.emplace(own.body());
  };
  if (auto done = call_or_error(&made, step, no_memory, no_thread); !done) return tl::unexpected(done.error());
  return *std::move(made.answer);  // NOLINT(bugprone-unchecked-optional-access): the step has set it
}

}  // namespace pinfold::detail
