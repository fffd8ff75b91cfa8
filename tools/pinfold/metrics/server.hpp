// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Serves the text by HTTP. Compiled where libmicrohttpd is.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tool {

/// Answers `GET /metrics` at this address (`listener.hpp`), with a reading of the pages that is at most a second old,
/// until SIGINT, SIGTERM or SIGHUP. A client gets one answer for each connection, and 20 seconds for it; others do not
/// wait for it, and where there are too many, the oldest connection is closed.
/// Throws `failure` and `usage_failure`.
void serve_metrics(const std::string& address, const std::vector<std::size_t>& pids);

}  // namespace tool
