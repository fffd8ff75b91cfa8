// SPDX-License-Identifier: BSD-3-Clause
#include "os/background_closer.hpp"

#include "os/loaded_object.hpp"
#include "os/service_thread.hpp"
#include "os/this_process.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <pthread.h>
#include <utility>

namespace pinfold::os {

namespace {

struct waiting_socket {
  file socket;
  waiting_socket* next;
};

// Only the thread removes sockets. A fork leaves the child a whole list, and at worst a count that is too high.
constinit std::atomic<waiting_socket*> newest{nullptr};
constinit std::atomic<std::size_t> waiting{0};
constinit std::atomic<std::uint64_t> closing{0};  // the process whose thread closes; 0: none

std::unique_ptr<waiting_socket> take() noexcept {
  auto* one = newest.load(std::memory_order_seq_cst);
  while (one != nullptr && !newest.compare_exchange_weak(one, one->next, std::memory_order_seq_cst)) {
  }
  if (one != nullptr) waiting.fetch_sub(1, std::memory_order_seq_cst);
  return std::unique_ptr<waiting_socket>(one);
}

/// Notes that a thread of this process closes. Returns false if one does already; a child inherits its parent's note.
bool begin_closing() noexcept {
  const auto here = this_process();
  auto seen = closing.load(std::memory_order_seq_cst);
  return seen != here && closing.compare_exchange_strong(seen, here, std::memory_order_seq_cst);
}

void* close_all(void* /*unused*/) noexcept {
  ::pthread_setname_np(::pthread_self(), "pinfold-close");
  do {
    while (const auto next = take()) {
    }
    closing.store(0, std::memory_order_seq_cst);
  } while (newest.load(std::memory_order_seq_cst) != nullptr && begin_closing());
  return nullptr;
}

// Without memory or a thread, the next `close` or `has_room` tries again.
void start() noexcept {
  if (newest.load(std::memory_order_seq_cst) == nullptr || !begin_closing()) return;
  pthread_t thread{};
  if (stay_loaded() && start_service_thread(thread, nullptr, close_all, nullptr) == 0)
    ::pthread_detach(thread);
  else
    closing.store(0, std::memory_order_seq_cst);
}

}  // namespace

// Calls `stay_loaded` here, not only when the thread starts: a library that is being unloaded may wait for the server
// that starts the thread, while the dynamic linker waits for that library.
background_closer::background_closer(bool at_once) noexcept : at_once_(at_once) {
  if (!at_once) static_cast<void>(stay_loaded());
}

bool background_closer::has_room() const noexcept {
  start();
  return at_once_ || waiting.load(std::memory_order_seq_cst) < most;
}

void background_closer::close(file socket) const noexcept {
  if (at_once_) return;
  auto* const made = new (std::nothrow) waiting_socket{std::move(socket), newest.load(std::memory_order_seq_cst)};
  if (made == nullptr) return;
  waiting.fetch_add(1, std::memory_order_seq_cst);
  while (!newest.compare_exchange_weak(made->next, made, std::memory_order_seq_cst)) {
  }
  start();
}

}  // namespace pinfold::os
