// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Stops a thread between two steps of a hit. Include it before every header of pinfold: it defines PINFOLD_SYNC_POINT.
#pragma once

#include <atomic>
#include <functional>
#include <string_view>
#include <thread>
#include <utility>

namespace pinfold::testing {

/// An action that runs once, on the thread that set it, at the named place between two steps of a hit.
struct interruption {
  std::string_view where;
  std::function<void()> what;
};
inline thread_local interruption next_interruption;

inline void reached(std::string_view where) {
  if (next_interruption.where == where) std::exchange(next_interruption, {}).what();
}

}  // namespace pinfold::testing
#define PINFOLD_SYNC_POINT(name) ::pinfold::testing::reached(#name)

namespace pinfold::testing {

/// A thread that calls `warm_up`, and then `attempt`. It stops at a place inside `attempt` until it may go on.
class stopped_hit {
 public:
  stopped_hit(std::string_view where, std::function<void()> warm_up, std::function<void()> attempt)
      : thread_([this, where, warm_up = std::move(warm_up), attempt = std::move(attempt)] {
          warm_up();
          next_interruption = {where, [this] { stop(); }};
          attempt();
          next_interruption = {};
          stopped_ = true;  // also when the thread never reached the place
        }) {
    wait_until_stopped();
  }
  ~stopped_hit() {
    go();
    thread_.join();
  }
  stopped_hit(const stopped_hit&) = delete;
  stopped_hit& operator=(const stopped_hit&) = delete;

  void go() { may_go_ = true; }
  /// Lets the thread go on to another place, and stop there.
  void go_to(std::string_view where) {
    next_ = where;
    stopped_ = false;
    go();
    wait_until_stopped();
  }
  /// Lets the thread go on by itself as soon as `holds` returns true.
  void go_when(std::function<bool()> holds) {
    when_ = std::move(holds);
    conditional_ = true;
  }

 private:
  void stop() {
    may_go_ = false;
    stopped_ = true;
    while (!may_go_ && !(conditional_ && when_())) std::this_thread::yield();
    if (const auto next = std::exchange(next_, {}); !next.empty()) next_interruption = {next, [this] { stop(); }};
  }
  void wait_until_stopped() const {
    while (!stopped_) std::this_thread::yield();
  }

  std::atomic<bool> stopped_{false};
  std::atomic<bool> may_go_{false};
  std::atomic<bool> conditional_{false};
  std::function<bool()> when_;
  std::string_view next_;
  std::thread thread_;
};

}  // namespace pinfold::testing
