// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory of any kind at a fixed place, and the state of each of its pages.
#pragma once

#include "support/host/process_limits.hpp"
#include "vocabulary.hpp"

#include <pinfold/monitors/announce.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::hazard_fuzz {

inline constexpr std::size_t page_bytes = 4096;
inline constexpr std::size_t huge_bytes = std::size_t{2} << 20U;

/// A range of offsets in a slot.
struct part {
  std::size_t begin = 0;
  std::size_t end = 0;

  [[nodiscard]] std::size_t size() const { return end - begin; }
  [[nodiscard]] bool overlaps(const part& other) const { return begin < other.end && other.begin < end; }
};

/// An event of a slot, for reports.
struct step {
  std::uint64_t number = 0;
  unsigned thread = 0;
  memory_event what{};
  mechanism via{};
  memory_kind to{};
  part where{};
  bool done = false;
  bool leased = false;  ///< the thread that caused the event held leases
};

/// A slot. Only the thread that owns it touches it: the thread that it was made for, or the one that holds `owner`.
class slot {
 public:
  /// `announces`: the application announces all memory before it goes.
  slot(std::uintptr_t base, std::size_t largest, bool announces)
      : base_(base), announces_(announces), destroyed_(largest / page_bytes) {}
  slot(const slot&) = delete;
  slot& operator=(const slot&) = delete;
  ~slot() {
    demolish();
    forget();
  }

  std::mutex owner;

