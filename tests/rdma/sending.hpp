// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// An RDMA device as that of a `stage_on`: it moves registered memory to other memory of this process, or from there.
#pragma once

#include "rdma/pair.hpp"
#include "support/hazards/memory_attacks.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace pinfold::testing {

/// The direction of a transfer. The bytes at the peer are checked; with `receive`, the bytes in the program's memory.
enum class rdma_way { write, send, receive };

template <rdma_way Way>
class rdma_moving {
 public:
  ~rdma_moving() { ::munmap(elsewhere_, most_at_once); }
  rdma_moving() = default;
  rdma_moving(const rdma_moving&) = delete;
  rdma_moving& operator=(const rdma_moving&) = delete;

  [[nodiscard]] verbs_registrar registrar() const { return device_.registrar(); }

  [[nodiscard]] std::optional<std::size_t> send(const target& at, const verbs_registrar::registration_type& with,
                                                char expected) {
    std::size_t arrived = 0;
    for (std::size_t from = 0; from < at.bytes; from += most_at_once) {
      const auto bytes = std::min(most_at_once, at.bytes - from);
      auto* const mine = reinterpret_cast<char*>(at.data + from);
      auto* const target = Way == rdma_way::receive ? mine : elsewhere_;
      if constexpr (Way == rdma_way::receive) std::fill_n(elsewhere_, bytes, expected);
      std::fill_n(target, bytes, '?');
      if (!move(mine, bytes, with.lkey)) return std::nullopt;
      arrived += static_cast<std::size_t>(std::count(target, target + bytes, expected));
    }
    return arrived;
  }

 private:
  bool move(char* mine, std::size_t bytes, std::uint32_t lkey) {
    if constexpr (Way == rdma_way::write) {
      return pair_.write(mine, bytes, lkey, {elsewhere_, sink_.rkey()}) == IBV_WC_SUCCESS;
    } else if constexpr (Way == rdma_way::send) {
      pair_.post_receive(elsewhere_, bytes, sink_.lkey());
      return pair_.send(mine, bytes, lkey);
    } else {
      pair_.post_receive(mine, bytes, lkey);
      return pair_.send(elsewhere_, bytes, sink_.lkey());
    }
  }

  static constexpr std::size_t most_at_once = std::size_t{1} << 20U;

  char* const elsewhere_ = static_cast<char*>(attacks::elsewhere(most_at_once));
  rdma_device device_;
  rdma_sink sink_{device_, elsewhere_, most_at_once};
  rdma_pair pair_{device_};
};

using rdma_sending = rdma_moving<rdma_way::write>;

}  // namespace pinfold::testing
