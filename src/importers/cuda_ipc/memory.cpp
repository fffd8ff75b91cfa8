// SPDX-License-Identifier: BSD-3-Clause
#include "importers/cuda_ipc/memory.hpp"

#include "importers/cuda_ipc/pools.hpp"
#include "importers/cuda_ipc/refusal.hpp"
#include "importers/cuda_ipc/segments.hpp"

#include <cstring>
#include <utility>

namespace pinfold::cuda_ipc {

namespace {

using cuda::status;

result<opened_memory> open_allocation(const cuda::primary_context& in, const cuda_ipc_handle& handle) noexcept {
  cuda::ipc_memory_handle memory{};
  std::memcpy(memory.reserved, handle.memory.data(), sizeof memory.reserved);
  opened_memory made{.kind = cuda_memory_kind::allocation, .bytes = handle.size, .life = in.life()};
  auto opened = status::unknown;
  const auto answer = in.with(
      [&] { return opened = in.calls().ipc_open_mem_handle(&made.at, memory, cuda::ipc_lazy_enable_peer_access); });
  if (answer == status::success) return made;
  if (opened == status::success)  // the memory was opened, but the previous context could not be restored
    static_cast<void>(in.with([&] { return in.calls().ipc_close_mem_handle(made.at); }));
  return tl::unexpected(refusal_of(in.calls(), answer, handle));
}

result<std::shared_ptr<fd_passing::connection>> link_to(fd_passing::connection_table& links,
                                                        const cuda_ipc_handle& handle) noexcept {
  return links.find_or_make(fd_passing::transport::scm, origin_of(handle));
}

result<opened_memory> open_by_kind(const cuda::primary_context& in, fd_passing::connection_table& links,
                                   const cuda_ipc_handle& handle, const open_options& how) noexcept {
  if (kind_of(handle) == cuda_memory_kind::allocation) return open_allocation(in, handle);
  const auto link = link_to(links, handle);
  if (!link) return tl::unexpected(link.error());
  return kind_of(handle) == cuda_memory_kind::pool ? open_pooled(in, **link, handle)
                                                   : open_segments(in, **link, handle, how.in);
}

/// The driver refuses an allocation's handle in the same way if the allocation was freed, and while another context of
/// this device has memory of the exporter open. The exporter's answer distinguishes the two.
error specific_error(fd_passing::connection_table& links, const cuda_ipc_handle& handle,
                     const error& refused) noexcept {
  const bool ambiguous = refused.code == errc::stale_handle && refused.kind == native_kind::cuda &&
                         refused.native == static_cast<int>(status::invalid_handle);
  if (!ambiguous) return refused;
  const auto there = confirm(links, handle);
  if (!there) return there.error() == errc::stale_handle ? refused : there.error();
  return cuda::as_error(status::invalid_handle, "another context of this process has memory of this exporter open",
                        errc::already_mapped);
}

status close_by_kind(const cuda::driver_table& calls, opened_memory& memory) noexcept {
  if (memory.kind == cuda_memory_kind::pool) return close_pooled(calls, memory, false);
  return calls.ipc_close_mem_handle(memory.at);
}

result<void> closed(status answer) noexcept {
  return cuda::checked(answer, "the driver refuses to close the peer's memory");
}

}  // namespace

result<void> confirm(fd_passing::connection_table& links, const cuda_ipc_handle& handle) noexcept {
  const auto link = link_to(links, handle);
  if (!link) return tl::unexpected(link.error());
  const auto answer = (*link)->fetch(fd_passing::transport::scm, {origin_of(handle), handle.serial});
  if (answer) return {};
  if (answer.error() == errc::peer_gone) links.forget(origin_of(handle));
  return tl::unexpected(answer.error());
}

result<opened_memory> open_memory(const cuda::primary_context& in, fd_passing::connection_table& links,
                                  const cuda_ipc_handle& handle, const open_options& how,
                                  std::optional<opened_memory>& left) noexcept {
  auto made = open_by_kind(in, links, handle, how);
  if (!made && kind_of(handle) == cuda_memory_kind::allocation && how.confirm)
    made = tl::unexpected(specific_error(links, handle, made.error()));
  if (made && made->kind != cuda_memory_kind::segments && how.confirm) {
    if (auto there = confirm(links, handle); !there) {
      if (!close_memory(in, *made)) {
        made->wrong = true;
        left = std::move(*made);
      }
      made = tl::unexpected(there.error());
    }
  }
  if (!made && made.error() == errc::peer_gone) links.forget(origin_of(handle));
  return made;
}

bool is_gone(const cuda::primary_context& in, const opened_memory& memory) noexcept {
  return memory.kind != cuda_memory_kind::segments && in.is_over(memory.life);
}

result<void> close_memory(const cuda::primary_context& in, opened_memory& memory) noexcept {
  if (memory.kind == cuda_memory_kind::segments) return closed(close_segments(in.calls(), memory));
  if (is_gone(in, memory)) {
    if (memory.kind == cuda_memory_kind::pool) static_cast<void>(close_pooled(in.calls(), memory, true));
    return {};
  }
  auto done = status::unknown;  // separate: if only restoring the context fails, the memory is closed
  const auto answer = in.with([&] { return done = close_by_kind(in.calls(), memory); });
  if (done == status::success || cuda::context_gone(answer)) return {};
  return closed(answer);
}

}  // namespace pinfold::cuda_ipc
