// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The state of the emulated driver in this process: devices, contexts and all memory that has a device address.
#pragma once

#include "addresses.hpp"
#include "backing.hpp"
#include "settings.hpp"

#include <array>
#include <list>
#include <map>
#include <memory>
#include <shared_mutex>
#include <unordered_set>

/// A context of a device. The primary one has a fixed place, so that it has the same address when it is retained anew;
/// one that a program made has a place that no later one gets.
struct pinfold::cuda::context_object {
  device of = 0;
  bool active = false;  ///< false: destroyed, by a reset or the last release, too; or not retained yet
  unsigned retained = 0;
  unsigned long long life = 0;  ///< different each time that the context becomes active
};

namespace emulated_cuda {

inline constexpr std::uint64_t granularity = std::uint64_t{2} << 20;

enum class origin : int { allocated, managed, pooled, opened, pool_opened, mapped, registered, host_allocated };

/// Whether it is host memory.
inline bool is_host(origin one) noexcept { return one == origin::registered || one == origin::host_allocated; }

/// A range of addresses that have the same answer to every query.
struct range {
  origin from = origin::allocated;
  device_pointer base = 0;
  std::uint64_t bytes = 0;  ///< as requested
  context_object* context = nullptr;
  device of = 0;
  std::uint64_t id = 0;        ///< never that of another range of this process
  std::uint64_t block_id = 0;  ///< of the physical memory; shared by ranges that share it
  device_pointer mapping = 0;  ///< the begin of the mapping around it
  std::uint64_t mapping_bytes = 0;
  device_pointer reserved = 0;  ///< the begin of its reservation; its own where there is none
  std::uint64_t reserved_bytes = 0;
  std::uint64_t handle_types = 0;
  memory_pool pool = nullptr;
  access_rights rights = access_rights::read_write;
  bool portable = false;            ///< host memory that all contexts know
  std::shared_ptr<backing> memory;  ///< null for host memory
  std::uint64_t memory_offset = 0;

  [[nodiscard]] device_pointer end() const noexcept { return base + bytes; }
};

/// A range that cuMemAddressReserve gave.
struct reservation {
  device_pointer base = 0;
  std::uint64_t bytes = 0;
};

struct driver {
  std::shared_mutex guard;  ///< guards all that follows, except `settings`' devices and memory

  settings set = settings_of_environment();
  std::array<context_object, most_devices> contexts;  ///< the primary ones
  std::list<context_object> made_contexts;            ///< by cuCtxCreate; destroyed ones stay
  std::array<std::uint64_t, most_devices> used_bytes{};
  address_space addresses;
  std::map<device_pointer, range> ranges;
  std::map<device_pointer, reservation> reservations;
  std::uint64_t last_id = 0;

  driver();
  std::uint64_t next_id() noexcept { return ++last_id; }
  /// Returns the range that the address lies in, or null.
  range* find(device_pointer inside) noexcept;
  const reservation* find_reservation(device_pointer inside) const noexcept;
  /// Takes the bytes from the device's memory, unless fewer are left.
  bool charge(device from, std::uint64_t bytes) noexcept;
};

/// Returns the driver, which the first call makes and which is never destroyed.
driver& the_driver();

/// Returns whether cuInit succeeded in this process. A process that was forked off one with a driver has none.
bool initialised() noexcept;

/// Frees everything that the context owns.
void destroy_memory_of(driver& all, const context_object& context);
void destroy_mappings_of(driver& all, const context_object& context);
void destroy_registrations_of(driver& all, const context_object& context) noexcept;

}  // namespace emulated_cuda
