// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/context.hpp"
#include "fd_passing/host.hpp"
#include "fd_passing/server.hpp"
#include "fd_passing/wire.hpp"
#include "importers/cuda_ipc/handle.hpp"
#include "importers/cuda_ipc/shares.hpp"
#include "os/deadline.hpp"
#include "os/no_cancellation.hpp"
#include "os/process_list.hpp"
#include "release/server.hpp"

#include <cerrno>
#include <cstring>
#include <new>

namespace pinfold {

using cuda::memory_facts;
using cuda::status;

namespace {

constexpr auto no_memory = "no memory for the exporter's own records";

/// Returns how the memory can be shared; the message of `unsupported` names the kind of memory and the reason.
result<cuda_memory_kind> shareable(const cuda::memory_facts& facts) noexcept {
  constexpr auto descriptor = static_cast<std::uint64_t>(cuda::allocation_handle_type::posix_file_descriptor);
  const bool by_descriptor = (facts.handle_types & descriptor) != 0;
  if (facts.managed)
    return fail(errc::unsupported, "CUDA cannot share managed memory, which moves between host and device");
  if (facts.type == cuda::memory_type::host_memory)
    return fail(errc::unsupported, "CUDA cannot share host memory: use a memfd");
  if (facts.pool != nullptr && by_descriptor) return cuda_memory_kind::pool;
  if (facts.pool != nullptr)
    return fail(errc::unsupported,
                "CUDA cannot share memory of a pool without POSIX descriptors, such as the default pool");
  if (facts.legacy_capable) return cuda_memory_kind::allocation;
  if (by_descriptor) return cuda_memory_kind::segments;
  return fail(errc::unsupported, "CUDA cannot share memory of cuMemCreate without POSIX descriptors");
}

struct exporting_device {
  std::shared_ptr<cuda::primary_context> context;
  cuda::event event = nullptr;
  cuda_ipc_event shared_event;
};

}  // namespace

struct cuda_ipc_exporter::state : std::enable_shared_from_this<state>, os::listed<state> {
  state(const cuda::driver_table& driver, cuda_ipc_exporter_options chosen, release::server_owner releasing)
      : calls(driver),
        options(chosen),
        shared(std::make_shared<cuda_ipc::shares>(driver, releasing ? releasing->registry() : nullptr)),
        releases(std::move(releasing)) {}
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state();

  [[nodiscard]] result<exporting_device*> device(int ordinal);
  [[nodiscard]] result<void> make_event(exporting_device& on) const noexcept;
  [[nodiscard]] result<void> serve() noexcept;
  [[nodiscard]] result<cuda_ipc::shares::subject> subject_of(cuda_memory_kind kind, const memory_facts& facts,
                                                             range wanted) const;
  [[nodiscard]] status export_pointer(cuda::pool_pointer_export& made, const cuda_ipc_handle& handle);
  [[nodiscard]] result<void> describe_memory(const exporting_device& on, cuda_ipc_handle& handle) noexcept;
  [[nodiscard]] result<cuda_shared> share(range wanted);
  [[nodiscard]] result<std::size_t> announce_free(const range& where, std::chrono::milliseconds timeout) const;
  [[nodiscard]] static std::shared_ptr<state> next(std::uint64_t& last) noexcept;

