// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Another process, which changes files of this one.
#pragma once

#include "mechanisms.hpp"
#include "support/processes/child_process.hpp"

#include <mutex>
#include <string>

namespace pinfold::testing::hazard_fuzz {

/// The other process. Make it before this process has threads. Thread-safe.
class helper_process {
 public:
  helper_process() : parent_(::getpid()), child_([this](line& to) { return serve(to); }) {}

  /// Has the other process make the call on the file with this process's number. Returns whether the call succeeded.
  bool call(const kernel_call& what) {
    const std::lock_guard guard(mutex_);
    if (!child_.talk().send(what)) return false;
    return child_.talk().receive<bool>().value_or(false);
  }

 private:
  int serve(line& to) const {
    while (const auto what = to.receive<kernel_call>())
      if (!to.send(do_it(*what))) break;
    return 0;
  }

  [[nodiscard]] bool do_it(kernel_call what) const {
    const auto path = "/proc/" + std::to_string(parent_) + "/fd/" + std::to_string(what.a);
    const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return false;
    what.a = static_cast<std::uintptr_t>(file);
    const bool done = call_libc(what);
    ::close(file);
    return done;
  }

  pid_t parent_;
  child_process child_;
  std::mutex mutex_;
};

}  // namespace pinfold::testing::hazard_fuzz
