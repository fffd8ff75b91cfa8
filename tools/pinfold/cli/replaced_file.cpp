// SPDX-License-Identifier: BSD-3-Clause
#include "cli/replaced_file.hpp"

#include "cli/failure.hpp"

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace tool {
namespace {

[[noreturn]] void throw_refusal(const std::string& path, int why) {
  throw failure(fmt::format("{}: cannot write the file: {}", path, strerrordesc_np(why)));
}

/// A descriptor, and the name of the file if it has to be removed on failure.
class output_file {
 public:
  output_file(int descriptor, std::string name) : descriptor_(descriptor), name_(std::move(name)) {}
  output_file(const output_file&) = delete;
  output_file& operator=(const output_file&) = delete;
  ~output_file() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!name_.empty()) ::unlink(name_.c_str());
  }

  // Returns the `errno` value of a failure, else 0. A file at RLIMIT_FSIZE is one: without the signal, which would end
  // the tool before it removes the file.
  int write(std::string_view rest) noexcept {
    std::signal(SIGXFSZ, SIG_IGN);
    while (!rest.empty()) {
      const auto done = ::write(descriptor_, rest.data(), rest.size());
      if (done < 0 && errno != EINTR) return errno;
      if (done > 0) rest.remove_prefix(static_cast<std::size_t>(done));
    }
    const int descriptor = std::exchange(descriptor_, -1);
    return ::close(descriptor) == 0 ? 0 : errno;
  }
  int rename_to(const std::string& path) noexcept {
    if (std::rename(name_.c_str(), path.c_str()) != 0) return errno;
    name_.clear();
    return 0;
  }

 private:
  int descriptor_;
  std::string name_;
};

// Returns with which flags to open what has that name, where another file must not take its place: a link, a device, a
// pipe. A link that another user made, because the folder is his, could lead to any file of this one.
std::optional<int> flags_to_write_in_place(const std::string& path) {
  struct ::stat found{};
  if (::lstat(path.c_str(), &found) != 0 || S_ISREG(found.st_mode)) return std::nullopt;
  if (!S_ISLNK(found.st_mode)) return O_NOFOLLOW;
  if (found.st_uid != ::geteuid() && found.st_uid != 0)
    throw failure(fmt::format("{}: cannot write the file: it is a link of user {}", path, found.st_uid));
  return O_CREAT;
}

void write_in_place(const std::string& path, std::string_view content, int flags) {
  const int descriptor = ::open(path.c_str(), flags | O_WRONLY | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) throw_refusal(path, errno);
  output_file file(descriptor, "");
  if (const int why = file.write(content); why != 0) throw_refusal(path, why);
}

}  // namespace

mode_t usual_mode() noexcept {
  constexpr mode_t all = 0666;
  const auto mask = ::umask(0);
  ::umask(mask);
  return all & ~mask;
}

void replace_file(const std::string& path, std::string_view content, mode_t mode, bool may_wait) {
  if (const auto flags = flags_to_write_in_place(path))
    return write_in_place(path, content, *flags | (may_wait ? 0 : O_NONBLOCK));
  auto name = path + ".XXXXXX";
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) throw_refusal(path, errno);
  output_file file(descriptor, name);
  if (::fchmod(descriptor, mode) != 0) throw_refusal(path, errno);
  if (const int why = file.write(content); why != 0) throw_refusal(path, why);
  if (const int why = file.rename_to(path); why != 0) throw_refusal(path, why);
}

}  // namespace tool
