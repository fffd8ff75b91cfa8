// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The bpf(2) calls made after the programs are loaded. They return the results of the system call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::monitors {

[[nodiscard]] inline long bpf_call(bpf_cmd command, bpf_attr& what) noexcept {
  return ::syscall(SYS_bpf, command, &what, sizeof what);
}

/// Returns all zeros, also in the padding, as the kernel requires.
[[nodiscard]] inline bpf_attr bpf_nothing() noexcept {
  bpf_attr empty;
  std::memset(&empty, 0, sizeof empty);
  return empty;
}

[[nodiscard]] inline bpf_attr bpf_element(int map, const void* key, void* value) noexcept {
  bpf_attr what = bpf_nothing();
  what.map_fd = static_cast<std::uint32_t>(map);
  what.key = reinterpret_cast<std::uintptr_t>(key);
  what.value = reinterpret_cast<std::uintptr_t>(value);
  return what;
}

[[nodiscard]] inline bool bpf_look_up(int map, const void* key, void* value) noexcept {
  bpf_attr what = bpf_element(map, key, value);
  return bpf_call(BPF_MAP_LOOKUP_ELEM, what) == 0;
}

[[nodiscard]] inline bool bpf_update(int map, const void* key, void* value) noexcept {
  bpf_attr what = bpf_element(map, key, value);
  return bpf_call(BPF_MAP_UPDATE_ELEM, what) == 0;
}

/// Updates many elements, whose keys and values are in arrays. Returns how many it has, and sets `errno` if that is not
/// all. Since Linux 6.8 a map of maps needs one grace period for all.
[[nodiscard]] inline std::uint32_t bpf_update_many(int map, std::uint32_t* keys, int* values,
                                                   std::uint32_t count) noexcept {
  bpf_attr what = bpf_nothing();
  what.batch.map_fd = static_cast<std::uint32_t>(map);
  what.batch.keys = reinterpret_cast<std::uintptr_t>(keys);
  what.batch.values = reinterpret_cast<std::uintptr_t>(values);
  what.batch.count = count;
  if (bpf_call(BPF_MAP_UPDATE_BATCH, what) == 0) return count;
  // The count says nothing if the kernel looked at none: so each again, which changes nothing where it was done.
  std::uint32_t done = 0;
  while (done < count && bpf_update(map, keys + done, values + done)) ++done;
  return done;
}

inline void bpf_remove(int map, const void* key) noexcept {
  bpf_attr what = bpf_element(map, key, nullptr);
  static_cast<void>(bpf_call(BPF_MAP_DELETE_ELEM, what));
}

/// Makes a map of one value that processes can map. Returns the descriptor, closed by exec, or -1.
[[nodiscard]] inline int bpf_make_value_map(std::size_t bytes) noexcept {
  bpf_attr what = bpf_nothing();
  what.map_type = BPF_MAP_TYPE_ARRAY;
  what.map_flags = BPF_F_MMAPABLE;
  what.key_size = sizeof(std::uint32_t);
  what.value_size = static_cast<std::uint32_t>(bytes);
  what.max_entries = 1;
  std::memcpy(what.map_name, "pinfold_ring", sizeof "pinfold_ring");
  return static_cast<int>(bpf_call(BPF_MAP_CREATE, what));
}

/// Attaches a program of type tp_btf to the tracepoint that it was loaded for. Returns the link's descriptor, closed by
/// exec, or -1.
[[nodiscard]] inline int bpf_attach(int program) noexcept {
  bpf_attr what = bpf_nothing();
  what.raw_tracepoint.prog_fd = static_cast<std::uint32_t>(program);
  return static_cast<int>(bpf_call(BPF_RAW_TRACEPOINT_OPEN, what));
}

}  // namespace pinfold::monitors
