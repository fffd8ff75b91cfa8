// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/exporter_mappings.hpp"
#include "importers/cuda_ipc/can_open.hpp"
#include "importers/cuda_ipc/events.hpp"
#include "importers/cuda_ipc/memory.hpp"
#include "os/file.hpp"
#include "os/no_cancellation.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/eventfd.h>

namespace pinfold {

using cuda::primary_context;

static_assert(importer<cuda_ipc_importer>);

struct cuda_ipc_importer::state {
  explicit state(cuda_ipc_importer_options chosen) : options(chosen) {}
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state();

  /// Only segments can be mapped at a chosen address.
  [[nodiscard]] std::shared_ptr<cuda_ipc::window> window_for(const cuda_ipc_handle& handle) const noexcept {
    if (cuda_ipc::kind_of(handle) != cuda_memory_kind::segments) return nullptr;
    return windows.find(handle.exporter, handle.allocation());
  }

  /// Closes memory of the table that all importers share.
  [[nodiscard]] result<void> close(const cuda_ipc::open_place& place, cuda_ipc::opened_memory& memory) const noexcept {
    if (place.device != options.device) return fail(errc::driver_error, "this memory is open on another device");
    return cuda_ipc::close_memory(*device.retained(), memory);
  }

  [[nodiscard]] result<const primary_context*> context() noexcept { return device.get(options.device); }

