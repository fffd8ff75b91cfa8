// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Keeps fork(2) away while a descriptor is made or given up that children must not have.
#pragma once

namespace pinfold::os {

/// While one exists, fork(2) waits, at most a second. Held until a new descriptor is noted, so that no child inherits
/// one that it does not know of, and when a closed one is forgotten: fork(2) copies the descriptors before the memory,
/// so a fork that copied the descriptor must still copy the note.
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

/// Waits as fork(2) does, once for each fork. For handlers before fork(2) that take a mutex which a thread takes while
/// it has a `no_fork`: each thread has to get there in this order, and the order of handlers is the linker's.
void wait_for_no_fork() noexcept;

}  // namespace pinfold::os
