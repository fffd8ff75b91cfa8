// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The page of this process: its file, its slots, its ring of events, and the thread that publishes counters.
#pragma once

#include "os/file.hpp"
#include "os/mutex.hpp"
#include "os/thread.hpp"

#include <pinfold/error.hpp>
#include <pinfold/observation/layout.hpp>
#include <pinfold/range.hpp>
#include <pinfold/statistics.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace pinfold::observation {

/// The part of an event besides its kind and its cache.
struct event_details {
  range where{};
  std::uint64_t value = 0;
  std::int32_t native = 0;
  std::uint32_t stack = 0;
};

struct counter_source {
  const void* self;
  /// Returns the counters. `complete`: also those that take time to read with many registrations.
  statistics (*read)(const void* self, bool complete) noexcept;
};

/// The page of the process, for as long as it runs: made for the first cache that publishes, removed when the library
/// is unloaded. A child of fork(2) has none until a cache of its own publishes. Its memory is never unmapped, because
/// any thread may be writing an event.
class page {
 public:
  /// Returns this process's page, and makes it at the first call. Errors: `not_permitted` when the folder belongs to
  /// another user; the system's.
  [[nodiscard]] static result<page*> here();
  /// Returns null before `here`, and in a child.
  [[nodiscard]] static page* if_there() noexcept;

  /// Gives a cache a slot; null if all are in use, or the file system has no room for one. The caller fills in the
  /// names and calls `list`.
  [[nodiscard]] cache_slot* take_slot() noexcept;
  void give_back(cache_slot* done) noexcept;

  /// Counts a cache that runs without a slot.
  void count_unlisted(bool more) noexcept;
  [[nodiscard]] std::uint32_t next_number() noexcept {
    return static_cast<std::uint32_t>(last_number_.fetch_add(1, std::memory_order_seq_cst) + 1);
  }

  /// Publishes the counters of a cache until `unlist`, which publishes them for the last time. The thread starts with
  /// the first cache, and ends with the last. Errors: of starting the thread; nothing is published then.
  [[nodiscard]] result<void> list(cache_slot& at, const counter_source& from) noexcept;
  void unlist(cache_slot& at) noexcept;

  /// Writes an event. Allowed on any thread and in any signal handler: takes no lock, allocates nothing.
  void add_event(event_id kind, std::uint32_t cache, const event_details& what) noexcept;
  /// Writes that memory goes away, with the call stack if a reader requested it.
  void add_gone(const range& where, gone_source from) noexcept;

  /// Removes the file, if this process made it.
  static void remove_file() noexcept;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  struct source {
    counter_source from{};
    cache_slot* to = nullptr;
    bool has_memory =
        false;  ///< of the slot. On a full file system, even reading a slot without memory ends the process
  };

  page(std::string path, std::byte* mapped) noexcept;
  [[nodiscard]] static result<page*> make();
  static void in_child() noexcept;

  [[nodiscard]] page_header& header() const noexcept { return *reinterpret_cast<page_header*>(memory_); }
  [[nodiscard]] cache_slot& slot(std::size_t number) const noexcept {
    return *reinterpret_cast<cache_slot*>(memory_ + caches_from + number * cache_slot_bytes);
  }
  [[nodiscard]] cache_slot* find_slot() noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] std::uint32_t take_stack() noexcept;
  static void prepare_stacks() noexcept;
  void publish(bool complete) noexcept PINFOLD_REQUIRES(mutex_);
  void loop() noexcept;

  static const int forks_unwatched;

  const std::string path_;
  std::byte* const memory_;
  const std::uint64_t process_;
  page* earlier_ = nullptr;
  std::atomic<std::uint64_t> last_number_{0};
  os::mutex mutex_;
  std::array<source, most_caches> sources_ PINFOLD_GUARDED_BY(mutex_){};
  std::size_t listed_ PINFOLD_GUARDED_BY(mutex_) = 0;
  os::mutex thread_mutex_;  // locked before `mutex_`: starting and ending the thread
  std::unique_ptr<os::thread> thread_ PINFOLD_GUARDED_BY(thread_mutex_);
  os::thread* running_ = nullptr;  // for the thread itself: written before the thread starts
};

}  // namespace pinfold::observation
