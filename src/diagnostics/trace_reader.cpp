// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/trace_file.hpp>

#include "diagnostics/trace_writer.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <optional>
#include <unordered_map>
#include <utility>

namespace pinfold {
namespace {

using outcome = tl::expected<recorded_trace, trace_error>;

constexpr std::string_view cache_word = "cache ";
constexpr std::string_view comment_mark = "# ";
constexpr std::string_view cut_word = "cut";
constexpr std::size_t most_fields = 7;
constexpr std::size_t longest_line = 65536;  // a file may be endless, without a line

tl::unexpected<error> wrong(const char* message) noexcept { return fail(errc::invalid_argument, message); }

std::optional<std::uint64_t> number_in(std::string_view text, int base = 10) noexcept {
  std::uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<range> range_in(std::string_view begin, std::string_view bytes) noexcept {
  if (!begin.starts_with("0x")) return std::nullopt;
  const auto first = number_in(begin.substr(2), 16);
  const auto size = number_in(bytes);
  if (!first || !size) return std::nullopt;
  const auto whole = range::of(*first, *size);
  return whole ? std::optional(*whole) : std::nullopt;
}

/// Parses the lines of a trace.
class trace_parser {
 public:
  trace_parser(const request_visitor& take, const comment_visitor& see) : take_(take), see_(see) {}

  // Returns an error for a line with which reading ends in any case.
  result<void> check(std::string_view line) {
    if (!std::exchange(begun_, true) && line != detail::trace_heading)
      return wrong("not a trace of pinfold: the first line must be '# pinfold trace 1'");
    if (line.starts_with("# pinfold trace ") && line != detail::trace_heading)
      return wrong("this version of the trace format is not supported");
    if (line.size() > longest_line) return wrong("the line is longer than 65536 characters");
    return {};
  }
  result<void> add(std::string_view line) {
    if (see_ && line.starts_with(comment_mark)) see_(line.substr(comment_mark.size()), names_);
    if (line.empty() || line.front() == '#') return {};
    return line.starts_with(cache_word) ? add_cache(line.substr(cache_word.size())) : add_request(line);
  }
  void skip_cut_line() const {
    if (see_) see_(cut_word, names_);
  }
  [[nodiscard]] bool begun() const noexcept { return begun_; }
  [[nodiscard]] std::vector<std::string> take_names() noexcept { return std::move(names_); }

 private:
  // Adds a cache. A repeated line is of another process that got the same process id.
  result<void> add_cache(std::string_view rest) {
    const auto called = rest.substr(0, rest.find(' '));
    if (called.empty()) return wrong("expected 'cache', the cache's identifier, and its name");
    caches_[std::string(called)] = static_cast<std::uint32_t>(names_.size());
    names_.emplace_back(rest);
    return {};
  }

  result<void> add_request(std::string_view line) {
    std::array<std::string_view, most_fields> fields;
    if (!split(line, fields))
      return wrong("expected 7 fields: cache, peer, begin and bytes requested and registered, nanoseconds or 'hit'");
    const auto cache = caches_.find(std::string(fields[0]));
    if (cache == caches_.end()) return wrong("the request's cache is not declared on an earlier line");
    const auto peer = number_in(fields[1]);
    if (!peer) return wrong("the peer is not a number");
    const auto requested = range_in(fields[2], fields[3]);
    if (!requested)
      return wrong("the requested range is malformed: expected 0x and hexadecimal digits, then its bytes");
    const auto registered = range_in(fields[4], fields[5]);
    if (!registered)
      return wrong("the registered range is malformed: expected 0x and hexadecimal digits, then its bytes");
    if (!registered->contains(*requested)) return wrong("the requested range is not inside the registered range");
    const bool hit = fields[6] == "hit";
    const auto took = hit ? 0 : number_in(fields[6]);
    if (!took || *took > INT64_MAX) return wrong("the last field is neither nanoseconds nor 'hit'");
    take_({cache->second,
           {*peer},
           *requested,
           *registered,
           hit,
           std::chrono::nanoseconds(static_cast<std::int64_t>(*took))},
          names_);
    return {};
  }

  static bool split(std::string_view line, std::array<std::string_view, most_fields>& fields) noexcept {
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const auto end = line.find(' ');
      fields[i] = line.substr(0, end);
      if (fields[i].empty() || (end == std::string_view::npos) != (i + 1 == fields.size())) return false;
      line.remove_prefix(end == std::string_view::npos ? line.size() : end + 1);
    }
    return true;
  }

  bool begun_ = false;
  const request_visitor& take_;
  const comment_visitor& see_;
  std::unordered_map<std::string, std::uint32_t> caches_;
  std::vector<std::string> names_;
};

tl::unexpected<trace_error> refused(error cause, std::string where) {
  return tl::unexpected<trace_error>(trace_error{cause, std::move(where)});
}

/// A line without its end, or the beginning of one that is too long.
struct trace_line {
  std::string_view text;
  bool ended = true;
};

// `next` reads a line, and returns false after the last. Returns the names of the caches. Skips a malformed line that a
// killed process may have left: it ends the file without an end of its own, or an empty line follows.
template <class Next>
tl::expected<std::vector<std::string>, trace_error> parse(Next&& next, std::string_view origin,
                                                          const request_visitor& take, const comment_visitor& see) {
  trace_parser parser(take, see);
  trace_line line;
  std::optional<trace_error> malformed;  // the line before
  for (std::size_t number = 1; next(line); ++number) {
    if (malformed && !line.text.empty()) return tl::unexpected(*std::move(malformed));
    if (std::exchange(malformed, std::nullopt)) parser.skip_cut_line();
    const auto where = [&] { return std::string(origin) + ":" + std::to_string(number); };
    if (const auto done = parser.check(line.text); !done) return refused(done.error(), where());
    if (const auto done = parser.add(line.text); !done) malformed = trace_error{done.error(), where()};
  }
  if (malformed && line.ended) return tl::unexpected(*std::move(malformed));
  if (malformed) parser.skip_cut_line();
  if (!parser.begun()) return refused({errc::invalid_argument, {}, 0, "the trace is empty"}, std::string(origin));
  return parser.take_names();
}

// Reads one line at a time into a buffer of constant size.
class line_reader {
 public:
  explicit line_reader(const std::string& path) : file_(path), buffer_(longest_line + 2) {}

