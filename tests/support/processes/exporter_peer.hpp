// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A memfd exporter in a process of its own that obeys a test.
#pragma once

#include <pinfold/importers/memfd.hpp>

#include "support/host/pattern.hpp"
#include "support/processes/child_process.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/prctl.h>

namespace pinfold::testing {

/// An exporter in a child process. Buffers are filled with the pattern of the given seed. Not thread-safe. Failures in
/// the child, other than a refused allocation, throw here.
class exporter_peer {
 public:
  explicit exporter_peer(memfd_exporter_options options = {})
      : child_([options](line& parent) { return serve(parent, options); }) {}

  [[nodiscard]] result<memfd_handle> try_allocate(std::size_t bytes, std::uint32_t seed, std::uintptr_t where = 0) {
    const answer got = ask({.what = verb::allocate, .seed = seed, .bytes = bytes, .where = where});
    if (!got.done) return tl::unexpected(got.failure);
    return got.handle;
  }
  [[nodiscard]] memfd_handle allocate(std::size_t bytes, std::uint32_t seed, std::uintptr_t where = 0) {
    return try_allocate(bytes, seed, where).value();
  }
  void free(const memfd_handle& buffer) { demand({.what = verb::free, .serial = buffer.serial}); }
  void write(const memfd_handle& buffer, std::uint32_t seed) {
    demand({.what = verb::write, .serial = buffer.serial, .seed = seed});
  }
  [[nodiscard]] bool holds(const memfd_handle& buffer, std::uint32_t seed) {
    return ask({.what = verb::check, .serial = buffer.serial, .seed = seed}).done;
  }

  /// Frees the buffer and gives its descriptor's number to another memfd of the same size.
  void free_and_reuse_number(const memfd_handle& buffer) {
    demand(
        {.what = verb::reuse_number, .serial = buffer.serial, .descriptor = buffer.descriptor, .bytes = buffer.size});
  }

  /// From now on, only processes with CAP_SYS_PTRACE can fetch descriptors from the exporter.
  void forbid_ptrace() { demand({.what = verb::forbid_ptrace}); }

  /// Ends the exporter, but not its buffers.
  void end_exporter() { demand({.what = verb::end_exporter}); }

  [[nodiscard]] child_process& process() noexcept { return child_; }

 private:
  enum class verb : std::uint8_t { allocate, free, write, check, reuse_number, forbid_ptrace, end_exporter };
  struct command {
    verb what;
    std::uint64_t serial = 0;
    std::uint32_t seed = 0;
    int descriptor = -1;
    std::size_t bytes = 0;
    std::uintptr_t where = 0;
  };
  struct answer {
    bool done;
    error failure;  // the message is a literal, at the same address in both processes
    memfd_handle handle;
  };
  struct shop {
    std::optional<memfd_exporter> exporter;
    std::map<std::uint64_t, memfd_buffer> buffers;
  };

  static int serve(line& parent, memfd_exporter_options options) {
    auto made = memfd_exporter::create(options);
    if (!made) return 2;
    shop all{.exporter = std::move(*made), .buffers = {}};
    while (const auto next = parent.receive<command>()) {
      if (!parent.send(obey(all, *next))) return 3;
    }
    return 0;
  }

  static answer obey(shop& all, const command& order) {
    switch (order.what) {
      case verb::allocate: return allocate_in(all, order);
      case verb::free: return said(all.buffers.erase(order.serial) == 1);
      case verb::write:
        return with(all, order, [](memfd_buffer& one, std::uint32_t seed) {
          write_pattern(one.data(), one.size(), seed);
          return true;
        });
      case verb::check:
        return with(all, order,
                    [](memfd_buffer& one, std::uint32_t seed) { return holds_pattern(one.data(), one.size(), seed); });
      case verb::reuse_number: return said(all.buffers.erase(order.serial) == 1 && put_another(order));
      case verb::forbid_ptrace: return said(::prctl(PR_SET_DUMPABLE, 0) == 0);
      case verb::end_exporter: all.exporter.reset(); return said(true);
    }
    return said(false);
  }

  static answer said(bool done) { return {done, {}, {}}; }

  static answer allocate_in(shop& all, const command& order) {
    auto made = all.exporter->allocate(order.bytes, reinterpret_cast<void*>(order.where));
    if (!made) return {false, made.error(), {}};
    const memfd_handle handle = made->handle();
    write_pattern(made->data(), made->size(), order.seed);
    all.buffers.emplace(handle.serial, std::move(*made));
    return {true, {}, handle};
  }

  template <class Use>
  static answer with(shop& all, const command& order, Use use) {
    const auto found = all.buffers.find(order.serial);
    return said(found != all.buffers.end() && use(found->second, order.seed));
  }

  static bool put_another(const command& order) {
    const int made = ::memfd_create("another", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0 || ::ftruncate(made, static_cast<off_t>(order.bytes)) != 0) return false;
    if (made != order.descriptor && ::dup2(made, order.descriptor) < 0) return false;
    return true;
  }

  answer ask(const command& order) { return child_.ask<answer>(order); }
  void demand(const command& order) {
    if (!ask(order).done) throw std::runtime_error("the exporter's process could not do it");
  }

  child_process child_;
};

}  // namespace pinfold::testing
