// SPDX-License-Identifier: BSD-3-Clause
#include "cli/output.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tool {

void write_line_by_line() noexcept { static_cast<void>(std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ)); }

int after_writing_all(int status) noexcept {
  errno = 0;
  const bool failed = std::ferror(stdout) != 0;  // that of an earlier line; its errno is lost
  if (std::fflush(stdout) == 0 && !failed) return status;
  const int why = errno;
  // NOLINTBEGIN(concurrency-mt-unsafe): the other threads have ended
  std::fprintf(stderr, "pinfold: standard output cannot be written%s%s\n", why != 0 ? ": " : "",
               why != 0 ? std::strerror(why) : "");
  // NOLINTEND(concurrency-mt-unsafe)
  return status == 0 ? 1 : status;
}

}  // namespace tool
