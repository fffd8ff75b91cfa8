// SPDX-License-Identifier: BSD-3-Clause
#include "registrars/libfabric/keys.hpp"

#include <sys/random.h>
#include <unistd.h>

namespace pinfold::libfabric {

namespace {

// Returns the largest key of that many bytes. FI_KEY_NOTAVAIL, all ones, is not a key.
std::uint64_t last_of(std::size_t bytes) noexcept {
  return bytes >= sizeof(std::uint64_t) ? UINT64_MAX - 1 : (std::uint64_t{1} << (8 * bytes)) - 1;
}

}  // namespace

keys::keys(std::size_t bytes, std::uint64_t first) noexcept
    : last_(last_of(bytes)), next_(last_ == UINT64_MAX - 1 ? first : first & last_) {
  if (next_ > last_) next_ = 0;
}

std::uint64_t keys::following() noexcept {
  const auto key = next_;
  next_ = key == last_ ? 0 : key + 1;
  return key;
}

std::optional<std::uint64_t> keys::take() {
  const std::lock_guard lock(mutex_);
  if (held_.size() > last_) return std::nullopt;
  for (;;)
    if (const auto key = following(); held_.insert(key).second) return key;
}

void keys::give_back(std::uint64_t key) noexcept {
  const std::lock_guard lock(mutex_);
  held_.erase(key);
}

std::uint64_t random_key() noexcept {
  std::uint64_t key = 0;
  if (::getrandom(&key, sizeof key, GRND_NONBLOCK) != static_cast<ssize_t>(sizeof key))
    key = static_cast<std::uint64_t>(::getpid()) << 32U;
  return key;
}

}  // namespace pinfold::libfabric
