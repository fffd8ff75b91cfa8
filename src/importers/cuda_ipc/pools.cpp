// SPDX-License-Identifier: BSD-3-Clause
#include "importers/cuda_ipc/pools.hpp"

#include "cuda/only.hpp"
#include "cuda/open_table.hpp"
#include "importers/cuda_ipc/refusal.hpp"

#include <cerrno>
#include <compare>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <shared_mutex>
#include <utility>

namespace pinfold::cuda_ipc {

namespace {

using cuda::status;

struct pool_place {
  fd_passing::exporter_id exporter;
  std::uint64_t serial;
  int device;
  std::uint64_t life;  // of the context
  friend auto operator<=>(const pool_place&, const pool_place&) noexcept = default;
};

using pool_table = cuda::open_table<pool_place, cuda::memory_pool>;

pool_table& all_pools() noexcept { return cuda::only<pool_table>(); }

/// The addresses at which pool memory is open. No memory is freed between an import and its entry here: the driver
/// reuses an address as soon as it is free, and the import would be mistaken for memory that is still open.
class address_set {
 public:
  /// Calls `import()`, which returns a status and sets `at`. Sets `taken` to whether other memory has that address.
  /// Throws only before the import.
  template <class Import>
  [[nodiscard]] status import(const cuda::device_pointer& at, bool& taken, Import&& import) {
    std::set<cuda::device_pointer> fresh{0};
    auto note = fresh.extract(fresh.begin());
    const std::shared_lock nothing_is_freed(freeing_);
    const auto got = std::forward<Import>(import)();
    if (got != status::success) return got;
    note.value() = at;
    const std::scoped_lock guard(mutex_);
    taken = !addresses_.insert(std::move(note)).inserted;
    return got;
  }

  template <class Free>
  [[nodiscard]] status free(cuda::device_pointer at, Free&& free) noexcept {
    const std::scoped_lock nothing_is_imported(freeing_);
    const auto got = std::forward<Free>(free)();
    if (got == status::success) addresses_.erase(at);
    return got;
  }

 private:
  std::shared_mutex freeing_;
  std::mutex mutex_;  // guards `addresses_` among imports
  std::set<cuda::device_pointer> addresses_;
};

address_set& all_addresses() noexcept { return cuda::only<address_set>(); }

result<cuda::memory_pool> import_pool(const cuda::primary_context& in, fd_passing::connection& from,
                                      const cuda_ipc_handle& handle) noexcept {
  const auto shared = from.fetch(fd_passing::transport::scm, {origin_of(handle), handle.pool});
  if (!shared) return tl::unexpected(shared.error());
  auto* const descriptor = reinterpret_cast<void*>(static_cast<std::uintptr_t>(shared->number()));  // the API's type
  const auto type = cuda::allocation_handle_type::posix_file_descriptor;
  cuda::memory_pool pool = nullptr;
  const auto got = in.calls().mem_pool_import_from_shareable_handle(&pool, descriptor, type, 0);
  if (got != status::success) return tl::unexpected(pool_refusal_of(in.calls(), got, handle));
  const cuda::access_description both{{cuda::location_type::on_device, in.ordinal()}, cuda::access_rights::read_write};
  const auto allowed = in.calls().mem_pool_set_access(pool, &both, 1);
  if (allowed == status::success) return pool;
  static_cast<void>(in.calls().mem_pool_destroy(pool));
  return cuda::fail_cuda(allowed, "this device cannot reach the peer's memory pool");
}

/// The driver keeps a destroyed pool until its last memory is freed, so a refusal loses nothing.
void give_pool_back(const cuda::driver_table& calls, std::uint64_t hold, bool life_is_over) noexcept {
  static_cast<void>(all_pools().give_back(hold, [&](const auto&, cuda::memory_pool pool) -> result<void> {
    if (!life_is_over) static_cast<void>(calls.mem_pool_destroy(pool));
    return {};
  }));
}

result<void> import_pointer(const cuda::primary_context& in, cuda::memory_pool pool, const cuda_ipc_handle& handle,
                            opened_memory& made) noexcept try {
  cuda::pool_pointer_export pointer{};
  std::memcpy(pointer.reserved, handle.memory.data(), sizeof pointer.reserved);
  bool taken = false;
  const auto got = all_addresses().import(made.at, taken,
                                          [&] { return in.calls().mem_pool_import_pointer(&made.at, pool, &pointer); });
  if (got != status::success) return tl::unexpected(refusal_of(in.calls(), got, handle));
  if (!taken) return {};
  return cuda::fail_cuda(status::already_mapped, "other memory of a pool is already open at this address",
                         errc::already_mapped);
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
}

/// Opens the memory. The context is current.
result<opened_memory> open_here(const cuda::primary_context& in, fd_passing::connection& from,
                                const cuda_ipc_handle& handle) {
  const pool_place place{origin_of(handle), handle.pool, in.ordinal(), in.life()};
  cuda::memory_pool pool = nullptr;
  const auto hold = all_pools().take(
      &all_pools(), place, [&](auto& all) { return all.find(place); }, [](auto) { return result<void>{}; },
      [&](auto& /*left*/) { return import_pool(in, from, handle); }, [&](auto there) { pool = there->second.item; },
      [](const auto&, cuda::memory_pool) { return result<void>{}; });
  if (!hold) return tl::unexpected(hold.error());
  opened_memory made{.kind = cuda_memory_kind::pool, .bytes = handle.size, .life = place.life, .pool_pin = *hold};
  if (auto imported = import_pointer(in, pool, handle, made); !imported) {
    give_pool_back(in.calls(), *hold, false);
    return tl::unexpected(imported.error());
  }
  return made;
}

}  // namespace

result<opened_memory> open_pooled(const cuda::primary_context& in, fd_passing::connection& from,
                                  const cuda_ipc_handle& handle) noexcept try {
  if (in.calls().mem_pool_import_pointer == nullptr)
    return fail(errc::unsupported, "this CUDA driver has no memory pools");
  std::optional<result<opened_memory>> made;
  const auto answer = in.with([&] {
    made.emplace(open_here(in, from, handle));
    return status::success;
  });
  if (answer == status::success && made) return std::move(*made);
  if (made && *made) static_cast<void>(in.with([&] { return close_pooled(in.calls(), **made, false); }));
  return tl::unexpected(refusal_of(in.calls(), answer, handle));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
}

cuda::status close_pooled(const cuda::driver_table& calls, opened_memory& memory, bool life_is_over) noexcept {
  const auto answer =
      all_addresses().free(memory.at, [&] { return life_is_over ? status::success : calls.mem_free(memory.at); });
  if (answer != status::success) return answer;
  give_pool_back(calls, memory.pool_pin, life_is_over);
  return status::success;
}

}  // namespace pinfold::cuda_ipc
