// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The memory that an exporter has shared, and the descriptors for which its peers ask.
#pragma once

#include "cuda/context.hpp"
#include "cuda/pointer.hpp"
#include "fd_passing/fd_provider.hpp"
#include "importers/cuda_ipc/handle.hpp"

#include <pinfold/release/registry.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace pinfold::cuda_ipc {

/// Thread-safe. Makes a descriptor at each request and closes it after it is sent: a kept descriptor would keep memory
/// that the application has freed. For memory that the driver itself opens, the descriptor only proves that the memory
/// of that handle still exists.
class shares final : public fd_passing::fd_provider {
 public:
  /// `registry` may be null; it is notified of handles that are made and forgotten.
  explicit shares(const cuda::driver_table& calls, std::shared_ptr<release_registry> registry = {}) noexcept;

  /// The memory that a handle names. `find_or_make` returns its handle, and calls `make` unless the handle is known. A
  /// handle is forgotten once other memory lies at its addresses. Ranges of segments may overlap: each has a handle of
  /// its own.
  ///
  /// For memory that does not consist of segments, `segments` is empty and `buffer_id` identifies it.
  struct subject {
    range where;
    std::uint64_t buffer_id;
    std::vector<cuda::segment_facts> segments;
    friend bool operator==(const subject&, const subject&) noexcept = default;
  };
  using make_handle = std::function<result<cuda_ipc_handle>(std::uint64_t serial)>;
  [[nodiscard]] result<cuda_ipc_handle> find_or_make(const subject& what, const make_handle& make) noexcept;

  /// Returns the serial of a pool, which stays the same while the exporter lives.
  [[nodiscard]] std::uint64_t serial_of(cuda::memory_pool pool);

  /// Returns the handle of the memory around the address. `invalid_argument`: none is shared; `unsupported`: several.
  [[nodiscard]] result<cuda_ipc_handle> handle_at(std::uint64_t address) noexcept;

  /// Returns whether importers may hold memory in the range, that has not been freed, by another handle than that
  /// `serial`: one that is shared, or one that was withdrawn while importers held it.
  [[nodiscard]] bool is_held_otherwise(const range& where, std::uint64_t serial) noexcept;

  /// Stops lending the memory, without notifying the registry.
  void withdraw(const cuda_ipc_handle& handle) noexcept;
  /// As `withdraw`, for all memory in the range; returns its serials, and those of memory in the range that was
  /// withdrawn so before, that importers still hold, and that is still there. Throws `std::bad_alloc`, and then no
  /// memory is withdrawn.
  [[nodiscard]] std::vector<std::uint64_t> withdraw(const range& where);

  [[nodiscard]] result<void> lend(std::uint64_t serial, const std::function<void(int)>& use) noexcept override;
  [[nodiscard]] bool inherited() const noexcept override;

 private:
  struct shared {
    subject what;
    cuda_ipc_handle handle;
  };
  struct withdrawn {
    subject what;
    bool announced;  ///< its retirement ends the registry's record
  };
  struct lent {
    cuda::memory_pool pool = nullptr;
    cuda::segment_facts segment;  ///< the requested segment
    subject whole{};              ///< what a handle names, unless the request is for a pool or one segment
  };

  [[nodiscard]] result<lent> look_up(std::uint64_t serial);
  [[nodiscard]] result<void> lend_segment(const cuda::segment_facts& wanted,
                                          const std::function<void(int)>& use) noexcept;
  /// Confirms that the memory is there, and lends the list of its segments, if it has any.
  [[nodiscard]] result<void> confirm(const subject& wanted, const std::function<void(int)>& use);
  [[nodiscard]] result<void> lend_pool(cuda::memory_pool pool, const std::function<void(int)>& use) noexcept;
  [[nodiscard]] const shared* known(const subject& what) const noexcept;
  void forget_what_is_gone(const subject& now);
  void forget_withdrawn() noexcept;
  template <class Use>
  void for_each_overlapping(const range& where, Use use);
  [[nodiscard]] bool is_mapped(const cuda::segment_facts& wanted) const noexcept;
  /// Returns whether the memory has not been freed; of segments, whether one of those in the range has not.
  [[nodiscard]] bool is_there(const subject& what, const range& where) const noexcept;
  /// Returns whether the memory, with all its segments, has not been freed.
  [[nodiscard]] bool is_whole(const subject& what) const noexcept;

  const cuda::driver_table& calls_;
  const std::shared_ptr<release_registry> registry_;
  const std::uint64_t process_;
  std::mutex mutex_;
  std::map<std::uint64_t, shared> shared_;                  ///< by serial
  std::multimap<std::uint64_t, std::uint64_t> by_address_;  ///< serials by first address
  std::map<std::uint64_t, withdrawn> withdrawn_;            ///< by serial: what importers may still hold
  std::uint64_t largest_ = 0;                               ///< bytes of the largest memory ever shared
  std::map<cuda::memory_pool, std::uint64_t> pools_;
  std::uint64_t last_serial_ = 0;
};

}  // namespace pinfold::cuda_ipc
