// SPDX-License-Identifier: BSD-3-Clause
// Ranks of mpirun. MPI carries their messages, and no measured transfer.
#include "cli/failure.hpp"
#include "perf/rma/peers.hpp"

#include <array>
#include <cstddef>
#include <cstdio>
#include <mpi.h>
#include <utility>

namespace tool {
namespace {

void must(int answer, const char* what) {
  if (answer == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(answer, text.data(), &length);
  throw failure(fmt::format("{}: {} (MPI {})", what, text.data(), answer));
}

class peers_of_mpi : public rma_peers {
 public:
  peers_of_mpi() {
    must(MPI_Init(nullptr, nullptr), "MPI_Init");
    must(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    must(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    must(MPI_Comm_size(MPI_COMM_WORLD, &ranks_), "MPI_Comm_size");
  }
  ~peers_of_mpi() override {
    if (failed_) MPI_Abort(MPI_COMM_WORLD, 1);  // the other ranks may be waiting for this one
    if (!failed_) MPI_Finalize();
  }

  [[nodiscard]] std::size_t rank() const noexcept override { return static_cast<std::size_t>(rank_); }
  [[nodiscard]] std::size_t ranks() const noexcept override { return static_cast<std::size_t>(ranks_); }

  // MPI ends the other ranks when this one has closed its objects; they need no reason.
  void give_up(std::string_view) noexcept override { failed_ = true; }

 private:
  void begin(std::string own) override {
    own_ = std::move(own);
    bytes_.assign(ranks(), 0);
    own_bytes_ = static_cast<int>(own_.size());
    whole_.clear();
    must(MPI_Iallgather(&own_bytes_, 1, MPI_INT, bytes_.data(), 1, MPI_INT, MPI_COMM_WORLD, &under_way_),
         "MPI_Iallgather");
    sizes_known_ = false;
  }

  bool complete() override {
    int done = 0;
    must(MPI_Test(&under_way_, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done == 0 || sizes_known_) return done != 0;
    sizes_known_ = true;
    first_.assign(1, 0);
    for (const int one : bytes_) first_.push_back(first_.back() + one);
    whole_.resize(static_cast<std::size_t>(first_.back()));
    must(MPI_Iallgatherv(own_.data(), own_bytes_, MPI_CHAR, whole_.data(), bytes_.data(), first_.data(), MPI_CHAR,
                         MPI_COMM_WORLD, &under_way_),
         "MPI_Iallgatherv");
    return false;
  }

  per_rank take() override {
    per_rank all;
    for (std::size_t i = 0; i < ranks(); ++i)
      all.push_back(whole_.substr(static_cast<std::size_t>(first_[i]), static_cast<std::size_t>(bytes_[i])));
    return all;
  }

  [[nodiscard]] std::string missing() const override { return "some rank"; }

  int rank_ = 0, ranks_ = 0, own_bytes_ = 0;
  bool sizes_known_ = false, failed_ = false;
  std::string own_, whole_;
  std::vector<int> bytes_, first_;
  MPI_Request under_way_ = MPI_REQUEST_NULL;
};

}  // namespace

std::unique_ptr<rma_peers> mpi_peers() { return std::make_unique<peers_of_mpi>(); }

}  // namespace tool
