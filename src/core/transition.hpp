// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Checks each transition of an entry, in builds with assertions.
#pragma once

#include "core/entry_table.hpp"

namespace pinfold::core {

/// Checks an entry against the combinations of docs/understand/protocol.md when a transition begins and when it ends.
class entry_table::transition {
 public:
#if defined(PINFOLD_ASSERTIONS)
  transition(const entry_table& in, const entry& of) noexcept : in_(in), of_(of) { in_.check(of_); }
  ~transition() { in_.check(of_); }

 private:
  const entry_table& in_;
  const entry& of_;
#else
  transition(const entry_table& /*in*/, const entry& /*of*/) noexcept {}
  ~transition() {}  // NOLINT(modernize-use-equals-default): with it, compilers warn that no variable is used
#endif
  transition(const transition&) = delete;
  transition& operator=(const transition&) = delete;
};

}  // namespace pinfold::core
