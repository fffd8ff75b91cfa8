// SPDX-License-Identifier: BSD-3-Clause
#include "importers/memfd/memory.hpp"

#include "os/page_bytes.hpp"
#include "os/reservation.hpp"
#include "os/size_limit.hpp"

#include <fcntl.h>
#include <limits>
#include <sys/mman.h>
#include <sys/stat.h>

namespace pinfold::memfd {

namespace {

constexpr unsigned int never_executable = 0x0008U;  // MFD_NOEXEC_SEAL, which older headers lack

/// Returns `bytes` rounded up to pages. Fails if that is 0, too large for a file, or would wrap around at `where`, or
/// if `where` is not page-aligned.
result<std::size_t> whole_pages(std::size_t bytes, const void* where) noexcept {
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<off_t>::max());
  const std::size_t page = os::page_bytes();
  const auto at = reinterpret_cast<std::uintptr_t>(where);
  if (bytes == 0) return fail(errc::invalid_range, "the buffer is empty");
  if (bytes > most - page) return fail(errc::invalid_range, "the buffer exceeds the largest file size");
  if (at % page != 0) return fail(errc::invalid_range, "the address is not page-aligned");
  const std::size_t rounded = (bytes + page - 1) / page * page;
  if (rounded > UINTPTR_MAX - at) return fail(errc::invalid_range, "the range wraps around the address space");
  return rounded;
}

result<os::file> make_file(std::size_t bytes) noexcept {
  os::file made = new_memfd();
  if (!made) return os::fail_system("cannot create a memfd");
  if (os::within_size_limit([&] { return ::ftruncate(made.number(), static_cast<off_t>(bytes)); }) != 0)
    return os::fail_system("cannot set the size of a memfd");
  return made;
}

constexpr int flags_for(void* where, placing how) noexcept {
  if (where == nullptr) return MAP_SHARED;
  return MAP_SHARED | (how == placing::reservation ? MAP_FIXED : MAP_FIXED_NOREPLACE);
}

result<std::byte*> map_whole(const os::file& memfd, std::size_t bytes, void* where, placing how) noexcept {
  constexpr auto taken = "the address range is already mapped";
  const int flags = flags_for(where, how);
  void* const at = ::mmap(where, bytes, PROT_READ | PROT_WRITE, flags, memfd.number(), 0);
  if (at == MAP_FAILED && how == placing::reservation) os::mend_reservation(where, bytes);
  if (at == MAP_FAILED && errno == EEXIST) return fail_errno(errc::in_use_conflict, EEXIST, taken);
  if (at == MAP_FAILED) return os::fail_system("cannot map a memfd");
  if (where == nullptr || at == where) return static_cast<std::byte*>(at);
  ::munmap(at, bytes);  // a kernel before 4.17 treated the address as a hint
  return fail_errno(errc::in_use_conflict, EEXIST, taken);
}

result<void> seal(const os::file& memfd, memfd_access access) noexcept {
  const int writes = access == memfd_access::read_only ? F_SEAL_FUTURE_WRITE : 0;
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | writes;
  if (::fcntl(memfd.number(), F_ADD_SEALS, seals) == 0) return {};
  return fail_errno(errc::unsupported, errno, "cannot seal a memfd (needs Linux 5.1)");
}

}  // namespace

os::file new_memfd() noexcept {
  constexpr auto name = "pinfold";
  constexpr unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  os::file made(::memfd_create(name, flags | never_executable));
  if (!made && errno == EINVAL) made = os::file(::memfd_create(name, flags));  // before Linux 6.3
  return made;
}

exported_memory::~exported_memory() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

result<exported_memory> make_memory(std::size_t bytes, void* where, memfd_access access, placing how) noexcept {
  const auto size = whole_pages(bytes, where);
  if (!size) return tl::unexpected(size.error());
  auto made = make_file(*size);
  if (!made) return tl::unexpected(made.error());
  struct stat seen{};
  if (::fstat(made->number(), &seen) != 0) return os::fail_system("cannot inspect a memfd");
  const auto data = map_whole(*made, *size, where, how);
  if (!data) return tl::unexpected(data.error());
  exported_memory memory;
  memory.file_ = std::move(*made);
  memory.data_ = *data;
  memory.size_ = *size;
  memory.inode_ = seen.st_ino;
  // After the mapping, because the exporter's own mapping must be writable.
  if (auto sealed = seal(memory.file_, access); !sealed) {
    if (how == placing::reservation && os::reserve_again(where, *size)) memory.leave_mapping();
    return tl::unexpected(sealed.error());
  }
  return memory;
}

}  // namespace pinfold::memfd
