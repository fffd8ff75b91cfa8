// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/code_scan/executable_memory.hpp"

#include "os/file.hpp"

#include <array>
#include <charconv>
#include <fcntl.h>
#include <map>
#include <unistd.h>

namespace pinfold::monitors::code_scan {

namespace {

/// Reads one line of /proc/thread-self/maps from left to right.
class line_reader {
 public:
  explicit line_reader(std::string_view line) noexcept : rest_(line) {}

  [[nodiscard]] std::string_view word() noexcept {
    skip_spaces();
    const auto found = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(found.size());
    return found;
  }
  [[nodiscard]] std::string_view rest() noexcept {
    skip_spaces();
    return rest_;
  }

 private:
  void skip_spaces() noexcept { rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size())); }

  std::string_view rest_;
};

std::uint64_t hexadecimal(std::string_view digits) noexcept {
  constexpr int base = 16;
  std::uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  return value;
}

struct mapping {
  code_region region;
  bool executable = false;
};

mapping mapping_of(std::string_view line) {
  line_reader from(line);
  const auto addresses = from.word();
  const auto rights = from.word();
  const auto offset = from.word();
  const auto device = from.word();
  const auto inode = from.word();
  mapping made;
  const auto dash = addresses.find('-');
  if (dash == std::string_view::npos || rights.size() < 4) return made;
  made.region.at = {hexadecimal(addresses.substr(0, dash)), hexadecimal(addresses.substr(dash + 1))};
  made.region.offset = hexadecimal(offset);
  made.region.path = from.rest();
  if (inode != "0") made.region.file = std::string(device) + ' ' + std::string(inode);
  made.region.readable = rights[0] == 'r';
  made.region.writable = rights[1] == 'w';
  made.executable = rights[2] == 'x';
  made.region.shared = rights[3] == 's';
  return made;
}

// Where hooks changed text, the kernel may split one library's text into several mappings.
bool continues(const code_region& before, const code_region& next) noexcept {
  const bool same_file = before.file == next.file && before.path == next.path;
  const bool next_part = before.file.empty() || before.offset + before.at.size() == next.offset;
  return before.at.end == next.at.begin && same_file && next_part && before.readable == next.readable &&
         before.writable == next.writable && before.shared == next.shared;
}

bool begins_with(std::string_view text, std::string_view with) noexcept { return text.starts_with(with); }

std::string read_all(int from) {
  std::string all;
  std::array<char, 16384> some{};
  for (ssize_t got = 0; (got = ::read(from, some.data(), some.size())) > 0;)
    all.append(some.data(), static_cast<std::size_t>(got));
  return all;
}

}  // namespace

bool code_region::is_of_a_file() const noexcept {
  return !file.empty() && !shared && !begins_with(path, "/memfd:") && !begins_with(path, "/dev/zero") &&
         !begins_with(path, "/SYSV") && !begins_with(path, "/anon_hugepage");
}

bool code_region::is_of_the_kernel() const noexcept {
  return file.empty() && (path == "[vdso]" || path == "[vsyscall]" || path == "[uprobes]");
}

std::string_view code_region::name() const noexcept {
  if (path.empty() || begins_with(path, "[anon")) return "memory without a file";
  const std::string_view all(path);
  return all.substr(all.rfind('/') + 1);
}

std::vector<code_region> executable_memory_in(std::string_view maps) {
  std::vector<code_region> found;
  std::map<std::string, std::uintptr_t, std::less<>> headers;  // where the last mapping so far of each file's start is
  while (!maps.empty()) {
    const auto line = maps.substr(0, maps.find('\n'));
    maps.remove_prefix(std::min(line.size() + 1, maps.size()));
    auto one = mapping_of(line);
    if (!one.region.file.empty() && one.region.offset == 0) headers[one.region.file] = one.region.at.begin;
    if (!one.executable || one.region.at.empty()) continue;
    if (const auto header = headers.find(one.region.file); header != headers.end()) one.region.header = header->second;
    if (!found.empty() && continues(found.back(), one.region)) {
      found.back().at.end = one.region.at.end;
    } else {
      found.push_back(std::move(one.region));
    }
  }
  return found;
}

std::optional<std::vector<code_region>> executable_memory() {
  const os::file maps(::open("/proc/thread-self/maps", O_RDONLY | O_CLOEXEC));
  if (!maps) return std::nullopt;
  const auto text = read_all(maps.number());
  if (text.empty()) return std::nullopt;
  return executable_memory_in(text);
}

}  // namespace pinfold::monitors::code_scan
