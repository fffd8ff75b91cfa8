// SPDX-License-Identifier: BSD-3-Clause
#include "backing.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emulated_cuda {

namespace {

std::uint64_t own_start_time() noexcept {
  static const std::uint64_t own = start_time_of(::getpid());
  return own;
}

std::optional<ino_t> inode_of(const descriptor& file) noexcept {
  struct stat about{};
  if (::fstat(file.number(), &about) != 0) return std::nullopt;
  return about.st_ino;
}

}  // namespace

// Reads field 22 of stat, counted from behind the name, which may contain anything.
std::uint64_t start_time_of(pid_t process) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", process);
  const descriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t got = file ? ::read(file.number(), text, sizeof text - 1) : -1;
  if (got <= 0) return 0;
  text[got] = '\0';
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] == '\0' || at[2] == 'Z' || at[2] == 'X') return 0;
  for (int field = 2; field < 22 && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  return at == nullptr ? 0 : std::strtoull(at, nullptr, 10);
}

descriptor::~descriptor() {
  if (number_ >= 0) ::close(number_);
}

void backing::set_serial(std::uint64_t offset, std::uint64_t serial) noexcept {
  const std::uint64_t slot = offset / smallest;
  about.serials[slot] = serial;
  const auto at = about.data_bytes + offsetof(label, serials) + slot * sizeof serial;
  static_cast<void>(::pwrite(file.number(), &serial, sizeof serial, static_cast<off_t>(at)) < 0);
}

std::optional<backing> make_backing(const label& about) noexcept {
  backing made;
  made.file = descriptor(::memfd_create("emulated GPU memory", MFD_CLOEXEC));
  if (!made.file) return std::nullopt;
  const auto inode = inode_of(made.file);
  const auto bytes = static_cast<off_t>(about.data_bytes);
  if (!inode || ::ftruncate(made.file.number(), bytes + static_cast<off_t>(page)) != 0) return std::nullopt;
  if (::pwrite(made.file.number(), &about, sizeof about, bytes) != sizeof about) return std::nullopt;
  made.inode = *inode;
  made.about = about;
  return made;
}

std::optional<backing> backing_of(descriptor file) noexcept {
  struct stat what{};
  if (!file || ::fstat(file.number(), &what) != 0 || what.st_size <= static_cast<off_t>(page)) return std::nullopt;
  backing found;
  const off_t at = what.st_size - static_cast<off_t>(page);
  if (::pread(file.number(), &found.about, sizeof found.about, at) != sizeof found.about) return std::nullopt;
  if (found.about.magic != label::right_magic || found.about.data_bytes != static_cast<std::uint64_t>(at)) {
    return std::nullopt;
  }
  found.inode = what.st_ino;
  found.file = std::move(file);
  return found;
}

int protection_of(pinfold::cuda::access_rights rights) noexcept {
  switch (rights) {
    case pinfold::cuda::access_rights::read: return PROT_READ;
    case pinfold::cuda::access_rights::read_write: return PROT_READ | PROT_WRITE;
    default: return PROT_NONE;
  }
}

bool map_backing(const backing& memory, std::uint64_t offset, std::uint64_t bytes, pinfold::cuda::device_pointer at,
                 pinfold::cuda::access_rights rights) noexcept {
  void* const wanted = reinterpret_cast<void*>(at);
  return ::mmap(wanted, bytes, protection_of(rights), MAP_SHARED | MAP_FIXED, memory.file.number(),
                static_cast<off_t>(offset)) == wanted;
}

file_address address_of(const descriptor& file, ino_t inode) noexcept {
  return {.process = ::getpid(), .number = file.number(), .start_time = own_start_time(), .inode = inode};
}

bool of_this_process(const file_address& there) noexcept {
  return there.process == ::getpid() && there.start_time == own_start_time();
}

bool alive(const file_address& there) noexcept { return start_time_of(there.process) == there.start_time; }

descriptor open_there(const file_address& there) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", there.process, there.number);
  descriptor file(::open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  const int why = errno;
  if (!file && (why == EMFILE || why == ENFILE || why == ENOMEM)) return file;
  if (!alive(there)) {
    errno = ESRCH;
    return {};
  }
  if (!file) {
    errno = why == ENOENT ? ESTALE : why;
    return file;
  }
  if (inode_of(file) != ino_t{there.inode}) {
    errno = ESTALE;
    return {};
  }
  return file;
}

std::optional<backing> backing_at(std::int32_t process, std::uint64_t address) noexcept try {
  const std::filesystem::path folder = "/proc/" + std::to_string(process) + "/fd";
  std::error_code gone;
  for (const auto& each : std::filesystem::directory_iterator(folder, gone)) {
    if (std::filesystem::read_symlink(each, gone).string().find("emulated GPU memory") == std::string::npos) continue;
    auto found = backing_of(descriptor(::open(each.path().c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)));
    if (!found || found->about.maker != process) continue;
    const auto& about = found->about;
    if (about.base <= address && address < about.base + about.data_bytes) return found;
  }
  return std::nullopt;
} catch (const std::exception&) {
  return std::nullopt;
}

}  // namespace emulated_cuda
