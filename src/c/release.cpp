// SPDX-License-Identifier: BSD-3-Clause
// The exporter's side of the release protocol.
#include "c/release.hpp"
#include "c/callbacks.hpp"
#include "c/exporters.hpp"
#include "c/structure.hpp"
#include "c/timeout.hpp"

#include <pinfold/release.h>

#include <memory>
#include <new>

struct pinfold_retirement {
  pinfold::retirement of;
};

namespace pinfold::c {

namespace {

constexpr bool same(retire_state in_cpp, unsigned in_c) noexcept { return static_cast<unsigned>(in_cpp) == in_c; }
static_assert(same(retire_state::asking, PINFOLD_RETIRE_ASKING) && same(retire_state::limbo, PINFOLD_RETIRE_LIMBO) &&
              same(retire_state::freed, PINFOLD_RETIRE_FREED) &&
              same(retire_state::over_budget, PINFOLD_RETIRE_OVER_BUDGET) &&
              same(retire_state::abandoned, PINFOLD_RETIRE_ABANDONED) &&
              static_cast<unsigned>(release_state::silent) == PINFOLD_RELEASE_SILENT &&
              static_cast<unsigned>(release_state::leased) == PINFOLD_RELEASE_LEASED);

constexpr auto no_exporter = "the exporter is null";

result<pinfold_exporter_options> read_options(const pinfold_exporter_options* given) noexcept {
  pinfold_exporter_options known{};
  if (given != nullptr && !read(given, known))
    return fail(errc::invalid_argument, "the options have a wrong size or unknown members");
  if (known.release > 1) return fail(errc::invalid_argument, "`release` is 0 or 1");
  return known;
}

std::size_t limbo_of(const pinfold_exporter_options& given) noexcept {
  return given.limbo_bytes == 0 ? default_limbo_bytes : given.limbo_bytes;
}

result<void> write_statistics(const release_statistics& from, pinfold_release_statistics* to) noexcept {
  const pinfold_release_statistics known{sizeof known, from.limbo_bytes,       from.limbo_buffers, from.retirements,
                                         from.freed,   from.freed_over_budget, from.importers_died};
  if (!write(known, to)) return fail(errc::invalid_argument, no_place);
  return {};
}

result<void> wait(const retirement& ticket, std::chrono::milliseconds timeout, pinfold_retire_report* report) noexcept {
  const auto seen = ticket.wait(timeout);
  if (!seen) return tl::unexpected(seen.error());
  static_cast<void>(write(in_c(*seen), report));
  return {};
}

result<retirement> begin(pinfold_memfd_exporter* exporter, pinfold_memfd_buffer** buffer,
                         std::uint64_t timeout_ms) noexcept {
  if (exporter == nullptr) return fail(errc::invalid_argument, no_exporter);
  if (buffer == nullptr || *buffer == nullptr) return fail(errc::invalid_argument, "the buffer is null");
  auto begun = exporter->of.begin_retire(std::move((*buffer)->of), as_timeout(timeout_ms));
  if (begun) delete std::exchange(*buffer, nullptr);
  return begun;
}

}  // namespace

}  // namespace pinfold::c