  const cuda::driver_table& calls;
  const cuda_ipc_exporter_options options;
  const std::shared_ptr<cuda_ipc::shares> shared;
  const release::server_owner releases;  ///< null without `release`
  fd_passing::exporter_id id{};
  os::file listener;  ///< for `service`; empty without `release`, as nothing shows the exporter's name before
  std::mutex mutex;
  std::map<int, exporting_device> devices;
  std::unique_ptr<fd_passing::server> service;  // made with the first memory
};

cuda_ipc_exporter::state::~state() {
  const detail::no_cancellation whole;
  if (shared->inherited()) return;
  fd_passing::close_listener(std::move(listener));
  os::process_list<state>::here().leave(*this);
  for (auto& [ordinal, one] : devices) {
    if (one.event == nullptr) continue;
    static_cast<void>(one.context->with([&] { return calls.event_destroy(one.event); }));
  }
}

result<exporting_device*> cuda_ipc_exporter::state::device(int ordinal) {
  const std::scoped_lock guard(mutex);
  const auto known = devices.find(ordinal);
  if (known != devices.end()) return &known->second;
  auto context = cuda::primary_context::of(ordinal);
  if (!context) return tl::unexpected(context.error());
  exporting_device made{.context = std::move(*context), .event = nullptr, .shared_event = {}};
  if (options.events) {
    if (auto has_event = make_event(made); !has_event) return tl::unexpected(has_event.error());
  }
  return &devices.emplace(ordinal, std::move(made)).first->second;
}

result<void> cuda_ipc_exporter::state::make_event(exporting_device& on) const noexcept {
  cuda::ipc_event_handle handle{};
  const auto answer = on.context->with([&] {
    const auto made = calls.event_create(&on.event, cuda::event_interprocess | cuda::event_disable_timing);
    return made == status::success ? calls.ipc_get_event_handle(&handle, on.event) : made;
  });
  std::memcpy(on.shared_event.bytes.data(), handle.reserved, sizeof handle.reserved);
  if (answer != status::success && on.event != nullptr)
    static_cast<void>(on.context->with([&] { return calls.event_destroy(on.event); }));
  return cuda::checked(answer, "cannot create an interprocess event");
}

result<void> cuda_ipc_exporter::state::serve() noexcept {
  const std::scoped_lock guard(mutex);
  if (service) return {};
  auto made = fd_passing::server::start(id.exporter, shared, listener);
  if (!made) return tl::unexpected(made.error());
  service = std::move(*made);
  return {};
}

result<cuda_ipc::shares::subject> cuda_ipc_exporter::state::subject_of(cuda_memory_kind kind, const memory_facts& facts,
                                                                       range wanted) const {
  cuda_ipc::shares::subject what{{facts.base, facts.base + facts.size}, facts.buffer_id, {}};
  if (kind == cuda_memory_kind::segments) {
    for (auto at = wanted.begin; at < wanted.end; at = what.segments.back().base + what.segments.back().size) {
      const auto one = cuda::segment_at(calls, at);
      if (!one) return tl::unexpected(one.error());
      what.segments.push_back(*one);
    }
    what.where = {what.segments.front().base, what.segments.back().base + what.segments.back().size};
  }
  if (!what.where.contains(wanted))
    return fail(errc::invalid_range, "the range extends beyond the end of the allocation");
  return what;
}

/// The driver exports pointers of a pool only after the pool itself; a descriptor of the pool need not stay open.
status cuda_ipc_exporter::state::export_pointer(cuda::pool_pointer_export& made, const cuda_ipc_handle& handle) {
  const auto answer = calls.mem_pool_export_pointer(&made, handle.base);
  if (answer != status::invalid_value) return answer;
  if (!shared->lend(handle.pool, [](int) {})) return answer;
  return calls.mem_pool_export_pointer(&made, handle.base);
}

/// Fills in the driver's part of the handle.
result<void> cuda_ipc_exporter::state::describe_memory(const exporting_device& on, cuda_ipc_handle& handle) noexcept {
  static_assert(sizeof handle.memory == sizeof(cuda::ipc_memory_handle) &&
                sizeof handle.memory == sizeof(cuda::pool_pointer_export));
  auto answer = status::success;
  if (cuda_ipc::kind_of(handle) == cuda_memory_kind::allocation) {
    cuda::ipc_memory_handle made{};
    answer = on.context->with([&] { return calls.ipc_get_mem_handle(&made, handle.base); });
    std::memcpy(handle.memory.data(), made.reserved, sizeof made.reserved);
  } else if (cuda_ipc::kind_of(handle) == cuda_memory_kind::pool) {
    cuda::pool_pointer_export made{};
    answer = on.context->with([&] { return export_pointer(made, handle); });
    std::memcpy(handle.memory.data(), made.reserved, sizeof made.reserved);
  }
  return cuda::checked(answer, "the driver refuses to share this memory");
}

result<cuda_shared> cuda_ipc_exporter::state::share(range wanted) {
  const auto facts = cuda::facts_of(calls, wanted.begin);
  if (!facts) return tl::unexpected(facts.error());
  const auto kind = shareable(*facts);
  if (!kind) return tl::unexpected(kind.error());
  const auto on = device(facts->device);
  if (!on) return tl::unexpected(on.error());
  const auto what = subject_of(*kind, *facts, wanted);
  if (!what) return tl::unexpected(what.error());
  if (auto serving = serve(); !serving) return tl::unexpected(serving.error());
  const auto pool = *kind == cuda_memory_kind::pool ? shared->serial_of(facts->pool) : 0;
  const auto make = [&](std::uint64_t serial) -> result<cuda_ipc_handle> {
    cuda_ipc_handle handle{.exporter = id.exporter,
                           .serial = serial,
                           .base = what->where.begin,
                           .size = what->where.size(),
                           .buffer_id = facts->buffer_id,
                           .start_time = id.start_time,
                           .pid = id.pid,
                           .kind = static_cast<std::uint32_t>(*kind),
                           .pool = pool,
                           .host = fd_passing::this_host()};
    std::memcpy(handle.device.data(), (*on)->context->id().bytes, sizeof handle.device);
    if (auto described = describe_memory(**on, handle); !described) return tl::unexpected(described.error());
    return cuda_ipc::completed(handle);
  };
  const auto handle = shared->find_or_make(*what, make);
  if (!handle) return tl::unexpected(handle.error());
  return cuda_shared{*handle, wanted.begin, wanted.begin - handle->base, (*on)->shared_event};
}

result<std::size_t> cuda_ipc_exporter::state::announce_free(const range& where,
                                                            std::chrono::milliseconds timeout) const {
  const auto gone = shared->withdraw(where);
  if (gone.empty() || !releases) return 0;
  return releases->announce(gone, timeout);
}

/// Returns an exporter of this process, or null after the last. `last` is 0 at first.
std::shared_ptr<cuda_ipc_exporter::state> cuda_ipc_exporter::state::next(std::uint64_t& last) noexcept {
  std::shared_ptr<state> found;
  const auto any = [](const state&) { return true; };
  while (!found &&
         os::process_list<state>::here().next(last, any, [&](state& one) { found = one.weak_from_this().lock(); })) {
  }
  return found;
}

cuda_ipc_exporter::cuda_ipc_exporter(std::shared_ptr<state> made) noexcept : state_(std::move(made)) {}
cuda_ipc_exporter::cuda_ipc_exporter(cuda_ipc_exporter&&) noexcept = default;
cuda_ipc_exporter& cuda_ipc_exporter::operator=(cuda_ipc_exporter&&) noexcept = default;
cuda_ipc_exporter::~cuda_ipc_exporter() = default;

result<cuda_ipc_exporter> cuda_ipc_exporter::create(cuda_ipc_exporter_options options) noexcept try {
  const detail::no_cancellation whole;
  const auto calls = cuda::driver();
  if (!calls) return tl::unexpected(calls.error());
  auto named = fd_passing::listen_as_new(options.release, options.release);
  if (!named) return tl::unexpected(named.error());
  release::server_owner releases;
  if (options.release) {
    auto started = release::server::start(named->id.exporter, options.limbo_bytes, std::move(named->releases));
    if (!started) return tl::unexpected(started.error());
    releases = std::move(*started);
  }
  auto made = std::make_shared<state>(**calls, options, std::move(releases));
  made->id = named->id;
  made->listener = std::move(named->descriptors);
  os::process_list<state>::here().join(*made);
  return cuda_ipc_exporter(std::move(made));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
}

result<cuda_shared> cuda_ipc_exporter::share(const void* pointer, std::size_t bytes) noexcept {
  return share(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(pointer)), bytes);
}

