// SPDX-License-Identifier: BSD-3-Clause
// Puts buffers into other memory by RDMA: only the first put from a buffer registers it.
#include <pinfold/cache.hpp>
#include <pinfold/registrars/verbs.hpp>

#include <cstdio>
#include <infiniband/verbs.h>
#include <vector>

// Connects a queue pair with itself, in place of two hosts.
static bool connect(ibv_qp* one) {
  ibv_qp_attr to{};
  to.port_num = to.ah_attr.port_num = to.ah_attr.is_global = to.ah_attr.grh.hop_limit = 1;
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE, to.path_mtu = IBV_MTU_1024, to.dest_qp_num = one->qp_num;
  to.max_rd_atomic = to.max_dest_rd_atomic = 1, to.timeout = 17, to.retry_cnt = to.rnr_retry = 7;
  if (ibv_query_gid(one->context, 1, 0, &to.ah_attr.grh.dgid) != 0) return false;
  const auto reach = [&](ibv_qp_state next, int given) {
    return to.qp_state = next, ibv_modify_qp(one, &to, IBV_QP_STATE | given) == 0;
  };
  constexpr int path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int patience = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return reach(IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) &&
         reach(IBV_QPS_RTR, path | IBV_QP_RQ_PSN) && reach(IBV_QPS_RTS, patience | IBV_QP_SQ_PSN);
}

static int put(ibv_qp* pair) {
  auto registrar = pinfold::verbs_registrar::create(pair->pd);
  if (!registrar) return std::puts(describe(registrar.error()).c_str()), 1;
  pinfold::cache cache{std::move(*registrar)};  // its monitors report memory that goes
  std::vector<char> from(65536, 'p'), to(from.size());
  for (int round = 0; round < 100; ++round) {
    auto mine = cache.acquire(from, pinfold::rights::local_read);
    auto theirs = cache.acquire(to, pinfold::rights::remote_write);  // its rkey and address go to the peer
    if (!mine || !theirs) return std::puts("a buffer cannot be registered"), 1;
    ibv_sge piece{reinterpret_cast<std::uint64_t>(from.data()), 65536, mine->handle().lkey};
    ibv_send_wr work{}, *bad = nullptr;
    work.sg_list = &piece, work.num_sge = 1, work.opcode = IBV_WR_RDMA_WRITE, work.send_flags = IBV_SEND_SIGNALED;
    work.wr.rdma = {reinterpret_cast<std::uint64_t>(to.data()), theirs->handle().rkey};
    ibv_wc done{};
    if (ibv_post_send(pair, &work, &bad) != 0) return std::puts("cannot post"), 1;
    while (ibv_poll_cq(pair->send_cq, 1, &done) == 0) continue;  // the leases outlive the operation
    if (done.status != IBV_WC_SUCCESS) return std::puts(ibv_wc_status_str(done.status)), 1;
  }
  std::puts(from == to ? describe(cache.statistics()).c_str() : "wrong bytes");
  return from == to && (cache.statistics().opens == 2 || cache.monitors().starts_with("none")) ? 0 : 1;
}

int main() {
  ibv_device** devices = ibv_get_device_list(nullptr);
  if (devices == nullptr || devices[0] == nullptr) return std::puts("no RDMA device here"), 77;
  ibv_context* device = ibv_open_device(devices[0]);
  ibv_pd* domain = device != nullptr ? ibv_alloc_pd(device) : nullptr;
  ibv_cq* queue = domain != nullptr ? ibv_create_cq(device, 16, nullptr, nullptr, 0) : nullptr;
  ibv_qp_init_attr wanted{nullptr, queue, queue, nullptr, {16, 1, 1, 1, 0}, IBV_QPT_RC, 0};
  ibv_qp* pair = queue != nullptr ? ibv_create_qp(domain, &wanted) : nullptr;
  const int status = pair != nullptr && connect(pair) ? put(pair) : (std::puts("no queue pair"), 1);
  if (pair != nullptr) ibv_destroy_qp(pair), ibv_destroy_cq(queue), ibv_dealloc_pd(domain), ibv_close_device(device);
  return ibv_free_device_list(devices), status;
}
