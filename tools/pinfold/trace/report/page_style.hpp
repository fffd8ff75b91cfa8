// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The style sheet of the page, page.css, which the build puts into the tool.
#pragma once

#include <string_view>

namespace tool {

extern const std::string_view page_style;

}  // namespace tool
