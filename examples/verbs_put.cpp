// SPDX-License-Identifier: BSD-3-Clause
// Writes a buffer into other memory by RDMA. Every put acquires its two buffers anew; the cache registers each of them
// only once. The queue pair (qp) is connected with itself, in place of two hosts.
#include <pinfold/cache.hpp>
#include <pinfold/registrars/verbs.hpp>

#include <cstdint>
#include <cstdio>
#include <infiniband/verbs.h>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::uint32_t buffer_bytes = 65536;
constexpr int rounds = 100;

// Destroys an object with the driver's function for it.
template <class T>
using owned = std::unique_ptr<T, int (*)(T*)>;

void report(const char* problem, const std::string& reason) {
  std::fprintf(stderr, "%s: %s\n", problem, reason.c_str());
}

ibv_qp* create_qp(ibv_pd* pd, ibv_cq* cq) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = cq;
  attributes.recv_cq = cq;
  attributes.cap = {.max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 0};
  attributes.qp_type = IBV_QPT_RC;
  return ibv_create_qp(pd, &attributes);
}

bool connect_to_itself(ibv_qp* qp) {
  ibv_qp_attr attributes{};
  attributes.port_num = 1;
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  attributes.path_mtu = IBV_MTU_1024;
  attributes.dest_qp_num = qp->qp_num;  // with two hosts: the peer's, and the peer's gid below
  attributes.ah_attr.port_num = 1;
  attributes.ah_attr.is_global = 1;
  attributes.ah_attr.grh.hop_limit = 1;
  attributes.max_rd_atomic = 1;
  attributes.max_dest_rd_atomic = 1;
  attributes.timeout = 17;
  attributes.retry_cnt = 7;
  attributes.rnr_retry = 7;
  if (ibv_query_gid(qp->context, 1, 0, &attributes.ah_attr.grh.dgid) != 0) return false;

  constexpr int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  constexpr int ready_to_receive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  constexpr int ready_to_send =
      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
  attributes.qp_state = IBV_QPS_INIT;
  if (ibv_modify_qp(qp, &attributes, init) != 0) return false;
  attributes.qp_state = IBV_QPS_RTR;
  if (ibv_modify_qp(qp, &attributes, ready_to_receive) != 0) return false;
  attributes.qp_state = IBV_QPS_RTS;
  return ibv_modify_qp(qp, &attributes, ready_to_send) == 0;
}

// Posts one RDMA write and waits for its completion.
bool rdma_write(ibv_qp* qp, ibv_sge from, std::uint64_t remote_address, std::uint32_t rkey) {
  ibv_send_wr request{};
  request.sg_list = &from;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = remote_address;
  request.wr.rdma.rkey = rkey;
  ibv_send_wr* refused = nullptr;
  if (ibv_post_send(qp, &request, &refused) != 0) {
    report("RDMA write", "cannot post it");
    return false;
  }
  ibv_wc completion{};
  int completions = 0;
  while (completions == 0) completions = ibv_poll_cq(qp->send_cq, 1, &completion);
  if (completions == 1 && completion.status == IBV_WC_SUCCESS) return true;
  report("RDMA write", completions < 0 ? "cannot poll the cq" : ibv_wc_status_str(completion.status));
  return false;
}

bool put(ibv_qp* qp, pinfold::cache<pinfold::verbs_registrar>& cache, const std::vector<char>& source,
         std::vector<char>& target) {
  const auto local = cache.acquire(source);  // const memory: the device may read it, and not write it
  // With two hosts the peer acquires the target, and sends its address and rkey.
  const auto remote = cache.acquire(target, pinfold::access_flags::remote_write);
  if (!local || !remote) {
    report("cannot register a buffer", pinfold::describe(local ? remote.error() : local.error()));
    return false;
  }
  const ibv_sge from{
      .addr = reinterpret_cast<std::uint64_t>(source.data()),
      .length = buffer_bytes,
      .lkey = local->registration().lkey,
  };
  // The leases outlive the operation: they end after its completion.
  return rdma_write(qp, from, reinterpret_cast<std::uint64_t>(target.data()), remote->registration().rkey);
}

}  // namespace

int main() {
  using device_list = std::unique_ptr<ibv_device*[], decltype(&ibv_free_device_list)>;
  const device_list devices(ibv_get_device_list(nullptr), ibv_free_device_list);
  if (devices == nullptr || devices[0] == nullptr) {
    std::puts("skipped: this host has no RDMA device");
    return 77;
  }
  // Declared before the cache, so that the cache deregisters its memory while the pd is still there.
  const owned<ibv_context> context(ibv_open_device(devices[0]), ibv_close_device);
  const owned<ibv_pd> pd(context ? ibv_alloc_pd(context.get()) : nullptr, ibv_dealloc_pd);
  const owned<ibv_cq> cq(pd ? ibv_create_cq(context.get(), 16, nullptr, nullptr, 0) : nullptr, ibv_destroy_cq);
  const owned<ibv_qp> qp(cq ? create_qp(pd.get(), cq.get()) : nullptr, ibv_destroy_qp);
  if (!qp || !connect_to_itself(qp.get())) {
    report("no connection", "the driver refused the qp");
    return 1;
  }
  auto registrar = pinfold::verbs_registrar::create(pd.get());
  if (!registrar) {
    report("cannot register with the device", pinfold::describe(registrar.error()));
    return 1;
  }
  pinfold::cache cache{std::move(*registrar)};  // by default its monitors report memory that goes

  const std::vector<char> source(buffer_bytes, 'p');
  std::vector<char> target(buffer_bytes);
  for (int round = 0; round < rounds; ++round) {
    if (!put(qp.get(), cache, source, target)) return 1;
  }
  const auto statistics = cache.statistics();
  std::puts(source == target ? pinfold::describe(statistics).c_str() : "wrong bytes");

  // The cache registered two buffers, once each. If no monitor works here, it keeps nothing: each put registers both.
  const bool cache_keeps = !cache.monitors().starts_with("none");
  const bool right_count = statistics.opens == 2 || !cache_keeps;
  return source == target && right_count ? 0 : 1;
}
