// SPDX-License-Identifier: BSD-3-Clause
#include "importers/memfd/mapping.hpp"

#include "importers/memfd/memory.hpp"
#include "os/reservation.hpp"

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace pinfold::memfd {

namespace {

/// The device number of all memfds of this host, without which an inode number proves little. 0 if unknown.
std::atomic<dev_t> shared_device{0};

}  // namespace

result<dev_t> device() noexcept {
  if (const dev_t known = shared_device.load(std::memory_order_relaxed); known != 0) return known;
  const os::file sample = new_memfd();
  struct stat seen{};
  if (!sample || ::fstat(sample.number(), &seen) != 0) return os::fail_system("cannot create a memfd to compare with");
  shared_device.store(seen.st_dev, std::memory_order_relaxed);
  return seen.st_dev;
}

namespace {

result<void> verify_identity(const os::file& fetched, const memfd_handle& handle) noexcept {
  const auto expected = device();
  if (!expected) return tl::unexpected(expected.error());
  struct stat seen{};
  // Seals come before fstat, which may ask a file system.
  const bool is_memory = ::fcntl(fetched.number(), F_GET_SEALS) >= 0 || errno != EINVAL;
  if (is_memory && ::fstat(fetched.number(), &seen) != 0)
    return os::fail_system("cannot inspect the exporter's descriptor");
  if (!is_memory || !S_ISREG(seen.st_mode) || seen.st_dev != *expected || seen.st_ino != handle.inode) {
    return fail(errc::stale_handle, "the exporter has freed this buffer and reused its descriptor");
  }
  if (static_cast<std::uint64_t>(seen.st_size) < handle.size) {
    return fail(errc::invalid_range, "the buffer's file is smaller than its handle says");
  }
  return {};
}

result<void> verify_seals(const os::file& fetched, memfd_access access) noexcept {
  const int seals = ::fcntl(fetched.number(), F_GET_SEALS);
  if (seals < 0) return os::fail_system("cannot read the buffer's seals");
  if ((seals & F_SEAL_SHRINK) == 0) return fail(errc::not_permitted, "the buffer lacks the seal SHRINK");
  if ((seals & F_SEAL_GROW) == 0) return fail(errc::not_permitted, "the buffer lacks the seal GROW");
  const bool writes_end = (seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE)) != 0;
  if (access == memfd_access::read_only && !writes_end) {
    return fail(errc::not_permitted,
                "the buffer lacks the seal FUTURE_WRITE: other processes than its exporter can write");
  }
  return {};
}

}  // namespace

result<void> verify(const os::file& fetched, const memfd_handle& handle,
                    const memfd_importer_options& options) noexcept {
  if (auto same = verify_identity(fetched, handle); !same) return same;
  return options.require_seals ? verify_seals(fetched, options.access) : result<void>{};
}

result<void*> map_imported(const os::file& verified, const memfd_handle& handle, const memfd_importer_options& options,
                           void* where) noexcept {
  const int writing = options.access == memfd_access::read_write ? PROT_WRITE : 0;
  const int populating = options.populate ? MAP_POPULATE : 0;
  const int placing = where != nullptr ? MAP_FIXED : 0;
  void* const at =
      ::mmap(where, handle.size, PROT_READ | writing, MAP_SHARED | populating | placing, verified.number(), 0);
  if (at == MAP_FAILED && where != nullptr) os::mend_reservation(where, handle.size);
  if (at == MAP_FAILED) return os::fail_system("cannot map the exporter's memory");
  return at;
}

}  // namespace pinfold::memfd
