// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Import caches that let memory go when its exporter requests it.
#pragma once

#include "c/built_in.hpp"
#include "os/this_process.hpp"

#include <pinfold/release/listener.hpp>
#include <pinfold/release/releasing_importer.hpp>
#include <pinfold/release_carried.h>

#include <cstdint>
#include <memory>
#include <utility>

struct pinfold_release_listener {
  std::shared_ptr<void> users;  ///< each cache over the listener has a copy; its address marks calls of `send`
  pinfold::release_listener of;
  std::uint64_t process = pinfold::os::this_process();
};

namespace pinfold::c {

/// The calls of the listener's thread into a cache, which waits for the thread in `pinfold_destroy`.
class listened_cache {
 public:
  explicit listened_cache(const pinfold_cache* cache) noexcept : cache_(cache) {}

  [[nodiscard]] result<void> attach_to(release_listener& listener) noexcept {
    auto made = listener.attach(*this);
    if (!made) return tl::unexpected(made.error());
    attached_ = *std::move(made);
    return {};
  }

  void invalidate(peer_id peer, range gone) noexcept {
    if (auto* const on = cache_->on(); on != nullptr) detail::invalidate(on, peer, gone);
  }
  result<void> progress() noexcept {
    auto* const on = cache_->on();
    return on == nullptr ? result<void>() : detail::progress(on);
  }

 private:
  const pinfold_cache* cache_;
  release_listener::attachment attached_;
};

/// Prepares the back end of a cache over the importer, with this listener. Throws `std::bad_alloc`.
template <class Importer>
void listen(back_end& behind, Importer importer, const release_listener& listener) {
  behind = over_importer(releasing_importer(std::move(importer), listener));
  behind.attach = [to = listener](const pinfold_cache* by) mutable -> result<std::shared_ptr<void>> {
    auto listened = std::make_shared<listened_cache>(by);
    if (auto attached = listened->attach_to(to); !attached) return tl::unexpected(attached.error());
    return listened;
  };
}

/// Makes a cache over the importer that `make`, which may throw, returns, with a listener of its own.
template <class Make>
[[nodiscard]] int create_releasing(const pinfold_options* options, pinfold_cache** cache, Make&& make) noexcept {
  if (cache != nullptr) *cache = nullptr;
  back_end behind;
  const int made = guarded([&]() -> result<void> {
    auto listener = release_listener::create();
    if (!listener) return tl::unexpected(listener.error());
    listen(behind, make(), *listener);
    return {};
  });
  if (made != PINFOLD_OK) return made;
  return create(std::move(behind), options, cache);
}

/// Makes a cache over the importer that `make`, which may throw, returns, with the given listener.
template <class Make>
[[nodiscard]] int create_carried(pinfold_release_listener* listener, const pinfold_options* options,
                                 pinfold_cache** cache, Make&& make) noexcept {
  if (cache != nullptr) *cache = nullptr;
  if (listener == nullptr) return refuse(errc::invalid_argument, "the listener is null");
  if (callback::of_listener(listener->users.get()))
    return refuse(errc::in_use_conflict, "called from `send` of the listener");
  back_end behind;
  const int made = guarded([&]() -> result<void> {
    listen(behind, make(), listener->of);
    // `user` is destroyed last: then the listener may be destroyed.
    struct owners {
      std::shared_ptr<void> user, importer;
    };
    behind.owner = std::make_shared<owners>(owners{listener->users, behind.owner});
    behind.listener = listener->users.get();
    return {};
  });
  if (made != PINFOLD_OK) return made;
  return create(std::move(behind), options, cache);
}

}  // namespace pinfold::c
