// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The importer's side of the release protocol.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>
#include <pinfold/release/message.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace pinfold {

/// Memory that an importer is about to open.
struct release_target {
  release_id id;                 ///< names the memory
  peer_id peer{};                ///< as passed to `acquire`
  range where;                   ///< the memory's addresses in the exporter
  std::uint64_t start_time = 0;  ///< of the exporting process, as in the handle
  std::int32_t pid = 0;          ///< of the exporting process, as in the handle
};

/// Counts of a listener.
struct release_listener_statistics {
  std::size_t mappings = 0;         ///< mappings that are open or being opened
  std::size_t retiring = 0;         ///< buffers that an exporter wants back and that are still mapped
  std::uint64_t requests = 0;       ///< requests received
  std::uint64_t refused = 0;        ///< opens refused because the memory is retired
  std::uint64_t failed_closes = 0;  ///< calls of a cache's `progress` that failed
  std::size_t unsent = 0;           ///< answers that `send` refused, or has not been called for
};

/// Lets imported memory go when its exporter asks for it: invalidates it in the attached caches, so that no later
/// acquire or find returns it, waits for its leases, and answers. Copies share one listener, and a move copies. The
/// listener lives as long as a copy, an attachment or a `releasing_importer`; its destruction waits at most 1 s for
/// exporters that do not read. Every member may be called on any thread.
class PINFOLD_EXPORT release_listener {
 public:
  /// Keeps a cache attached. Move-only. Destroy it before the cache; its destructor waits until the listener is out of
  /// the cache. Do not destroy it in an event sink of that cache.
  class PINFOLD_EXPORT attachment {
   public:
    attachment() noexcept;
    attachment(attachment&&) noexcept;
    attachment& operator=(attachment&&) noexcept;
    ~attachment();

   private:
    friend class release_listener;
    struct state;
    explicit attachment(std::unique_ptr<state> made) noexcept;
    std::unique_ptr<state> state_;
  };

  /// Carries an answer to its exporter.
  using send_call = std::function<result<void>(const release_message&)>;

  /// Shares the listener. A move copies, so that no listener is ever without a state.
  release_listener(const release_listener&) noexcept = default;
  /// As above.
  release_listener& operator=(const release_listener&) noexcept = default;
  ~release_listener() = default;

  /// Makes a listener with a thread that talks to exporters over their Unix sockets. Errors: `out_of_resources`.
  [[nodiscard]] static result<release_listener> create() noexcept;

  /// Makes a listener without a thread and without sockets: `send` carries its answers to the exporter, and the caller
  /// passes requests to `receive`. The exporter counts the importer by `release_registry::lend`, so opens ask nothing.
  ///
  /// `send` is called on the threads that call `receive` and `progress` and that close mappings, one call at a time,
  /// with no lock held. While a thread is in `send`, it also sends the answers of other threads, whose calls may return
  /// before. `send` may release leases and call `receive`: what that answers is sent after `send` has returned. It must
  /// not throw, acquire from an attached cache, or destroy one. After the end of the last copy of the listener, which
  /// waits for the thread in `send` unless it is called there, `send` is not called any more.
  ///
  /// An answer for which `send` returns an error stays the first to be sent: by the next call that sends, regularly
  /// `progress`. Errors: `invalid_argument` (no `send`), `out_of_resources`.
  [[nodiscard]] static result<release_listener> create(send_call send) noexcept;

  /// As above, with a `send` that returns nothing and so never fails. Throws `std::bad_alloc`.
  template <class Send>
    requires std::is_void_v<std::invoke_result_t<Send&, const release_message&>>
  [[nodiscard]] static result<release_listener> create(Send send) {
    std::function<void(const release_message&)> plain(std::move(send));
    if (!plain) return create(send_call());
    return create(send_call([to = std::move(plain)](const release_message& answer) -> result<void> {
      to(answer);
      return {};
    }));
  }

  /// Attaches a cache over `releasing_importer` with this listener. The cache must not be moved while attached. Errors:
  /// `unsupported` (in a forked child), `out_of_resources`.
  template <class Cache>
  [[nodiscard]] result<attachment> attach(Cache& cache) noexcept {
    return attach(
        &cache, [](void* to, peer_id peer, range gone) { static_cast<Cache*>(to)->invalidate(peer, gone); },
        [](void* to) { return static_cast<Cache*>(to)->progress(); });
  }

  /// Processes a request that the caller has received. Invalidates and closes before it returns. Ignores other
  /// messages. Errors: what `send` returned on this thread, although the request is processed; `out_of_resources` (the
  /// request is not answered: pass it again); `unsupported` (in a forked child).
  result<void> receive(const release_message& message) noexcept;

  /// Closes what can be closed of memory that exporters want back, and sends answers that are not sent yet. A listener
  /// with a thread calls it itself. Errors: what `send` returned on this thread; `unsupported` (in a forked child).
  result<void> progress() noexcept;

  /// Returns the counts; in a forked child, zeros.
  [[nodiscard]] release_listener_statistics statistics() const noexcept;

  /// Counts a mapping that is about to be opened, and asks the exporter to admit it. Returns the number of the mapping.
  /// For `releasing_importer`. Errors: `stale_handle` (retired or freed), `peer_gone`, `timed_out`, `unsupported` (the
  /// exporter does not take part; a forked child), `not_permitted`, `out_of_resources`, `driver_error` (the exporter
  /// has no memory).
  [[nodiscard]] result<std::uint64_t> begin_open(const release_target& what) noexcept;

  /// Ends the connections to exporters whose memory is not open here, and so frees their descriptors. Returns whether
  /// there were any. For `releasing_importer`.
  [[nodiscard]] bool drop_idle() noexcept;

  /// Ends what `begin_open` began: the open failed, or the mapping is closed.
  void closed(const release_id& id, std::uint64_t number) noexcept;

 private:
  struct state;
  using invalidate_call = void (*)(void* cache, peer_id peer, range gone);
  using progress_call = result<void> (*)(void* cache);
  explicit release_listener(std::shared_ptr<state> made) noexcept;
  [[nodiscard]] result<attachment> attach(void* cache, invalidate_call on_invalidate,
                                          progress_call on_progress) noexcept;
  std::shared_ptr<state> state_;
};

}  // namespace pinfold
