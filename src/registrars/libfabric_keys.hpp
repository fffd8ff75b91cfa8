// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_set>

namespace pinfold::libfabric {

/// Keys for peers, each held by one region at a time. They go up and around, so that one that was given back comes
/// again as late as can be. Thread-safe.
class keys {
 public:
  /// Of so many bytes, beginning with `first` cut to that width.
  keys(std::size_t bytes, std::uint64_t first) noexcept;

  /// Nothing: all are held. Throws std::bad_alloc.
  [[nodiscard]] std::optional<std::uint64_t> take();
  void give_back(std::uint64_t key) noexcept;

 private:
  [[nodiscard]] std::uint64_t following() noexcept;

  const std::uint64_t last_;
  std::mutex mutex_;
  std::uint64_t next_;
  std::unordered_set<std::uint64_t> held_;
};

/// A key that nobody else at a domain is likely to have come to.
[[nodiscard]] std::uint64_t random_key() noexcept;

}  // namespace pinfold::libfabric
