// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Names for addresses of another process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <sys/types.h>
#include <vector>

namespace tool::watch {

/// Reads symbols, and lines where there is debug information, of the files that a process has mapped.
class symbols {
 public:
  explicit symbols(pid_t process);
  symbols(const symbols&) = delete;
  symbols& operator=(const symbols&) = delete;
  ~symbols();

  /// Returns a text for each return address, without the innermost ones that lie in the library itself. The addresses
  /// themselves where the process has ended, or may not be read.
  [[nodiscard]] std::vector<std::string> name(const std::vector<std::uint64_t>& return_addresses);

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace tool::watch
