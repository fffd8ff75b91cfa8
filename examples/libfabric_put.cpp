// SPDX-License-Identifier: BSD-3-Clause
// Puts bytes into a peer's memory. Here the endpoint is its own peer; a real peer would send address and key in a
// message.
#include <pinfold/cache.hpp>
#include <pinfold/registrars/libfabric.hpp>

#include <cstdio>
#include <cstring>
#include <memory>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <vector>

int main() {
  static_cast<void>(pinfold::turn_off_libfabric_cache());  // so that pinfold's cache is the only one
  fi_info *hints = fi_allocinfo(), *info = nullptr;
  hints->caps = FI_MSG | FI_RMA;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;  // a completion means that the peer has the bytes
  hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
  const int refused = fi_getinfo(FI_VERSION(1, 15), "127.0.0.1", nullptr, FI_SOURCE, hints, &info);
  if (fi_freeinfo(hints); refused != 0) return 77;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_cq* done = nullptr;
  fid_av* peers = nullptr;
  fid_ep* end = nullptr;
  fi_cq_attr queue{};
  fi_av_attr table{};
  if (fi_fabric(info->fabric_attr, &fabric, nullptr) || fi_domain(fabric, info, &domain, nullptr) ||
      fi_cq_open(domain, &queue, &done, nullptr) || fi_av_open(domain, &table, &peers, nullptr) ||
      fi_endpoint(domain, info, &end, nullptr) || fi_ep_bind(end, &done->fid, FI_TRANSMIT | FI_RECV) ||
      fi_ep_bind(end, &peers->fid, 0) || fi_enable(end))
    return 1;
  std::vector<char> own(256), sent(65536, 'p'), got(sent.size());
  size_t size = own.size();
  fi_addr_t peer = 0;
  if (fi_getname(&end->fid, own.data(), &size) || fi_av_insert(peers, own.data(), 1, &peer, 0, nullptr) != 1) return 1;
  const std::shared_ptr<fi_info> closes(info, [&](fi_info* known) {  // after the cache closed its registrations
    for (fid* each : {&end->fid, &peers->fid, &done->fid, &domain->fid, &fabric->fid}) fi_close(each);
    fi_freeinfo(known);
  });
  auto registrar = pinfold::libfabric_registrar::create(domain, info);
  if (!registrar) return std::puts(describe(registrar.error()).c_str()), 1;
  pinfold::cache cache{std::move(*registrar)};  // its monitors report memory that goes
  for (int round = 0; round < 100; ++round) {
    auto from = cache.acquire(sent.data(), sent.size(), pinfold::rights::local_read);
    auto to = cache.acquire(got.data(), got.size(), pinfold::local_access | pinfold::rights::remote_write);
    if (!from || !to) return 1;
    ssize_t answer = -FI_EAGAIN;
    while (answer == -FI_EAGAIN && fi_cq_read(done, nullptr, 0) <= 0)
      answer = fi_write(end, sent.data(), sent.size(), from->handle().desc, peer, to->handle().peer_address(got.data()),
                        to->handle().key, nullptr);
    for (fi_cq_entry entry{}; answer == 0 || answer == -FI_EAGAIN;) answer = fi_cq_read(done, &entry, 1);
    if (answer != 1) return 1;
  }
  return std::puts(sent == got ? describe(cache.statistics()).c_str() : "wrong bytes") < 0 || sent != got;
}
