// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How long a process of a test waits for another one. In the library it is five seconds, which a process may have to
/// wait for a processor on a busy machine.
#pragma once

#include "fd_passing/client.hpp"
#include "monitors/bpf/client.hpp"
#include "monitors/bpf/server.hpp"

#include <chrono>

namespace pinfold::testing {

/// Sets how long an importer waits for an exporter, and a monitor and its server for each other.
inline void set_answer_times(std::chrono::seconds longest) noexcept {
  fd_passing::answer_timeout = longest;
  monitors::bpf_answer_timeout = longest;
  monitors::bpf_secret_timeout = longest;
}

/// Every test program begins with this time (`answer_times.cpp`).
inline constexpr std::chrono::seconds ample_answer_time{60};

/// The library's time, for tests in which no answer comes.
class usual_answer_times {
 public:
  usual_answer_times() noexcept { set_answer_times(std::chrono::seconds{5}); }
  usual_answer_times(const usual_answer_times&) = delete;
  usual_answer_times& operator=(const usual_answer_times&) = delete;
  ~usual_answer_times() { set_answer_times(ample_answer_time); }
};

}  // namespace pinfold::testing