result<cuda_shared> cuda_ipc_exporter::share(std::uint64_t pointer, std::size_t bytes) noexcept try {
  const detail::no_cancellation whole;
  if (!state_) return fail(errc::closed, "the exporter was moved from");
  if (state_->shared->inherited()) return fail(errc::unsupported, "the exporter belongs to the parent process");
  const auto wanted = range::of(pointer, bytes);
  if (!wanted) return tl::unexpected(wanted.error());
  return state_->share(*wanted);
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
}

result<std::vector<cuda_shared>> cuda_ipc_exporter::share_segments(const void* pointer, std::size_t bytes) noexcept {
  return share_segments(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(pointer)), bytes);
}

result<std::vector<cuda_shared>> cuda_ipc_exporter::share_segments(std::uint64_t pointer, std::size_t bytes) noexcept
    try {
  const auto wanted = range::of(pointer, bytes);
  if (!wanted) return tl::unexpected(wanted.error());
  std::vector<cuda_shared> all;
  for (auto at = wanted->begin; at < wanted->end; at = all.back().handle.allocation().end) {
    auto one = share(std::uint64_t{at}, 1);
    if (!one && one.error() == errc::invalid_argument && !all.empty())
      return fail(errc::invalid_range, "a part of the range has no segment");
    if (!one) return tl::unexpected(one.error());
    all.push_back(*one);
    if (cuda_ipc::kind_of(one->handle) != cuda_memory_kind::segments && one->handle.allocation().end < wanted->end)
      return fail(errc::invalid_range, "the range extends beyond the end of the allocation");
  }
  return all;
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
}

