// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory that is shared with other processes, but looks private to this one.
#pragma once

#include "support/hazards/hazards_files.hpp"

#include <array>
#include <string>
#include <sys/mount.h>

namespace pinfold::testing::hazards {

/// Makes the first segment of a new IPC namespace; the kernel lists its id, 0, as its inode. Returns -1 where it
/// cannot.
inline int first_segment() {
  if (::unshare(CLONE_NEWIPC) != 0) return -1;
  return ::shmget(IPC_PRIVATE, usual_bytes, 0600) == 0 ? 0 : -1;
}

template <class F>
answer on_first_segment(stage& on, F&& event) {
  if (first_segment() != 0) return answer::unknown_here;
  void* const at = ::shmat(0, nullptr, 0);
  const target all{static_cast<std::byte*>(at), usual_bytes};
  on.before(all);
  const auto seen = event(all) ? on.after(all) : answer::unknown_here;
  ::shmctl(0, IPC_RMID, nullptr);
  return seen;
}

inline bool another_is_attached_inline(const target& at) {
  const int second = ::shmget(IPC_PRIVATE, at.bytes, 0600);
  return second >= 0 && raw_call(SYS_shmdt, at.data, 0) == 0 && ::shmat(second, at.data, 0) == at.data;
}

inline answer first_segment_punched(stage& on) { return on_first_segment(on, attacks::child_discards); }
inline answer first_segment_replaced(stage& on) {
  if constexpr (!has_raw_calls) return answer::unknown_here;
  return on_first_segment(on, another_is_attached_inline);
}

/// Opens a file at the root of a detached mount: the kernel lists only its name, as it does for huge pages.
inline int file_called_anon_hugepage() {
  std::array<char, 32> folder{"/tmp/pinfold-hazards-XXXXXX"};
  if (::unshare(CLONE_NEWNS) != 0 || ::mkdtemp(folder.data()) == nullptr) return -1;
  const bool mounted = ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       ::mount("tmpfs", folder.data(), "tmpfs", 0, nullptr) == 0;
  const auto name = std::string(folder.data()) + "/anon_hugepage";
  const int file = mounted ? ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (mounted) ::umount2(folder.data(), MNT_DETACH);
  ::rmdir(folder.data());
  return file >= 0 && ::ftruncate(file, usual_bytes) == 0 ? file : -1;
}

inline int file_called_as_a_library() {
  std::array<char, 40> name{"/tmp/pinfold-hazards-XXXXXX.so.db"};
  const int file = ::mkostemps(name.data(), 6, O_CLOEXEC);
  if (file < 0) return -1;
  ::unlink(name.data());
  return ::ftruncate(file, usual_bytes) == 0 ? file : -1;
}

inline const std::vector<hazard>& of_identity() {
  static const std::vector<hazard> list{
      {"System V segment with the id 0: madvise REMOVE by a child", all_monitors, true, first_segment_punched},
      {"System V segment with the id 0: inline shmdt, and shmat of another", all_monitors, true,
       first_segment_replaced},
      {"private file called /anon_hugepage: truncated and grown by another process", all_monitors, true,
       [](stage& on) {
         return on_file_of(on, file_called_anon_hugepage(), MAP_PRIVATE, by_another_process(truncated));
       }},
      {"private file called x.so.db: truncated and grown by another process", all_monitors, true,
       [](stage& on) {
         return on_file_of(on, file_called_as_a_library(), MAP_PRIVATE, by_another_process(truncated));
       }},
  };
  return list;
}

}  // namespace pinfold::testing::hazards
