// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The format that an HTTP client asks for.
#pragma once

#include <pinfold/observation/open_metrics.hpp>

#include <string_view>

namespace tool {

/// Returns the format for a header `Accept`: OpenMetrics where the client names its version 1.0.0, or no version, and
/// prefers it to `text/plain`; else Prometheus's format, as for a client without that header. Reads any text.
[[nodiscard]] pinfold::observation::metrics_format format_for(std::string_view accept);

}  // namespace tool
