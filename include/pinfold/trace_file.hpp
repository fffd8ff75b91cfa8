// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The requests of caches, recorded in a file: for `pinfold replay`, or to see what a program asks for.
///
/// A trace is text. Its first line is `# pinfold trace 1`; other lines that begin with `#`, and blank ones, mean
/// nothing. Fields are parted by one blank; addresses are hexadecimal with 0x, all other numbers decimal:
///
///     cache 4711.1 pinfold                                          a cache, before its requests, and its name
///     4711.1 7 0x7f0000001000 64 0x7f0000000000 65536 13400         a request whose open took 13400 ns
///     4711.1 7 0x7f0000002000 64 0x7f0000000000 65536 hit           one that asked nobody
///
/// A cache is called by its process and its number there. A request has the peer (0 for memory of the process itself),
/// begin and bytes of what was asked for, and begin and bytes of the registration that served it. The lines of several
/// caches, threads and processes may mix; those of one thread are in order.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/events.hpp>
#include <pinfold/options.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pinfold {

namespace detail {
class trace_writer;
}

/// A file that requests are appended to, whole lines at a time: several of these, of several processes too, can have
/// the same file. Copies and sinks share one buffer, and write it when it is full, once it is 100 ms old and another
/// request comes, when the last of them goes, and when the process exits. `_exit` and signals that kill lose what is in
/// it. Every member may be called on any thread. A child of fork needs one of its own: what it inherits writes nothing.
/// A file that was moved from records nothing.
class trace_file {
 public:
  /// Creates the file, or adds to it. `invalid_argument` when it holds something else than a trace; `driver_error` with
  /// the `errno` when it cannot be opened or written.
  [[nodiscard]] PINFOLD_EXPORT static result<trace_file> open(const std::string& path);

  /// A sink for the options of one cache, which also need `trace_requests`; each cache wants one of its own. Other
  /// events it ignores. `cache` is the name in the file. Throws `std::bad_alloc`.
  [[nodiscard]] PINFOLD_EXPORT event_sink sink(std::string_view cache = "pinfold");

  /// Writes what is in the buffer. The first failure of this file, which ends the recording: `driver_error`. `closed`
  /// when the file was moved from.
  PINFOLD_EXPORT result<void> flush() noexcept;

 private:
  explicit trace_file(std::shared_ptr<detail::trace_writer> writer) noexcept : writer_(std::move(writer)) {}
  friend cache_options traced_by_environment(cache_options options);

  std::shared_ptr<detail::trace_writer> writer_;
};

/// The options with a sink that records what goes through the cache to the file that the environment's PINFOLD_TRACE
/// names, beside their own sink; the same options without that variable. Every cache is made with it: this is how
/// `pinfold trace` records programs that know nothing of it. Where the file cannot be written, a line on standard error
/// says so, and nothing is recorded.
[[nodiscard]] PINFOLD_EXPORT cache_options traced_by_environment(cache_options options);

/// One line of a trace.
struct traced_request {
  std::uint32_t cache = 0;  ///< index into `recorded_trace::caches`
  peer_id peer{};
  range asked{};
  range registered{};
  bool hit = false;
  std::chrono::nanoseconds opened_for{0};  ///< 0 for a hit
};

/// A whole trace. Where processes ran one after the other, two of its caches can have been called the same.
struct recorded_trace {
  std::vector<std::string> caches;  ///< as `4711.1 pinfold`
  std::vector<traced_request> requests;
};

/// What is wrong with a trace, and where.
struct trace_error {
  error cause;
  std::string where;  ///< the file, and the line where it is one line's fault: `file:line`
};

/// Reads a trace. Any line that is not as above is an error.
[[nodiscard]] PINFOLD_EXPORT tl::expected<recorded_trace, trace_error> read_trace(const std::string& path);

/// The same from memory; `origin` names it in errors.
[[nodiscard]] PINFOLD_EXPORT tl::expected<recorded_trace, trace_error> parse_trace(std::string_view text,
                                                                                   std::string_view origin);

}  // namespace pinfold
