// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One end of a fabric in a process: the domain, endpoint and completion queue of a provider that runs anywhere.
#pragma once

#include <pinfold/registrars/libfabric.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdexcept>
#include <string>
#include <vector>

namespace pinfold::testing {

/// Returns the provider's offer on this machine, or null. Providers over IP use the loopback interface.
inline std::shared_ptr<::fi_info> offered_by(const std::string& provider) {
  const std::shared_ptr<::fi_info> hints(::fi_allocinfo(), ::fi_freeinfo);
  hints->ep_attr->type = FI_EP_RDM;
  hints->caps = FI_MSG | FI_RMA;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_SAFE;
  hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;  // makes a completion say that the peer has the bytes
  hints->fabric_attr->prov_name = ::strdup(provider.c_str());
  ::fi_info* found = nullptr;
  const bool over_ip = provider != "shm";
  if (::fi_getinfo(FI_VERSION(1, 15), over_ip ? "127.0.0.1" : nullptr, nullptr, over_ip ? FI_SOURCE : 0, hints.get(),
                   &found) != 0)
    return nullptr;
  return {found, ::fi_freeinfo};
}

inline void must(int answer, const char* what) {
  if (answer != 0) throw std::runtime_error(std::string(what) + ": " + ::fi_strerror(-answer));
}

struct fid_closer {
  template <class Object>
  void operator()(Object* open) const {
    ::fi_close(&open->fid);
  }
};
template <class Object>
using owned = std::unique_ptr<Object, fid_closer>;

class node {
 public:
  explicit node(const std::string& provider) : info(offered_by(provider)) {
    if (!info) throw std::runtime_error("libfabric has no provider " + provider + " here");
    must(::fi_fabric(info->fabric_attr, made(fabric_), nullptr), "fi_fabric");
    must(::fi_domain(fabric_.get(), info.get(), made(domain_), nullptr), "fi_domain");
    ::fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_CONTEXT;
    must(::fi_cq_open(domain_.get(), &queue, made(queue_), nullptr), "fi_cq_open");
    ::fi_av_attr addresses{};
    must(::fi_av_open(domain_.get(), &addresses, made(addresses_), nullptr), "fi_av_open");
    must(::fi_endpoint(domain_.get(), info.get(), made(endpoint_), nullptr), "fi_endpoint");
    must(::fi_ep_bind(endpoint_.get(), &queue_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    must(::fi_ep_bind(endpoint_.get(), &addresses_->fid, 0), "fi_ep_bind");
    must(::fi_enable(endpoint_.get()), "fi_enable");
  }

  [[nodiscard]] ::fid_domain* domain() const { return domain_.get(); }
  [[nodiscard]] ::fid_ep* endpoint() const { return endpoint_.get(); }
  [[nodiscard]] libfabric_registrar registrar(libfabric_registrar_options options = {}) const {
    options.endpoint = endpoint();
    auto made = libfabric_registrar::create(domain(), info.get(), std::move(options));
    if (!made) throw std::runtime_error(describe(made.error()));
    return std::move(*made);
  }

  [[nodiscard]] std::vector<char> name() const {
    std::vector<char> said(256);
    std::size_t bytes = said.size();
    must(::fi_getname(&endpoint_->fid, said.data(), &bytes), "fi_getname");
    said.resize(bytes);
    return said;
  }
  [[nodiscard]] ::fi_addr_t meet(const std::vector<char>& peer) const {
    ::fi_addr_t address = 0;
    if (::fi_av_insert(addresses_.get(), peer.data(), 1, &address, 0, nullptr) != 1)
      throw std::runtime_error("the peer's address is not accepted");
    return address;
  }

  /// Returns 1 when an operation was completed, 0 when none was yet, and a negative fi_errno when one failed.
  [[nodiscard]] int poll() const {
    ::fi_cq_entry done{};
    const auto got = ::fi_cq_read(queue_.get(), &done, 1);
    if (got == -FI_EAGAIN) return 0;
    if (got != -FI_EAVAIL) return static_cast<int>(got);
    ::fi_cq_err_entry failed{};
    return ::fi_cq_readerr(queue_.get(), &failed, 0) == 1 ? -failed.err : -FI_EOTHER;
  }

  std::shared_ptr<::fi_info> info;

 private:
  // The place where a function of libfabric writes the object it made; passes it to the owner at the end of the full
  // expression.
  template <class Object>
  struct receiver {
    owned<Object>& owner;
    Object* raw = nullptr;
    ~receiver() { owner.reset(raw); }
    operator Object**() { return &raw; }  // NOLINT(google-explicit-constructor)
  };
  template <class Object>
  static receiver<Object> made(owned<Object>& owner) {
    return {owner};
  }

  owned<::fid_fabric> fabric_;
  owned<::fid_domain> domain_;
  owned<::fid_cq> queue_;
  owned<::fid_av> addresses_;
  owned<::fid_ep> endpoint_;
};

/// Two ends that know each other. Both must be polled for an operation of either to proceed.
class node_pair {
 public:
  explicit node_pair(const std::string& provider) : near(provider), far(provider) {
    to_far_ = near.meet(far.name());
    static_cast<void>(far.meet(near.name()));
  }

  /// Returns 0 or a negative fi_errno. After -FI_ETIMEDOUT the put may still happen.
  int put(const void* from, std::size_t bytes, void* desc, std::uint64_t peer_address, std::uint64_t key) const {
    return finish([&] { return ::fi_write(near.endpoint(), from, bytes, desc, to_far_, peer_address, key, nullptr); });
  }
  int get(void* into, std::size_t bytes, void* desc, std::uint64_t peer_address, std::uint64_t key) const {
    return finish([&] { return ::fi_read(near.endpoint(), into, bytes, desc, to_far_, peer_address, key, nullptr); });
  }

  node near;
  node far;
  std::chrono::seconds timeout{10};

 private:
  template <class Post>
  int finish(Post post) const {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const auto late = [&] { return std::chrono::steady_clock::now() > deadline; };
    ssize_t posted = post();
    for (; posted == -FI_EAGAIN && !late(); posted = post()) static_cast<void>(progress());
    if (posted != 0) return static_cast<int>(posted);
    while (!late())
      if (const int answer = progress(); answer != 0) return answer > 0 ? 0 : answer;
    return -FI_ETIMEDOUT;
  }
  [[nodiscard]] int progress() const {
    static_cast<void>(far.poll());
    return near.poll();
  }

  ::fi_addr_t to_far_ = 0;
};

}  // namespace pinfold::testing
