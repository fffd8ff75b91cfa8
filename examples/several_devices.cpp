// SPDX-License-Identifier: BSD-3-Clause
// One buffer for several devices: near ones first, one that fails, a fallback, and a key that is withdrawn. Registrars
// that need no hardware stand in for the devices.
#include <pinfold/pinfold.hpp>
#include <pinfold/registrars/fallback.hpp>
#include <pinfold/registrars/null.hpp>

#include <array>
#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

namespace {

using made = pinfold::null_registrar::registration_type;
using rail = pinfold::fallback_registrar<made>;

// Devices of even numbers take memory as a dma-buf. The others refuse that, and the second step serves.
pinfold::result<rail> make_rail(int number) {
  auto refuse = [](const pinfold::range&, pinfold::access_flags) -> pinfold::result<pinfold::opened_by_step<made>> {
    return pinfold::fail(pinfold::errc::unsupported, "the device knows no dma-bufs");
  };
  std::vector<pinfold::fallback_step<made>> steps;
  steps.push_back(as_step("dma-buf", pinfold::null_registrar()));
  if (number % 2 == 1) steps.back().open = refuse;
  steps.push_back(as_step("peer memory", pinfold::null_registrar()));
  return rail::create(std::move(steps));
}

void show(const pinfold::set_lease<rail>& leases) {
  for (const auto& [member, registration] : leases.registrations()) {
    std::printf("device %zu: %s\n", member, registration.served_by());
    for (const auto& [step, why] : registration.refusals()) std::printf("  not %s: %s\n", step, describe(why).c_str());
  }
  for (const auto& [member, why] : leases.failures()) std::printf("device %zu: %s\n", member, describe(why).c_str());
}

int report(const pinfold::error& why) {
  std::puts(describe(why).c_str());
  return 1;
}

}  // namespace

int main() {
  std::vector<pinfold::cache<rail>> devices;
  for (int number = 0; number < 4; ++number)
    devices.emplace_back(*make_rail(number), pinfold::cache_options{.monitor = pinfold::monitor_choice::manual});
  const std::array caches{&devices[0], &devices[1], &devices[2], &devices[3]};
  const std::array<std::uint32_t, 4> distances{10, 10, 20, 20};  // of their NUMA nodes, for example
  pinfold::cache_set<rail> rails(caches, distances);

  std::vector<char> buffer(1 << 20);
  auto leases = rails.acquire(buffer.data(), buffer.size(), pinfold::local_access,
                              {.policy = pinfold::set_policy::near_first, .required = 1});
  if (!leases) return report(leases.error());
  if (const auto far = leases->at(3); !far) return report(far.error());  // registers now
  show(*leases);

  const auto table = pinfold::remote_key_table::create();
  auto mine = devices[0].acquire(buffer.data(), buffer.size(), pinfold::access_flags::remote_read);
  if (!table || !mine) return 1;
  auto shown = pinfold::remote_key_lease<rail>::create(std::move(*mine), buffer.size(), *table);
  if (!shown) return report(shown.error());
  const pinfold::remote_key_wire message = encode(shown->token());  // to the peer, which looks before each use
  const auto peers = pinfold::decode_remote_key(message);
  const bool before = peers && is_current(*peers, table->words());
  if (auto done = shown->withdraw(); !done) return report(done.error());
  const bool after = is_current(*peers, table->words());
  std::printf("the peer may use its key: before the withdrawal %s, after it %s\n", before ? "yes" : "no",
              after ? "yes" : "no");
  return before && !after ? 0 : 1;
}
