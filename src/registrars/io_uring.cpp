// SPDX-License-Identifier: BSD-3-Clause
#include "registrars/io_uring_slots.hpp"

#include <pinfold/registrars/io_uring.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <liburing.h>
#include <new>
#include <sys/uio.h>
#include <unistd.h>

namespace pinfold {

static_assert(group_registrar<io_uring_registrar>);

namespace {

// io_buffer_validate() in the kernel's io_uring/rsrc.c: larger buffers are refused with EFAULT, as bad memory is, so
// that the limit cannot be told from the error.
constexpr std::size_t largest_buffer = std::size_t{1} << 30U;

// Ranges that one call registers at most.
constexpr std::size_t most_at_once = 64;

error as_error(int native) noexcept {
  switch (native) {
    case ENOMEM:
    case EAGAIN: return {errc::out_of_resources, native_kind::posix, native, "no room in the locked-memory limit"};
    case EFAULT:
      return {errc::invalid_range, native_kind::posix, native, "memory that the kernel cannot pin for writing"};
    case EEXIST:
      return {errc::not_permitted, native_kind::posix, native, "the ring takes registrations from its own thread only"};
    default: return {errc::driver_error, native_kind::posix, native, "the kernel refused to change the buffer table"};
  }
}

error refused_table(int native) noexcept {
  switch (native) {
    case EBUSY: return {errc::in_use_conflict, native_kind::posix, native, "the ring has buffers registered already"};
    case EINVAL: return {errc::unsupported, native_kind::posix, native, "no sparse buffer tables before Linux 5.19"};
    case ENOMEM: return {errc::out_of_resources, native_kind::posix, native, "no memory for a buffer table"};
    default: return {errc::driver_error, native_kind::posix, native, "the kernel refused a buffer table"};
  }
}

}  // namespace

struct io_uring_registrar::state {
  state(::io_uring* of, unsigned size) : ring(of), slots(size) {}
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() { ::io_uring_unregister_buffers(ring); }

  // How many of the run's slots were changed, or the negative errno of the first.
  int update(unsigned first, std::span<const iovec> to) noexcept {
    calls.fetch_add(1, std::memory_order_relaxed);
    return ::io_uring_register_buffers_update_tag(ring, first, to.data(), nullptr, static_cast<unsigned>(to.size()));
  }

  ::io_uring* ring;
  uring::slot_table slots;
  std::atomic<std::uint64_t> calls{0};
};

io_uring_registrar::io_uring_registrar(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
io_uring_registrar::io_uring_registrar(io_uring_registrar&&) noexcept = default;
io_uring_registrar& io_uring_registrar::operator=(io_uring_registrar&&) noexcept = default;
io_uring_registrar::~io_uring_registrar() = default;

result<io_uring_registrar> io_uring_registrar::create(::io_uring* ring, io_uring_registrar_options options) noexcept
    try {
  if (ring == nullptr) return fail(errc::invalid_argument, "a ring is needed");
  constexpr unsigned most = 16384;  // IORING_MAX_REG_BUFFERS
  int refused = -EINVAL;
  for (unsigned wanted = options.slots == 0 ? most : options.slots; wanted > 0; wanted /= 2) {
    refused = ::io_uring_register_buffers_sparse(ring, wanted);
    if (refused == 0) return io_uring_registrar(std::make_unique<state>(ring, wanted));
    if (refused != -EINVAL && refused != -ENOMEM) break;
  }
  return tl::unexpected(refused_table(-refused));
} catch (const std::bad_alloc&) {
  ::io_uring_unregister_buffers(ring);
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the slot table");
}

registrar_limits io_uring_registrar::limits() const noexcept {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return {.granularity = page, .max_bytes = largest_buffer, .supported = local_access};
}

result<io_uring_registrar::registration_type> io_uring_registrar::open(range memory, rights access) noexcept {
  result<registration_type> made;
  open_many({&memory, 1}, access, {&made, 1});
  return made;
}

void io_uring_registrar::open_many(std::span<const range> memory, rights /*access*/,
                                   std::span<result<registration_type>> made) noexcept {
  for (std::size_t done = 0; done < memory.size();) {
    const auto left = std::min(memory.size() - done, most_at_once);
    const auto run = state_->slots.take(static_cast<unsigned>(left));
    if (run.count == 0) {
      made[done++] = fail(errc::out_of_resources, "all slots of the buffer table are taken");
      continue;
    }
    std::array<iovec, most_at_once> wanted;
    for (unsigned i = 0; i < run.count; ++i)
      wanted[i] = {reinterpret_cast<void*>(memory[done + i].begin), memory[done + i].size()};
    const int changed = state_->update(run.first, std::span(wanted).first(run.count));
    const auto good = static_cast<unsigned>(std::max(changed, 0));
    for (unsigned i = 0; i < good; ++i) made[done + i] = registration_type{run.first + i};
    state_->slots.give({run.first + good, run.count - good});
    done += good;
    // The kernel stops at the first range that it refuses, and says why only when that is the first of a call.
    if (changed < 0) made[done++] = tl::unexpected(as_error(-changed));
  }
}

result<void> io_uring_registrar::close(const registration_type& registration) noexcept {
  if (!state_->slots.taken(registration.index)) return fail(errc::invalid_argument, "this slot is not in use");
  const iovec nothing{nullptr, 0};
  const int changed = state_->update(registration.index, {&nothing, 1});
  if (changed < 0) return tl::unexpected(as_error(-changed));
  state_->slots.give({registration.index, 1});
  return {};
}

unsigned io_uring_registrar::slots() const noexcept { return state_->slots.size(); }
std::uint64_t io_uring_registrar::calls() const noexcept { return state_->calls.load(std::memory_order_relaxed); }

}  // namespace pinfold
