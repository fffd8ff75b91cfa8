// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_set>

namespace pinfold::libfabric {

/// Keys for peers, each held by one region at a time. They count up and wrap around, so that a returned key is reused
/// as late as possible. Thread-safe.
class keys {
 public:
  /// Makes keys of `bytes` bytes, starting with `first` cut to that width.
  keys(std::size_t bytes, std::uint64_t first) noexcept;

  /// Takes a key; returns nothing if all are held. Throws std::bad_alloc.
  [[nodiscard]] std::optional<std::uint64_t> take();
  void give_back(std::uint64_t key) noexcept;

 private:
  [[nodiscard]] std::uint64_t following() noexcept;

  const std::uint64_t last_;
  std::mutex mutex_;
  std::uint64_t next_;
  std::unordered_set<std::uint64_t> held_;
};

/// Returns a key that no other user of a domain is likely to choose.
[[nodiscard]] std::uint64_t random_key() noexcept;

}  // namespace pinfold::libfabric