extern "C" {

int pinfold_memfd_exporter_create_with(const pinfold_exporter_options* options, pinfold_memfd_exporter** exporter) {
  using namespace pinfold;
  return c::create_object(exporter, [&]() -> result<memfd_exporter> {
    const auto known = c::read_options(options);
    if (!known) return tl::unexpected(known.error());
    auto how = c::memfd_options_of(known->flags);
    if (!how) return tl::unexpected(how.error());
    how->release = known->release != 0;
    how->limbo_bytes = c::limbo_of(*known);
    return memfd_exporter::create(*how);
  });
}

int pinfold_cuda_exporter_create_with(const pinfold_exporter_options* options, pinfold_cuda_exporter** exporter) {
  using namespace pinfold;
  return c::create_object(exporter, [&]() -> result<cuda_ipc_exporter> {
    const auto known = c::read_options(options);
    if (!known) return tl::unexpected(known.error());
    if (known->flags != 0) return fail(errc::invalid_argument, "an exporter of GPU memory has no flags");
    return cuda_ipc_exporter::create({.release = known->release != 0, .limbo_bytes = c::limbo_of(*known)});
  });
}

int pinfold_memfd_begin_retire(pinfold_memfd_exporter* exporter, pinfold_memfd_buffer** buffer, uint64_t timeout_ms,
                               pinfold_retirement** ticket) {
  using namespace pinfold;
  if (ticket == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the ticket");
  *ticket = nullptr;
  return c::guarded([&]() -> result<void> {
    auto made = std::make_unique<pinfold_retirement>();  // before the retirement, which cannot be undone
    auto begun = c::begin(exporter, buffer, timeout_ms);
    if (!begun) return tl::unexpected(begun.error());
    made->of = *std::move(begun);
    *ticket = made.release();
    return {};
  });
}

int pinfold_memfd_retire(pinfold_memfd_exporter* exporter, pinfold_memfd_buffer** buffer, uint64_t timeout_ms,
                         pinfold_retire_report* report) {
  using namespace pinfold;
  if (!c::has_room(report)) return c::refuse(errc::invalid_argument, c::no_place);
  return c::guarded([&]() -> result<void> {
    const auto begun = c::begin(exporter, buffer, timeout_ms);
    if (!begun) return tl::unexpected(begun.error());
    return c::wait(*begun, c::as_timeout(timeout_ms), report);
  });
}

int pinfold_cuda_begin_retire(pinfold_cuda_exporter* exporter, uint64_t pointer, uint64_t timeout_ms,
                              pinfold_free_call free_memory, void* self, pinfold_retirement** ticket) {
  using namespace pinfold;
  if (ticket == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the ticket");
  *ticket = nullptr;
  if (exporter == nullptr) return c::refuse(errc::invalid_argument, c::no_exporter);
  if (free_memory == nullptr) return c::refuse(errc::invalid_argument, "there is no function that frees the memory");
  return c::guarded([&]() -> result<void> {
    auto made = std::make_unique<pinfold_retirement>();  // before the retirement, which cannot be undone
    const auto free = [free_memory, self]() -> result<void> {
      pinfold_error failure{};
      const int code = c::called(nullptr, failure, [&] { return free_memory(self, &failure); });
      if (code == PINFOLD_OK) return {};
      return tl::unexpected(c::from_callback(code, failure, "the function that frees the memory failed"));
    };
    auto begun = exporter->of.begin_retire(reinterpret_cast<const void*>(pointer), c::as_timeout(timeout_ms), free);
    if (!begun) return tl::unexpected(begun.error());
    made->of = *std::move(begun);
    *ticket = made.release();
    return {};
  });
}

int pinfold_cuda_announce_free(uint64_t pointer, size_t bytes, uint64_t timeout_ms, size_t* holders) {
  using namespace pinfold;
  const auto seen = cuda_ipc_exporter::announce_free(pointer, bytes, c::as_timeout(timeout_ms));
  if (!seen) return c::refuse(seen.error());
  if (holders != nullptr) *holders = *seen;
  return PINFOLD_OK;
}

int pinfold_retirement_wait(const pinfold_retirement* ticket, uint64_t timeout_ms, pinfold_retire_report* report) {
  using namespace pinfold;
  if (ticket == nullptr) return c::refuse(errc::invalid_argument, "the ticket is null");
  if (!c::has_room(report)) return c::refuse(errc::invalid_argument, c::no_place);
  return c::guarded([&] { return c::wait(ticket->of, c::as_timeout(timeout_ms), report); });
}

int pinfold_retirement_holders(const pinfold_retirement* ticket, pinfold_release_holder* holders, size_t room,
                               size_t* count) {
  using namespace pinfold;
  if (ticket == nullptr) return c::refuse(errc::invalid_argument, "the ticket is null");
  if (count == nullptr || (holders == nullptr && room > 0))
    return c::refuse(errc::invalid_argument, "there is no place for the holders");
  *count = 0;
  return c::guarded([&]() -> result<void> {
    const auto seen = ticket->of.report();
    if (!seen) return tl::unexpected(seen.error());
    c::write_holders(*seen, holders, room, count);
    return {};
  });
}

void pinfold_retirement_end(pinfold_retirement* ticket) { delete ticket; }

int pinfold_memfd_retirements(const pinfold_memfd_exporter* exporter, pinfold_release_statistics* statistics) {
  using namespace pinfold;
  if (exporter == nullptr) return c::refuse(errc::invalid_argument, c::no_exporter);
  return c::as_code(c::write_statistics(exporter->of.retirements(), statistics));
}

int pinfold_cuda_retirements(const pinfold_cuda_exporter* exporter, pinfold_release_statistics* statistics) {
  using namespace pinfold;
  if (exporter == nullptr) return c::refuse(errc::invalid_argument, c::no_exporter);
  return c::as_code(c::write_statistics(exporter->of.retirements(), statistics));
}

}  // extern "C"
