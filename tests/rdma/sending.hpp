// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// An RDMA device as that of a `stage_on`: what it sends, it writes to other memory of this process.
#pragma once

#include "rdma/pair.hpp"
#include "support/memory_attacks.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace pinfold::testing {

class rdma_sending {
 public:
  ~rdma_sending() { ::munmap(received_, most_at_once); }
  rdma_sending() = default;
  rdma_sending(const rdma_sending&) = delete;
  rdma_sending& operator=(const rdma_sending&) = delete;

  [[nodiscard]] verbs_registrar registrar() const { return device_.registrar(); }

  [[nodiscard]] std::optional<std::size_t> send(const target& at, const verbs_registrar::registration_type& with,
                                                char expected) {
    std::size_t arrived = 0;
    for (std::size_t from = 0; from < at.bytes; from += most_at_once) {
      const auto bytes = std::min(most_at_once, at.bytes - from);
      std::fill_n(received_, bytes, '?');
      if (pair_.write(at.data + from, bytes, with.lkey, {received_, sink_.rkey()}) != IBV_WC_SUCCESS)
        return std::nullopt;
      arrived += static_cast<std::size_t>(std::count(received_, received_ + bytes, expected));
    }
    return arrived;
  }

 private:
  static constexpr std::size_t most_at_once = std::size_t{1} << 20U;

  char* const received_ = static_cast<char*>(attacks::elsewhere(most_at_once));
  rdma_device device_;
  rdma_sink sink_{device_, received_, most_at_once};
  rdma_pair pair_{device_};
};

}  // namespace pinfold::testing
