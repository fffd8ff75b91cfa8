// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Files that are written as a whole or not at all.
#pragma once

#include <string>
#include <string_view>
#include <sys/types.h>

namespace tool {

/// Returns the mode of a file that open(2) makes: all may read and write it, but for the umask.
[[nodiscard]] mode_t usual_mode() noexcept;

/// Writes a file of that mode beside `path`, and renames it when it is complete: readers see the file before or after
/// the change, and a failure leaves it as it was. What is no regular file (a link, a device, a pipe) is opened and
/// written, and stays what it is; a link must be of this user, or of root. `may_wait`: for a reader of a pipe, which is
/// else a reason not to write. The name of the other file ends in six random letters: collectors read `*.prom`. Throws
/// `failure` with the path and the reason.
void replace_file(const std::string& path, std::string_view content, mode_t mode = usual_mode(), bool may_wait = true);

}  // namespace tool
