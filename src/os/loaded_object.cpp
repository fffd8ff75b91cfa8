// SPDX-License-Identifier: BSD-3-Clause
#include "os/loaded_object.hpp"

#include <atomic>
#include <dlfcn.h>
#include <link.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

namespace pinfold::detail {

namespace {

bool is_file(const procmap& mapping, const char* path) noexcept {
  struct stat seen{};
  return ::stat(path, &seen) == 0 && seen.st_ino == mapping.inode && major(seen.st_dev) == mapping.device_major &&
         minor(seen.st_dev) == mapping.device_minor;
}

}  // namespace

#ifdef DLFO_STRUCT_HAS_EH_DBASE  // the header has `_dl_find_object`
bool is_of_loaded_object(const procmap& mapping, std::string_view path) noexcept {
  dl_find_object found{};
  if (::_dl_find_object(reinterpret_cast<void*>(mapping.begin), &found) != 0) return false;
  const char* const name = found.dlfo_link_map->l_name;
  if (name == nullptr) return false;
  if (*name == '\0') return is_file(mapping, "/proc/thread-self/exe");
  return path == name || is_file(mapping, name);  // by the path alone where stat(2) has other numbers (overlayfs)
}
#else
bool is_of_loaded_object(const procmap& /*mapping*/, std::string_view /*path*/) noexcept { return false; }
#endif

}  // namespace pinfold::detail

namespace pinfold::os {

#ifdef __GLIBC__
// Not dlopen, which other libraries replace.
bool keep_loaded(link_map* library) noexcept {
  Lmid_t space = LM_ID_BASE;
  return ::dlinfo(library, RTLD_DI_LMID, &space) == 0 &&
         ::dlmopen(space, library->l_name, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE) != nullptr;  // "": the program
}

// A static program is no object of the dynamic linker's.
bool stay_loaded() noexcept {
  static constinit std::atomic<bool> done{false};
  if (done.load(std::memory_order_seq_cst)) return true;
  Dl_info info{};
  link_map* library = nullptr;
  const auto* const here = reinterpret_cast<const void*>(&stay_loaded);
  const bool found = ::dladdr1(here, &info, reinterpret_cast<void**>(&library), RTLD_DL_LINKMAP) != 0;
  const bool stays = !found || (library != nullptr && keep_loaded(library));
  done.store(stays, std::memory_order_seq_cst);
  return stays;
}
#else  // musl unloads no library
bool keep_loaded(link_map* /*library*/) noexcept { return true; }
bool stay_loaded() noexcept { return true; }
#endif

}  // namespace pinfold::os
