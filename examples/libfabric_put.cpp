// SPDX-License-Identifier: BSD-3-Clause
// Writes a buffer into a peer's memory with libfabric. Every put acquires its two buffers anew; the cache registers
// each of them only once. The endpoint is its own peer; a real peer would send its name, address and key in a message.
#include <pinfold/cache.hpp>
#include <pinfold/registrars/libfabric.hpp>

#include <cstdio>
#include <cstring>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr std::size_t buffer_bytes = 65536;
constexpr int rounds = 100;

void report(const char* problem, const std::string& reason) {
  std::fprintf(stderr, "%s: %s\n", problem, reason.c_str());
}

// Returns a provider that can do RMA, or null.
fi_info* find_provider() {
  fi_info* hints = fi_allocinfo();
  if (hints == nullptr) return nullptr;
  hints->caps = FI_MSG | FI_RMA;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;  // a completion means that the peer has the bytes
  hints->fabric_attr->prov_name = strdup("tcp;ofi_rxm");
  fi_info* found = nullptr;
  const int error = fi_getinfo(FI_VERSION(1, 15), "127.0.0.1", nullptr, FI_SOURCE, hints, &found);
  fi_freeinfo(hints);
  return error == 0 ? found : nullptr;
}

// libfabric's objects, which the destructor closes.
struct connection {
  explicit connection(fi_info* provider) : info(provider) {}
  ~connection() {
    if (endpoint != nullptr) fi_close(&endpoint->fid);
    if (av != nullptr) fi_close(&av->fid);
    if (cq != nullptr) fi_close(&cq->fid);
    if (domain != nullptr) fi_close(&domain->fid);
    if (fabric != nullptr) fi_close(&fabric->fid);
    fi_freeinfo(info);
  }
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // Returns 0, or the first error.
  int open() {
    fi_cq_attr cq_attributes{};
    cq_attributes.format = FI_CQ_FORMAT_CONTEXT;
    fi_av_attr av_attributes{};
    int error = fi_fabric(info->fabric_attr, &fabric, nullptr);
    if (error == 0) error = fi_domain(fabric, info, &domain, nullptr);
    if (error == 0) error = fi_cq_open(domain, &cq_attributes, &cq, nullptr);
    if (error == 0) error = fi_av_open(domain, &av_attributes, &av, nullptr);
    if (error == 0) error = fi_endpoint(domain, info, &endpoint, nullptr);
    if (error == 0) error = fi_ep_bind(endpoint, &cq->fid, FI_TRANSMIT | FI_RECV);
    if (error == 0) error = fi_ep_bind(endpoint, &av->fid, 0);
    if (error == 0) error = fi_enable(endpoint);
    // The endpoint's own name, in place of the one that a real peer would send.
    std::vector<char> name(256);
    std::size_t name_bytes = name.size();
    if (error == 0) error = fi_getname(&endpoint->fid, name.data(), &name_bytes);
    if (error == 0 && fi_av_insert(av, name.data(), 1, &peer, 0, nullptr) != 1) error = -FI_EOTHER;
    return error;
  }

  fi_info* info = nullptr;
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_cq* cq = nullptr;
  fid_av* av = nullptr;
  fid_ep* endpoint = nullptr;
  fi_addr_t peer = FI_ADDR_UNSPEC;
};

// Returns 1, or a negative error.
ssize_t wait_for_completion(fid_cq* cq) {
  fi_cq_entry entry{};
  ssize_t result = -FI_EAGAIN;
  while (result == 0 || result == -FI_EAGAIN) result = fi_cq_read(cq, &entry, 1);
  return result;
}

bool put(const connection& own, pinfold::cache<pinfold::libfabric_registrar>& cache, const std::vector<char>& source,
         std::vector<char>& target) {
  const auto local = cache.acquire(source);  // const memory: the fabric may read it, and not write it
  // A real peer acquires the target itself, and sends `peer_address` and `key`.
  const auto remote = cache.acquire(target, pinfold::local_access | pinfold::access_flags::remote_write);
  if (!local || !remote) {
    report("cannot register a buffer", pinfold::describe(local ? remote.error() : local.error()));
    return false;
  }
  const auto target_mr = remote->registration();
  ssize_t result = -FI_EAGAIN;
  while (result == -FI_EAGAIN) {
    fi_cq_read(own.cq, nullptr, 0);  // lets the provider make progress, so that its queue gets room
    result = fi_write(own.endpoint, source.data(), source.size(), local->registration().desc, own.peer,
                      target_mr.peer_address(target.data()), target_mr.key, nullptr);
  }
  // The leases outlive the operation: they end after its completion.
  if (result == 0) result = wait_for_completion(own.cq);
  if (result == 1) return true;
  report("RMA write", fi_strerror(static_cast<int>(-result)));
  return false;
}

}  // namespace

int main() {
  // So that pinfold's cache is the only one. libfabric reads this setting in the first fi_getinfo.
  static_cast<void>(pinfold::turn_off_libfabric_cache());
  fi_info* provider = find_provider();
  if (provider == nullptr) {
    std::puts("skipped: libfabric has no tcp provider with RMA here");
    return 77;
  }
  connection own(provider);  // declared before the cache, which deregisters while the domain is still open
  if (const int error = own.open(); error != 0) {
    report("no connection", fi_strerror(-error));
    return 1;
  }
  auto registrar = pinfold::libfabric_registrar::create(own.domain, own.info);
  if (!registrar) {
    report("cannot register with the domain", pinfold::describe(registrar.error()));
    return 1;
  }
  pinfold::cache cache{std::move(*registrar)};  // by default its monitors report memory that goes

  const std::vector<char> source(buffer_bytes, 'p');
  std::vector<char> target(buffer_bytes);
  for (int round = 0; round < rounds; ++round) {
    if (!put(own, cache, source, target)) return 1;
  }
  std::puts(source == target ? pinfold::describe(cache.statistics()).c_str() : "wrong bytes");
  return source == target ? 0 : 1;
}
