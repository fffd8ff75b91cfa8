// SPDX-License-Identifier: BSD-3-Clause
#include "importers/cuda_ipc/segments.hpp"

#include "os/size_limit.hpp"

#include <cerrno>
#include <fcntl.h>
#include <new>
#include <numeric>
#include <sys/mman.h>
#include <sys/stat.h>

namespace pinfold::cuda_ipc {

namespace {

using cuda::status;

constexpr int list_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
constexpr std::size_t most_segments = std::size_t{1} << 20U;  // 2 TiB of the smallest segments
constexpr auto no_list = "the exporter's list of segments is malformed";

std::size_t sum(std::span<const std::size_t> segments) noexcept {
  return std::accumulate(segments.begin(), segments.end(), std::size_t{0});
}

/// Reserved addresses, with segments mapped from the start. Unmaps them unless `keep` is called.
class mapped_segments {
 public:
  mapped_segments(const cuda::driver_table& calls, std::size_t bytes) noexcept : calls_(calls) {
    memory_.bytes = bytes;
  }
  mapped_segments(const mapped_segments&) = delete;
  mapped_segments& operator=(const mapped_segments&) = delete;
  ~mapped_segments() {
    if (memory_.at == 0) return;
    if (close_segments(calls_, memory_) != status::success) return;  // memory that is still mapped cannot be given back
  }

  [[nodiscard]] result<void> reserve() noexcept {
    return cuda::checked(calls_.mem_address_reserve(&memory_.at, memory_.bytes, 0, 0, 0),
                         "cannot reserve addresses for the peer's memory");
  }

  [[nodiscard]] result<void> take_place(const std::shared_ptr<window>& in, const range& where) {
    const auto place = in->take(where);
    if (!place) return tl::unexpected(place.error());
    memory_.at = *place;
    memory_.in = in;
    return {};
  }

  [[nodiscard]] status map(const os::file& segment, std::size_t bytes) {
    memory_.segments.reserve(memory_.segments.size() + 1);
    cuda::generic_allocation physical = 0;
    auto* const descriptor =
        reinterpret_cast<void*>(static_cast<std::uintptr_t>(segment.number()));  // the API's type for a descriptor
    const auto type = cuda::allocation_handle_type::posix_file_descriptor;
    if (const auto got = calls_.mem_import_from_shareable_handle(&physical, descriptor, type); got != status::success)
      return got;
    const auto got = calls_.mem_map(memory_.at + mapped_, bytes, 0, physical, 0);
    const auto released = calls_.mem_release(physical);  // the mapping keeps the memory
    if (got != status::success) return got;
    memory_.segments.push_back(bytes);
    mapped_ += bytes;
    return released;
  }

  [[nodiscard]] status allow(int device) noexcept {
    const cuda::access_description both{{cuda::location_type::on_device, device}, cuda::access_rights::read_write};
    return calls_.mem_set_access(memory_.at, memory_.bytes, &both, 1);
  }

  [[nodiscard]] opened_memory keep() noexcept {
    opened_memory kept = std::move(memory_);
    memory_.at = 0;
    return kept;
  }

 private:
  const cuda::driver_table& calls_;
  std::size_t mapped_ = 0;
  opened_memory memory_{.kind = cuda_memory_kind::segments};
};

result<opened_memory> map_all(const cuda::primary_context& in, fd_passing::connection& from,
                              const cuda_ipc_handle& handle, std::span<const std::size_t> segments,
                              const std::shared_ptr<window>& window) {
  mapped_segments made(in.calls(), handle.size);
  if (auto got = window ? made.take_place(window, handle.allocation()) : made.reserve(); !got)
    return tl::unexpected(got.error());
  std::uint64_t serial = handle.serial;
  for (const std::size_t bytes : segments) {
    const auto segment = from.fetch(fd_passing::transport::scm, {origin_of(handle), ++serial});
    if (!segment) return tl::unexpected(segment.error());
    if (auto got = cuda::checked(made.map(*segment, bytes), "cannot map a segment of the peer's memory"); !got)
      return tl::unexpected(got.error());
  }
  const auto allowed = cuda::checked(made.allow(in.ordinal()), "this device cannot reach the peer's memory");
  if (!allowed) return tl::unexpected(allowed.error());
  return made.keep();
}

}  // namespace

result<os::file> listed(std::span<const std::size_t> segments) noexcept {
  os::file list(::memfd_create("pinfold-segments", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!list) return os::fail_system("cannot create a list of segments");
  const auto bytes = segments.size_bytes();
  const auto written = os::within_size_limit([&] { return ::pwrite(list.number(), segments.data(), bytes, 0); });
  if (written != static_cast<ssize_t>(bytes) || ::fcntl(list.number(), F_ADD_SEALS, list_seals) != 0)
    return os::fail_system("cannot write a list of segments");
  return list;
}

result<std::vector<std::size_t>> read_list(const os::file& list, std::size_t total) noexcept try {
  struct stat seen{};
  if (::fstat(list.number(), &seen) != 0) return os::fail_system("cannot inspect the list of segments");
  const auto bytes = static_cast<std::size_t>(seen.st_size);
  if (!S_ISREG(seen.st_mode) || bytes == 0 || bytes % sizeof(std::size_t) != 0 ||
      bytes / sizeof(std::size_t) > most_segments)
    return fail(errc::invalid_handle, no_list);
  std::vector<std::size_t> segments(bytes / sizeof(std::size_t));
  if (::pread(list.number(), segments.data(), bytes, 0) != seen.st_size) return fail(errc::invalid_handle, no_list);
  std::size_t left = total;
  for (const std::size_t one : segments) {
    if (one == 0 || one > left) return fail(errc::invalid_handle, no_list);
    left -= one;
  }
  if (left != 0) return fail(errc::invalid_handle, no_list);
  return segments;
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the list of segments");
}

result<opened_memory> open_segments(const cuda::primary_context& in, fd_passing::connection& from,
                                    const cuda_ipc_handle& handle, const std::shared_ptr<window>& window) noexcept try {
  if (in.calls().mem_import_from_shareable_handle == nullptr)
    return fail(errc::unsupported, "this CUDA driver has no virtual memory management");
  const auto list = from.fetch(fd_passing::transport::scm, {origin_of(handle), handle.serial});
  if (!list) return tl::unexpected(list.error());
  const auto segments = read_list(*list, handle.size);
  if (!segments) return tl::unexpected(segments.error());
  result<opened_memory> made = fail(errc::driver_error, "");
  const auto answer = in.with([&] {
    made = map_all(in, from, handle, *segments, window);
    return status::success;
  });
  if (answer == status::success) return made;
  if (made) static_cast<void>(close_segments(in.calls(), *made));
  return cuda::fail_cuda(answer, "cannot use the device's context");
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
}

cuda::status close_segments(const cuda::driver_table& calls, opened_memory& memory) noexcept {
  const std::span<const std::size_t> all(memory.segments);
  for (auto at = memory.at + sum(all.first(memory.closed)); memory.closed < all.size(); ++memory.closed) {
    if (const status answer = calls.mem_unmap(at, all[memory.closed]); answer != status::success) return answer;
    at += all[memory.closed];
  }
  if (!memory.in) return calls.mem_address_free(memory.at, memory.bytes);
  memory.in->give_back(memory.at);
  return status::success;
}

}  // namespace pinfold::cuda_ipc