memory_window cuda_ipc_exporter::window(std::uint64_t reserved, std::size_t bytes) const noexcept {
  return {state_ ? state_->id.exporter : 0, reserved, bytes};
}

result<retirement> cuda_ipc_exporter::begin_retire(const void* pointer, std::chrono::milliseconds timeout,
                                                   std::function<result<void>()> free) noexcept {
  if (!state_) return fail(errc::closed, "the exporter was moved from");
  if (state_->shared->inherited()) return fail(errc::unsupported, "the exporter belongs to the parent process");
  if (!state_->releases) return fail(errc::unsupported, "the exporter was made without `release`");
  if (!free) return fail(errc::invalid_argument, "a retirement needs a function that frees the memory");
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  const auto handle = state_->shared->handle_at(address);
  if (!handle) return tl::unexpected(handle.error());
  std::uint64_t last = 0;
  while (const auto other = state::next(last)) {
    if (other->shared->is_held_otherwise(handle->allocation(), other == state_ ? handle->serial : 0))
      return fail(errc::unsupported, "importers may hold the memory, or a part of it, by another handle");
  }
  auto begun = state_->releases->begin(handle->serial, handle->size, timeout, free);
  if (begun) state_->shared->withdraw(*handle);
  return begun;
}

result<retire_report> cuda_ipc_exporter::retire(const void* pointer, std::chrono::milliseconds timeout,
                                                std::function<result<void>()> free) noexcept {
  auto begun = begin_retire(pointer, timeout, std::move(free));
  if (!begun) return tl::unexpected(begun.error());
  return begun->wait(timeout);
}

release_statistics cuda_ipc_exporter::retirements() const noexcept {
  return state_ && state_->releases ? state_->releases->statistics() : release_statistics{};
}

result<std::size_t> cuda_ipc_exporter::announce_free(std::uint64_t pointer, std::size_t bytes,
                                                     std::chrono::milliseconds timeout) noexcept try {
  const detail::no_cancellation whole;
  const auto where = range::of(pointer, bytes);
  if (!where) return tl::unexpected(where.error());
  const auto deadline = os::deadline_in(timeout, std::chrono::days{1});
  result<std::size_t> holders = 0;
  std::uint64_t last = 0;
  while (const auto one = state::next(last)) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const auto seen = one->announce_free(*where, left);
    if (!seen) holders = seen;
    if (holders) *holders += *seen;
  }
  return holders;
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
}

result<void> cuda_ipc_exporter::record(const cuda_shared& shared, void* stream) noexcept {
  const detail::no_cancellation whole;
  if (!state_) return fail(errc::closed, "the exporter was moved from");
  if (state_->shared->inherited()) return fail(errc::unsupported, "the exporter belongs to the parent process");
  const std::scoped_lock guard(state_->mutex);
  for (const auto& [ordinal, one] : state_->devices) {
    if (one.event == nullptr || one.shared_event != shared.event) continue;
    const auto answer =
        one.context->with([&] { return state_->calls.event_record(one.event, static_cast<cuda::stream>(stream)); });
    return cuda::checked(answer, "cannot record the event");
  }
  return fail(errc::unsupported, "the exporter has no event for this memory");
}

}  // namespace pinfold
