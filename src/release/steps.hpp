// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The steps of the release protocol, at which a test may stop or kill the process: `docs/use/release-protocol.md`,
/// *Steps*.
#pragma once

#include <atomic>
#include <cstdint>

namespace pinfold::release {

/// A point between two actions that another process can distinguish. Some steps are reached with a mutex held.
enum class step : std::uint8_t {
  importer_connecting,   ///< the importer has no connection to the exporter
  importer_connected,    ///< it has one, which its thread does not watch yet
  importer_asking,       ///< the listener counts the mapping; `opening` is not sent
  importer_asked,        ///< `opening` is sent
  importer_admitted,     ///< `admitted` is read; the memory is not opened
  importer_requested,    ///< `request` is read
  importer_retiring,     ///< the listener refuses opens of the memory; no cache has invalidated its entry
  importer_invalidated,  ///< the caches have invalidated it; they have closed nothing
  importer_leased,       ///< `leased` is sent
  importer_closed,       ///< the mapping is closed; the listener counts it
  importer_letting_go,   ///< the listener no longer counts it; `gone` is not sent
  importer_let_go,       ///< `gone` is sent
  exporter_accepted,     ///< the exporter has a connection to the importer, and has read nothing
  exporter_opening,      ///< `opening` is read; the importer is not counted
  exporter_admitting,    ///< it is counted, or refused; the reply is not sent
  exporter_admitted,     ///< the reply is sent
  exporter_retiring,     ///< opens are refused; the exporter's thread has not been notified
  exporter_requesting,   ///< an importer counts as asked; `request` is not sent
  exporter_requested,    ///< `request` is sent
  exporter_answered,     ///< `answer` is read; the importer is counted as before
  exporter_counted,      ///< the importer's answer is counted
  exporter_bereaved,     ///< the end of an importer's process is seen; it is counted
  exporter_freeing,      ///< no importer is counted; the memory exists
  exporter_freed,        ///< the memory is freed; no waiting thread has been notified
  exporter_ending,       ///< the exporter's object is being destroyed; its thread has ended
  exporter_ended,        ///< its connections are shut down; retired memory exists
  none,                  ///< the number of steps
};

/// Called at every step, on the thread that reaches it; null outside of tests.
inline std::atomic<void (*)(step) noexcept> at_step{nullptr};

inline void reach(step one) noexcept {
  if (auto* call = at_step.load(std::memory_order_relaxed)) call(one);
}

}  // namespace pinfold::release
