// SPDX-License-Identifier: BSD-3-Clause
#include "os/own_maps.hpp"

#include "os/file.hpp"
#include "os/wiped_pages.hpp"

#include <atomic>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>

namespace pinfold::detail {

namespace {

int open_maps() noexcept { return os::above_standard(::open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC)); }

/// The descriptor that stays open. A program may close it and get its number back for another file; so it is compared
/// with an identity that only this process's maps have. A mixture of two identities, from two threads' stores, is
/// harmless: any file that matches was opened here as this process's maps.
class kept_descriptor {
 public:
  /// Returns the descriptor; negative if there is none.
  int get() noexcept {
    const int known = number_.load(std::memory_order_acquire) - 1;
    return known >= 0 && is_it(known) ? known : renew();
  }

 private:
  // Bounds the number of opens in a program that keeps closing the descriptor, or gives its threads descriptor tables
  // of their own.
  static constexpr unsigned most_renewals = 16;

  bool is_it(int number) const noexcept {
    struct stat seen{};
    return ::fstat(number, &seen) == 0 && seen.st_ino == inode_.load(std::memory_order_relaxed) &&
           seen.st_dev == device_.load(std::memory_order_relaxed);
  }

  int renew() noexcept {
    if (renewing_.exchange(true, std::memory_order_acquire)) return -1;  // another thread renews it
    const int fresh = renewals_ < most_renewals ? open_maps() : -1;
    struct stat seen{};
    if (fresh >= 0 && ::fstat(fresh, &seen) == 0) {
      ++renewals_;
      device_.store(seen.st_dev, std::memory_order_relaxed);
      inode_.store(seen.st_ino, std::memory_order_relaxed);
      number_.store(fresh + 1, std::memory_order_release);  // publishes the identity
    }
    renewing_.store(false, std::memory_order_release);
    return fresh;
  }

  std::atomic<int> number_{0};  // plus 1: an object of zero bytes keeps nothing
  std::atomic<dev_t> device_{0};
  std::atomic<ino_t> inode_{0};
  std::atomic<bool> renewing_{false};
  unsigned renewals_ = 0;  // guarded by renewing_
};

// Wiped in a child: the parent's descriptor would show the parent's mappings. (Comparing process ids would need a
// system call each time, and fail under vfork, where the mappings are the same.)
std::atomic<kept_descriptor*> the_kept{nullptr};

int kept_or_none() noexcept {
  auto* const found = os::wiped_object(the_kept);
  return found != nullptr ? found->get() : -1;
}

}  // namespace

own_maps::own_maps() noexcept : descriptor_(kept_or_none()) {
  if (descriptor_ >= 0) return;
  opened_ = os::file(open_maps());
  descriptor_ = opened_.number();
}

}  // namespace pinfold::detail
