// SPDX-License-Identifier: BSD-3-Clause
#include "cli/output.hpp"

#include "cli/failure.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tool {
namespace {

// Writes the rest of the output, and returns `status`, or 1 when some output could not be written and `status` is 0.
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

}  // namespace

int complain(const std::string& head, const std::exception& problem, exit_status status) noexcept {
  std::fflush(stdout);
  std::fprintf(stderr, "pinfold: %s%s\n", head.c_str(), problem.what());
  return status;
}

int run_to_exit(const std::function<int()>& work) noexcept {
  // Each line goes out when it ends, into pipes and files too: a reader sees it at once, and Ctrl-C does not lose it.
  static_cast<void>(std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ));
  try {
    return after_writing_all(work());
  } catch (const usage_failure& problem) {
    return *problem.what() == '\0' ? wrong_usage : complain("", problem, wrong_usage);
  } catch (const std::exception& problem) {
    return complain("", problem, something_failed);
  }
}

}  // namespace tool
