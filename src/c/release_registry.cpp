// SPDX-License-Identifier: BSD-3-Clause
// The exporter's side of the release protocol, if the application carries the messages.
#include "c/release.hpp"
#include "c/structure.hpp"
#include "c/timeout.hpp"
#include "os/this_process.hpp"

#include <pinfold/importers/cuda_ipc.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/registry.hpp>
#include <pinfold/release_carried.h>

#include <cstdint>
#include <cstring>

struct pinfold_release_registry {
  pinfold::release_registry of;
  std::uint64_t process = pinfold::os::this_process();
};

namespace pinfold::c {

namespace {

static_assert(sizeof(release_message) == PINFOLD_RELEASE_MESSAGE_BYTES);

/// Returns the numbers in a handle of the importer, given in `bytes`.
template <class Importer>
result<release_id> id_in(const void* bytes) {
  typename Importer::handle_type handle;
  std::memcpy(static_cast<void*>(&handle), bytes, sizeof handle);
  if (auto whole = Importer().check(handle); !whole) return tl::unexpected(whole.error());
  return release_id{handle.exporter, handle.serial};
}

result<release_id> id_in(const void* handle, std::size_t bytes) {
  if (handle == nullptr) return fail(errc::invalid_argument, "the handle is null");
  if (bytes == sizeof(memfd_handle)) return id_in<memfd_importer>(handle);
  if (bytes == sizeof(cuda_ipc_handle)) return id_in<cuda_ipc_importer>(handle);
  return fail(errc::invalid_handle, "the handle has another length than those of memory files and of GPU memory");
}

/// Calls `body` with the registry.
template <class Registry, class Body>
int with(Registry* registry, Body&& body) noexcept {
  if (registry == nullptr) return refuse(errc::invalid_argument, "the registry is null");
  if (registry->process != os::this_process())
    return refuse(errc::unsupported, "the registry belongs to the parent process");
  return guarded([&] { return body(registry->of); });
}

}  // namespace

}  // namespace pinfold::c

extern "C" {

int pinfold_release_id_of(const void* handle, size_t handle_bytes, pinfold_release_id* id) {
  using namespace pinfold;
  if (id == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the numbers");
  return c::guarded([&]() -> result<void> {
    const auto found = c::id_in(handle, handle_bytes);
    if (!found) return tl::unexpected(found.error());
    *id = {found->exporter, found->serial};
    return {};
  });
}

int pinfold_release_registry_create(uint64_t exporter, pinfold_release_registry** registry) {
  using namespace pinfold;
  if (registry == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the registry");
  *registry = nullptr;
  return c::guarded([&]() -> result<void> {
    *registry = new pinfold_release_registry{release_registry(exporter)};
    return {};
  });
}

void pinfold_release_registry_destroy(pinfold_release_registry* registry) { delete registry; }

int pinfold_release_registry_add(pinfold_release_registry* registry, uint64_t serial) {
  return pinfold::c::with(registry, [&](auto& of) { return of.add(serial); });
}

int pinfold_release_registry_lend(pinfold_release_registry* registry, uint64_t serial, uint64_t peer, int32_t pid) {
  return pinfold::c::with(registry, [&](auto& of) { return of.lend(serial, peer, pid); });
}

int pinfold_release_registry_begin_retire(pinfold_release_registry* registry, uint64_t serial, uint64_t timeout_ms) {
  using namespace pinfold;
  return c::with(registry, [&](auto& of) -> result<void> {
    const auto begun = of.begin_retire(serial, c::as_timeout(timeout_ms));
    if (!begun) return tl::unexpected(begun.error());
    return {};
  });
}

int pinfold_release_registry_next_request(pinfold_release_registry* registry, uint64_t peer, void* message, size_t room,
                                          size_t* bytes) {
  using namespace pinfold;
  if (bytes == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the message's length");
  *bytes = 0;
  if (message == nullptr || room < sizeof(release_message))
    return c::refuse(errc::invalid_argument, "there is too little room for a message");
  return c::with(registry, [&](auto& of) -> result<void> {
    const auto next = of.next_request(peer);
    if (!next) return {};
    std::memcpy(message, &*next, sizeof *next);
    *bytes = sizeof *next;
    return {};
  });
}

int pinfold_release_registry_take_back(pinfold_release_registry* registry, uint64_t peer, const void* message,
                                       size_t bytes) {
  using namespace pinfold;
  return c::with(registry, [&](auto& of) -> result<void> {
    const auto request = c::message_in(message, bytes);
    if (!request) return tl::unexpected(request.error());
    of.take_back(peer, *request);
    return {};
  });
}

int pinfold_release_registry_receive(pinfold_release_registry* registry, uint64_t peer, const void* message,
                                     size_t bytes) {
  using namespace pinfold;
  return c::with(registry, [&](auto& of) -> result<void> {
    const auto answer = c::message_in(message, bytes);
    if (!answer) return tl::unexpected(answer.error());
    if (answer->kind == release_kind::answer) static_cast<void>(of.receive(peer, *answer));
    return {};
  });
}

int pinfold_release_registry_died(pinfold_release_registry* registry, uint64_t peer) {
  return pinfold::c::with(registry,
                          [&](auto& of) { return static_cast<void>(of.died(peer)), pinfold::result<void>(); });
}

int pinfold_release_registry_lost(pinfold_release_registry* registry, uint64_t peer) {
  return pinfold::c::with(registry,
                          [&](auto& of) { return static_cast<void>(of.lost(peer)), pinfold::result<void>(); });
}

int pinfold_release_registry_wait(const pinfold_release_registry* registry, uint64_t serial, uint64_t timeout_ms,
                                  pinfold_retire_report* report) {
  using namespace pinfold;
  if (!c::has_room(report)) return c::refuse(errc::invalid_argument, c::no_place);
  return c::with(registry, [&](const auto& of) -> result<void> {
    const auto seen = of.wait(serial, c::as_timeout(timeout_ms));
    if (!seen) return tl::unexpected(seen.error());
    static_cast<void>(c::write(c::in_c(*seen), report));
    return {};
  });
}

int pinfold_release_registry_holders(const pinfold_release_registry* registry, uint64_t serial,
                                     pinfold_release_holder* holders, size_t room, size_t* count) {
  using namespace pinfold;
  if (count == nullptr || (holders == nullptr && room > 0))
    return c::refuse(errc::invalid_argument, "there is no place for the holders");
  *count = 0;
  return c::with(registry, [&](const auto& of) -> result<void> {
    const auto seen = of.report(serial);
    if (!seen) return tl::unexpected(seen.error());
    c::write_holders(*seen, holders, room, count);
    return {};
  });
}

int pinfold_release_registry_forget(pinfold_release_registry* registry, uint64_t serial) {
  return pinfold::c::with(registry, [&](auto& of) { return of.forget(serial), pinfold::result<void>(); });
}

}  // extern "C"
