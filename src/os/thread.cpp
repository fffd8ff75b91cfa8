// SPDX-License-Identifier: BSD-3-Clause
#include "os/thread.hpp"

#include "os/loaded_object.hpp"
#include "os/no_cancellation.hpp"
#include "os/service_thread.hpp"

#include <sys/socket.h>

namespace pinfold::os {

result<void> thread::start(const char* name, void (*body)(void* self), void* self) noexcept {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    return fail_system("cannot create the sockets that wake a thread");
  ends_ = {file(ends[0]), file(ends[1])};
  if (!ends_[0] || !ends_[1]) return fail_system("cannot keep the sockets that wake a thread");
  name_ = name;
  body_ = body;
  self_ = self;
  const auto entry = [](void* made) -> void* {
    const auto& to = *static_cast<thread*>(made);
    ::pthread_setname_np(::pthread_self(), to.name_);
    to.body_(to.self_);
    return nullptr;
  };
  const int native = start_service_thread(number_, nullptr, entry, this);
  running_ = native == 0;
  if (!running_) return fail_errno(code_for(native), native, "cannot start a thread of the library");
  return {};
}

void thread::stop() noexcept {
  if (!running_ || this_process() != process_) return;
  const detail::no_cancellation whole;
  running_ = false;
  stop_.store(true, std::memory_order_seq_cst);
  wake();
  if (::pthread_equal(number_, ::pthread_self()) != 0) {
    static_cast<void>(stay_loaded());  // it returns through code of this library
    ::pthread_detach(number_);
  } else {
    ::pthread_join(number_, nullptr);
  }
}

// A full buffer wakes the thread too. If the program closed the sockets, the thread sees `stop_` at its next check.
void thread::wake() noexcept {
  const char one = 0;
  if (ends_[1].still_there()) static_cast<void>(::send(ends_[1].number(), &one, 1, MSG_DONTWAIT | MSG_NOSIGNAL));
}

bool thread::goes_on() noexcept {
  std::array<char, 64> read{};
  if (!ends_[0].still_there()) return !stops();
  while (::recv(ends_[0].number(), read.data(), read.size(), MSG_DONTWAIT) > 0) {
  }
  return !stops();
}

}  // namespace pinfold::os
