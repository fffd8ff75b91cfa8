// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Separates our changes of libc's code from other threads' calls of mprotect on it: each may make a page read-only
/// that the other is about to write. For hooks: allocates nothing, and makes system calls only to wait.
#pragma once

#include <atomic>
#include <cstdint>

namespace pinfold::monitors {

/// A readers-writer lock: calls share it; a change has priority and excludes them. It lies on memory that a child of
/// fork(2) finds zeroed, because the threads that held it do not exist there.
class code_lock {
 public:
  /// Held by a thread during a call that changes the protection of guarded code. Waits up to about half a second for a
  /// change, and then continues without the lock, because a program's call must not hang. A signal handler's call
  /// within the change continues at once.
  class shared {
   public:
    /// Null: holds nothing.
    explicit shared(code_lock* of) noexcept;
    shared(const shared&) = delete;
    shared& operator=(const shared&) = delete;
    ~shared();

   private:
    code_lock* of_;
  };

  /// Held by the thread that changes code, one thread at a time. Waits up to about half a second for calls.
  class exclusive {
   public:
    explicit exclusive(code_lock& of) noexcept;
    exclusive(const exclusive&) = delete;
    exclusive& operator=(const exclusive&) = delete;
    ~exclusive();

    /// Returns false if a call did not end: the code must then not be changed.
    [[nodiscard]] bool held() const noexcept { return held_; }

   private:
    code_lock& of_;
    bool held_ = false;
  };

 private:
  std::atomic<std::uint32_t> calls_{0};       // or the mark of a change
  std::atomic<std::uint32_t> changed_by_{0};  // the thread that changes the code or waits to
};

}  // namespace pinfold::monitors
