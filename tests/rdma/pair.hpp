// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// An RDMA device for tests, and two connected queue pairs on it: one writes into the other's memory.
#pragma once

#include <pinfold/registrars/verbs.hpp>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <infiniband/verbs.h>
#include <memory>
#include <sched.h>
#include <stdexcept>
#include <string>
#include <utility>

namespace pinfold::testing {

template <auto Destroy>
struct destroyed_by {
  void operator()(auto* what) const { Destroy(what); }
};
template <class T, auto Destroy>
using owned = std::unique_ptr<T, destroyed_by<Destroy>>;

template <class P>
P needed(P made, const char* what) {
  if (!made) throw std::runtime_error(std::string("cannot have ") + what);
  return made;
}
inline void done(int refused, const char* what) {
  if (refused != 0) throw std::runtime_error(std::string(what) + ": error " + std::to_string(refused));
}

/// A device, by name or the first, and a protection domain on it. Throws where there is none: scripts/rdma-vm has one.
class rdma_device {
 public:
  explicit rdma_device(const std::string& name = "")
      : context_(needed(open(name), "an RDMA device")),
        domain_(needed(::ibv_alloc_pd(context_.get()), "a protection domain")) {}

  [[nodiscard]] ibv_context* context() const { return context_.get(); }
  [[nodiscard]] ibv_pd* domain() const { return domain_.get(); }
  [[nodiscard]] verbs_registrar registrar(verbs_registrar_options options = {}) const {
    auto made = verbs_registrar::create(domain(), std::move(options));
    if (!made) throw std::runtime_error(describe(made.error()));
    return std::move(*made);
  }

 private:
  static ibv_context* open(const std::string& name) {
    ibv_device** const all = ::ibv_get_device_list(nullptr);
    ibv_context* opened = nullptr;
    for (ibv_device** one = all; all != nullptr && *one != nullptr && opened == nullptr; ++one)
      if (name.empty() || name == ::ibv_get_device_name(*one)) opened = ::ibv_open_device(*one);
    if (all != nullptr) ::ibv_free_device_list(all);
    return opened;
  }

  owned<ibv_context, ::ibv_close_device> context_;
  owned<ibv_pd, ::ibv_dealloc_pd> domain_;
};

/// A region of the test's own, with all rights: the destination of transfers.
class rdma_sink {
 public:
  rdma_sink(const rdma_device& device, void* at, std::size_t bytes)
      : region_(needed(::ibv_reg_mr(device.domain(), at, bytes,
                                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                        IBV_ACCESS_REMOTE_ATOMIC),
                       "a memory region")) {}
  [[nodiscard]] std::uint32_t lkey() const { return region_->lkey; }
  [[nodiscard]] std::uint32_t rkey() const { return region_->rkey; }

 private:
  owned<ibv_mr, ::ibv_dereg_mr> region_;
};

/// The place of a peer's memory.
struct rdma_place {
  const void* at;
  std::uint32_t rkey;
};

/// Two connected queue pairs. After a failed operation a pair cannot be used any more.
class rdma_pair {
 public:
  explicit rdma_pair(const rdma_device& device)
      : queue_(needed(::ibv_create_cq(device.context(), 64, nullptr, nullptr, 0), "a completion queue")),
        near_(make(device)),
        far_(make(device)) {
    connect(device, *near_, *far_);
    connect(device, *far_, *near_);
  }

  /// The end whose memory the other one reads and writes.
  [[nodiscard]] ibv_qp* target() const { return far_.get(); }
  /// Executes a request of that end.
  ibv_wc_status execute_at_target(ibv_send_wr& work) {
    ibv_send_wr* bad = nullptr;
    work.send_flags |= IBV_SEND_SIGNALED;
    done(::ibv_post_send(far_.get(), &work, &bad), "ibv_post_send");
    return finish();
  }

