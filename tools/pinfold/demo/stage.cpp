// SPDX-License-Identifier: BSD-3-Clause
#include "demo/stage.hpp"

#include "cli/failure.hpp"
#include "cli/report.hpp"

#include <fmt/format.h>
#include <string>

namespace tool {

demo_stage::demo_stage(pinfold::memfd_via via)
    : via_(via),
      peers_(start_peers(peer_count, {.serve = via != pinfold::memfd_via::pidfd, .cpu = {}})),
      cache_(importer(), {.name = "demo", .max_bytes = budget, .sink = sink()}) {}

pinfold::event_sink demo_stage::sink() const {
  return [told = told_, log = pinfold::log_to_stderr(pinfold::severity::failure)](const pinfold::event& what) {
    told->at(static_cast<std::size_t>(what.kind)).fetch_add(1, std::memory_order_relaxed);
    log(what);
  };
}

message demo_stage::provide(std::size_t peer, std::uint32_t buffer, std::size_t bytes, std::uint64_t where) {
  return need(peers_.at(peer).provide(buffer, bytes, where), "a peer cannot create a buffer");
}

void demo_stage::take_back(std::size_t peer, std::uint32_t buffer) {
  need(peers_.at(peer).free(buffer), "a peer cannot free a buffer");
}

memfd_lease demo_stage::acquire(const message& wanted, std::size_t offset) {
  return need(cache_.acquire(wanted.peer, wanted.handle, wanted.handle.base + offset, wanted.size - offset),
              "cannot acquire a peer's memory");
}

void demo_stage::check(std::span<const std::byte> bytes, const message& expected, std::size_t offset) {
  checked_ += bytes.size();
  if (holds(bytes, expected.seed, offset)) return;
  throw failure(fmt::format("WRONG BYTES in a message of {} bytes from peer {}", expected.size, expected.peer.value));
}

void demo_stage::check(const memfd_lease& lease, const message& expected, std::size_t offset) {
  require(lease.data() != nullptr, "a lease has the address of its memory");
  check({static_cast<const std::byte*>(lease.data()), expected.size - offset}, expected, offset);
}

void demo_stage::read_and_check(const message& wanted, std::size_t offset) {
  auto lease = acquire(wanted, offset);
  check(lease, wanted, offset);
  need(lease.release(), "cannot release a peer's memory");
}

void print_ok(std::string_view title, const std::string& story, std::uint64_t bytes_checked) {
  const auto proof = bytes_checked == 0 ? std::string() : fmt::format("; every byte checked: {}", bytes_checked);
  fmt::print("{}", paragraph(fmt::format("  ok  {:<19} ", title), story + proof));
}

void require(bool holds, std::string_view claim) {
  if (!holds) throw failure("check failed: " + std::string(claim));
}

}  // namespace tool