  [[nodiscard]] bool is_open() const { return file_.is_open(); }
  [[nodiscard]] bool failed() const { return file_.bad(); }
  bool operator()(trace_line& line) {
    file_.getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    const auto got = static_cast<std::size_t>(file_.gcount());
    if (got == 0) return false;
    line = {{buffer_.data(), got}, file_.good()};
    if (line.ended) line.text.remove_suffix(1);  // the end of the line, which is counted
    return true;
  }

 private:
  std::ifstream file_;
  std::vector<char> buffer_;
};

tl::expected<std::vector<std::string>, trace_error> parse_file(const std::string& path, const request_visitor& take,
                                                               const comment_visitor& see = {}) {
  line_reader file(path);
  if (!file.is_open())
    return refused({errc::invalid_argument, native_kind::posix, errno, "cannot open the trace"}, path);
  auto names = parse(file, path, take, see);
  if (file.failed()) return refused({errc::driver_error, native_kind::posix, errno, "cannot read the trace"}, path);
  return names;
}

request_visitor collect_into(recorded_trace& trace) {
  return [&trace](const traced_request& request, const auto& /*caches*/) { trace.requests.push_back(request); };
}

outcome with_names(recorded_trace trace, tl::expected<std::vector<std::string>, trace_error> names) {
  if (!names) return tl::unexpected(std::move(names.error()));
  trace.caches = *std::move(names);
  return trace;
}

}  // namespace

outcome parse_trace(std::string_view text, std::string_view origin) {
  const auto next = [&text](trace_line& line) {
    if (text.empty()) return false;
    const auto end = text.find('\n');
    line = {text.substr(0, end), end != std::string_view::npos};
    text.remove_prefix(std::min(line.text.size() + 1, text.size()));
    return true;
  };
  recorded_trace trace;
  auto names = parse(next, origin, collect_into(trace), {});
  return with_names(std::move(trace), std::move(names));
}

outcome read_trace(const std::string& path) {
  recorded_trace trace;
  auto names = parse_file(path, collect_into(trace));
  return with_names(std::move(trace), std::move(names));
}

tl::expected<void, trace_error> visit_trace(const std::string& path, const request_visitor& take) {
  return visit_trace(path, take, {});
}

tl::expected<void, trace_error> visit_trace(const std::string& path, const request_visitor& take,
                                            const comment_visitor& see) {
  if (auto names = parse_file(path, take, see); !names) return tl::unexpected(std::move(names.error()));
  return {};
}

}  // namespace pinfold
