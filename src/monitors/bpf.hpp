// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitor that asks the kernel itself: programs at its tracepoints record what goes away in this address space,
/// whoever takes it, and this process reads that with one load.
///
/// It sees munmap, mmap over something, both ends of mremap, destructive advice, a heap that shrinks, System V
/// segments, remap_file_pages, truncation and holes, of memory files by other processes too, the same through io_uring
/// and through 32-bit system calls; made by any thread, a vfork child, or code that calls no function of any library.
/// All that is recorded *before* it happens, except what other processes do to files: that, before their call returns.
///
/// The kernel cannot write to the board. Who wants to know whether memory may be gone compares three words, in this
/// order, all with acquire:
///
///     if (*monitor.kernel_generation() != monitor.drained()) monitor.drain();
///     board.generation() ...                                               // as without this monitor
///
/// An event that happened before such a look is in the first word, as the kernel counts with a locked instruction in
/// the system call that makes the event; when the second has the same value, the event was put on the board before the
/// second was written, so that the third shows it.
#pragma once

#include "monitors/bpf_client.hpp"
#include "monitors/bpf_ring.hpp"
#include "watch/monitor.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace pinfold::monitors {

/// Where the kernel programs may come from: what is there first is taken.
struct bpf_source {
  /// A `pinfold monitord` that listens there, for processes without privileges, and so that many share one set of
  /// programs. Empty: do not ask.
  std::string socket = "/run/pinfold/monitord";
  /// This process, which needs CAP_BPF and CAP_PERFMON.
  bool load = true;
};

class bpf_monitor final : public watch::monitor {
 public:
  bpf_monitor(watch::board& board, watch::watched_memory& watched, bpf_subscription subscription, bpf_ring ring);
  ~bpf_monitor() override;

  [[nodiscard]] const char* name() const noexcept override { return "bpf"; }
  [[nodiscard]] result<void> watch(const range& pages) noexcept override;
  void settle() noexcept override { drain(); }

  /// False in a forked child; when the server has given this process up; and when somebody has closed descriptors that
  /// were not his.
  [[nodiscard]] bool works() const noexcept override;

  /// Written by the kernel. Readable as long as this object is there, in a child of fork(2) too, where it says nothing.
  [[nodiscard]] const std::atomic<std::uint64_t>* kernel_generation() const noexcept override {
    return &ring_.generation();
  }
  [[nodiscard]] bool sees_files() const noexcept override { return true; }
  [[nodiscard]] const std::atomic<std::uint64_t>& drained() const noexcept { return ring_.drained(); }

  /// Puts what the kernel has recorded on the board. On return that is done for all that was recorded before the call,
  /// by whichever thread: up to the returned generation. Takes no lock and allocates nothing; any thread, any signal
  /// handler. Does nothing in a child of fork(2).
  std::uint64_t drain() noexcept override {
    const auto seen = ring_.generation().load(std::memory_order_acquire);
    if (seen == drained().load(std::memory_order_acquire)) return seen;
    return drain_slowly();
  }

  /// For the handler of pthread_atfork.
  void leave_to_parent() noexcept;

 private:
  [[nodiscard]] bool is_child() const noexcept { return board_.process() != process_; }
  std::uint64_t drain_slowly() noexcept;

  watch::board& board_;
  watch::watched_memory& watched_;
  const std::uint64_t process_;
  bpf_links links_;
  bpf_descriptor connection_;
  bool served_;
  bpf_ring ring_;
};

/// Errors are those of the last source that was tried: `not_permitted` without privileges where nobody serves,
/// `unsupported` on a kernel that lacks what is needed (tp_btf programs, CONFIG_DEBUG_INFO_BTF), or where this library
/// was built without libbpf, and those of `bpf_subscribe_at`. Tens of milliseconds, unless a server is there.
///
/// What costs: 6 descriptors, closed by exec and in children of fork(2), and 100 KB. While one is open anywhere, every
/// system call and every page fault in the system is longer: docs/monitors.md.
[[nodiscard]] result<std::unique_ptr<bpf_monitor>> make_bpf(watch::board& board, watch::watched_memory& watched,
                                                            const bpf_source& source = {});

}  // namespace pinfold::monitors
