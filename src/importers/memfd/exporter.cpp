// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/wire.hpp"
#include "importers/memfd/exporter_state.hpp"
#include "os/no_cancellation.hpp"

namespace pinfold {

struct memfd_buffer::state {
  memfd_handle handle;
  memfd::exported_memory memory;
  std::shared_ptr<memfd::served_table> served;
  std::shared_ptr<release_registry> registry;  ///< null if the exporter retires nothing

  state() noexcept = default;
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() {
    if (!served || served->inherited()) return;
    served->remove(handle.serial);  // before the descriptor's number can refer to another file
    if (registry) registry->forget(handle.serial);
  }
};

memfd_buffer::memfd_buffer() noexcept = default;
memfd_buffer::memfd_buffer(memfd_buffer&& other) noexcept = default;
memfd_buffer& memfd_buffer::operator=(memfd_buffer&& other) noexcept = default;
memfd_buffer::~memfd_buffer() = default;
memfd_buffer::memfd_buffer(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}

std::byte* memfd_buffer::data() const noexcept { return state_ ? state_->memory.data() : nullptr; }
std::size_t memfd_buffer::size() const noexcept { return state_ ? state_->memory.size() : 0; }
int memfd_buffer::descriptor() const noexcept { return state_ ? state_->memory.descriptor() : -1; }
const memfd_handle& memfd_buffer::handle() const noexcept {
  static constexpr memfd_handle none;
  return state_ ? state_->handle : none;
}

memfd_exporter::memfd_exporter(std::shared_ptr<state> made) noexcept : state_(std::move(made)) {}
memfd_exporter::memfd_exporter(memfd_exporter&&) noexcept = default;
memfd_exporter& memfd_exporter::operator=(memfd_exporter&&) noexcept = default;
memfd_exporter::~memfd_exporter() = default;

std::uint64_t memfd_exporter::id() const noexcept { return state_ ? state_->id.exporter : 0; }

result<memfd_exporter> memfd_exporter::create(memfd_exporter_options options) noexcept try {
  const detail::no_cancellation whole;
  auto made = std::make_shared<state>();
  made->options = options;
  made->buffers = std::make_shared<memfd::served_table>();
  auto named = fd_passing::listen_as_new(options.serve, options.release);
  if (!named) return tl::unexpected(named.error());
  made->id = named->id;
  if (options.serve) {
    auto service = fd_passing::server::start(made->id.exporter, made->buffers, named->descriptors);
    if (!service) return tl::unexpected(service.error());
    made->service = std::move(*service);
  }
  if (options.release) {
    auto releases = release::server::start(made->id.exporter, options.limbo_bytes, std::move(named->releases));
    if (!releases) return tl::unexpected(releases.error());
    made->releases = std::move(*releases);
  }
  return memfd_exporter(std::move(made));
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, memfd::no_memory);
}

result<retirement> memfd_exporter::begin_retire(memfd_buffer&& buffer, std::chrono::milliseconds timeout) noexcept try {
  if (!state_) return fail(errc::closed, "the exporter was moved from");
  if (state_->buffers->inherited()) return fail(errc::unsupported, "the exporter belongs to the parent process");
  if (!state_->releases) return fail(errc::unsupported, "the exporter was made without `release`");
  if (!buffer.state_ || buffer.state_->handle.exporter != state_->id.exporter)
    return fail(errc::invalid_argument, "not a buffer of this exporter");
  const auto kept = std::make_shared<memfd_buffer>();
  release::free_call free = [kept]() -> result<void> {
    *kept = memfd_buffer();
    return {};
  };
  const std::uint64_t serial = buffer.handle().serial;
  // The registry refuses importers from here on, so the descriptor can be withdrawn later.
  *kept = std::move(buffer);
  auto begun = state_->releases->begin(serial, kept->size(), timeout, free);
  if (begun) {
    state_->buffers->remove(serial);
  } else {
    buffer = std::move(*kept);
  }
  return begun;
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, memfd::no_memory);
}

result<retire_report> memfd_exporter::retire(memfd_buffer&& buffer, std::chrono::milliseconds timeout) noexcept {
  auto begun = begin_retire(std::move(buffer), timeout);
  if (!begun) return tl::unexpected(begun.error());
  return begun->wait(timeout);
}

release_statistics memfd_exporter::retirements() const noexcept {
  return state_ && state_->releases ? state_->releases->statistics() : release_statistics{};
}

result<memfd_buffer> memfd_exporter::allocate(std::size_t bytes, void* where) noexcept {
  const detail::no_cancellation whole;
  if (!state_) return fail(errc::closed, "the exporter was moved from");
  if (state_->buffers->inherited()) return fail(errc::unsupported, "the exporter belongs to the parent process");
  std::unique_ptr<memfd_buffer::state> made(new (std::nothrow) memfd_buffer::state);
  if (!made) return fail_errno(errc::out_of_resources, ENOMEM, memfd::no_memory);
  auto memory = memfd::make_memory(bytes, where, state_->options.access);
  if (!memory) return tl::unexpected(memory.error());
  made->memory = std::move(*memory);
  made->handle = state_->next_handle(made->memory);
  if (!state_->buffers->add(made->handle.serial, made->handle.descriptor)) {
    return fail_errno(errc::out_of_resources, ENOMEM, memfd::no_memory);
  }
  made->served = state_->buffers;
  if (!state_->releases) return memfd_buffer(std::move(made));
  if (auto added = state_->releases->registry()->add(made->handle.serial); !added) return tl::unexpected(added.error());
  made->registry = state_->releases->registry();
  return memfd_buffer(std::move(made));
}

}  // namespace pinfold
