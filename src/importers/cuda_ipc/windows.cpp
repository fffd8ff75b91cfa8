// SPDX-License-Identifier: BSD-3-Clause
#include "importers/cuda_ipc/windows.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>

namespace pinfold::cuda_ipc {

using cuda::status;

result<cuda::device_pointer> window::take(const range& wanted) {
  const auto begin = at_ + (wanted.begin - where_.begin);
  const auto end = begin + wanted.size();
  std::map<cuda::device_pointer, cuda::device_pointer> made{{begin, end}};  // allocated without the lock
  const std::scoped_lock hold(mutex_);
  if (removed_) return fail(errc::unsupported, "the window was removed meanwhile");
  const auto after = taken_.lower_bound(begin);
  const bool free =
      (after == taken_.end() || after->first >= end) && (after == taken_.begin() || std::prev(after)->second <= begin);
  if (!free) return cuda::fail_cuda(status::already_mapped, "an earlier segment is still mapped in the window");
  taken_.merge(made);
  return begin;
}

void window::give_back(cuda::device_pointer place) noexcept {
  std::map<cuda::device_pointer, cuda::device_pointer>::node_type removed;  // freed after the lock is released
  const std::scoped_lock hold(mutex_);
  removed = taken_.extract(place);
}

result<void> window::free(const cuda::driver_table& calls) noexcept {
  const std::scoped_lock hold(mutex_);
  if (!taken_.empty()) return fail(errc::in_use_conflict, "memory is mapped in the window");
  auto freed = cuda::checked(calls.mem_address_free(at_, where_.size()), "cannot free the addresses of a window");
  removed_ = freed.has_value();
  return freed;
}

bool window_table::meets(const memory_window& wanted) const noexcept {
  return std::ranges::any_of(all_, [&](const auto& one) {
    return one.first.exporter == wanted.exporter && one.second->where().overlaps(wanted.where());
  });
}

// Calls the driver under the lock, so that a window is made once.
result<cuda::device_pointer> window_table::add(const cuda::primary_context& in, const memory_window& wanted) noexcept
    try {
  if (in.calls().mem_address_reserve == nullptr)
    return fail(errc::unsupported, "this CUDA driver has no virtual memory management");
  const key at{wanted.exporter, wanted.base};
  const std::scoped_lock hold(mutex_);
  const auto known = all_.find(at);
  if (known != all_.end() && known->second->where() == wanted.where()) return known->second->at();
  if (meets(wanted)) return fail(errc::in_use_conflict, "the window meets another window of the exporter");
  const auto there = all_.try_emplace(at).first;
  cuda::device_pointer local = 0;
  auto answer = status::unknown;
  try {
    answer = in.with([&] { return in.calls().mem_address_reserve(&local, wanted.size, 0, 0, 0); });
    if (answer == status::success) there->second = std::make_shared<window>(wanted.where(), local);
  } catch (const std::bad_alloc&) {
    answer = status::out_of_memory;
  }
  if (answer == status::success) return local;
  all_.erase(there);
  if (local != 0) static_cast<void>(in.calls().mem_address_free(local, wanted.size));
  if (answer == status::invalid_value)
    return cuda::fail_cuda(answer, "the device cannot reserve a window of that size", errc::invalid_range);
  return cuda::fail_cuda(answer, "cannot reserve addresses for a window");
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the importer's own records");
}

result<void> window_table::remove(const cuda::driver_table& calls, const memory_window& gone) noexcept {
  const std::scoped_lock hold(mutex_);
  const auto found = all_.find({gone.exporter, gone.base});
  if (found == all_.end() || found->second->where() != gone.where())
    return fail(errc::invalid_argument, "there is no such window");
  if (auto freed = found->second->free(calls); !freed) return freed;
  all_.erase(found);
  return {};
}

std::shared_ptr<window> window_table::find(std::uint64_t exporter, const range& wanted) const noexcept {
  const std::scoped_lock hold(mutex_);
  const auto after = all_.upper_bound({exporter, wanted.begin});
  if (after == all_.begin()) return nullptr;
  const auto& [at, there] = *std::prev(after);
  return at.exporter == exporter && there->where().contains(wanted) ? there : nullptr;
}

void window_table::free_all(const cuda::driver_table& calls) noexcept {
  const std::scoped_lock hold(mutex_);
  for (const auto& one : all_) static_cast<void>(one.second->free(calls));
  all_.clear();
}

}  // namespace pinfold::cuda_ipc
