// SPDX-License-Identifier: BSD-3-Clause
#include "cli/output.hpp"

#include "cli/failure.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace tool {
namespace {

std::string& program_name() {
  static std::string name = "pinfold";
  return name;
}

// A file that is opened later would get the number of a closed standard descriptor, and the output. `/dev/null` takes
// its place, opened so that a use of it fails as that of the closed one would.
void occupy_closed_descriptors() noexcept {
  while (true) {
    const int opened = ::open("/dev/null", O_RDONLY);
    if (opened > STDERR_FILENO) ::close(opened);
    if (opened < 0 || opened > STDERR_FILENO) return;
  }
}

// Writes the rest of the output, and returns `status`, or 1 when some output could not be written and `status` is 0.
int after_writing_all(int status) noexcept {
  errno = 0;
  const bool failed = std::ferror(stdout) != 0;  // that of an earlier line; its errno is lost
  if (std::fflush(stdout) == 0 && !failed) return status;
  const int why = errno;
  // NOLINTBEGIN(concurrency-mt-unsafe): the other threads have ended
  std::fprintf(stderr, "%s: standard output cannot be written%s%s\n", program_name().c_str(), why != 0 ? ": " : "",
               why != 0 ? std::strerror(why) : "");
  // NOLINTEND(concurrency-mt-unsafe)
  return status == 0 ? 1 : status;
}

}  // namespace

int complain(const std::string& head, const std::exception& problem, exit_status status) noexcept {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s%s\n", program_name().c_str(), head.c_str(), problem.what());
  return status;
}

void name_program(std::string words) { program_name() = std::move(words); }

int run_to_exit(const std::function<int()>& work) noexcept {
  occupy_closed_descriptors();
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