  ibv_wc_status write(const void* from, std::size_t bytes, std::uint32_t lkey, const rdma_place& to) {
    return run(IBV_WR_RDMA_WRITE, from, bytes, lkey, to);
  }
  ibv_wc_status read(void* into, std::size_t bytes, std::uint32_t lkey, const rdma_place& from) {
    return run(IBV_WR_RDMA_READ, into, bytes, lkey, from);
  }
  /// Posts a buffer for the next message.
  void post_receive(void* into, std::size_t bytes, std::uint32_t lkey) {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(into), static_cast<std::uint32_t>(bytes), lkey};
    ibv_recv_wr work{};
    ibv_recv_wr* bad = nullptr;
    work.sg_list = &piece;
    work.num_sge = 1;
    done(::ibv_post_recv(far_.get(), &work, &bad), "ibv_post_recv");
  }
  /// Sends into the posted buffer; returns whether both ends succeeded.
  bool send(const void* from, std::size_t bytes, std::uint32_t lkey) {
    const auto first = run(IBV_WR_SEND, from, bytes, lkey, {nullptr, 0});
    return first == IBV_WC_SUCCESS && finish() == IBV_WC_SUCCESS;
  }
  ibv_wc_status fetch_and_add(std::uint64_t* before, std::uint32_t lkey, const rdma_place& on) {
    return run(IBV_WR_ATOMIC_FETCH_AND_ADD, before, sizeof *before, lkey, on);
  }

 private:
  owned<ibv_qp, ::ibv_destroy_qp> make(const rdma_device& device) const {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = queue_.get();
    wanted.cap = {.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
    wanted.qp_type = IBV_QPT_RC;
    return owned<ibv_qp, ::ibv_destroy_qp>(needed(::ibv_create_qp(device.domain(), &wanted), "a queue pair"));
  }

  static void connect(const rdma_device& device, ibv_qp& one, const ibv_qp& other) {
    ibv_port_attr port{};
    done(::ibv_query_port(device.context(), 1, &port), "ibv_query_port");
    ibv_qp_attr to{};
    to.qp_state = IBV_QPS_INIT;
    to.port_num = 1;
    to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    done(::ibv_modify_qp(&one, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "to INIT");

    to.qp_state = IBV_QPS_RTR;
    to.path_mtu = port.active_mtu;
    to.dest_qp_num = other.qp_num;
    to.max_dest_rd_atomic = 1;
    to.min_rnr_timer = 12;
    to.ah_attr.is_global = 1;
    to.ah_attr.dlid = port.lid;
    to.ah_attr.port_num = 1;
    to.ah_attr.grh.hop_limit = 1;
    done(::ibv_query_gid(device.context(), 1, 0, &to.ah_attr.grh.dgid), "ibv_query_gid");
    done(::ibv_modify_qp(&one, &to,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                             IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
         "to RTR");

    to.qp_state = IBV_QPS_RTS;
    to.timeout = 17;  // half a second: the emulated device has one busy processor
    to.retry_cnt = to.rnr_retry = 7;
    to.max_rd_atomic = 1;
    done(::ibv_modify_qp(&one, &to,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                             IBV_QP_MAX_QP_RD_ATOMIC),
         "to RTS");
  }

  ibv_wc_status run(ibv_wr_opcode what, const void* local, std::size_t bytes, std::uint32_t lkey,
                    const rdma_place& far) {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(local), static_cast<std::uint32_t>(bytes), lkey};
    ibv_send_wr work{};
    ibv_send_wr* bad = nullptr;
    work.sg_list = &piece;
    work.num_sge = 1;
    work.opcode = what;
    work.send_flags = IBV_SEND_SIGNALED;
    if (what == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      work.wr.atomic = {reinterpret_cast<std::uint64_t>(far.at), 1, 0, far.rkey};
    } else {
      work.wr.rdma = {reinterpret_cast<std::uint64_t>(far.at), far.rkey};
    }
    done(::ibv_post_send(near_.get(), &work, &bad), "ibv_post_send");
    return finish();
  }

  // Yields between polls: with one processor, a polling thread keeps the device from working.
  ibv_wc_status finish() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    ibv_wc completed{};
    for (;;) {
      const int count = ::ibv_poll_cq(queue_.get(), 1, &completed);
      if (count > 0) return completed.status;
      if (count < 0) throw std::runtime_error("ibv_poll_cq failed");
      if (std::chrono::steady_clock::now() > deadline) throw std::runtime_error("the device does not answer");
      ::sched_yield();
    }
  }

  owned<ibv_cq, ::ibv_destroy_cq> queue_;
  owned<ibv_qp, ::ibv_destroy_qp> near_, far_;
};

}  // namespace pinfold::testing
