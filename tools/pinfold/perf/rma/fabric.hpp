// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A rank's end of the fabric: domain, endpoint and completion queue. Everything throws `failure` with libfabric's own
/// code and words.
#pragma once

#include <pinfold/registrars/libfabric.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <rdma/fabric.h>
#include <string>
#include <vector>

struct fid_fabric;
struct fid_cq;
struct fid_av;

namespace tool {

/// Closes objects of libfabric. Prints a failure to close on standard error, unless another failure was printed.
struct fabric_closer {
  bool quiet = false;
  void operator()(::fid* open) const noexcept;
  template <class Object>
  void operator()(Object* open) const noexcept {
    (*this)(&open->fid);
  }
};
template <class Object>
using fabric_owned = std::unique_ptr<Object, fabric_closer>;

/// The place of a peer's memory, for ranks that have its permission.
struct fabric_target {
  std::uint64_t address = 0;
  std::uint64_t key = 0;
};

/// A rank's own memory of one transfer. Lives until the transfer is completed.
struct fabric_transfer {
  ::fi_context2 context{};  ///< the provider's; first, so that its address is the transfer's
  void* data = nullptr;
  std::size_t bytes = 0;
  void* desc = nullptr;
  std::size_t number = 0;  ///< for the caller's use
};

/// Ends the process, with a message, when a put, a get or a poll does not return within `timeout` to twice that: `shm`
/// waits without end for a lock that a stopped or killed peer holds. Uses SIGALRM.
void limit_fabric_calls(std::chrono::nanoseconds time_limit, std::size_t rank);

class fabric_end {
 public:
  /// `address`: the host's address to use, for providers over IP; empty: the provider's choice.
  fabric_end(const std::string& provider, const std::string& address);
  ~fabric_end();

  [[nodiscard]] std::size_t largest() const noexcept;  ///< most bytes of one transfer
  [[nodiscard]] std::string name() const;              ///< for `meet`, as bytes
  void meet(const std::string& peer);                  ///< the peer that `put` and `get` are for
  void know(const std::string& peer);                  ///< a further peer, which puts and gets here
  [[nodiscard]] pinfold::libfabric_registrar registrar() const;

  /// Returns false when the provider is busy. A completion means that the bytes have arrived (FI_DELIVERY_COMPLETE).
  [[nodiscard]] bool put(fabric_transfer& one, const fabric_target& to);
  [[nodiscard]] bool get(fabric_transfer& one, const fabric_target& from);

  /// Returns a completed transfer, if there is one.
  [[nodiscard]] fabric_transfer* poll();

  /// Calls the provider, which other ranks' transfers may need.
  void progress() { static_cast<void>(poll()); }

  /// Ends all transfers, so that their memory may go. Objects that libfabric then does not close stay until the process
  /// ends.
  void stop() noexcept;

 private:
  [[noreturn]] void refuse(const char* call, std::int64_t answer) const;
  void must(const char* call, int answer) const;
  [[nodiscard]] bool posted(const char* call, std::int64_t answer) const;
  [[noreturn]] void report_failed_transfer();

  struct info_freer {
    void operator()(::fi_info* info) const noexcept;
  };
  std::unique_ptr<::fi_info, info_freer> info_;
  std::string provider_;
  fabric_owned<::fid_fabric> fabric_;
  fabric_owned<::fid_domain> domain_;
  fabric_owned<::fid_cq> queue_;
  fabric_owned<::fid_av> addresses_;
  fabric_owned<::fid_ep> endpoint_;
  ::fi_addr_t peer_ = 0;
};

}  // namespace tool
