// SPDX-License-Identifier: BSD-3-Clause
// Takes any bytes as a handle: check never crashes, and open gives the right bytes or an error.
#include "importers/memfd/handle.hpp"
#include "support/host/pattern.hpp"

#include <fuzzer/FuzzedDataProvider.h>

#include <cstdlib>
#include <cstring>
#include <tuple>
#include <utility>

namespace {

using pinfold::memfd_handle;
using pinfold::memfd_importer;
using pinfold::memfd_via;
using pinfold::testing::holds_pattern;
using pinfold::testing::write_pattern;

constexpr std::size_t bytes = 16 * 1024;

/// A live exporter with two buffers, so that mutation can turn one handle into the other.
struct world {
  pinfold::memfd_exporter exporter = pinfold::memfd_exporter::create({.serve = true}).value();
  pinfold::memfd_buffer first = exporter.allocate(bytes).value();
  pinfold::memfd_buffer second = exporter.allocate(bytes).value();
  memfd_importer direct{{.via = memfd_via::pidfd}};
  memfd_importer served{{.via = memfd_via::scm}};

  world() {
    write_pattern(first.data(), bytes, 1);
    write_pattern(second.data(), bytes, 2);
  }
};

memfd_handle mutated(FuzzedDataProvider& data, const memfd_handle& original, bool keep_exporter) {
  memfd_handle made = original;
  while (data.remaining_bytes() > 0 && data.ConsumeBool()) {
    const auto place = data.ConsumeIntegralInRange<std::size_t>(0, sizeof made - 1);
    reinterpret_cast<std::uint8_t*>(&made)[place] ^= data.ConsumeIntegral<std::uint8_t>();
  }
  // The importer searches long for a wrong exporter's socket, which is slow and always the same.
  if (keep_exporter) std::tie(made.exporter, made.pid) = std::pair{original.exporter, original.pid};
  return made;
}

/// Expects the opened memory to be the one that the inode names, which only the exporter's kernel object can prove.
void open_and_look(world& all, memfd_importer& importer, const memfd_handle& handle) {
  const auto made = importer.open({1}, handle);
  if (!made) return;
  const std::uint32_t seed = handle.inode == all.first.handle().inode ? 1 : 2;
  const bool known = seed == 1 || handle.inode == all.second.handle().inode;
  if (!known || made->bytes > bytes || !holds_pattern(made->data, made->bytes, seed)) std::abort();
  if (!importer.close(made->registration) || importer.held() != 0) std::abort();
}

void check_any_bytes(FuzzedDataProvider& data) {
  memfd_handle handle;
  const auto raw = data.ConsumeBytes<std::uint8_t>(sizeof handle);
  if (!raw.empty()) std::memcpy(static_cast<void*>(&handle), raw.data(), raw.size());
  const auto as_it_is = pinfold::memfd::checked(handle);
  if (as_it_is && as_it_is->size() != handle.size) std::abort();
  const auto completed = pinfold::memfd::checked(pinfold::memfd::completed(handle));
  if (completed && (completed->empty() || completed->begin != handle.base)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t size) {
  static world all;
  FuzzedDataProvider data(input, size);
  const bool through_socket = data.ConsumeBool();
  const bool complete = data.ConsumeIntegralInRange(0, 3) != 0;
  if (data.ConsumeIntegralInRange(0, 7) == 0) {
    check_any_bytes(data);
    return 0;
  }
  const auto& original = data.ConsumeBool() ? all.first.handle() : all.second.handle();
  memfd_handle handle = mutated(data, original, through_socket);
  if (complete) handle = pinfold::memfd::completed(handle);
  if (!complete && handle != original && all.direct.check(handle)) std::abort();
  open_and_look(all, through_socket ? all.served : all.direct, handle);
  return 0;
}
