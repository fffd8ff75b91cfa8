// SPDX-License-Identifier: BSD-3-Clause
#include "conformance/registrar_suite.hpp"

#include <pinfold/registrars/ucp.hpp>
#include <pinfold/ucp.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <ucp/api/ucp.h>
#include <utility>
#include <vector>

namespace pinfold::testing::ucp_registrar_test {
namespace {

// A context that many threads may use, without a cache of its own.
class context {
 public:
  context() {
    ucp_config_t* config = nullptr;
    if (::ucp_config_read(nullptr, nullptr, &config) != UCS_OK) throw std::runtime_error("ucp_config_read");
    for (const auto& [name, value] : {std::pair{"RCACHE_ENABLE", "n"}, std::pair{"TLS", "tcp,shm,self"}})
      if (::ucp_config_modify(config, name, value) != UCS_OK) throw std::runtime_error(name);
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
    params.features = UCP_FEATURE_RMA;
    params.mt_workers_shared = 1;
    const auto status = ::ucp_init(&params, config, &handle_);
    ::ucp_config_release(config);
    if (status != UCS_OK) throw std::runtime_error("ucp_init");
  }
  ~context() { ::ucp_cleanup(handle_); }
  context(const context&) = delete;
  context& operator=(const context&) = delete;
  [[nodiscard]] ucp_context_h get() const { return handle_; }

 private:
  ucp_context_h handle_ = nullptr;
};

struct ucp_rig {
  using registrar_type = ucp_registrar;
  static constexpr bool touches_memory = false;  // these transports copy
  static constexpr const char* counted = nullptr;
  [[nodiscard]] registrar_type make() const { return *ucp_registrar::create(over.get()); }
  context over;
};
INSTANTIATE_TYPED_TEST_SUITE_P(ucp, registrar_suite, ucp_rig);

TEST(ucp, a_context_is_needed) {
  const auto refused = ucp_registrar::create(nullptr);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::invalid_argument);
  pinfold_cache* cache = nullptr;
  EXPECT_EQ(pinfold_create_ucp(nullptr, nullptr, &cache), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(cache, nullptr);
}

// What a peer does with the registration's key.
TEST(ucp, a_packed_key_lets_a_worker_put) {
  const context here;
  pinfold_cache* cache = nullptr;
  ASSERT_EQ(pinfold_create_ucp(here.get(), nullptr, &cache), PINFOLD_OK);
  const test_pages memory(2);
  auto* source = reinterpret_cast<char*>(memory.at(0));
  auto* target = reinterpret_cast<char*>(memory.at(1));
  std::memset(source, 'a', test_pages::page);
  const auto lease = pinfold_acquire(cache, target, test_pages::page, PINFOLD_LOCAL_WRITE | PINFOLD_REMOTE_WRITE);
  ASSERT_NE(lease.pin, 0U);
  const auto* made = static_cast<const pinfold_ucp_registration*>(pinfold_registration_of(lease));
  const std::vector<char> sent(static_cast<const char*>(made->key),
                               static_cast<const char*>(made->key) + made->key_bytes);

  ucp_worker_h worker = nullptr;
  const ucp_worker_params_t worker_params{};
  ASSERT_EQ(::ucp_worker_create(here.get(), &worker_params, &worker), UCS_OK);
  ucp_address_t* address = nullptr;
  std::size_t length = 0;
  ASSERT_EQ(::ucp_worker_get_address(worker, &address, &length), UCS_OK);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
  params.address = address;
  ucp_ep_h endpoint = nullptr;
  ASSERT_EQ(::ucp_ep_create(worker, &params, &endpoint), UCS_OK);
  ::ucp_worker_release_address(worker, address);
  ucp_rkey_h key = nullptr;
  ASSERT_EQ(::ucp_ep_rkey_unpack(endpoint, sent.data(), &key), UCS_OK);

  const auto finish = [&](ucs_status_ptr_t request) {
    if (!UCS_PTR_IS_PTR(request)) return UCS_PTR_STATUS(request);
    auto status = UCS_INPROGRESS;
    while ((status = ::ucp_request_check_status(request)) == UCS_INPROGRESS) ::ucp_worker_progress(worker);
    ::ucp_request_free(request);
    return status;
  };
  const ucp_request_param_t none{};
  const auto at = reinterpret_cast<std::uint64_t>(target);
  EXPECT_EQ(finish(::ucp_put_nbx(endpoint, source, test_pages::page, at, key, &none)), UCS_OK);
  EXPECT_EQ(finish(::ucp_ep_flush_nbx(endpoint, &none)), UCS_OK);
  EXPECT_EQ(std::memcmp(source, target, test_pages::page), 0);

  ::ucp_rkey_destroy(key);
  finish(::ucp_ep_close_nbx(endpoint, &none));
  ::ucp_worker_destroy(worker);
  EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
}

}  // namespace
}  // namespace pinfold::testing::ucp_registrar_test
