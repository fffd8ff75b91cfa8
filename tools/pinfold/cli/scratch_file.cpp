// SPDX-License-Identifier: BSD-3-Clause
#include "cli/scratch_file.hpp"

#include "cli/failure.hpp"
#include "cli/sizes.hpp"
#include "peer/message.hpp"
#include "perf/local/paged_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace tool {
namespace {

constexpr std::size_t piece = std::size_t{4} << 20;

std::string words_for(int native) {
  return pinfold::describe({pinfold::errc::driver_error, pinfold::native_kind::posix, native, "the system refused"});
}

void check_room(const std::string& directory, std::size_t bytes) {
  struct ::statvfs found{};
  if (::statvfs(directory.c_str(), &found) != 0)
    throw usage_failure(fmt::format("--dir {}: {}", directory, words_for(errno)));
  const auto room = static_cast<std::size_t>(found.f_bavail) * found.f_frsize;
  if (bytes > room)
    throw usage_failure(
        fmt::format("--dir {}: {} are free, but {} are needed", directory, size_text(room), size_text(bytes)));
}

// For file systems without O_TMPFILE: makes a file with a name, and removes the name at once.
int open_and_unlink(const std::string& directory, int flags) {
  auto path = directory + "/pinfold-scratch-XXXXXX";
  const int made = ::mkostemp(path.data(), flags);
  if (made >= 0) ::unlink(path.c_str());
  return made;
}

int open_unnamed(const std::string& directory, int flags) {
  constexpr mode_t own = 0600;
  const int made = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | flags, own);
  if (made >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return made;
  return open_and_unlink(directory, O_CLOEXEC | flags);
}

}  // namespace

scratch_file::scratch_file(const std::string& directory, std::size_t bytes) : directory_(directory) {
  check_room(directory, bytes);
  descriptor_ = open_unnamed(directory, O_DIRECT);
  direct_ = descriptor_ >= 0;
  if (!direct_ && errno == EINVAL) descriptor_ = open_unnamed(directory, 0);
  if (descriptor_ < 0)
    throw usage_failure(fmt::format("--dir {}: cannot create a file: {}", directory, words_for(errno)));
}

scratch_file::~scratch_file() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

bool scratch_file::holds_content(std::uint64_t seed, std::size_t bytes) const {
  const auto memory = need(paged_memory::map(piece, pinfold::page_kind::plain), "no memory to read the file into");
  for (std::size_t at = 0; at < bytes; at += piece) {
    const auto part = memory.bytes().first(std::min(piece, bytes - at));
    const auto got = ::pread(descriptor_, part.data(), part.size(), static_cast<off_t>(at));
    if (got < 0) throw failure(fmt::format("--dir {}: cannot read the file back: {}", directory_, words_for(errno)));
    if (static_cast<std::size_t>(got) != part.size() || !holds(part, seed, at)) return false;
  }
  return true;
}

std::string scratch_directory() {
  const char* chosen = std::getenv("TMPDIR");  // NOLINT(concurrency-mt-unsafe): no thread sets it
  return chosen != nullptr && *chosen != '\0' ? chosen : "/var/tmp";
}

}  // namespace tool
