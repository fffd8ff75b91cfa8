// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A file that is written as a whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace tool {

/// Writes a file beside `path` and renames it when it is complete, so that a failure leaves an earlier file as it was.
/// Devices and pipes are written themselves. Throws `failure` with the path and the reason.
void replace_file(const std::string& path, std::string_view content);

}  // namespace tool
