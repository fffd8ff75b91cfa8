// SPDX-License-Identifier: BSD-3-Clause
#include "c/failure.hpp"

#include <pinfold/dump_on_signal.hpp>
#include <pinfold/pinfold.h>

extern "C" {

int pinfold_dump_on_signal(int signal, const char* directory, uint32_t flags) {
  using namespace pinfold;
  if ((flags & ~std::uint32_t{PINFOLD_DUMP_CHAIN}) != 0)
    return c::refuse(errc::invalid_argument, "the flags of the dump have unknown bits");
  const auto earlier = (flags & PINFOLD_DUMP_CHAIN) != 0 ? earlier_handler::chain : earlier_handler::refuse;
  return c::as_code(dump_on_signal(signal, directory != nullptr ? directory : "", earlier));
}

}  // extern "C"
