// SPDX-License-Identifier: BSD-3-Clause
#include "perf/local/uring.hpp"

#include "cli/failure.hpp"

#include <cerrno>
#include <new>
#include <utility>

namespace tool {
namespace {

using pinfold::errc;

pinfold::error refused_ring(int native) noexcept {
  constexpr auto posix = pinfold::native_kind::posix;
  switch (native) {
    case ENOSYS: return {errc::unsupported, posix, native, "the kernel has no io_uring"};
    case EPERM:
    case EACCES:
      return {errc::unsupported, posix, native,
              "io_uring is forbidden here (sysctl kernel.io_uring_disabled, or a container's seccomp filter)"};
    case ENOMEM: return {errc::out_of_resources, posix, native, "no memory for a ring"};
    default: return {errc::driver_error, posix, native, "the kernel refused to create a ring"};
  }
}

}  // namespace

pinfold::result<std::unique_ptr<uring>> uring::open(unsigned depth, unsigned slots) noexcept try {
  std::unique_ptr<uring> made(new uring(slots));
  if (const int refused = ::io_uring_queue_init(depth, &made->ring_, 0); refused != 0)
    return tl::unexpected(refused_ring(-refused));
  made->made_ = true;
  return made;
} catch (const std::bad_alloc&) {
  return tl::unexpected(refused_ring(ENOMEM));
}

uring::~uring() {
  if (made_) ::io_uring_queue_exit(&ring_);
}

pinfold::result<pinfold::io_uring_registrar> uring::registrar() noexcept {
  return pinfold::io_uring_registrar::create(&ring_, {.slots = slots_});
}

uring_cache uring::cache(pinfold::cache_options options) {
  return uring_cache(need(registrar(), "cannot register buffers with io_uring"), std::move(options));
}

pinfold::result<void> uring::prepare(const file_io& what, std::uint64_t tag) noexcept {
  auto* const entry = ::io_uring_get_sqe(&ring_);
  if (entry == nullptr) return pinfold::fail(errc::out_of_resources, "the ring's queue is full");
  const auto bytes = static_cast<unsigned>(what.memory.size());
  const int index = what.registered ? static_cast<int>(what.registered->index) : 0;
  if (what.registered && what.write)
    ::io_uring_prep_write_fixed(entry, what.file, what.memory.data(), bytes, what.offset, index);
  if (what.registered && !what.write)
    ::io_uring_prep_read_fixed(entry, what.file, what.memory.data(), bytes, what.offset, index);
  if (!what.registered && what.write) ::io_uring_prep_write(entry, what.file, what.memory.data(), bytes, what.offset);
  if (!what.registered && !what.write) ::io_uring_prep_read(entry, what.file, what.memory.data(), bytes, what.offset);
  ::io_uring_sqe_set_data64(entry, tag);
  return {};
}

pinfold::result<void> uring::submit() noexcept {
  const int submitted = ::io_uring_submit(&ring_);
  if (submitted < 0) return pinfold::fail_errno(errc::driver_error, -submitted, "cannot submit to the ring");
  return {};
}

pinfold::result<uring::completion> uring::wait() noexcept {
  ::io_uring_cqe* done = nullptr;
  int failed = -EINTR;
  while (failed == -EINTR) failed = ::io_uring_wait_cqe(&ring_, &done);
  if (failed != 0) return pinfold::fail_errno(errc::driver_error, -failed, "cannot wait for the ring");
  const completion seen{::io_uring_cqe_get_data64(done), done->res};
  ::io_uring_cqe_seen(&ring_, done);
  return seen;
}

pinfold::result<void> uring::perform(const file_io& what) noexcept {
  if (auto ready = prepare(what, 0); !ready) return ready;
  if (auto begun = submit(); !begun) return begun;
  return wait().and_then([&](const completion& seen) { return checked(seen.answer, what.memory.size()); });
}

pinfold::result<void> checked(int answer, std::size_t bytes) noexcept {
  if (answer < 0) return pinfold::fail_errno(errc::driver_error, -answer, "the kernel refused a read or write");
  if (static_cast<std::size_t>(answer) != bytes)
    return pinfold::fail(errc::driver_error, "a read or write was incomplete");
  return {};
}

std::unique_ptr<uring> need_uring(unsigned depth, unsigned slots) {
  return need(uring::open(depth, slots), "io_uring is unavailable");
}

}  // namespace tool
