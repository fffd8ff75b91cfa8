// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/exporter_mappings.hpp"
#include "fd_passing/host.hpp"
#include "fd_passing/reach.hpp"
#include "importers/memfd/handle.hpp"
#include "importers/memfd/mapping.hpp"
#include "importers/memfd/open_mappings.hpp"
#include "os/no_cancellation.hpp"
#include "os/page_bytes.hpp"
#include "os/reservation.hpp"

#include <sys/mman.h>

namespace pinfold {

static_assert(importer<memfd_importer>);

struct memfd_importer::state {
  explicit state(memfd_importer_options chosen) : options(chosen) {}
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() {
    held.for_each([](void* address, std::uint64_t bytes) { ::munmap(address, bytes); });
  }

  [[nodiscard]] result<os::file> fetch_once(const memfd_handle& handle) noexcept;
  [[nodiscard]] result<os::file> fetch(const memfd_handle& handle) noexcept;
  [[nodiscard]] result<registration_type> map(const os::file& verified, const memfd_handle& handle) noexcept;
  [[nodiscard]] result<registration_type> fetch_and_map(const memfd_handle& handle) noexcept;

  const memfd_importer_options options;
  using mappings = fd_passing::exporter_mappings<memfd_handle>;
  const std::shared_ptr<mappings> by_exporter = std::make_shared<mappings>();
  const std::shared_ptr<fd_passing::connection_table> links = fd_passing::links_that_tell(by_exporter);
  memfd::open_mappings held;
};

namespace {

constexpr fd_passing::transport way_for(memfd_via via) noexcept {
  switch (via) {
    case memfd_via::pidfd: return fd_passing::transport::pidfd;
    case memfd_via::scm: return fd_passing::transport::scm;
    case memfd_via::automatic: break;
  }
  return fd_passing::transport::automatic;
}

/// Unmaps the memory; in a window, its place is reserved again in the same step.
result<void> unmap(const memfd_importer::registration_type& mapping, bool in_window) noexcept {
  if (in_window) return os::reserve_again(mapping.address, mapping.bytes);
  if (::munmap(mapping.address, mapping.bytes) == 0) return {};
  return fail_errno(errc::driver_error, errno, "cannot unmap the exporter's memory");
}

std::uint64_t name_of(const memfd_importer::registration_type& mapping) noexcept {
  return reinterpret_cast<std::uintptr_t>(mapping.address);
}

/// Returns the handle's allocation if nothing in the handle itself forbids the import.
result<range> permitted(const memfd_handle& handle, const memfd_importer_options& options) noexcept {
  const auto allocation = memfd::checked(handle);
  if (!allocation) return allocation;
  if (!fd_passing::may_be_this_host(handle.host))
    return fail(errc::unsupported, "the handle is from another host, or from before a reboot");
  const auto granted = static_cast<memfd_access>(handle.access);
  if (options.access == memfd_access::read_write && granted != memfd_access::read_write)
    return fail(errc::not_permitted, "the buffer is exported for reading only");
  return allocation;
}

}  // namespace

result<os::file> memfd_importer::state::fetch_once(const memfd_handle& handle) noexcept {
  auto what = memfd::behind(handle);
  const auto device = memfd::device();
  if (!device) return tl::unexpected(device.error());
  what.file = {*device, static_cast<ino_t>(handle.inode)};
  auto link = links->find_or_make(way_for(options.via), what.from);
  if (!link) return tl::unexpected(link.error());
  auto fetched = (*link)->fetch(way_for(options.via), what);
  if (!fetched && fetched.error() == errc::peer_gone) links->forget(what.from);
  return fetched;
}

/// Retries without the descriptors that the table keeps for speed, so that an open never fails because of them.
result<os::file> memfd_importer::state::fetch(const memfd_handle& handle) noexcept {
  auto fetched = fetch_once(handle);
  if (fetched || fetched.error() != errc::out_of_resources || !links->forget_all()) return fetched;
  return fetch_once(handle);
}

result<memfd_importer::registration_type> memfd_importer::state::map(const os::file& verified,
                                                                     const memfd_handle& handle) noexcept {
  const auto place = held.reserve(handle.exporter, handle.allocation());
  if (!place) return tl::unexpected(place.error());
  const auto address = memfd::map_imported(verified, handle, options, *place);
  if (!address) {
    held.remove(handle.exporter, handle.base);
    return tl::unexpected(address.error());
  }
  const registration_type made{*address, handle.size, handle.exporter, handle.base};
  held.publish(made);
  return made;
}

result<memfd_importer::registration_type> memfd_importer::state::fetch_and_map(const memfd_handle& handle) noexcept {
  const auto fetched = fetch(handle);
  if (!fetched) return tl::unexpected(fetched.error());
  if (auto right = memfd::verify(*fetched, handle, options); !right) return tl::unexpected(right.error());
  return map(*fetched, handle);
}

memfd_importer::memfd_importer(memfd_importer_options options) : state_(std::make_unique<state>(options)) {}
memfd_importer::memfd_importer(memfd_importer&&) noexcept = default;
memfd_importer& memfd_importer::operator=(memfd_importer&&) noexcept = default;
memfd_importer::~memfd_importer() = default;

result<range> memfd_importer::check(const memfd_handle& handle) const noexcept { return memfd::checked(handle); }

result<void> memfd_importer::can_open(const memfd_handle& handle) const noexcept {
  const detail::no_cancellation whole;
  if (!state_) return fail(errc::closed, "the importer was moved from");
  if (const auto allocation = permitted(handle, state_->options); !allocation)
    return tl::unexpected(allocation.error());
  return fd_passing::can_fetch(way_for(state_->options.via), memfd::behind(handle).from);
}

result<imported<memfd_importer::registration_type>> memfd_importer::open(peer_id peer,
                                                                         const memfd_handle& handle) noexcept {
  const detail::no_cancellation whole;
  if (!state_) return fail(errc::closed, "the importer was moved from");
  const auto allocation = permitted(handle, state_->options);
  if (!allocation) return tl::unexpected(allocation.error());
  const auto number = state_->by_exporter->begin(memfd::behind(handle).from, peer, *allocation, handle);
  if (!number) return tl::unexpected(number.error());
  const auto mapped = state_->fetch_and_map(handle);
  if (!mapped) {
    state_->by_exporter->end(*number);
    return tl::unexpected(mapped.error());
  }
  state_->by_exporter->opened(*number, name_of(*mapped));
  return imported<registration_type>{*allocation, mapped->address, mapped->bytes, *mapped};
}

result<void> memfd_importer::close(const registration_type& mapping) noexcept {
  if (!state_) return fail(errc::closed, "the importer was moved from");
  const auto claimed = state_->held.begin_close(mapping);
  if (!claimed) return tl::unexpected(claimed.error());
  const auto number = state_->by_exporter->take_number(name_of(mapping));  // before another mapping has the address
  if (auto unmapped = unmap(mapping, *claimed); !unmapped) {
    state_->by_exporter->opened(number, name_of(mapping));
    state_->held.undo_close(mapping);
    return unmapped;
  }
  state_->by_exporter->end(number);
  state_->held.remove(mapping.exporter, mapping.base);
  return {};
}

void memfd_importer::tell_ends(std::function<void(peer_id, range, const memfd_handle&)> to) {
  if (state_) state_->by_exporter->tell(std::move(to));
}

result<void*> memfd_importer::add_window(const memory_window& window) noexcept {
  if (!state_) return fail(errc::closed, "the importer was moved from");
  const std::uint64_t page = os::page_bytes();
  if (window.size == 0 || window.size % page != 0 || window.base % page != 0 || window.size > UINT64_MAX - window.base)
    return fail(errc::invalid_range, "a window is whole pages");
  auto place = os::reservation::of(window.size);
  if (!place) return tl::unexpected(place.error());
  return state_->held.add_window(window, std::move(*place));
}

result<void> memfd_importer::remove_window(const memory_window& window) noexcept {
  if (!state_) return fail(errc::closed, "the importer was moved from");
  return state_->held.remove_window(window);
}

std::size_t memfd_importer::held() const noexcept { return state_ ? state_->held.size() : 0; }

}  // namespace pinfold
