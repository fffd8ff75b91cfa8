// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The file of an account: made completely or not at all, checked, mapped; and the locks on its bytes.
#pragma once

#include "node_budget/layout.hpp"
#include "os/check.hpp"
#include "os/file.hpp"

#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <memory>
#include <string>
#include <string_view>

namespace pinfold::node {

/// Returns the path of the account's file for the effective user. Throws `std::bad_alloc`. Error: `invalid_argument`.
[[nodiscard]] result<std::string> path_of(std::string_view name);

/// A mapped account. Assumes that no process of the same user truncates the file while it is mapped: an access beyond
/// the end would raise SIGBUS.
class shared_file {
 public:
  /// Opens the file; makes it, with this maximum, unless the maximum is 0. Errors as of `node_budget::open`.
  [[nodiscard]] static result<shared_file> open(const std::string& path, std::uint64_t max_units) noexcept;

  [[nodiscard]] account& operator*() const noexcept { return *operator->(); }
  [[nodiscard]] account* operator->() const noexcept {
    PINFOLD_ASSERT(mapped_ != nullptr, "the account is mapped from `open` on");
    return mapped_.get();
  }

  /// Locks a slot, opening (`magic`), or taking back (`version`). Returns false with `errno` EAGAIN while another open
  /// file has the lock, and with another value if the kernel refuses. Locks belong to this open file: the kernel drops
  /// them with its last descriptor.
  [[nodiscard]] bool try_lock(const void* one) const noexcept { return lock(one, true); }
  /// Returns false with `errno` if the kernel refuses for 10 ms; the lock then stays.
  bool unlock(const void* one) const noexcept { return lock(one, false); }
  /// Returns whether another open file has that lock, or this one cannot find out.
  [[nodiscard]] bool is_locked(const void* one) const noexcept;
  /// Returns whether the path refers to this file.
  [[nodiscard]] bool is_at(const std::string& path) const noexcept;
  /// Closes the descriptor, and so ends this process's use of the locks.
  void close() noexcept { file_ = os::file(); }

 private:
  struct unmap {
    void operator()(account* mapped) const noexcept;
  };
  [[nodiscard]] struct flock lock_on(const void* one, short type) const noexcept;
  [[nodiscard]] bool lock(const void* one, bool take) const noexcept;

  os::file file_;
  std::unique_ptr<account, unmap> mapped_;
};

}  // namespace pinfold::node
