// SPDX-License-Identifier: BSD-3-Clause
#include "perf/rma/fabric.hpp"

#include "cli/failure.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sys/time.h>
#include <unistd.h>

namespace tool {
namespace {

std::string words_of(std::int64_t answer) {
  const int code = static_cast<int>(answer < 0 ? -answer : answer);
  return fmt::format("{} (fi_errno {})", ::fi_strerror(code), code);
}

// The place where a function of libfabric writes the object it made; passes it to the owner at the end of the full
// expression.
template <class Object>
struct receiver {
  fabric_owned<Object>& owner;
  Object* raw = nullptr;
  ~receiver() { owner.reset(raw); }
  operator Object**() { return &raw; }  // NOLINT(google-explicit-constructor)
};
template <class Object>
receiver<Object> made(fabric_owned<Object>& owner) {
  return {owner};
}

// A completion of a put without FI_DELIVERY_COMPLETE would say nothing about the peer's memory.
void wish(::fi_info& hints, const std::string& provider) {
  hints.caps = FI_MSG | FI_RMA;
  hints.mode = FI_CONTEXT | FI_CONTEXT2;
  hints.ep_attr->type = FI_EP_RDM;
  hints.domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints.domain_attr->threading = FI_THREAD_SAFE;
  hints.tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  hints.fabric_attr->prov_name = ::strdup(provider.c_str());  // freed with the hints
}

// The state that a signal handler may read. Odd while the provider is in a call.
std::atomic<unsigned> turns{0};
unsigned turns_before = 0;
std::array<char, 128> last_words{};

struct in_a_call {
  in_a_call() noexcept { turns.store(turns.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  in_a_call(const in_a_call&) = delete;
  in_a_call& operator=(const in_a_call&) = delete;
  ~in_a_call() { turns.store(turns.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
};

void look_for_a_lost_call(int) {
  const unsigned now = turns.load(std::memory_order_relaxed);
  if (now % 2 != 0 && now == turns_before) {
    if (::write(STDERR_FILENO, last_words.data(), std::strlen(last_words.data())) < 0) ::_exit(1);
    ::_exit(1);
  }
  turns_before = now;
}

}  // namespace

void fabric_closer::operator()(::fid* open) const noexcept {
  if (const int answer = ::fi_close(open); answer != 0 && !quiet)
    std::fprintf(stderr, "pinfold: fi_close: %s (fi_errno %d)\n", ::fi_strerror(-answer), -answer);
}

void fabric_end::info_freer::operator()(::fi_info* info) const noexcept { ::fi_freeinfo(info); }

void fabric_end::refuse(const char* call, std::int64_t answer) const {
  throw failure(fmt::format("{}: {}, provider {}", call, words_of(answer), provider_));
}

void fabric_end::must(const char* call, int answer) const {
  if (answer != 0) refuse(call, answer);
}

fabric_end::fabric_end(const std::string& provider, const std::string& address) : provider_(provider) {
  const std::unique_ptr<::fi_info, info_freer> hints(::fi_allocinfo());
  if (!hints) throw failure("out_of_resources: no memory for fi_allocinfo");
  wish(*hints, provider);
  ::fi_info* found = nullptr;
  const bool chosen = !address.empty();
  const int answer = ::fi_getinfo(FI_VERSION(1, 15), chosen ? address.c_str() : nullptr, nullptr,
                                  chosen ? FI_SOURCE : 0, hints.get(), &found);
  info_.reset(found);
  if (answer != 0)
    throw failure(
        fmt::format("unsupported: fi_getinfo: {}: no provider {}{} with puts, gets and delivery completions on this "
                    "host; fi_info lists the available providers",
                    words_of(answer), provider, chosen ? " at " + address : ""));
  provider_ = info_->fabric_attr->prov_name;
  must("fi_fabric", ::fi_fabric(info_->fabric_attr, made(fabric_), nullptr));
  must("fi_domain", ::fi_domain(fabric_.get(), info_.get(), made(domain_), nullptr));
  ::fi_cq_attr queue{};
  queue.format = FI_CQ_FORMAT_CONTEXT;
  must("fi_cq_open", ::fi_cq_open(domain_.get(), &queue, made(queue_), nullptr));
  ::fi_av_attr addresses{};
  must("fi_av_open", ::fi_av_open(domain_.get(), &addresses, made(addresses_), nullptr));
  must("fi_endpoint", ::fi_endpoint(domain_.get(), info_.get(), made(endpoint_), nullptr));
  must("fi_ep_bind", ::fi_ep_bind(endpoint_.get(), &queue_->fid, FI_TRANSMIT | FI_RECV));
  must("fi_ep_bind", ::fi_ep_bind(endpoint_.get(), &addresses_->fid, 0));
  must("fi_enable", ::fi_enable(endpoint_.get()));
}

fabric_end::~fabric_end() = default;

// A peer that did not answer may leave the provider busy for ever.
void fabric_end::stop() noexcept {
  addresses_.get_deleter().quiet = true;
  queue_.get_deleter().quiet = true;
  domain_.get_deleter().quiet = true;
  fabric_.get_deleter().quiet = true;
  endpoint_.reset();
}

void limit_fabric_calls(std::chrono::nanoseconds time_limit, std::size_t rank) {
  fmt::format_to_n(last_words.data(), last_words.size() - 1,
                   "pinfold: rank {}: timed_out: a call of the provider did not return\n", rank);
  struct sigaction at_each{};
  at_each.sa_handler = look_for_a_lost_call;
  at_each.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &at_each, nullptr);
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time_limit).count();
  const itimerval each{.it_interval = {seconds, 0}, .it_value = {seconds, 0}};
  ::setitimer(ITIMER_REAL, &each, nullptr);
}

std::size_t fabric_end::largest() const noexcept { return info_->ep_attr->max_msg_size; }

std::string fabric_end::name() const {
  std::array<char, 512> said{};
  std::size_t bytes = said.size();
  must("fi_getname", ::fi_getname(&endpoint_->fid, said.data(), &bytes));
  return {said.data(), bytes};
}

void fabric_end::know(const std::string& peer) {
  ::fi_addr_t ignored = 0;
  if (::fi_av_insert(addresses_.get(), peer.data(), 1, &ignored, 0, nullptr) != 1)
    throw failure(fmt::format("fi_av_insert: a peer's address was rejected, provider {}", provider_));
}

void fabric_end::meet(const std::string& peer) {
  if (::fi_av_insert(addresses_.get(), peer.data(), 1, &peer_, 0, nullptr) != 1)
    throw failure(fmt::format("fi_av_insert: a peer's address was rejected, provider {}", provider_));
}

pinfold::libfabric_registrar fabric_end::registrar() const {
  return need(pinfold::libfabric_registrar::create(domain_.get(), info_.get(), {.endpoint = endpoint_.get()}),
              "cannot register with " + provider_);
}

bool fabric_end::posted(const char* call, std::int64_t answer) const {
  if (answer != 0 && answer != -FI_EAGAIN) refuse(call, answer);
  return answer == 0;
}

bool fabric_end::put(fabric_transfer& one, const fabric_target& to) {
  const in_a_call here;
  return posted("fi_write",
                ::fi_write(endpoint_.get(), one.data, one.bytes, one.desc, peer_, to.address, to.key, &one.context));
}

bool fabric_end::get(fabric_transfer& one, const fabric_target& from) {
  const in_a_call here;
  return posted("fi_read",
                ::fi_read(endpoint_.get(), one.data, one.bytes, one.desc, peer_, from.address, from.key, &one.context));
}

fabric_transfer* fabric_end::poll() {
  const in_a_call here;
  ::fi_cq_entry done{};
  const auto got = ::fi_cq_read(queue_.get(), &done, 1);
  if (got == 1) return static_cast<fabric_transfer*>(done.op_context);
  if (got == -FI_EAVAIL) report_failed_transfer();
  if (got < 0 && got != -FI_EAGAIN) refuse("fi_cq_read", got);
  return nullptr;
}

void fabric_end::report_failed_transfer() {
  ::fi_cq_err_entry failed{};
  const auto got = ::fi_cq_readerr(queue_.get(), &failed, 0);
  if (got != 1) refuse("fi_cq_readerr", got);
  std::array<char, 256> text{};
  const char* own = ::fi_cq_strerror(queue_.get(), failed.prov_errno, failed.err_data, text.data(), text.size());
  throw failure(fmt::format("driver_error: a transfer failed: {}; {} says: {} ({})", words_of(failed.err), provider_,
                            own == nullptr ? "nothing" : own, failed.prov_errno));
}

}  // namespace tool