  const cuda_ipc_importer_options options;
  cuda::device_context device;
  using mappings = fd_passing::exporter_mappings<cuda_ipc_handle>;
  const std::shared_ptr<mappings> by_exporter = std::make_shared<mappings>();
  const std::shared_ptr<fd_passing::connection_table> links = fd_passing::links_that_tell(by_exporter);
  cuda_ipc::event_table events;
  cuda_ipc::window_table windows;
};

cuda_ipc_importer::state::~state() {
  const detail::no_cancellation whole;
  const auto* in = device.retained();
  if (in == nullptr) return;
  cuda_ipc::all_opened().give_back_all(
      this, [this](const auto& place, cuda_ipc::opened_memory& memory) { return close(place, memory); });
  static_cast<void>(in->with([&] {
    events.destroy_all(in->calls());
    windows.free_all(in->calls());
    return cuda::status::success;
  }));
}

namespace {

result<void> may_share(const primary_context& in, const cuda_ipc::opened_memory& there) noexcept {
  if (cuda_ipc::is_gone(in, there))
    return cuda::fail_cuda(cuda::status::context_is_destroyed, "a mapping from before the device reset is still open",
                           errc::already_mapped);
  if (there.wrong) return fail(errc::stale_handle, "memory that the handle does not name could not be closed");
  if (there.closed == 0) return {};
  return cuda::fail_cuda(cuda::status::already_mapped, "an earlier close of this memory is incomplete");
}

/// Whether the open may have failed for want of descriptors, of which it needs several. The driver hides the reason.
bool lacked_descriptors(const error& failed) noexcept {
  const auto is_want = [](int native) { return native == EMFILE || native == ENFILE; };
  if (failed.kind == native_kind::posix && is_want(failed.native)) return true;
  std::array<os::file, 8> probes;
  return std::ranges::any_of(probes, [&](auto& one) {
    one = os::file(::eventfd(0, EFD_CLOEXEC));
    return !one && is_want(errno);
  });
}

}  // namespace

cuda_ipc_importer::cuda_ipc_importer(cuda_ipc_importer_options options) : state_(std::make_unique<state>(options)) {}
cuda_ipc_importer::cuda_ipc_importer(cuda_ipc_importer&&) noexcept = default;
cuda_ipc_importer& cuda_ipc_importer::operator=(cuda_ipc_importer&&) noexcept = default;
cuda_ipc_importer::~cuda_ipc_importer() = default;

result<range> cuda_ipc_importer::check(const cuda_ipc_handle& handle) const noexcept {
  return cuda_ipc::checked(handle);
}

result<void> cuda_ipc_importer::can_open(const cuda_ipc_handle& handle) const noexcept {
  const detail::no_cancellation whole;
  if (!state_) return fail(errc::closed, "the importer was moved from");
  return cuda_ipc::can_open(state_->options.device, handle, state_->options.confirm);
}

result<imported<cuda_ipc_importer::registration_type>> cuda_ipc_importer::open(peer_id peer,
                                                                               const cuda_ipc_handle& handle) noexcept {
  const detail::no_cancellation whole;
  if (!state_) return fail(errc::closed, "the importer was moved from");
  const auto allocation = cuda_ipc::checked(handle);
  if (!allocation) return tl::unexpected(allocation.error());
  const auto in = state_->context();
  if (!in) return tl::unexpected(in.error());
  if (auto foreign = cuda_ipc::is_for_import(handle); !foreign) return tl::unexpected(foreign.error());
  const auto window = state_->window_for(handle);
  const auto place = cuda_ipc::place_of(state_->options.device, handle, window ? window->at() : 0);
  const auto listed = state_->by_exporter->begin(cuda_ipc::origin_of(handle), peer, *allocation, handle);
  if (!listed) return tl::unexpected(listed.error());
  // This importer must be notified of the exporter's end, also where an open needs no link. Without a link it is not;
  // an open that needs the link reports the error.
  if (handle.exporter != 0)
    static_cast<void>(state_->links->find_or_make(fd_passing::transport::scm, cuda_ipc::origin_of(handle)));
  cuda::device_pointer at = 0;
  const auto close_it = [&](const auto& there, cuda_ipc::opened_memory& memory) {
    return state_->close(there, memory);
  };
  const auto open_once = [&] {
    bool confirmed = !state_->options.confirm;
    auto number = cuda_ipc::all_opened().take(
        state_.get(), place, [&](auto& all) { return all.find(place); },
        [&](auto there) { return may_share(**in, there->second.item); },
        [&](auto& left) {
          confirmed = true;
          return cuda_ipc::open_memory(**in, *state_->links, handle, {window, state_->options.confirm}, left);
        },
        [&](auto there) { at = there->second.item.at; }, close_it);
    if (!number || confirmed) return number;
    // The exporter may have freed the memory since another open of this process.
    if (const auto there = cuda_ipc::confirm(*state_->links, handle); !there) {
      cuda_ipc::all_opened().give_up(*number, close_it);
      number = tl::unexpected(there.error());
    }
    return number;
  };
  auto number = open_once();
  // Once more without the descriptors that the links keep for speed, so that an open never fails because of them.
  if (!number && lacked_descriptors(number.error()) && state_->links->forget_all()) number = open_once();
  if (!number) {
    state_->by_exporter->end(*listed);
    return tl::unexpected(number.error());
  }
  state_->by_exporter->opened(*listed, *number);
  return imported<registration_type>{*allocation, reinterpret_cast<void*>(at), handle.size, {at, handle.size, *number}};
}

result<void> cuda_ipc_importer::close(const registration_type& mapping) noexcept {
  if (!state_) return fail(errc::closed, "the importer was moved from");
  if (state_->device.retained() == nullptr) return fail(errc::invalid_argument, "this mapping is not open");
  const auto listed = state_->by_exporter->take_number(mapping.number);
  auto closed = cuda_ipc::all_opened().give_back(
      mapping.number,
      [this](const auto& place, cuda_ipc::opened_memory& memory) { return state_->close(place, memory); });
  closed ? state_->by_exporter->end(listed) : state_->by_exporter->opened(listed, mapping.number);
  return closed;
}

void cuda_ipc_importer::tell_ends(std::function<void(peer_id, range, const cuda_ipc_handle&)> to) {
  if (state_) state_->by_exporter->tell(std::move(to));
}

result<void> cuda_ipc_importer::wait(const cuda_shared& shared, void* stream) noexcept {
  const detail::no_cancellation whole;
  if (!state_) return fail(errc::closed, "the importer was moved from");
  if (shared.event == cuda_ipc_event{}) return {};
  const auto in = state_->context();
  if (!in) return tl::unexpected(in.error());
  return state_->events.wait(**in, shared.event, static_cast<cuda::stream>(stream));
}

result<std::uint64_t> cuda_ipc_importer::add_window(const memory_window& window) noexcept {
  const detail::no_cancellation whole;
  if (!state_) return fail(errc::closed, "the importer was moved from");
  if (window.size == 0 || window.size > UINT64_MAX - window.base)
    return fail(errc::invalid_range, "the window is empty, or wraps around the address space");
  const auto in = state_->context();
  if (!in) return tl::unexpected(in.error());
  return state_->windows.add(**in, window);
}

result<void> cuda_ipc_importer::remove_window(const memory_window& window) noexcept {
  const detail::no_cancellation whole;
  if (!state_) return fail(errc::closed, "the importer was moved from");
  const auto* in = state_->device.retained();
  if (in == nullptr) return fail(errc::invalid_argument, "there is no such window");
  return state_->windows.remove(in->calls(), window);
}

std::size_t cuda_ipc_importer::held() const noexcept {
  if (!state_ || state_->device.retained() == nullptr) return 0;  // in a child the table's lock may be held for ever
  return cuda_ipc::all_opened().held_by(state_.get());
}

}  // namespace pinfold
