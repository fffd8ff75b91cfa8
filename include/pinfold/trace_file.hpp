// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Records the requests of caches in a file, for `pinfold replay`, or to see what a program requests.
///
/// A trace is text. Its first line is `# pinfold trace 1`; a reader ignores other lines that begin with `#`, and blank
/// lines. A line has at most 65536 characters. A process that is killed while it writes may leave half a line. Two line
/// ends begin what a process appends, so such a line ends the file, or a blank line follows. One blank separates two
/// fields; addresses are hexadecimal with 0x, all other numbers decimal:
///
///     cache 4711.1 pinfold                                          a cache, before its requests, and its name
///     4711.1 7 0x7f0000001000 64 0x7f0000000000 65536 13400         a request whose open took 13400 ns
///     4711.1 7 0x7f0000002000 64 0x7f0000000000 65536 hit           a request that was a hit
///
/// `# budget 4711.1 67108864 unlimited` behind the line of a cache has its `max_bytes` and `max_count`. It is there for
/// caches that PINFOLD_TRACE records.
///
/// `# failed 4711.1 7 0x7f0000002000 64 over_budget` is an acquire that failed: the peer, the requested range, and the
/// code of the error.
///
/// A cache is named by its process id and its number in that process; where the process is in a PID namespace other
/// than the host's, as in a container, a dot and the inode of that namespace follow. A request line has the peer (0 for
/// memory of the process itself), begin and size in bytes of the requested range, and begin and size of the
/// registration that served it. Lines of several caches, threads and processes may mix; lines of one thread are in
/// order.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/events.hpp>
#include <pinfold/options.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pinfold {

namespace detail {
class trace_writer;
}

/// A trace that requests are appended to, whole lines at a time, so that several objects, also in several processes,
/// can share one file. Copies and sinks share one buffer. They write it when it is full, when a request comes and the
/// buffer is at least 100 ms old, when the last of them is destroyed, and when the process exits. `_exit` and fatal
/// signals lose the content of the buffer. Every member may be called on any thread. A child of fork must open its own
/// object: an inherited one writes nothing. A moved-from object records nothing.
class trace_file {
 public:
  /// Creates the file, or appends to it. Errors: `invalid_argument` if it is not a trace; `driver_error` with the
  /// `errno` if it cannot be opened or written.
  [[nodiscard]] PINFOLD_EXPORT static result<trace_file> open(const std::string& path);

  /// Returns a sink for the options of one cache, which also need `trace_requests`. Make one sink for each cache. The
  /// sink ignores other events. `cache` is the name in the file. Throws `std::bad_alloc`.
  [[nodiscard]] PINFOLD_EXPORT event_sink sink(std::string_view cache = "pinfold");

  /// Writes the content of the buffer. Returns the first failure of this file, which ends the recording, as
  /// `driver_error`; `closed` if the object was moved from.
  PINFOLD_EXPORT result<void> flush() noexcept;

 private:
  explicit trace_file(std::shared_ptr<detail::trace_writer> writer) noexcept : writer_(std::move(writer)) {}

  std::shared_ptr<detail::trace_writer> writer_;
};

/// Returns the options with a second sink, which records the cache's requests in the file that the environment variable
/// PINFOLD_TRACE names. Without that variable, returns the options unchanged. Every cache calls it: this is how
/// `pinfold trace` records programs that do not know of it. If the file cannot be written, prints a line on standard
/// error and records nothing.
[[nodiscard]] PINFOLD_EXPORT cache_options traced_by_environment(cache_options options);

/// One line of a trace.
struct traced_request {
  std::uint32_t cache = 0;                 ///< index into `recorded_trace::caches`
  peer_id peer{};                          ///< the exporter; 0 for memory of the process itself
  range asked{};                           ///< the requested range
  range registered{};                      ///< the registration that served it
  bool hit = false;                        ///< the registrar was not called
  std::chrono::nanoseconds opened_for{0};  ///< 0 for a hit
};

/// A whole trace. If processes ran one after the other, two caches in it can have the same name.
struct recorded_trace {
  std::vector<std::string> caches;       ///< as `4711.1 pinfold`
  std::vector<traced_request> requests;  ///< in the order of the file
};

/// An error in a trace, and its place.
struct trace_error {
  error cause;        ///< what is wrong
  std::string where;  ///< the file, and the line if one is wrong
};

/// Reads a trace file. A line of any other form than above is an error; if it ends the file without a line end, or a
/// blank line follows, it is skipped.
[[nodiscard]] PINFOLD_EXPORT tl::expected<recorded_trace, trace_error> read_trace(const std::string& path);

/// Called for each request of a trace, in the order of the file, with the names of the caches so far.
using request_visitor = std::function<void(const traced_request& request, const std::vector<std::string>& caches)>;

/// Reads a trace file without holding its requests in memory: calls `take` for each, on this thread. At a line that
/// `read_trace` refuses it stops with an error, after the calls for the lines before. Passes exceptions of `take` on.
[[nodiscard]] PINFOLD_EXPORT tl::expected<void, trace_error> visit_trace(const std::string& path,
                                                                         const request_visitor& take);

/// Called for each line that begins with `# `, in the order of the file, with what follows, and with the names of the
/// caches so far. Also called with `cut` for each malformed line that is skipped.
using comment_visitor = std::function<void(std::string_view comment, const std::vector<std::string>& caches)>;

/// Does so too, and calls `see` for the lines that a reader may ignore. Reads the file once: it may be a pipe.
[[nodiscard]] PINFOLD_EXPORT tl::expected<void, trace_error> visit_trace(const std::string& path,
                                                                         const request_visitor& take,
                                                                         const comment_visitor& see);

/// Reads a trace from memory; `origin` names it in errors.
[[nodiscard]] PINFOLD_EXPORT tl::expected<recorded_trace, trace_error> parse_trace(std::string_view text,
                                                                                   std::string_view origin);

}  // namespace pinfold
