// SPDX-License-Identifier: BSD-3-Clause
#include "diagnostics/trace_writer.hpp"

#include "os/no_cancellation.hpp"
#include "os/size_limit.hpp"
#include "os/this_process.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pinfold::detail {
namespace {

constexpr std::size_t most_buffered = std::size_t{64} * 1024;
constexpr std::size_t longest_line = 200;   // of a request: nine numbers
constexpr std::size_t longest_name = 4096;  // readers accept lines of 65536 characters
constexpr std::chrono::milliseconds oldest{100};

// A process that is killed within a write may leave half a line at the end of the file. The first character ends that
// line, and the second tells readers that it may be such a one.
constexpr std::string_view block_begin = "\n\n";

// The writers to flush at exit. One object for each process, so that a child of fork finds neither its parent's buffers
// nor a mutex that no thread unlocks.
struct writers_at_exit {
  const std::uint64_t process = os::this_process();
  std::mutex guard;
  std::vector<std::weak_ptr<trace_writer>> all;
};

std::atomic<writers_at_exit*> known_writers{nullptr};

void flush_all() {
  auto* known = known_writers.load(std::memory_order_seq_cst);
  if (known == nullptr || known->process != os::this_process()) return;
  std::lock_guard guard(known->guard);
  for (const auto& weak : known->all)
    if (const auto one = weak.lock()) static_cast<void>(one->flush());
}

// Never freed: caches in static storage may be destroyed last.
writers_at_exit& writers_here() {
  auto* known = known_writers.load(std::memory_order_seq_cst);
  while (known == nullptr || known->process != os::this_process()) {
    auto fresh = std::make_unique<writers_at_exit>();
    if (!known_writers.compare_exchange_strong(known, fresh.get(), std::memory_order_seq_cst)) continue;
    static_cast<void>(std::atexit(flush_all));
    return *fresh.release();
  }
  return *known;
}

/// A line that needs no allocation.
class request_line {
 public:
  void text(std::string_view added) noexcept {
    added.copy(end_, added.size());
    end_ += added.size();
  }
  void number(std::uint64_t value, int base = 10) noexcept {
    end_ = std::to_chars(end_, characters_.data() + characters_.size(), value, base).ptr;
  }
  void field(std::uint64_t value) noexcept {
    text(" ");
    number(value);
  }
  void field(const range& memory) noexcept {
    text(" 0x");
    number(memory.begin, 16);
    field(memory.size());
  }
  [[nodiscard]] std::string_view whole() const noexcept { return {characters_.data(), end_}; }

 private:
  std::array<char, longest_line> characters_;
  char* end_ = characters_.data();
};

std::string one_line(std::string_view name) {
  std::string shown(name.substr(0, longest_name));
  for (char& letter : shown)
    if (static_cast<unsigned char>(letter) < ' ') letter = '?';
  return shown;
}

// Adds a line to a buffer that has room.
void add_to(std::string& buffer, std::string_view line) {
  if (buffer.empty()) buffer = block_begin;
  buffer += line;
}

std::string limit_text(std::size_t limit) { return limit == unlimited ? "unlimited" : std::to_string(limit); }

// Containers that write to one file may have equal process ids. The namespace of the host needs no mark.
std::string namespace_text() {
  constexpr ino_t of_the_host = 0xEFFFFFFC;  // PROC_PID_INIT_INO of Linux
  struct stat seen{};
  const bool known = ::stat("/proc/self/ns/pid", &seen) == 0;
  return known && seen.st_ino != of_the_host ? "." + std::to_string(seen.st_ino) : "";
}

std::atomic<unsigned> caches_so_far{0};

// Takes back the end of what this process wrote last, unless another process has appended to it.
void take_back(const os::file& from, std::size_t bytes) noexcept {
  struct stat seen{};
  const auto end = ::lseek(from.number(), 0, SEEK_CUR);
  if (bytes == 0 || end < static_cast<off_t>(bytes) || ::fstat(from.number(), &seen) != 0 || seen.st_size != end)
    return;
  static_cast<void>(!::ftruncate(from.number(), end - static_cast<off_t>(bytes)));
}

}  // namespace