  [[nodiscard]] std::byte* at(std::size_t offset = 0) const { return reinterpret_cast<std::byte*>(base_ + offset); }
  [[nodiscard]] std::uintptr_t base() const { return base_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::size_t unit() const { return kind_ == memory_kind::hugetlb ? huge_bytes : page_bytes; }
  [[nodiscard]] memory_kind kind() const { return kind_; }
  [[nodiscard]] int file() const { return file_; }
  [[nodiscard]] int segment() const { return segment_; }
  [[nodiscard]] bool is_mapped() const { return bytes_ != 0; }

  /// Returns whether all of the part is mapped with memory of the slot's kind.
  [[nodiscard]] bool is_as_it_should_be(const part& where) const {
    return is_mapped() && !foreign_ && !where.overlaps(hole_) && where.end <= bytes_;
  }

  /// Maps memory of that kind. Returns false when it cannot; then the slot is empty.
  bool build(memory_kind kind);
  /// Maps missing memory, or maps the whole slot anew. Returns false when that failed; then the slot is empty.
  bool mend();
  /// Unmaps the slot, if it is mapped.
  void demolish();

  /// Returns the number of the last event, which registrations record.
  [[nodiscard]] std::uint64_t now() const { return clock_.load(std::memory_order_relaxed); }
  /// Records that every page of the part is another one from now on.
  void destroyed(const part& where);
  /// Returns whether a page of the part went after `noted`.
  [[nodiscard]] bool went_after(std::uint64_t noted, const part& where) const;

  /// Announces the part to the caches; called before each event.
  void announce(const part& where) const {
    if (announces_) announce_gone(at(where.begin), where.size());
  }
  void has_hole(const part& where) { hole_ = where; }
  void has_other_memory() { foreign_ = true; }  ///< of another kind: the slot is rebuilt before its next use

  void note(const step& one) { history_[noted_++ % history_.size()] = one; }
  /// Returns the last steps, the oldest first.
  [[nodiscard]] std::vector<step> history() const;

  [[nodiscard]] int map_flags() const;

 private:
  bool make_backing();
  bool map(const part& where, int more);
  bool map_segment();
  void forget();

  std::uintptr_t base_;
  bool announces_;
  memory_kind kind_{};
  std::size_t bytes_ = 0;
  int file_ = -1, segment_ = -1;
  part hole_{};
  bool foreign_ = false;
  std::atomic<std::uint64_t> clock_{1};
  std::vector<std::uint64_t> destroyed_;  // for each page, the number of the event that took it
  std::array<step, 8> history_{};
  std::size_t noted_ = 0;
};

inline bool is_file(memory_kind of) {
  return of == memory_kind::shared_memfd || of == memory_kind::private_memfd || of == memory_kind::sealed_memfd ||
         of == memory_kind::private_tmpfs || of == memory_kind::private_disk;
}

inline int open_backing(memory_kind of) {
  constexpr int flags = O_TMPFILE | O_RDWR | O_CLOEXEC;
  switch (of) {
    case memory_kind::private_tmpfs: return ::open("/dev/shm", flags, 0600);
    case memory_kind::private_disk: return ::open(".", flags, 0600);
    default: return ::memfd_create("slot", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  }
}

inline bool slot::make_backing() {
  forget();
  if (is_file(kind_)) {
    file_ = open_backing(kind_);
    return file_ >= 0 && ::ftruncate(file_, static_cast<off_t>(bytes_)) == 0;
  }
  if (kind_ != memory_kind::system_v) return true;
  segment_ = ::shmget(IPC_PRIVATE, bytes_, 0600);
  return segment_ >= 0;
}

inline void slot::forget() {
  if (file_ >= 0) ::close(file_);
  if (segment_ >= 0) ::shmctl(segment_, IPC_RMID, nullptr);
  file_ = segment_ = -1;
}

inline int slot::map_flags() const {
  switch (kind_) {
    case memory_kind::hugetlb: return MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
    case memory_kind::locked: return MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED;
    case memory_kind::shared_anonymous: return MAP_SHARED | MAP_ANONYMOUS;
    case memory_kind::shared_memfd:
    case memory_kind::sealed_memfd: return MAP_SHARED;
    case memory_kind::private_memfd:
    case memory_kind::private_tmpfs:
    case memory_kind::private_disk: return MAP_PRIVATE;
    default: return MAP_PRIVATE | MAP_ANONYMOUS;
  }
}

inline bool slot::map_segment() { return ::shmat(segment_, at(), 0) == at(); }

inline bool slot::map(const part& where, int more) {
  const auto offset = static_cast<off_t>(is_file(kind_) ? where.begin : 0);
  if (::mmap(at(where.begin), where.size(), PROT_READ | PROT_WRITE, map_flags() | more, file_, offset) == MAP_FAILED)
    return false;
  if (kind_ == memory_kind::transparent_huge) ::madvise(at(where.begin), where.size(), MADV_HUGEPAGE);
  constexpr int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
  return kind_ != memory_kind::sealed_memfd || ::fcntl(file_, F_ADD_SEALS, seals) == 0;
}

inline bool slot::build(memory_kind kind) {
  kind_ = kind;
  const bool huge = kind == memory_kind::hugetlb || kind == memory_kind::transparent_huge;
  bytes_ = std::min(huge ? 2 * huge_bytes : 16 * page_bytes, destroyed_.size() * page_bytes);
  hole_ = {};
  foreign_ = false;
  if (make_backing() && (kind == memory_kind::system_v ? map_segment() : map({0, bytes_}, MAP_FIXED_NOREPLACE)))
    return true;
  ::munmap(at(), bytes_);  // in case it is mapped, but not sealed
  forget();
  bytes_ = 0;
  return false;
}

inline void slot::demolish() {
  if (!is_mapped()) return;
  announce({0, bytes_});
  ::munmap(at(), bytes_);
  destroyed({0, bytes_});
  forget();
  bytes_ = 0;
}

inline bool slot::mend() {
  const bool in_one_piece = kind_ == memory_kind::system_v || kind_ == memory_kind::sealed_memfd;
  if (hole_.size() != 0 && in_one_piece) foreign_ = true;  // a new mapping of a sealed file may not be written to
  if (foreign_) {
    demolish();
    return build(kind_);
  }
  if (hole_.size() == 0) return true;
  const part missing = hole_;
  hole_ = {};
  if (map(missing, MAP_FIXED_NOREPLACE)) return true;
  demolish();
  return false;
}

inline void slot::destroyed(const part& where) {
  const auto number = clock_.fetch_add(1, std::memory_order_relaxed) + 1;
  const auto end = std::min((where.end + page_bytes - 1) / page_bytes, destroyed_.size());
  for (std::size_t page = where.begin / page_bytes; page < end; ++page) destroyed_[page] = number;
}

inline bool slot::went_after(std::uint64_t noted, const part& where) const {
  const auto end = std::min((where.end + page_bytes - 1) / page_bytes, destroyed_.size());
  for (std::size_t page = where.begin / page_bytes; page < end; ++page)
    if (destroyed_[page] > noted) return true;
  return false;
}

inline std::vector<step> slot::history() const {
  std::vector<step> all;
  const auto first = noted_ > history_.size() ? noted_ - history_.size() : 0;
  for (std::size_t i = first; i < noted_; ++i) all.push_back(history_[i % history_.size()]);
  return all;
}

}  // namespace pinfold::testing::hazard_fuzz
