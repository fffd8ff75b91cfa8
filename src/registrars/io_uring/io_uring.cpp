// SPDX-License-Identifier: BSD-3-Clause
#include "os/page_bytes.hpp"
#include "os/this_process.hpp"
#include "registrars/io_uring/calls.hpp"
#include "registrars/io_uring/slots.hpp"

#include <pinfold/registrars/io_uring.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <new>
#include <sys/uio.h>

namespace pinfold {

static_assert(group_registrar<io_uring_registrar>);

namespace {

// io_buffer_validate() in the kernel's io_uring/rsrc.c: the kernel refuses larger buffers with EFAULT, as it does bad
// memory, so the error does not reveal the limit.
constexpr std::size_t largest_buffer = std::size_t{1} << 30U;

// The most ranges that one call registers.
constexpr std::size_t most_at_once = 64;

constexpr const char* another_thread = "the ring takes registrations from its own thread only (SINGLE_ISSUER)";

error as_error(int native) noexcept {
  switch (native) {
    case ENOMEM:
    case EAGAIN:
      return {errc::out_of_resources, native_kind::posix, native,
              "the locked-memory limit is reached (RLIMIT_MEMLOCK)"};
    case EFAULT:
      return {errc::invalid_range, native_kind::posix, native, "the kernel cannot pin this memory for writing"};
    case EOPNOTSUPP: return {errc::unsupported, native_kind::posix, native, "the kernel cannot pin pages of this file"};
    case EEXIST: return {errc::not_permitted, native_kind::posix, native, another_thread};
    case EACCES:
      return {errc::not_permitted, native_kind::posix, native, "the ring's restrictions forbid registering buffers"};
    default: return {errc::driver_error, native_kind::posix, native, "the kernel refused to change the buffer table"};
  }
}

error refused_table(int native) noexcept {
  switch (native) {
    case EBUSY: return {errc::in_use_conflict, native_kind::posix, native, "the ring has buffers registered already"};
    case EEXIST: return {errc::not_permitted, native_kind::posix, native, another_thread};
    case EACCES:
      return {errc::not_permitted, native_kind::posix, native, "the ring's restrictions forbid registering buffers"};
    case EINVAL: return {errc::unsupported, native_kind::posix, native, "sparse buffer tables need Linux 5.19"};
    case ENOMEM: return {errc::out_of_resources, native_kind::posix, native, "no memory for a buffer table"};
    default: return {errc::driver_error, native_kind::posix, native, "the kernel refused a buffer table"};
  }
}

tl::unexpected<error> ring_moved_away() noexcept { return fail(errc::closed, "this registrar was moved from"); }

/// Ranges to register together, and the places of their results.
struct wave {
  std::array<iovec, most_at_once> memory;
  std::array<result<io_uring_registrar::registration_type>*, most_at_once> made;
  unsigned count = 0;

  void add(const range& one, result<io_uring_registrar::registration_type>& result_of_it) noexcept {
    memory[count] = {reinterpret_cast<void*>(one.begin), one.size()};
    made[count++] = &result_of_it;
  }
};

}  // namespace

struct io_uring_registrar::state {
  state(::io_uring* of, unsigned size) : ring(of), slots(size) {}
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  // A child of fork(2) shares the parent's ring: unregistering would remove the parent's buffers (R37).
  ~state() {
    if (os::this_process() == process) static_cast<void>(uring::drop_table(*ring));
  }

  // Changes a run of slots. Returns how many were changed, or the negative errno of the first.
  int update(unsigned first, std::span<const iovec> to) noexcept {
    calls.fetch_add(1, std::memory_order_relaxed);
    return uring::change_slots(*ring, first, to);
  }

  void open(const wave& all) noexcept {
    for (unsigned done = 0; done < all.count;) done += open_some(all, done);
  }

  // Registers some more ranges. Returns how many more have their results.
  unsigned open_some(const wave& all, unsigned done) noexcept {
    const auto run = slots.take(all.count - done);
    if (run.count == 0) {
      *all.made[done] = fail(errc::out_of_resources, "all slots of the buffer table are taken");
      return 1;
    }
    const int changed = update(run.first, std::span(all.memory).subspan(done, run.count));
    const auto good = static_cast<unsigned>(std::max(changed, 0));
    for (unsigned i = 0; i < good; ++i) *all.made[done + i] = registration_type{run.first + i};
    slots.commit(run, good);
    if (good > 0) return good;
    // The kernel stops at the first range that it refuses, and returns the reason only if that range is the first of a
    // call.
    *all.made[done] = tl::unexpected(as_error(-changed));
    return 1;
  }

  ::io_uring* ring;
  const std::uint64_t process = os::this_process();
  uring::slot_table slots;
  std::atomic<std::uint64_t> calls{0};
};

io_uring_registrar::io_uring_registrar(std::unique_ptr<state> made) noexcept : state_(std::move(made)) {}
io_uring_registrar::io_uring_registrar(io_uring_registrar&&) noexcept = default;
io_uring_registrar& io_uring_registrar::operator=(io_uring_registrar&&) noexcept = default;
io_uring_registrar::~io_uring_registrar() = default;

result<io_uring_registrar> io_uring_registrar::create(::io_uring* ring, io_uring_registrar_options options) noexcept
    try {
  if (ring == nullptr) return fail(errc::invalid_argument, "the ring must not be null");
  constexpr unsigned most = 16384;  // IORING_MAX_REG_BUFFERS
  int refused = -EINVAL;
  for (unsigned wanted = options.slots == 0 ? most : options.slots; wanted > 0;
       wanted = wanted > most ? most : wanted / 2) {
    refused = uring::make_table(*ring, wanted);
    if (refused == 0) return io_uring_registrar(std::make_unique<state>(ring, wanted));
    if (refused != -EINVAL && refused != -ENOMEM) break;
  }
  return tl::unexpected(refused_table(-refused));
} catch (const std::bad_alloc&) {
  static_cast<void>(uring::drop_table(*ring));
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the slot table");
}

registrar_limits io_uring_registrar::limits() const noexcept {
  return {.granularity = os::page_bytes(), .max_bytes = largest_buffer, .supported = local_access};
}

result<io_uring_registrar::registration_type> io_uring_registrar::open(range memory, access_flags access) noexcept {
  result<registration_type> made;
  open_many({&memory, 1}, access, {&made, 1});
  return made;
}

void io_uring_registrar::open_many(std::span<const range> memory, access_flags access,
                                   std::span<result<registration_type>> made) noexcept {
  wave next;
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const result<void> fit = state_ ? check_request(limits(), memory[i], access) : ring_moved_away();
    if (fit) next.add(memory[i], made[i]);
    if (!fit) made[i] = tl::unexpected(fit.error());
    if (next.count < most_at_once) continue;
    state_->open(next);
    next.count = 0;
  }
  if (next.count > 0) state_->open(next);
}

result<void> io_uring_registrar::close(const registration_type& registration) noexcept {
  if (!state_) return ring_moved_away();
  const auto slot = registration.index;
  if (!state_->slots.leave(slot)) return fail(errc::invalid_argument, "this slot is not in use");
  const iovec nothing{nullptr, 0};
  const int changed = state_->update(slot, {&nothing, 1});
  if (changed == 1) return state_->slots.emptied(slot), result<void>{};
  state_->slots.kept(slot);
  return tl::unexpected(as_error(-changed));
}

unsigned io_uring_registrar::slots() const noexcept { return state_ ? state_->slots.size() : 0; }
std::uint64_t io_uring_registrar::calls() const noexcept {
  return state_ ? state_->calls.load(std::memory_order_relaxed) : 0;
}

}  // namespace pinfold