int append_lines(const os::file& to, std::string_view lines) noexcept {
  std::size_t written = 0;
  while (written < lines.size()) {
    const auto rest = lines.substr(written);
    const auto done = os::within_size_limit([&] { return ::write(to.number(), rest.data(), rest.size()); });
    if (done > 0) written += static_cast<std::size_t>(done);
    if (done > 0 || (done < 0 && errno == EINTR)) continue;
    const int native = done < 0 ? errno : EIO;
    take_back(to, written - (lines.substr(0, written).rfind('\n') + 1));  // npos + 1 is 0
    return native;
  }
  return 0;
}

trace_writer::trace_writer(os::file file, std::string name)
    : file_(std::move(file)),
      name_(std::move(name)),
      pid_(::getpid()),
      namespace_(namespace_text()),
      written_(clock::now()) {
  buffer_.reserve(most_buffered);
}

trace_writer::~trace_writer() {
  static_cast<void>(flush());  // a failure is reported on standard error, if at all
}

void trace_writer::flush_at_exit(const std::shared_ptr<trace_writer>& one) {
  auto& known = writers_here();
  std::lock_guard guard(known.guard);
  std::erase_if(known.all, [](const auto& gone) { return gone.expired(); });
  known.all.push_back(one);
}

unsigned trace_writer::add_cache(std::string_view name, const cache_options* options) {
  const auto number = caches_so_far.fetch_add(1, std::memory_order_relaxed) + 1;
  const auto called = std::to_string(pid_) + "." + std::to_string(number) + namespace_ + " ";
  auto line = "cache " + called + one_line(name) + "\n";
  if (options != nullptr)
    line += "# budget " + called + limit_text(options->max_bytes) + " " + limit_text(options->max_count) + "\n";
  if (inherited()) return number;
  std::lock_guard guard(mutex_);
  append(line);
  write_out();
  return number;
}

void trace_writer::add(unsigned cache, const event& what) noexcept {
  if (inherited()) return;
  request_line line;
  if (what.cause != nullptr) line.text("# failed ");
  line.number(static_cast<std::uint64_t>(pid_));
  line.text(".");
  line.number(cache);
  line.text(namespace_);
  line.field(what.peer.value);
  line.field(what.where);
  if (what.cause != nullptr) {
    line.text(" ");
    line.text(name_of(what.cause->code));
  } else {
    line.field(what.registered);
    if (what.hit) line.text(" hit");
    if (!what.hit) line.field(static_cast<std::uint64_t>(what.opened_for.count()));
  }
  line.text("\n");
  std::lock_guard guard(mutex_);
  if (buffer_.size() + line.whole().size() > most_buffered) write_out();
  add_to(buffer_, line.whole());
  if (clock::now() - written_ > oldest) write_out();
}

result<void> trace_writer::flush() noexcept {
  if (inherited()) return {};
  std::lock_guard guard(mutex_);
  write_out();
  if (failure_) return tl::unexpected(*failure_);
  return {};
}

void trace_writer::append(std::string_view line) {
  if (buffer_.size() + line.size() > most_buffered) write_out();
  add_to(buffer_, line);
}

// Writes whole lines in one call, so that they do not mix with those of other processes. If the program closed the
// descriptor, the number may be another file's.
void trace_writer::write_out() noexcept {
  const no_cancellation whole;
  written_ = clock::now();
  std::string_view rest = buffer_;
  if (failure_) rest = {};
  if (!rest.empty() && !file_.still_there()) {
    give_up(EBADF);
    rest = {};
  }
  if (const int native = append_lines(file_, rest); native != 0) give_up(native);
  buffer_.clear();
}

void trace_writer::give_up(int why) noexcept {
  failure_ = error{errc::driver_error, native_kind::posix, why, "cannot continue to write the trace"};
  if (name_.empty()) return;
  os::to_the_program([&] {
    return std::fprintf(stderr, "pinfold: PINFOLD_TRACE=%s: %s; the trace is incomplete\n", name_.c_str(),
                        strerrordesc_np(why));
  });
}

}  // namespace pinfold::detail
