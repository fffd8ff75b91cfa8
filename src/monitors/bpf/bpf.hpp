// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitor inside the kernel: programs at tracepoints record memory that goes away in this address space, for any
/// cause, and this process reads the record with one load.
///
/// It sees munmap, mmap over a mapping, both ends of mremap, destructive advice, a heap that shrinks, System V
/// segments, remap_file_pages, truncation and holes (of memory files also by other processes), and the same through
/// io_uring and 32-bit system calls. Any thread, a vfork child, or code that calls no library function may make the
/// call. The programs record it all *before* it happens, except what other processes do to files: that, before their
/// call returns.
///
/// The kernel cannot write to the event log. So a hit compares the sum of `kernel_generation()` and the event log's
/// generation with the sum that its cache has seen (`hit_view::current`). A request that finds it changed calls
/// `drain()`, and then loads the event log's generation.
///
/// An event that happened before such a comparison is in the first word, because the kernel counts with a locked
/// instruction in the system call that makes the event. When `drain()` has returned, every event counted before the
/// call is on the event log, so the event log's generation, loaded afterwards, shows it.
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
  /// The socket of a `pinfold monitord`, for processes without privileges, and so that many processes share one set of
  /// programs. Empty: do not ask a server.
  std::string socket = "/run/pinfold/monitord";
  /// Whether this process may load them, for which it needs CAP_BPF and CAP_PERFMON.
  bool load = true;
  /// Whether the user named the socket: then a missing server is a failure to report.
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

  /// False in a forked child, when the server has released this process, and when the application has closed
  /// descriptors that it does not own.
  [[nodiscard]] bool works() const noexcept override;

  /// Written by the kernel. Readable while this object exists, also in a child of fork(2), where it means nothing.
  [[nodiscard]] const std::atomic<std::uint64_t>* kernel_generation() const noexcept override {
    return &ring_.generation();
  }
  [[nodiscard]] bool sees_files() const noexcept override { return true; }
  [[nodiscard]] const std::atomic<std::uint64_t>& drained() const noexcept { return ring_.drained(); }

  /// Puts the kernel's records on the event log. On return that is done, by this thread or another, for all records
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
/// named the server's socket or a socket is there. Else `not_permitted` without privileges, and `unsupported` on a
/// kernel that lacks a feature (tp_btf programs, CONFIG_DEBUG_INFO_BTF) or in a build without libbpf.
///
/// Costs 6 descriptors, closed by exec and in children of fork(2), and 100 KB. While a monitor is open in any process,
/// every system call and every page fault in the system takes longer: docs/understand/monitors.md.
[[nodiscard]] result<std::unique_ptr<bpf_monitor>> make_bpf(invalidation::event_log& event_log,
                                                            invalidation::registered_filter& watched,
                                                            const bpf_source& source = {});

/// The same with a subscription that this process has.
[[nodiscard]] result<std::unique_ptr<bpf_monitor>> make_subscribed_bpf(invalidation::event_log& event_log,
                                                                       invalidation::registered_filter& watched,
                                                                       bpf_subscription subscription);

}  // namespace pinfold::monitors
