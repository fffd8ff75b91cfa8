// SPDX-License-Identifier: BSD-3-Clause
#include "os/background_closer.hpp"

#include "os/all_signals_blocked.hpp"

#include <mutex>
#include <new>
#include <pthread.h>
#include <utility>
#include <vector>

namespace pinfold::os {

/// The thread has it as well, and outlives the closer if a close takes longer.
struct background_closer::state {
  std::mutex mutex;
  std::vector<file> sockets;  ///< under the mutex; never grows beyond its capacity
  bool runs = false;          ///< under the mutex: the thread does

  static void* run(void* given) noexcept;
  static void start(const std::shared_ptr<state>& one) noexcept;
};

void* background_closer::state::run(void* given) noexcept {
  const std::unique_ptr<std::shared_ptr<state>> owned(static_cast<std::shared_ptr<state>*>(given));
  state& own = **owned;
  for (;;) {
    file next;  // closed without the mutex
    const std::scoped_lock hold(own.mutex);
    own.runs = !own.sockets.empty();
    if (!own.runs) return nullptr;
    next = std::move(own.sockets.back());
    own.sockets.pop_back();
  }
}

// Without memory or a thread, the next close tries again.
void background_closer::state::start(const std::shared_ptr<state>& one) noexcept {
  auto* const given = new (std::nothrow) std::shared_ptr<state>(one);
  if (given == nullptr) return;
  const all_signals_blocked guard;
  pthread_t thread{};
  one->runs = ::pthread_create(&thread, nullptr, run, given) == 0;
  if (!one->runs) {
    delete given;
    return;
  }
  ::pthread_setname_np(thread, "pinfold-close");
  ::pthread_detach(thread);
}

background_closer::background_closer(bool at_once) {
  if (at_once) return;
  state_ = std::make_shared<state>();
  state_->sockets.reserve(2 * most);
}

bool background_closer::has_room() const noexcept {
  if (!state_) return true;
  const std::scoped_lock hold(state_->mutex);
  return state_->sockets.size() < most;
}

void background_closer::close(file socket) noexcept {
  if (!state_) return;
  const std::scoped_lock hold(state_->mutex);
  if (state_->sockets.size() == state_->sockets.capacity()) return;
  state_->sockets.push_back(std::move(socket));
  if (!state_->runs) state::start(state_);
}

}  // namespace pinfold::os
