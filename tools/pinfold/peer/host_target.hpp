// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The destination of copies from another process's memory of the host.
#pragma once

#include "peer/message.hpp"
#include "peer/reader.hpp"

#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace tool {

class host_target {
 public:
  explicit host_target(std::size_t bytes) : bytes_(bytes) {}

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

  /// Overwrites the first `bytes` with content of no message.
  pinfold::result<void> wipe(std::size_t bytes) noexcept {
    std::memset(bytes_.data(), 0xa5, bytes);
    return {};
  }

  /// Copies to the beginning of the target.
  pinfold::result<void> take(const void* from, std::size_t bytes) noexcept {
    std::memcpy(bytes_.data(), from, bytes);
    return {};
  }

  /// Returns whether the first bytes are those of the message `seed` from `position` on.
  [[nodiscard]] pinfold::result<bool> holds(std::size_t bytes, std::uint64_t seed,
                                            std::size_t position) const noexcept {
    return tool::holds(std::span(bytes_).first(bytes), seed, position);
  }

 private:
  std::vector<std::byte> bytes_;
};

using memfd_cache = pinfold::import_cache<pinfold::memfd_importer>;
using memfd_reader = reader<message, host_target>;

}  // namespace tool
