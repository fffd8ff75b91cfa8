// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A file that readers see either before or after a change, and never in between.
#pragma once

#include <string>
#include <string_view>

namespace tool {

/// Replaces the file's contents: writes another file in the same folder, and gives it the name. All users may read it.
/// Throws `failure`; then the file is as it was.
void write_whole(const std::string& path, std::string_view contents);

}  // namespace tool
