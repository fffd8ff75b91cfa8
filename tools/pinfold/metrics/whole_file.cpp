// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/whole_file.hpp"

#include "cli/failure.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

namespace tool {
namespace {

// Returns 0, or the errno.
int write_all(int to, std::string_view rest) noexcept {
  while (!rest.empty()) {
    const auto written = ::write(to, rest.data(), rest.size());
    if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
    if (written < 0 && errno != EINTR) return errno;
  }
  constexpr mode_t for_all = S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH;
  return ::fchmod(to, for_all) == 0 ? 0 : errno;
}

}  // namespace

void write_whole(const std::string& path, std::string_view contents) {
  // Collectors read the files whose names end with `.prom`: this one's does not.
  std::string other = path + ".XXXXXX";
  const int made = ::mkstemp(other.data());
  int problem = made < 0 ? errno : write_all(made, contents);
  if (made >= 0 && ::close(made) != 0 && problem == 0) problem = errno;
  if (problem == 0 && ::rename(other.c_str(), path.c_str()) != 0) problem = errno;
  if (problem == 0) return;
  if (made >= 0) ::unlink(other.c_str());
  throw failure(fmt::format("{}: cannot be written: {}", path, std::generic_category().message(problem)));
}

}  // namespace tool
