// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/trace_file.hpp>

#include "diagnostics/trace_writer.hpp"
#include "os/no_cancellation.hpp"
#include "os/size_limit.hpp"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace pinfold {
namespace {

// Checks that the file can be appended to, and writes the heading to an empty one.
result<void> begin_trace(const os::file& opened) noexcept {
  struct stat facts{};
  if (::fstat(opened.number(), &facts) != 0) return fail_errno(errc::driver_error, errno, "cannot read the trace file");
  if (!S_ISREG(facts.st_mode)) return fail(errc::invalid_argument, "not a regular file");
  const auto heading = std::string(detail::trace_heading) + "\n";
  if (facts.st_size == 0) {
    const int native = detail::append_lines(opened, heading);
    if (native == 0) return {};
    return fail_errno(errc::driver_error, native, "cannot write the trace file");
  }
  std::string start(heading.size(), '\0');
  const auto got = ::pread(opened.number(), start.data(), start.size(), 0);
  if (got < 0) return fail_errno(errc::driver_error, errno, "cannot read the trace file");
  if (start != heading) return fail(errc::invalid_argument, "the file exists and is not a trace");
  return {};
}

result<std::shared_ptr<detail::trace_writer>> open_writer(const std::string& path, std::string complain_as) {
  const detail::no_cancellation whole;
  os::file opened(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (!opened) return fail_errno(errc::driver_error, errno, "cannot open the trace file");
  if (auto begun = begin_trace(opened); !begun) return tl::unexpected(begun.error());
  auto made = std::make_shared<detail::trace_writer>(std::move(opened), std::move(complain_as));
  detail::trace_writer::flush_at_exit(made);
  return made;
}

event_sink sink_of(std::shared_ptr<detail::trace_writer> writer, unsigned cache) {
  return [writer = std::move(writer), cache](const event& what) {
    if (what.kind == event_kind::requested) writer->add(cache, what);
  };
}

// Reports the event as a cache without a sink does.
void print_statistics(const event& what) {
  if (what.kind != event_kind::statistics) return;
  os::to_the_program([&] { return std::fprintf(stderr, "%s: %s\n", what.cache, what.text); });
}

}  // namespace

result<trace_file> trace_file::open(const std::string& path) {
  auto writer = open_writer(path, "");
  if (!writer) return tl::unexpected(writer.error());
  return trace_file(*std::move(writer));
}

event_sink trace_file::sink(std::string_view cache) {
  return writer_ ? sink_of(writer_, writer_->add_cache(cache)) : [](const event& /*what*/) {};
}

result<void> trace_file::flush() noexcept {
  return writer_ ? writer_->flush() : fail(errc::closed, "the trace file was moved from");
}

cache_options traced_by_environment(cache_options options) {
  const char* path = ::secure_getenv("PINFOLD_TRACE");
  if (path == nullptr || *path == '\0') return options;
  auto writer = open_writer(path, path);
  if (!writer) {
    static std::atomic<bool> reported{false};  // once, not for each cache
    if (reported.exchange(true, std::memory_order_seq_cst)) return options;
    const auto why = describe(writer.error());
    os::to_the_program([&] {
      return std::fprintf(stderr, "pinfold: PINFOLD_TRACE=%s: %s; nothing is recorded\n", path, why.c_str());
    });
    return options;
  }
  const bool wanted = std::exchange(options.trace_requests, true);
  auto record = sink_of(*writer, (*writer)->add_cache(options.name, &options));
  options.sink = [record = std::move(record), own = std::move(options.sink), wanted](const event& what) {
    record(what);
    if (what.kind == event_kind::requested && !wanted) return;
    own ? own(what) : print_statistics(what);
  };
  return options;
}

}  // namespace pinfold
