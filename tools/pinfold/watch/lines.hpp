// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Events of a statistics page as lines.
#pragma once

#include <pinfold/observation/reader.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tool::watch {

/// An event and what its numbers stand for.
struct shown_event {
  pinfold::observation::page_event seen;
  std::string cache;               ///< name; empty if the event is not of one cache
  std::vector<std::string> stack;  ///< a text for each frame
  std::int64_t at_ns = 0;          ///< since 1970, in UTC
  std::string reason;              ///< of a failure; empty if the page has it no more
};

/// Returns a line for a person, and one for each frame.
[[nodiscard]] std::string as_text(const shown_event& what);

/// Returns one line of JSON.
[[nodiscard]] std::string as_json(const shown_event& what);

/// Returns the names of all kinds of events.
[[nodiscard]] std::vector<std::string> kinds();

}  // namespace tool::watch
