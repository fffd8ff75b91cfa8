// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The reports of a cache: to the application's sink, on its statistics page (docs/operate/observation.md), and to
/// programs attached to its probes (docs/operate/probes.md).
#pragma once

#include "core/counters.hpp"
#include "core/leased_notices.hpp"
#include "core/open_watch.hpp"
#include "index/entry.hpp"
#include "observation/cache_page.hpp"
#include "os/probes.hpp"

#include <pinfold/detail/engine.hpp>
#include <pinfold/events.hpp>
#include <pinfold/options.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>

namespace pinfold::core {

/// Reports of one cache. Thread-safe. Functions that may call the sink require that no mutex of the cache is held.
class reporter {
 public:
  using time_point = open_watch::time_point;
  using nanoseconds = std::chrono::nanoseconds;

  /// `page`: null if the cache publishes none. `counters`: where failures of the sink are counted.
  reporter(const cache_options& options, std::unique_ptr<observation::cache_page> page,
           shared_counters& counters) noexcept
      : options_(options),
        page_(std::move(page)),
        always_times_(options.trace_requests || page_ != nullptr),
        counters_(counters) {}

  [[nodiscard]] bool has_page() const noexcept { return page_ != nullptr; }
  /// Returns whether there is a page, or a probe is attached.
  [[nodiscard]] bool is_observed() const noexcept { return has_page() || os::probes_attached() > 0; }
  [[nodiscard]] bool has_sink() const noexcept { return static_cast<bool>(options_.sink); }
  /// Returns whether events have a receiver.
  [[nodiscard]] bool is_heard() const noexcept { return has_sink() || is_observed(); }
  [[nodiscard]] bool times_opens() const noexcept { return always_times_ || os::probes_attached() > 0; }

  void start_page(const observation::counter_source& from) noexcept {
    if (page_) page_->start(from);
  }
  void stop_page() noexcept {
    if (page_) page_->stop();
  }
  /// Stops calls of the sink.
  void silence() noexcept { silent_.store(true, std::memory_order_relaxed); }

  /// Requires the shard's mutex, or that the calling thread is opening or closing the entry.
  [[nodiscard]] static event about(const index::entry& one, event_kind kind, severity level) noexcept;
  // These call the sink.
  void tell(event what) noexcept;
  void tell(const leased_notices& notices) noexcept;
  void tell_failed_close(event failed, const error& why) noexcept;
  /// Tells an event with the text that `make_text(event&)` returns; without memory for it, counts a sink failure.
  template <class Text>
  void tell_text(event what, Text&& make_text) noexcept {
    try {
      const std::string text = make_text(what);
      what.text = text.c_str();
      tell(what);
    } catch (...) {  // no memory for a line of text is no reason to end the program
      note_sink_failure();
    }
  }

  // These write on the page and fire probes, and may be called with a mutex held.
  /// A request that opened a registration, or failed.
  void note_request(time_point start, nanoseconds opened_for, const range& wanted,
                    const result<detail::grant>& granted) noexcept;
  void note_open(time_point start, const range& where, const result<detail::opened>& made) noexcept;
  void note_close(time_point start, const range& where, const result<void>& closed) noexcept;
  /// One call of the driver opened them all.
  void note_group(std::span<const detail::open_request> asked, std::span<const result<detail::opened>> made,
                  time_point start) noexcept;
  void note_eviction(const index::entry& victim) noexcept;
  void note_invalidated(const invalidated_entries& marked) noexcept;
  /// Requires the shard's mutex, which guards `counts`.
  void note_wait(guarded_counters& counts, nanoseconds spent) noexcept;

 private:
  [[nodiscard]] const char* name() const noexcept { return options_.name.c_str(); }
  void note(const event& what) noexcept;
  void note_sink_failure() noexcept { counters_.add(shared_counter::sink_failures); }

  const cache_options& options_;
  const std::unique_ptr<observation::cache_page> page_;
  const bool always_times_;
  shared_counters& counters_;
  std::atomic<bool> silent_{false};  // the cache has ended
};

}  // namespace pinfold::core
