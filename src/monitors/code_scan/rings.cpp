// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/code_scan/rings.hpp"

#include <array>
#include <dirent.h>
#include <memory>
#include <string_view>
#include <unistd.h>

namespace pinfold::monitors::code_scan {

bool has_rings() noexcept {
  const auto close = [](DIR* open) { ::closedir(open); };
  const std::unique_ptr<DIR, decltype(close)> descriptors(::opendir("/proc/thread-self/fd"), close);
  if (descriptors == nullptr) return true;
  const int directory = ::dirfd(descriptors.get());
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread reads this stream
  while (const dirent* one = ::readdir(descriptors.get())) {
    std::array<char, 64> target{};
    const auto bytes = ::readlinkat(directory, one->d_name, target.data(), target.size());
    if (bytes > 0 && std::string_view(target.data(), static_cast<std::size_t>(bytes)) == "anon_inode:[io_uring]")
      return true;
  }
  return false;
}

}  // namespace pinfold::monitors::code_scan
