// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Delays fork(2) while the library opens or closes a descriptor that children must not have.
#pragma once

namespace pinfold::os {

/// While one exists, fork(2) waits, at most a second. Held until a new descriptor is recorded, so that no child
/// inherits one without a record. Also held while a closed one is removed: fork(2) copies the descriptors before the
/// memory, so a fork that copied the descriptor must still copy its record.
class no_fork {
 public:
  no_fork() noexcept;
  no_fork(const no_fork&) = delete;
  no_fork& operator=(const no_fork&) = delete;
  ~no_fork();

 private:
  bool held_;
  unsigned forks_;  // before it
};

/// Waits as fork(2) does, once for each fork. For handlers before fork(2) that lock a mutex which a thread locks while
/// it has a `no_fork`: each thread must take both in this order, and the linker decides the order of handlers.
void wait_for_no_fork() noexcept;

}  // namespace pinfold::os
