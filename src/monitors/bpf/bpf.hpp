// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitor inside the kernel: programs at tracepoints record all memory that goes away in this address space, and
/// this process reads the record with one load.
///
/// It sees munmap, mmap over a mapping, both ends of mremap, destructive advice, a shrinking heap, System V segments,
/// remap_file_pages, truncation and holes (of memory files also by other processes), and the same through io_uring and
/// 32-bit system calls. Any thread, a vfork child, or code that calls no library function may make the call. The
/// programs record every event *before* it happens, except changes of files by other processes: those, before the other
/// process's call returns. A request of an io_uring may wait for others after it was submitted: the programs record
/// what it takes away again, before its completion can be read.
///
/// The kernel cannot write to the event log. So a hit compares the sum of `kernel_generation()` and the event log's
/// generation with the sum that its cache has seen (`hit_view::current`). If it has changed, the request calls
/// `drain()`, and then loads the event log's generation.
///
/// An event that happened before such a comparison is in the first word, because the kernel counts with a locked
/// instruction in the system call that causes the event. When `drain()` has returned, every event counted before the
/// call is in the event log, so the event log's generation, loaded afterwards, includes it.
#pragma once

#include "invalidation/monitor.hpp"
#include "monitors/bpf/client.hpp"
#include "monitors/bpf/holder.hpp"
#include "monitors/bpf/ring.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace pinfold::monitors {

/// Where the kernel programs may come from: the first that is available is used.
struct bpf_source {
  /// The socket of a `pinfold monitord`, for processes without privileges, and to share one set of programs between
  /// many processes. Empty: use no server.
  std::string socket = "/run/pinfold/monitord";
  /// Whether this process may load them, for which it needs CAP_BPF and CAP_PERFMON.
  bool load = true;
  /// Whether the user named the socket: a missing server is then an error.
  bool named = false;
};

class bpf_monitor final : public invalidation::monitor {
 public:
  bpf_monitor(invalidation::event_log& event_log, invalidation::registered_filter& watched, bpf_ring ring);
  ~bpf_monitor() override;

  /// Called once, before the monitor is used.
  [[nodiscard]] result<void> start(bpf_links links, os::file connection) noexcept;

  [[nodiscard]] const char* name() const noexcept override { return "bpf"; }
  [[nodiscard]] result<void> watch(const range& pages) noexcept override;
  void wait_for_events() noexcept override { drain(); }

  /// False in a forked child, and after the server has released this process. The server may end, and the application
  /// may close descriptors that it does not own.
  [[nodiscard]] bool works() const noexcept override;

  /// Written by the kernel. Readable while this object exists, also in a child of fork(2), where it has no meaning.
  [[nodiscard]] const std::atomic<std::uint64_t>* kernel_generation() const noexcept override {
    return &ring_.generation();
  }
  [[nodiscard]] bool sees_files() const noexcept override { return true; }
  [[nodiscard]] const std::atomic<std::uint64_t>& drained() const noexcept { return ring_.drained(); }

  /// Writes the kernel's records to the event log. On return that is done, by this thread or another, for all records
  /// made before the call: up to the returned generation. Takes no lock and allocates nothing. For any thread and any
  /// signal handler. Does nothing in a child of fork(2).
  std::uint64_t drain() noexcept override {
    const auto seen = ring_.generation().load(std::memory_order_acquire);
    if (seen == drained().load(std::memory_order_acquire)) return seen;
    return drain_slowly();
  }

  /// Called by the handler of pthread_atfork in the child.
  void leave_to_parent() noexcept;

 private:
  [[nodiscard]] bool is_child() const noexcept { return event_log_.process() != process_; }
  std::uint64_t drain_slowly() noexcept;

  invalidation::event_log& event_log_;
  invalidation::registered_filter& watched_;
  const std::uint64_t process_;
  bpf_ring ring_;
  bpf_holder holder_;  // ends before the ring
};

/// Makes the monitor, in tens of milliseconds, or less with a server. Errors: those of `bpf_subscribe_at`, if the user
/// named the server's socket or a socket exists; else `not_permitted` without privileges, and `unsupported` on a kernel
/// that lacks a feature (tp_btf programs, CONFIG_DEBUG_INFO_BTF) or in a build without libbpf.
///
/// Costs 100 KB, and a thread that holds 6 descriptors, or 7 with a server, in a table of its own: exec closes them,
/// and children of fork(2) do not have them. `out_of_resources` if the thread cannot be started. While a monitor is
/// open in any process, every system call and every page fault in the system takes longer: docs/understand/monitors.md.
[[nodiscard]] result<std::unique_ptr<bpf_monitor>> make_bpf(invalidation::event_log& event_log,
                                                            invalidation::registered_filter& watched,
                                                            const bpf_source& source = {});

/// The same with a subscription that this process has.
[[nodiscard]] result<std::unique_ptr<bpf_monitor>> make_subscribed_bpf(invalidation::event_log& event_log,
                                                                       invalidation::registered_filter& watched,
                                                                       bpf_subscription subscription);

}  // namespace pinfold::monitors
