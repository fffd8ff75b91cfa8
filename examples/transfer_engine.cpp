// SPDX-License-Identifier: BSD-3-Clause
// A transfer engine: starts on memory that is still being registered, uses two rails, and frees memory only after the
// importers have let it go. Registrars that need no device stand in for the rails, memfd for GPU memory.
#include <pinfold/importers/memfd.hpp>
#include <pinfold/pinfold.hpp>
#include <pinfold/registrars/null.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include <array>
#include <chrono>
#include <cstdio>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using pinfold::error;
using rail = pinfold::cache<pinfold::null_registrar>;

static int failed(const error& why) { return std::puts(describe(why).c_str()), 1; }

// Start-up: transfers begin on the part that is ready. Then both rails get the memory, and one lease has all keys.
static int start_up(std::vector<std::byte>& weights) {
  const pinfold::cache_options options{.monitor = pinfold::monitor_choice::manual};  // this program frees nothing
  rail first({}, options);
  rail second({}, options);
  auto ticket = first.register_in_background(weights.data(), weights.size(), pinfold::local_access,
                                             {.piece_bytes = 4U << 20U, .workers = 2});
  if (!ticket) return failed(ticket.error());
  const auto begin = reinterpret_cast<std::uintptr_t>(weights.data());
  if (auto ready = ticket->wait_until_ready(begin + (1U << 20U), 10s); !ready) return failed(ready.error());
  const auto parts = ticket->list(weights.data(), 1U << 20U);
  if (!parts) return failed(parts.error());
  std::printf("the first transfer has %zu part(s), with a key each\n", parts->size());
  if (auto all = ticket->wait(); !all) return failed(all.error());

  pinfold::cache_set<pinfold::null_registrar> rails(std::array{&first, &second});
  const auto keys = rails.acquire(weights.data(), 1U << 20U, pinfold::local_access, {.required = 1});
  if (!keys) return failed(keys.error());
  std::printf("%zu of %zu rails have it\n", keys->registrations().size(), rails.size());
  return 0;
}

// Retirement: the exporter frees a buffer once the importers' caches hand it out no more.
static int retire(pinfold::memfd_exporter& exporter,
                  pinfold::import_cache<pinfold::releasing_importer<pinfold::memfd_importer>>& peers) {
  auto buffer = exporter.allocate(1U << 20U);
  if (!buffer) return failed(buffer.error());
  const auto handle = buffer->handle();  // goes to the peers
  if (auto lease = peers.acquire({1}, handle, handle.base, handle.size); !lease) return failed(lease.error());
  const auto report = exporter.retire(std::move(*buffer), 5s);
  if (!report) return failed(report.error());
  for (const auto& late : report->holders) std::printf("process %d still holds it\n", static_cast<int>(late.pid));
  std::printf("%zu importer(s) let it go\n", report->let_go);
  return report->all_let_go() && !peers.find({1}, handle, handle.base, handle.size) ? 0 : 1;
}

int main() {
  std::vector<std::byte> weights(16U << 20U);
  if (start_up(weights) != 0) return 1;
  auto exporter = pinfold::memfd_exporter::create({.release = true});
  if (!exporter) return failed(exporter.error());
  auto listener = pinfold::release_listener::create();
  if (!listener) return failed(listener.error());
  pinfold::import_cache peers(pinfold::releasing_importer(pinfold::memfd_importer(), *listener));
  auto attached = listener->attach(peers);
  if (!attached) return failed(attached.error());
  return retire(*exporter, peers);
}
