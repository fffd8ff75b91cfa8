// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A ring of the kernel as the device of a `stage_on`: it sends to a file in memory.
#pragma once

#include "support/doubles/test_ring.hpp"
#include "support/hazards/memory_attacks.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <vector>

namespace pinfold::testing {

class ring_device {
 public:
  ring_device() { received_.reserve(most_bytes); }
  ring_device(const ring_device&) = delete;
  ring_device& operator=(const ring_device&) = delete;
  ~ring_device() { ::close(file_); }

  [[nodiscard]] io_uring_registrar registrar() { return registrar_on(ring_, 64); }

  [[nodiscard]] std::optional<std::size_t> send(const target& at, const io_uring_registrar::registration_type& with,
                                                char expected) {
    const auto size = static_cast<unsigned>(at.bytes);
    if (ring_.write(file_, at.data, size, 0, with.index) != static_cast<int>(size)) return std::nullopt;
    received_.resize(at.bytes);
    if (::pread(file_, received_.data(), at.bytes, 0) != static_cast<ssize_t>(at.bytes))
      throw std::runtime_error("cannot read what the device wrote");
    return static_cast<std::size_t>(std::count(received_.begin(), received_.end(), expected));
  }

 private:
  static constexpr std::size_t most_bytes = std::size_t{4} << 20U;

  int file_ = ::memfd_create("received", MFD_CLOEXEC);
  test_ring ring_;
  std::vector<char> received_;
};

}  // namespace pinfold::testing
