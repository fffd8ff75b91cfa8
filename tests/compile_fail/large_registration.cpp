// SPDX-License-Identifier: BSD-3-Clause
// Refused with: registration_type\) <= (pinfold::)?max_registration_bytes
// What the registrar made lives inside the entry: the compiler names type and limit.
#include <pinfold/cache.hpp>
#include <pinfold/registrars/null.hpp>

#include <array>

struct large_registrar : pinfold::null_registrar {
  struct registration_type {
#ifdef FIXED
    std::array<std::uint64_t, 8> words;
#else
    std::array<std::uint64_t, 9> words;
#endif
  };
  pinfold::result<registration_type> open(pinfold::range, pinfold::access_flags) noexcept;
  pinfold::result<void> close(const registration_type&) noexcept;
};

using cache = pinfold::cache<large_registrar>;
std::size_t size() { return sizeof(cache); }
