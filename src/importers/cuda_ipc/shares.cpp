// SPDX-License-Identifier: BSD-3-Clause
#include "importers/cuda_ipc/shares.hpp"

#include "importers/cuda_ipc/segments.hpp"
#include "os/this_process.hpp"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <new>
#include <sys/eventfd.h>
#include <utility>

namespace pinfold::cuda_ipc {

namespace {

using cuda::status;

constexpr auto descriptor_type = cuda::allocation_handle_type::posix_file_descriptor;
constexpr auto gone = "the memory was unmapped or replaced";

bool overlap(std::uint64_t begin, std::uint64_t end, std::uint64_t other_begin, std::uint64_t other_end) noexcept {
  return begin < other_end && other_begin < end;
}

/// Returns whether two segments cannot both be mapped.
bool exclude(const cuda::segment_facts& one, const cuda::segment_facts& other) noexcept {
  return one != other && overlap(one.base, one.base + one.size, other.base, other.base + other.size);
}

/// Returns whether the memory `now` proves that `other`, which overlaps it, is gone.
bool replaces(const shares::subject& now, const shares::subject& other) noexcept {
  if (now.segments.empty() || other.segments.empty()) return now != other;
  return std::ranges::any_of(now.segments, [&](const auto& one) {
    return std::ranges::any_of(other.segments, [&](const auto& another) { return exclude(one, another); });
  });
}

}  // namespace

shares::shares(const cuda::driver_table& calls, std::shared_ptr<release_registry> registry) noexcept
    : calls_(calls), registry_(std::move(registry)), process_(os::this_process()) {}

bool shares::inherited() const noexcept { return os::this_process() != process_; }

const shares::shared* shares::known(const subject& what) const noexcept {
  const auto [first, last] = by_address_.equal_range(what.where.begin);
  for (auto at = first; at != last; ++at)
    if (const auto& one = shared_.at(at->second); one.what == what) return &one;
  return nullptr;
}

/// Calls `use(serial, subject)` for all memory in the range, and forgets the memory for which it returns true.
template <class Use>
void shares::for_each_overlapping(const range& where, Use use) {
  auto at = by_address_.lower_bound(where.begin - std::min<std::uint64_t>(where.begin, largest_));
  while (at != by_address_.end() && at->first < where.end) {
    const auto there = shared_.find(at->second);
    const auto& what = there->second.what;
    const bool forget = overlap(where.begin, where.end, what.where.begin, what.where.end) && use(at->second, what);
    if (forget) shared_.erase(there);
    at = forget ? by_address_.erase(at) : std::next(at);
  }
}

/// Of memory of which a part is still there, remembers the importers that hold it.
void shares::forget_what_is_gone(const subject& now) {
  for_each_overlapping(now.where, [&](std::uint64_t serial, const subject& other) {
    if (!replaces(now, other)) return false;
    if (!registry_) return true;
    if (registry_->is_held(serial) && is_there(other, other.where)) {
      forget_withdrawn();
      withdrawn_.try_emplace(serial, withdrawn{other, false});
    } else {
      registry_->forget(serial);
    }
    return true;
  });
}

/// Forgets what no importer holds any more, or what is gone.
void shares::forget_withdrawn() noexcept {
  std::erase_if(withdrawn_, [&](const auto& one) {
    const auto& [what, announced] = one.second;
    if (registry_->is_held(one.first) && is_there(what, what.where)) return false;
    if (!announced) registry_->forget(one.first);
    return true;
  });
}

result<cuda_ipc_handle> shares::find_or_make(const subject& what, const make_handle& make) noexcept try {
  std::unique_lock guard(mutex_);
  if (const auto* found = known(what)) return found->handle;
  const auto serial = last_serial_ + 1;
  last_serial_ = serial + what.segments.size();  // one for each segment follows
  guard.unlock();
  auto made = make(serial);
  if (!made) return made;
  guard.lock();
  if (const auto* found = known(what)) return found->handle;  // another thread was faster
  forget_what_is_gone(what);
  if (registry_) {
    if (auto added = registry_->add(serial); !added) return tl::unexpected(added.error());
  }
  const auto there = by_address_.emplace(what.where.begin, serial);
  try {
    shared_.emplace(serial, shared{what, *made});
  } catch (const std::bad_alloc&) {
    by_address_.erase(there);
    throw;
  }
  largest_ = std::max(largest_, what.where.size());
  return made;
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the exporter's own records");
}

result<cuda_ipc_handle> shares::handle_at(std::uint64_t address) noexcept {
  const std::scoped_lock guard(mutex_);
  const shared* found = nullptr;
  auto at = by_address_.lower_bound(address - std::min(address, largest_));
  for (; at != by_address_.end() && at->first <= address; ++at) {
    const shared& one = shared_.at(at->second);
    if (address >= one.what.where.end) continue;
    if (found != nullptr) return fail(errc::unsupported, "the memory is shared by several handles");
    found = &one;
  }
  if (found == nullptr) return fail(errc::invalid_argument, "the exporter has not shared this memory, or retires it");
  return found->handle;
}

void shares::withdraw(const cuda_ipc_handle& handle) noexcept {
  const std::scoped_lock guard(mutex_);
  const auto [first, last] = by_address_.equal_range(handle.base);
  const auto at = std::find_if(first, last, [&](const auto& one) { return one.second == handle.serial; });
  if (at == last) return;
  by_address_.erase(at);
  shared_.erase(handle.serial);
}

std::vector<std::uint64_t> shares::withdraw(const range& where) {
  const std::scoped_lock guard(mutex_);
  std::vector<std::uint64_t> serials;
  if (registry_) {
    forget_withdrawn();
    for (auto& [serial, one] : withdrawn_) {
      if (!one.what.where.overlaps(where) || !is_there(one.what, where)) continue;
      serials.push_back(serial);
      one.announced = true;
    }
  }
  for_each_overlapping(where, [&](std::uint64_t serial, const subject& what) {
    if (!registry_ || withdrawn_.try_emplace(serial, withdrawn{what, true}).second) serials.push_back(serial);
    return false;
  });
  for_each_overlapping(where, [](auto&&...) { return true; });
  return serials;
}

bool shares::is_held_otherwise(const range& where, std::uint64_t serial) noexcept {
  const std::scoped_lock guard(mutex_);
  bool there = false;
  for_each_overlapping(where, [&](std::uint64_t another, const subject& what) {
    there = there || (another != serial && is_there(what, where));
    return false;
  });
  return there || std::ranges::any_of(withdrawn_, [&](const auto& one) {
           const auto& what = one.second.what;
           return what.where.overlaps(where) && registry_->is_held(one.first) && is_there(what, where);
         });
}

bool shares::is_mapped(const cuda::segment_facts& wanted) const noexcept {
  const auto now = cuda::segment_at(calls_, wanted.base);
  return now && *now == wanted;
}

bool shares::is_there(const subject& what, const range& where) const noexcept {
  if (what.segments.empty()) return is_whole(what);
  return std::ranges::any_of(what.segments, [&](const auto& one) {
    return overlap(one.base, one.base + one.size, where.begin, where.end) && is_mapped(one);
  });
}

bool shares::is_whole(const subject& what) const noexcept {
  if (!what.segments.empty())
    return std::ranges::all_of(what.segments, [&](const auto& one) { return is_mapped(one); });
  unsigned long long now = 0;
  const auto answer = calls_.pointer_get_attribute(&now, cuda::pointer_attribute::buffer_id, what.where.begin);
  return answer == status::success && now == what.buffer_id;
}

std::uint64_t shares::serial_of(cuda::memory_pool pool) {
  const std::scoped_lock guard(mutex_);
  const auto [there, first] = pools_.try_emplace(pool, last_serial_ + 1);
  if (first) ++last_serial_;
  return there->second;
}

result<shares::lent> shares::look_up(std::uint64_t serial) {
  const std::scoped_lock guard(mutex_);
  const auto pool = std::ranges::find(pools_, serial, [](const auto& one) { return one.second; });
  if (pool != pools_.end()) return lent{.pool = pool->first, .segment = {}};
  const auto after = shared_.upper_bound(serial);
  if (after == shared_.begin()) return fail(errc::stale_handle, gone);
  const auto& [first, found_there] = *std::prev(after);
  const auto& segments = found_there.what.segments;
  if (serial > first + segments.size()) return fail(errc::stale_handle, gone);
  if (serial > first) return lent{.segment = segments[serial - first - 1]};
  return lent{.segment = {}, .whole = found_there.what};
}

result<void> shares::lend(std::uint64_t serial, const std::function<void(int)>& use) noexcept try {
  const auto found = look_up(serial);
  if (!found) return tl::unexpected(found.error());
  if (found->pool != nullptr) return lend_pool(found->pool, use);
  return found->whole.where.empty() ? lend_segment(found->segment, use) : confirm(found->whole, use);
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the exporter's own records");
}

result<void> shares::confirm(const subject& wanted, const std::function<void(int)>& use) {
  if (!is_whole(wanted)) return fail(errc::stale_handle, gone);
  if (wanted.segments.empty()) {
    const os::file nothing(::eventfd(0, EFD_CLOEXEC));
    if (!nothing) return os::fail_system("cannot make a descriptor to answer with");
    use(nothing.number());
    return {};
  }
  std::vector<std::size_t> sizes;
  sizes.reserve(wanted.segments.size());
  for (const auto& one : wanted.segments) sizes.push_back(one.size);
  const auto list = listed(sizes);
  if (!list) return tl::unexpected(list.error());
  use(list->number());
  return {};
}

/// Lends one segment's descriptor. The memory may be unmapped meanwhile: if it is this segment both before and after
/// the retain, the descriptor is of this segment.
result<void> shares::lend_segment(const cuda::segment_facts& wanted, const std::function<void(int)>& use) noexcept {
  if (!is_mapped(wanted)) return fail(errc::stale_handle, gone);
  cuda::generic_allocation physical = 0;
  if (calls_.mem_retain_allocation_handle(&physical, reinterpret_cast<void*>(wanted.base)) != status::success)
    return fail(errc::stale_handle, gone);
  const bool right = is_mapped(wanted);
  int made = -1;
  const auto exported = calls_.mem_export_to_shareable_handle(&made, physical, descriptor_type, 0);
  static_cast<void>(calls_.mem_release(physical));
  const os::file descriptor(exported == status::success ? made : -1);
  const bool kept = descriptor || exported != status::success;
  if (!kept) return os::fail_system("no descriptor is left for a segment");
  if (!right) return fail(errc::stale_handle, gone);
  if (!descriptor) return cuda::fail_cuda(exported, "the driver refuses to export a segment");
  use(descriptor.number());
  return {};
}

result<void> shares::lend_pool(cuda::memory_pool pool, const std::function<void(int)>& use) noexcept {
  int made = -1;
  const auto exported = calls_.mem_pool_export_to_shareable_handle(&made, pool, descriptor_type, 0);
  if (exported == status::invalid_value || exported == status::invalid_handle)
    return cuda::fail_cuda(exported, "the pool was destroyed", errc::stale_handle);
  if (exported != status::success) return cuda::fail_cuda(exported, "the driver refuses to export a memory pool");
  const os::file descriptor(made);
  if (!descriptor) return os::fail_system("no descriptor is left for a memory pool");
  use(descriptor.number());
  return {};
}

}  // namespace pinfold::cuda_ipc
