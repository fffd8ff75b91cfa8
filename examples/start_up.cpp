// SPDX-License-Identifier: BSD-3-Clause
// Registers a large buffer in the background, transfers from the part that is ready, and keeps one lease on all of it.
#include <pinfold/cache.hpp>
#include <pinfold/registrars/mlock.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

using pinfold::error;

static int failed(const char* what, const error& why) {
  std::fprintf(stderr, "%s: %s\n", what, describe(why).c_str());
  return EXIT_FAILURE;
}

int main() {
  constexpr std::size_t bytes = std::size_t{4} << 20U;  // a start-up has hundreds of gigabytes, in pieces of 1 GiB
  constexpr std::size_t batch = std::size_t{1} << 20U;
  std::vector<std::byte> weights(bytes);
  pinfold::cache cache(pinfold::mlock_registrar{});

  auto ticket = cache.register_in_background(weights.data(), bytes, pinfold::local_access,
                                             {.piece_bytes = std::size_t{256} << 10U, .workers = 2});
  if (!ticket) return failed("register_in_background", ticket.error());

  for (std::size_t at = 0; at < bytes; at += batch) {
    std::byte* const first = weights.data() + at;
    const auto end = reinterpret_cast<std::uintptr_t>(first) + batch;
    if (auto ready = ticket->wait_until_ready(end, std::chrono::seconds(10)); !ready)
      return failed("wait_until_ready", ready.error());
    const auto parts = ticket->list(first, batch);
    if (!parts) return failed("list", parts.error());
    std::printf("transfer %zu bytes in %zu parts\n", batch, parts->size());  // (address, bytes, registration) each
  }

  if (auto done = ticket->wait(); !done) return failed("wait", done.error());
  auto all = ticket->take();  // one lease: the ticket is empty
  if (!all) return failed("take", all.error());
  std::printf("%zu bytes in %zu pieces\n", all->bytes(), all->pieces());
  if (auto released = all->release(); !released) return failed("release", released.error());
  return EXIT_SUCCESS;
}
