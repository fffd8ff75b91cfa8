// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/linker.hpp"

#include "os/check.hpp"
#include "os/file.hpp"

#if defined(__x86_64__)

#include <algorithm>
#include <array>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <string_view>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::monitors {

namespace {

/// The same code as in the file, without changes made in memory. Empty if the file cannot be read.
class code_in_file {
 public:
  code_in_file(const char* file, std::size_t offset, const x86_64::text& code) noexcept {
    constexpr std::size_t page = 4096;
    const os::file opened(::open(file, O_RDONLY | O_CLOEXEC));
    if (!opened) return;
    before_ = offset % page;
    bytes_ = before_ + code.bytes.size();
    const auto start = static_cast<off_t>(offset - before_);
    void* const got = ::mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, opened.number(), start);
    const auto end = ::lseek(opened.number(), 0, SEEK_END);
    if (got == MAP_FAILED) return;
    mapped_ = static_cast<const std::uint8_t*>(got);
    if (end >= 0 && static_cast<std::size_t>(end) >= offset + code.bytes.size()) size_ = code.bytes.size();
    at_ = code.at;
  }
  code_in_file(const code_in_file&) = delete;
  code_in_file& operator=(const code_in_file&) = delete;
  ~code_in_file() {
    if (mapped_ != nullptr) ::munmap(const_cast<std::uint8_t*>(mapped_), bytes_);
  }

  [[nodiscard]] x86_64::text code() const noexcept {
    if (size_ == 0) return {};
    PINFOLD_ASSERT(mapped_ != nullptr && before_ + size_ <= bytes_, "the code lies in the mapping of its file");
    return {{mapped_ + before_, size_}, at_};
  }

 private:
  const std::uint8_t* mapped_ = nullptr;
  std::size_t before_ = 0;
  std::size_t bytes_ = 0;
  std::size_t size_ = 0;
  std::uintptr_t at_ = 0;
};

// Returns whether the function consists of this call only: its bytes are at the entry, or behind a few instructions
// that prepare the fourth argument. A function that makes the call inline must not be hooked.
bool is_only_a_call(const x86_64::text& code, std::uintptr_t entry, std::uintptr_t call) noexcept {
  PINFOLD_ASSERT(code.at <= entry && entry <= call && call <= code.end(), "the call lies in the function");
  using namespace std::string_view_literals;
  constexpr std::size_t most = 20;
  const auto* bytes = reinterpret_cast<const char*>(code.from(entry).bytes.data());
  const std::string_view before(bytes, call - entry);
  return before.empty() || before == "\xF3\x0F\x1E\xFA"sv ||
         (before.size() <= most && before.find("\x89\xCA"sv) != std::string_view::npos);  // mov %ecx,%r10d
}

// mov $number,%eax; syscall; cmp $-4096 or -4095,%rax
std::uintptr_t find_caller(const x86_64::text& code, std::uint8_t number) noexcept {
  const std::array<std::uint8_t, 9> wanted{0xB8, number, 0, 0, 0, 0x0F, 0x05, 0x48, 0x3D};
  const std::boyer_moore_horspool_searcher searcher(wanted.begin(), wanted.end());
  const auto& bytes = code.bytes;
  for (auto found = bytes.begin(); (found = std::search(found, bytes.end(), searcher)) != bytes.end(); ++found) {
    const auto call = code.at + static_cast<std::size_t>(found - bytes.begin());
    const auto entry = x86_64::begin_of_function(code, call);
    if (entry != 0 && is_only_a_call(code, entry, call)) return entry;
  }
  return 0;
}

// Another library's jump hides the bytes that we search for. The file then gives the entry, if it is the file that was
// loaded: the code behind the jump is the same.
std::uintptr_t find_hidden(const x86_64::text& code, const char* file, std::size_t offset,
                           std::uint8_t number) noexcept {
  constexpr std::size_t longest_jump = 16;
  constexpr std::size_t compared = 16;
  const code_in_file pristine(file, offset, code);
  const auto entry = pristine.code().bytes.empty() ? 0 : find_caller(pristine.code(), number);
  if (entry == 0 || entry + longest_jump + compared > code.end() || !x86_64::leads_away(code.from(entry))) return 0;
  const auto rest = entry + longest_jump;
  const bool same = std::memcmp(code.from(rest).bytes.data(), pristine.code().from(rest).bytes.data(), compared) == 0;
  return same ? entry : 0;
}

std::uintptr_t find(const x86_64::text& code, const char* file, std::size_t offset, std::uint8_t number) noexcept {
  const auto found = find_caller(code, number);
  return found != 0 ? found : find_hidden(code, file, offset, number);
}

}  // namespace

linker_functions find_linker_functions(const x86_64::text& code, const char* file, std::size_t offset) noexcept {
  return {find(code, file, offset, SYS_munmap), find(code, file, offset, SYS_mmap),
          find(code, file, offset, SYS_mprotect)};
}

}  // namespace pinfold::monitors

#else

namespace pinfold::monitors {
linker_functions find_linker_functions(const x86_64::text& /*code*/, const char* /*file*/,
                                       std::size_t /*offset*/) noexcept {
  return {};
}
}  // namespace pinfold::monitors

#endif
