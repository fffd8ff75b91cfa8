// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Events of memory with a file behind it; many of them are caused by other processes.
#pragma once

#include "support/hazards/hazards_memory.hpp"

#include <cstdlib>
#include <string>

namespace pinfold::testing::hazards {

inline int memory_file() {
  const int file = ::memfd_create("hazard", MFD_CLOEXEC);
  if (::ftruncate(file, usual_bytes) != 0) throw std::runtime_error("cannot grow a memfd");
  return file;
}

/// Opens a file whose name is already removed, on disk or in memory; returns -1 where it cannot.
inline int file_in(const char* folder) {
  const int file = ::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  const std::vector<char> content(usual_bytes, 'x');
  if (file >= 0 && ::pwrite(file, content.data(), content.size(), 0) != static_cast<ssize_t>(content.size())) return -1;
  return file;
}

using file_event = std::function<bool(const target&, int file)>;

inline answer on_file_of(stage& on, int file, int flags, const file_event& event) {
  if (file < 0) return answer::unknown_here;
  return happens_to(on, mapping(flags, file), [&](const target& at) { return event(at, file); });
}
inline std::function<answer(stage&)> on_memory_file(int flags, file_event event) {
  return [=](stage& on) { return on_file_of(on, memory_file(), flags, event); };
}
inline std::function<answer(stage&)> on_file_in(const char* folder, int flags, file_event event) {
  return [=](stage& on) { return on_file_of(on, file_in(folder), flags, event); };
}

/// Causes the event in a process that has nothing but the descriptor.
inline file_event by_another_process(file_event event) {
  return [event = std::move(event)](const target& at, int file) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::munmap(at.data, at.bytes);
      ::_exit(event(at, file) ? 0 : 1);
    }
    int status = -1;
    return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
  };
}

inline bool punched(const target& at, int file) { return attacks::punch(file, at) == 0; }
inline bool truncated(const target& at, int file) { return attacks::truncate_and_grow(file, at) == 0; }
inline bool nothing(const target&, int) { return true; }
template <int Advice>
bool advised(const target& at, int) {
  return ::madvise(at.data, at.bytes, Advice) == 0;
}

inline bool mapped_again(const target& at, int file) {
  if (::munmap(at.data, at.bytes) != 0) return false;
  return ::mmap(at.data, at.bytes, attacks::readable_writable, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0) == at.data;
}

inline bool removed_by_child(const target& at, int) { return attacks::child_discards(at); }

/// `other`: another segment is attached at the address.
inline answer segments(stage& on, bool other) {
  const int first = ::shmget(IPC_PRIVATE, usual_bytes, 0600), second = ::shmget(IPC_PRIVATE, usual_bytes, 0600);
  if (first < 0 || second < 0) return answer::unknown_here;
  void* const at = ::shmat(first, nullptr, 0);
  const target all{static_cast<std::byte*>(at), usual_bytes};
  auto seen = answer::unknown_here;
  if (at != reinterpret_cast<void*>(-1)) {
    on.before(all);
    if (::shmdt(at) == 0 && ::shmat(other ? second : first, at, 0) == at) seen = on.after(all);
  }
  for (const int one : {first, second}) ::shmctl(one, IPC_RMID, nullptr);
  return seen;
}

inline const std::vector<hazard>& of_files() {
  constexpr auto private_file = MAP_PRIVATE, shared_file = MAP_SHARED;
  static const std::vector<hazard> list{
      {"shared memfd: madvise DONTNEED", all_monitors, false, on_memory_file(shared_file, advised<MADV_DONTNEED>)},
      {"shared memfd: unmapped and mapped again", all_monitors, false, on_memory_file(shared_file, mapped_again)},
      {"shared memfd: madvise REMOVE", all_monitors, true, on_memory_file(shared_file, advised<MADV_REMOVE>)},
      {"shared memfd: madvise REMOVE by a child", bpf, true, on_memory_file(shared_file, removed_by_child)},
      {"shared memfd: remap_file_pages", hooks | bpf, true,
       on_memory_file(shared_file, [](const target& at, int) { return attacks::other_pages_of_the_file(at); })},
      {"shared memfd: hole punched", bpf, true, on_memory_file(shared_file, punched)},
      {"shared memfd: hole punched by another process", bpf, true,
       on_memory_file(shared_file, by_another_process(punched))},
      {"shared memfd: truncated and grown by another process", bpf, true,
       on_memory_file(shared_file, by_another_process(truncated))},
      {"private memfd: madvise DONTNEED", all_monitors, true, on_memory_file(private_file, advised<MADV_DONTNEED>)},
      {"private memfd: truncated and grown by another process", bpf, true,
       on_memory_file(private_file, by_another_process(truncated))},
      {"shared file on a disk", all_monitors, false, on_file_in(".", shared_file, nothing)},
      {"private file on a disk: truncated and grown", bpf, true, on_file_in(".", private_file, truncated)},
      {"private file on a disk: truncated and grown by another process", bpf, true,
       on_file_in(".", private_file, by_another_process(truncated))},
      {"private file in a tmpfs: truncated and grown by another process", bpf, true,
       on_file_in("/dev/shm", private_file, by_another_process(truncated))},
      {"System V segment: shmdt, and shmat of the same", hooks | bpf, false,
       [](stage& on) { return segments(on, false); }},
      {"System V segment: shmdt, and shmat of another", hooks | bpf, true,
       [](stage& on) { return segments(on, true); }},
  };
  return list;
}

}  // namespace pinfold::testing::hazards
