// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Whether a user number that the kernel reports is this process's own user.
///
/// Nothing here allocates or locks: all of it may run in signal handlers, and in the child of a multi-threaded process
/// that forked.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

namespace pinfold::os {

/// The meaning of a number that equals the effective user's.
enum class user_match : unsigned char {
  other,
  /// The kernel reports users outside the process's user namespace as the overflow user, mostly 65534, even if the
  /// namespace has a user of that number.
  ambiguous,
  own,
};

[[nodiscard]] user_match match_user(uid_t reported) noexcept;

/// Returns whether an open file belongs to this process's user.
[[nodiscard]] bool is_own_file(int descriptor, const struct stat& seen) noexcept;

}  // namespace pinfold::os
