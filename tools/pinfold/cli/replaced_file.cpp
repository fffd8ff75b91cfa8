// SPDX-License-Identifier: BSD-3-Clause
#include "cli/replaced_file.hpp"

#include "cli/failure.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
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

  // Returns the `errno` value of a failure, else 0.
  int write(std::string_view rest) noexcept {
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

// Whether something has that name that another file must not take the place of: a link, a device, a pipe.
bool is_special(const std::string& path) {
  struct ::stat found{};
  return ::lstat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);
}

void write_in_place(const std::string& path, std::string_view content) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
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

void replace_file(const std::string& path, std::string_view content, mode_t mode) {
  if (is_special(path)) return write_in_place(path, content);
  auto name = path + ".XXXXXX";
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) throw_refusal(path, errno);
  output_file file(descriptor, name);
  if (::fchmod(descriptor, mode) != 0) throw_refusal(path, errno);
  if (const int why = file.write(content); why != 0) throw_refusal(path, why);
  if (const int why = file.rename_to(path); why != 0) throw_refusal(path, why);
}

}  // namespace tool
