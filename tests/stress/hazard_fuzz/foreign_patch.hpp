// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Another library that changes munmap in this process, now and then.
#pragma once

#include "choices.hpp"

#include <cstdlib>
#include <dlfcn.h>

namespace pinfold::testing::hazard_fuzz {

/// Active only with PINFOLD_FUZZ_FOREIGN_PATCH=1: the library then decides what the hooks see. Sets with another
/// monitor that sees munmap have to stay right. It is loaded before the first cache, and never unloaded.
class foreign_patch {
 public:
  foreign_patch() {
    if (std::getenv("PINFOLD_FUZZ_FOREIGN_PATCH") == nullptr) return;
    void* const loaded = ::dlopen(PINFOLD_FOREIGN_PATCH, RTLD_NOW | RTLD_LOCAL);
    if (loaded == nullptr) return;
    cover_ = reinterpret_cast<change>(::dlsym(loaded, "foreign_patch_cover"));
    put_back_ = reinterpret_cast<change>(::dlsym(loaded, "foreign_patch_put_back"));
  }
  foreign_patch(const foreign_patch&) = delete;
  foreign_patch& operator=(const foreign_patch&) = delete;
  ~foreign_patch() {
    if (put_back_ != nullptr) put_back_();
  }

  void step_of(choices& random) const {
    if (cover_ == nullptr || put_back_ == nullptr) return;
    static_cast<void>(random.one_in(2) ? cover_() : put_back_());
  }

 private:
  using change = bool (*)();
  change cover_ = nullptr;
  change put_back_ = nullptr;
};

}  // namespace pinfold::testing::hazard_fuzz
