// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The exceptions that end a subcommand early. The library returns its errors as values; the tool throws them up to
/// `main`, which prints them and turns them into an exit status.
#pragma once

#include <pinfold/error.hpp>

#include <fmt/format.h>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace tool {

/// An operation failed: exit status 1.
struct failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The command line or the settings make no sense: exit status 2.
struct usage_failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Returns the value, or throws a `failure` that says what was attempted and why it failed.
template <class T>
T need(pinfold::result<T> outcome, std::string_view attempt) {
  if (!outcome) throw failure(fmt::format("{}: {}", attempt, pinfold::describe(outcome.error())));
  if constexpr (!std::is_void_v<T>) return *std::move(outcome);
}

}  // namespace tool
