// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/gpu.hpp"

#include "peer/message.hpp"

#include <algorithm>

namespace tool {

using pinfold::cuda_memory_kind;
using pinfold::result;

namespace {

constexpr std::size_t stage_bytes = std::size_t{4} << 20;
constexpr auto no_copy = "the driver refuses to copy";

}  // namespace

result<gpu> gpu::start(int ordinal) {
  const auto calls = load_cuda_calls();
  if (!calls) return tl::unexpected(calls.error());
  int device = 0;
  void* context = nullptr;
  for (const int answer : {(*calls)->device_get(&device, ordinal), (*calls)->primary_context_retain(&context, device),
                           (*calls)->context_set_current(context)}) {
    if (const auto done = cuda_answer(answer, "cannot use this CUDA device"); !done)
      return tl::unexpected(done.error());
  }
  return gpu(**calls, ordinal);
}

cuda_allocation_properties gpu::shareable() const noexcept {
  cuda_allocation_properties wanted;
  wanted.where.id = ordinal_;
  return wanted;
}

result<gpu_memory> gpu::allocate(cuda_memory_kind kind, std::size_t bytes) const noexcept {
  if (kind == cuda_memory_kind::segments) return map_segment(bytes);
  gpu_memory made{kind, 0, bytes};
  return cuda_answer(calls_->allocate(&made.at, bytes), "cannot allocate GPU memory").map([&] { return made; });
}

result<gpu_memory> gpu::map_segment(std::size_t bytes) const noexcept {
  if (calls_->set_access == nullptr)
    return pinfold::fail(pinfold::errc::unsupported, "this CUDA driver cannot map memory");
  const auto wanted = shareable();
  std::size_t step = 0;
  if (const auto told = cuda_answer(calls_->granularity(&step, &wanted, 0), "cannot map GPU memory"); !told)
    return tl::unexpected(told.error());
  gpu_memory made{cuda_memory_kind::segments, 0, (bytes + step - 1) / step * step};
  if (const auto got =
          cuda_answer(calls_->reserve(&made.at, made.bytes, 0, 0, 0), "cannot reserve addresses for GPU memory");
      !got)
    return tl::unexpected(got.error());
  const int answer = put_physical(made);
  if (answer != 0) static_cast<void>(calls_->unreserve(made.at, made.bytes));
  return cuda_answer(answer, "cannot map GPU memory").map([&] { return made; });
}

int gpu::put_physical(const gpu_memory& reserved) const noexcept {
  const auto wanted = shareable();
  unsigned long long physical = 0;
  if (const int got = calls_->create(&physical, reserved.bytes, &wanted, 0); got != 0) return got;
  const int mapped = calls_->map(reserved.at, reserved.bytes, 0, physical, 0);
  static_cast<void>(calls_->release(physical));  // the mapping holds it
  if (mapped != 0) return mapped;
  const cuda_access both{{.id = ordinal_}};
  const int allowed = calls_->set_access(reserved.at, reserved.bytes, &both, 1);
  if (allowed != 0) static_cast<void>(calls_->unmap(reserved.at, reserved.bytes));
  return allowed;
}

result<void> gpu::free(const gpu_memory& memory) const noexcept {
  constexpr auto attempt = "cannot free GPU memory";
  if (memory.kind != cuda_memory_kind::segments) return cuda_answer(calls_->free(memory.at), attempt);
  return cuda_answer(calls_->unmap(memory.at, memory.bytes), attempt).and_then([&] {
    return cuda_answer(calls_->unreserve(memory.at, memory.bytes), attempt);
  });
}

result<std::size_t> gpu::free_bytes() const noexcept {
  std::size_t free = 0;
  std::size_t total = 0;
  return cuda_answer(calls_->memory_info(&free, &total), "the driver does not report its free memory").map([&] {
    return free;
  });
}

result<void> gpu::copy(cuda_pointer to, cuda_pointer from, std::size_t bytes) const noexcept {
  const int begun = calls_->on_device(to, from, bytes);
  return cuda_answer(begun == 0 ? calls_->context_synchronize() : begun, no_copy);
}

result<void> gpu::copy_to_host(std::span<std::byte> to, cuda_pointer from) const noexcept {
  return cuda_answer(calls_->to_host(to.data(), from, to.size()), no_copy);
}

result<void> gpu::wipe(cuda_pointer at, std::size_t bytes) const noexcept {
  const int begun = calls_->set_bytes(at, 0xa5, bytes);
  return cuda_answer(begun == 0 ? calls_->context_synchronize() : begun, "the driver refuses to write");
}

result<void> gpu::fill(cuda_pointer at, std::size_t bytes, std::uint64_t seed, std::size_t position) {
  stage_.resize(std::min(bytes, stage_bytes));
  for (std::size_t done = 0; done < bytes; done += stage_.size()) {
    const auto part = std::span(stage_).first(std::min(stage_.size(), bytes - done));
    tool::fill(part, seed, position + done);
    if (const auto got = cuda_answer(calls_->from_host(at + done, part.data(), part.size()), no_copy); !got) return got;
  }
  return cuda_answer(calls_->context_synchronize(), no_copy);  // other processes read it
}

result<bool> gpu::holds(cuda_pointer at, std::size_t bytes, std::uint64_t seed, std::size_t position) {
  stage_.resize(std::min(bytes, stage_bytes));
  for (std::size_t done = 0; done < bytes; done += stage_.size()) {
    const auto part = std::span(stage_).first(std::min(stage_.size(), bytes - done));
    if (const auto got = copy_to_host(part, at + done); !got) return tl::unexpected(got.error());
    if (!tool::holds(part, seed, position + done)) return false;
  }
  return true;
}

}  // namespace tool
