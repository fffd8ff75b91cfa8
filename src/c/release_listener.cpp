// SPDX-License-Identifier: BSD-3-Clause
// The importer's side of the release protocol, if the application carries the messages.
#include "c/callbacks.hpp"
#include "c/release.hpp"
#include "c/releasing.hpp"
#include "c/structure.hpp"
#include "os/this_process.hpp"

#include <pinfold/release_carried.h>

#include <memory>

namespace pinfold::c {

namespace {

constexpr auto no_listener = "the listener is null";

}  // namespace

}  // namespace pinfold::c

extern "C" {

int pinfold_release_listener_create(pinfold_release_send send, void* self, pinfold_release_listener** listener) {
  using namespace pinfold;
  if (listener == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the listener");
  *listener = nullptr;
  if (send == nullptr) return c::refuse(errc::invalid_argument, "there is no function that sends");
  return c::guarded([&]() -> result<void> {
    const auto users = std::make_shared<char>();
    const auto carry = [send, self, of = users.get()](const release_message& answer) -> result<void> {
      pinfold_error failure{};
      const int code =
          c::called(of, failure, [&] { return send(self, answer.exporter, &answer, sizeof answer, &failure); });
      if (code == PINFOLD_OK) return {};
      return tl::unexpected(c::from_callback(code, failure, "the function that sends failed"));
    };
    auto made = release_listener::create(release_listener::send_call(carry));
    if (!made) return tl::unexpected(made.error());
    *listener = new pinfold_release_listener{users, *std::move(made)};  // NOLINT(bugprone-unhandled-exception-at-new)
    return {};
  });
}

int pinfold_release_listener_destroy(pinfold_release_listener* listener) {
  using namespace pinfold;
  if (listener == nullptr) return PINFOLD_OK;
  if (c::callback::of_listener(listener->users.get()))
    return c::refuse(errc::in_use_conflict, "called from `send` of the listener");
  // In a child of fork(2), the caches belong to the parent and never end.
  if (listener->process == os::this_process() && listener->users.use_count() > 1)
    return c::refuse(errc::in_use_conflict, "a cache over the listener was not destroyed");
  const detail::no_cancellation guard;
  delete listener;
  return PINFOLD_OK;
}

int pinfold_release_listener_receive(pinfold_release_listener* listener, const void* message, size_t bytes) {
  using namespace pinfold;
  if (listener == nullptr) return c::refuse(errc::invalid_argument, c::no_listener);
  const auto read = c::message_in(message, bytes);
  return read ? c::as_code(listener->of.receive(*read)) : c::refuse(read.error());
}

int pinfold_release_listener_progress(pinfold_release_listener* listener) {
  using namespace pinfold;
  if (listener == nullptr) return c::refuse(errc::invalid_argument, c::no_listener);
  return c::as_code(listener->of.progress());
}

int pinfold_release_listener_statistics_of(const pinfold_release_listener* listener,
                                           pinfold_release_listener_statistics* statistics) {
  using namespace pinfold;
  if (listener == nullptr) return c::refuse(errc::invalid_argument, c::no_listener);
  const auto seen = listener->of.statistics();
  const pinfold_release_listener_statistics known{sizeof known, seen.mappings,      seen.retiring, seen.requests,
                                                  seen.refused, seen.failed_closes, seen.unsent};
  if (!c::write(known, statistics)) return c::refuse(errc::invalid_argument, c::no_place);
  return PINFOLD_OK;
}

}  // extern "C"
