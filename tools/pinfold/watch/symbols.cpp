// SPDX-License-Identifier: BSD-3-Clause
#include "watch/symbols.hpp"

#include "cli/printable.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cxxabi.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <string_view>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unordered_set>
#include <utility>

namespace tool::watch {

namespace {

using std::chrono::steady_clock;

// Each reference to an earlier part of a name (S_, T0_) may double its plain form. A file that this user does not trust
// may have names of 300 bytes whose plain form fills the memory.
bool may_be_huge(std::string_view mangled) {
  constexpr int most_references = 16;  // of a name of 300 bytes: 10 MB, in 10 ms
  int references = 0;
  for (std::size_t i = 0; i + 1 < mangled.size(); ++i) {
    const char next = mangled[i + 1];
    const bool number = next == '_' || (next >= '0' && next <= '9') || (next >= 'A' && next <= 'Z');
    references += (mangled[i] == 'S' || mangled[i] == 'T') && number ? 1 : 0;
  }
  return references > most_references;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                          &std::free);
  return status == 0 && plain ? plain.get() : name;
}

std::string_view file_in(std::string_view path) { return path.substr(path.rfind('/') + 1); }

struct named_frame {
  std::string text;
  bool of_library = false;
};

bool is_of_library(std::string_view file, std::string_view function) {
  return file.starts_with("libpinfold") || function.starts_with("pinfold::monitors::") ||
         function.starts_with("pinfold::invalidation::") || function.starts_with("pinfold::observation::");
}

constexpr off_t most_of_all_copies = 256 << 20;

/// A file that a process has mapped, or a copy of it.
struct mapped_file {
  int number = -1;
  bool is_trusted = false;  // belongs to root or to this user
};

// Returns a copy in memory, or -1. libelf maps what it reads, and its process would be killed (SIGBUS) when another one
// truncates the file.
int copy_of(int file, off_t bytes) {
  const int copy = ::memfd_create("pinfold-symbols", MFD_CLOEXEC);
  off_t from = 0;
  while (copy >= 0 && from < bytes && ::sendfile(copy, file, &from, static_cast<std::size_t>(bytes - from)) > 0) {
  }
  ::close(file);
  return copy;
}

// What the process calls its file may be a FIFO or a device by now. The name is one of the process's root.
// Copies if there is `room`, which gets less.
mapped_file open_mapped(pid_t process, const char* name, off_t& room) {
  constexpr off_t most_copied = 64 << 20;  // a symbol table as large takes milliseconds for each address
  const int root = ::open(fmt::format("/proc/{}/root", process).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return {};
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS;  // an absolute link would lead to this process's root
  const int found = static_cast<int>(::syscall(SYS_openat2, root, name, &how, sizeof how));
  ::close(root);
  if (found < 0) return {};
  mapped_file file;
  struct stat seen{};
  if (::fstat(found, &seen) == 0 && S_ISREG(seen.st_mode)) {
    file.is_trusted = seen.st_uid == 0 || seen.st_uid == ::geteuid();
    const bool copied = seen.st_size <= std::min(most_copied, room);
    if (copied || file.is_trusted)
      file.number = ::open(fmt::format("/proc/self/fd/{}", found).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (copied && file.number >= 0) {
      room -= seen.st_size;
      file.number = copy_of(file.number, seen.st_size);
    }
  }
  ::close(found);
  return file;
}

}  // namespace

struct symbols::state {
  pid_t process;
  Dwfl_Callbacks callbacks{};
  std::unique_ptr<Dwfl, decltype(&dwfl_end)> mapped{nullptr, &dwfl_end};
  std::unordered_set<const Dwfl_Module*> untrusted;
  steady_clock::time_point read_at{};
  off_t room = 0;  ///< for copies of files, in bytes

  explicit state(pid_t of) : process(of) {
    callbacks.find_elf = find_elf;
    callbacks.find_debuginfo = find_debuginfo;
    read();
  }

  static int find_elf(Dwfl_Module* module, void** data, const char* name, Dwarf_Addr base, char** path, Elf** elf) {
    if (name[0] != '/') return dwfl_linux_proc_find_elf(module, data, name, base, path, elf);  // the vDSO
    auto* const self = static_cast<state*>(*data);
    const auto file = open_mapped(self->process, name, self->room);
    if (!file.is_trusted) self->untrusted.insert(module);
    return file.number;
  }

  // By build ID, whose file is below /usr/lib/debug: a file's link to its debug information may name anything.
  static int find_debuginfo(Dwfl_Module* module, void** data, const char* name, Dwarf_Addr base, const char* file,
                            const char* link, GElf_Word checksum, char** path) {
    if (static_cast<state*>(*data)->untrusted.contains(module)) return -1;
    return dwfl_build_id_find_debuginfo(module, data, name, base, file, link, checksum, path);
  }

  static int set_data(Dwfl_Module* /*module*/, void** data, const char* /*name*/, Dwarf_Addr /*base*/, void* self) {
    *data = self;
    return DWARF_CB_OK;
  }

  void read() {
    read_at = steady_clock::now();
    room = most_of_all_copies;
    mapped.reset(dwfl_begin(&callbacks));
    if (!mapped) return;
    dwfl_report_begin(mapped.get());
    static_cast<void>(dwfl_linux_proc_report(mapped.get(), process));
    static_cast<void>(dwfl_report_end(mapped.get(), nullptr, nullptr));
    untrusted.clear();
    static_cast<void>(dwfl_getmodules(mapped.get(), set_data, this, 0));
  }

  // The process may have loaded a library since.
  [[nodiscard]] Dwfl_Module* module_of(std::uint64_t address) {
    auto* found = mapped ? dwfl_addrmodule(mapped.get(), address) : nullptr;
    if (found == nullptr && steady_clock::now() - read_at > std::chrono::seconds(1)) {
      read();
      found = mapped ? dwfl_addrmodule(mapped.get(), address) : nullptr;
    }
    return found;
  }

  // A return address may lie behind the end of its function: the call is before it.
  [[nodiscard]] named_frame name(std::uint64_t return_address) {
    const auto call = return_address - 1;
    auto* const within = module_of(call);
    if (within == nullptr) return {fmt::format("{:#x}", return_address)};
    const char* const path = dwfl_module_info(within, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    const auto file = file_in(path != nullptr ? path : "?");
    GElf_Off offset = 0;
    GElf_Sym symbol{};
    const char* const mangled = dwfl_module_addrinfo(within, call, &offset, &symbol, nullptr, nullptr, nullptr);
    if (mangled == nullptr) return {fmt::format("{:#x} in {}", return_address, file)};
    const auto function = untrusted.contains(within) && may_be_huge(mangled) ? mangled : demangled(mangled);
    auto text = fmt::format("{}+{:#x} in {}", function, offset + 1, file);
    // Debug information names further files.
    if (auto* const line = untrusted.contains(within) ? nullptr : dwfl_module_getsrc(within, call); line != nullptr) {
      int number = 0;
      const char* const source = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
      if (source != nullptr) text += fmt::format(" ({}:{})", file_in(source), number);
    }
    return {std::move(text), is_of_library(file, function)};
  }
};

symbols::symbols(pid_t process) : state_(std::make_unique<state>(process)) {}
symbols::~symbols() = default;

std::vector<std::string> symbols::name(const std::vector<std::uint64_t>& return_addresses) {
  std::vector<std::string> all;
  bool in_library = true;
  for (const auto one : return_addresses) {
    auto frame = state_->name(one);
    in_library = in_library && frame.of_library;
    if (!in_library) all.push_back(printable(std::move(frame.text)));
  }
  return all;
}

}  // namespace tool::watch
