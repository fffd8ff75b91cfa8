// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Ranks that each have a socket to rank 0, which hands on their messages.
#pragma once

#include "perf/rma/link.hpp"
#include "perf/rma/peers.hpp"

#include <vector>

namespace tool {

class star_peers : public rma_peers {
 public:
  struct place {
    std::size_t rank = 0;
    std::size_t ranks = 1;
    std::string address;  ///< this host's, for others
    bool reports = true;
  };

  /// `links`: for rank 0, those to ranks 1, 2, …; for any other rank, the one to rank 0.
  star_peers(place where, std::vector<rma_link> links);

  [[nodiscard]] std::size_t rank() const noexcept override { return where_.rank; }
  [[nodiscard]] std::size_t ranks() const noexcept override { return where_.ranks; }
  [[nodiscard]] std::string address() const override { return where_.address; }
  [[nodiscard]] bool reports() const noexcept override { return where_.reports; }
  void look() override;
  void give_up(std::string_view why) noexcept override;

 private:
  void begin(std::string own) override;
  bool complete() override;
  per_rank take() override;
  [[nodiscard]] std::string missing() const override;

  void pump();
  void hand_on();
  [[nodiscard]] std::size_t rank_at(std::size_t link) const noexcept { return where_.rank == 0 ? link + 1 : 0; }

  place where_;
  std::vector<rma_link> links_;
  struct word {
    bool here = false;
    std::string text;
  };
  std::vector<word> said_;  // by link, of this all-gather
  std::string own_;
  bool handed_on_ = false;
};

}  // namespace tool
