// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The buffers of an exporter, by serial.
#pragma once

#include "fd_passing/fd_provider.hpp"
#include "os/this_process.hpp"

#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <sys/stat.h>
#include <sys/types.h>
#include <utility>

namespace pinfold::memfd {

/// Maps serials to descriptors. Thread-safe. Shared by an exporter, its buffers and its server. Only the process that
/// made it may use it: in a forked child, a thread that the child does not have may hold its lock.
class served_table final : public fd_passing::fd_provider {
 public:
  /// Returns false if there is no memory.
  [[nodiscard]] bool add(std::uint64_t serial, int descriptor) noexcept try {
    std::map<std::uint64_t, lent> made{{serial, {descriptor, inode_of(descriptor)}}};
    const std::scoped_lock hold(mutex_);
    descriptors_.merge(made);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }

  /// Stops lending the descriptor: after the return no peer gets it.
  void remove(std::uint64_t serial) noexcept {
    if (inherited()) return;
    std::map<std::uint64_t, lent>::node_type removed;  // its memory is freed after the lock is released
    const std::scoped_lock hold(mutex_);
    removed = descriptors_.extract(serial);
  }

  [[nodiscard]] result<void> lend(std::uint64_t serial, const std::function<void(int)>& use) noexcept override {
    const std::scoped_lock hold(mutex_);
    const auto found = descriptors_.find(serial);
    if (found == descriptors_.end()) return fail(errc::stale_handle, "the exporter has no such buffer");
    if (inode_of(found->second.descriptor) != found->second.inode)
      return fail(errc::stale_handle, "the exporting program has closed the buffer's descriptor");
    use(found->second.descriptor);
    return {};
  }

  [[nodiscard]] bool inherited() const noexcept override { return os::this_process() != process_; }

 private:
  struct lent {
    int descriptor;
    ino_t inode;
  };
  static ino_t inode_of(int descriptor) noexcept {
    struct stat seen{};
    return ::fstat(descriptor, &seen) == 0 ? seen.st_ino : 0;
  }

  const std::uint64_t process_ = os::this_process();
  std::mutex mutex_;
  std::map<std::uint64_t, lent> descriptors_;
};

}  // namespace pinfold::memfd
