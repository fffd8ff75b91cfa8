// SPDX-License-Identifier: BSD-3-Clause
#include "calls.hpp"
#include "copies.hpp"
#include "work.hpp"

namespace emulated_cuda {

namespace {

struct known_stream {
  queue work;
  context_object* context = nullptr;
};

struct stream_table {
  std::map<const context_object*, queue> defaults;
  std::map<stream, known_stream> made;
};

stream_table& streams() {
  static auto* const all = new stream_table;
  return *all;
}

/// Returns null where the context's default stream has had no work.
queue default_of(const context_object& context) noexcept {
  const auto found = streams().defaults.find(&context);
  return found == streams().defaults.end() ? nullptr : found->second;
}

/// Returns the context's streams that synchronize with each other; its default stream is the first.
std::vector<queue> synchronizing(const context_object& context) {
  std::vector<queue> found;
  if (auto first = default_of(context)) found.push_back(std::move(first));
  for (const auto& [name, each] : streams().made) {
    if (each.context == &context && each.work->synchronizes()) found.push_back(each.work);
  }
  return found;
}

struct ticket {
  queue of;
  std::uint64_t up_to = 0;
};

std::vector<ticket> tickets(std::vector<queue> of) {
  std::vector<ticket> taken;
  for (queue& each : of) taken.push_back({each, each->submitted()});
  return taken;
}

std::vector<ticket> to_come_after(const destination& in) {
  if (!in.to->synchronizes()) return {};
  driver& all = the_driver();
  const std::shared_lock held(all.guard);
  auto others = synchronizing(*in.context);
  const bool is_default = in.to == default_of(*in.context);
  if (!is_default && !others.empty() && others.front() == default_of(*in.context)) others.resize(1);
  std::erase(others, in.to);
  return tickets(std::move(others));
}

destination find_under_lock(stream wanted) {
  if (wanted != nullptr) {
    const auto found = streams().made.find(wanted);
    if (found == streams().made.end()) return {{}, nullptr, status::invalid_handle};
    return {found->second.work, found->second.context, status::success};
  }
  const auto now = current();
  if (now.why != status::success) return {{}, nullptr, now.why};
  queue& own = streams().defaults[now.context];
  if (!own) own = std::make_shared<work_queue>(true);
  return {own, now.context, status::success};
}

}  // namespace

destination find_stream(stream wanted) noexcept try {
  driver& all = the_driver();
  const std::unique_lock held(all.guard);
  return find_under_lock(wanted);
} catch (const std::bad_alloc&) {
  return {{}, nullptr, status::out_of_memory};
}

void give_work(const destination& in, task given) {
  auto before = std::make_shared<std::vector<ticket>>(to_come_after(in));
  std::erase_if(*before, [](const ticket& each) { return each.of->done(each.up_to); });
  if (!before->empty()) {
    given.ready = [before, ready = std::move(given.ready)] {
      for (const ticket& each : *before) {
        if (!each.of->done(each.up_to)) return false;
      }
      return !ready || ready();
    };
    given.run = [before, run = std::move(given.run)] {
      for (const ticket& each : *before) each.of->wait(each.up_to);
      return run();
    };
  }
  in.to->submit(std::move(given));
}

void finish_work_of(const context_object& context) noexcept {
  std::vector<ticket> all_of_it;
  {
    driver& all = the_driver();
    const std::shared_lock held(all.guard);
    all_of_it = tickets(synchronizing(context));
  }
  for (const ticket& each : all_of_it) each.of->wait(each.up_to);
}

void destroy_work_of(const context_object& context) noexcept {
  streams().defaults.erase(&context);
  std::erase_if(streams().made, [&](const auto& each) { return each.second.context == &context; });
  destroy_events_of(context);
}

EMULATED_CUDA_EXPORT status cuStreamCreate(stream* made, unsigned flags) noexcept {
  return changing_in_context("cuStreamCreate", [&](driver& all, context_object& mine) {
    if (made == nullptr || flags > stream_non_blocking) return status::invalid_value;
    *made = reinterpret_cast<stream>(all.next_id() << 4);
    streams().made.emplace(*made, known_stream{std::make_shared<work_queue>(flags == stream_default), &mine});
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuStreamDestroy_v2(stream destroyed) noexcept {
  return changing("cuStreamDestroy_v2", [&](driver&) {
    return streams().made.erase(destroyed) == 1 ? status::success : status::invalid_handle;
  });
}

EMULATED_CUDA_EXPORT status cuStreamSynchronize(stream awaited) noexcept {
  if (const status early = begin("cuStreamSynchronize"); early != status::success) return early;
  const destination found = find_stream(awaited);
  if (found.why != status::success) return found.why;
  found.to->wait(found.to->submitted());
  return found.to->failure();
}

EMULATED_CUDA_EXPORT status cuCtxSynchronize() noexcept {
  std::vector<ticket> all_of_it;
  const status early = reading_in_context("cuCtxSynchronize", [&](driver&, context_object& mine) {
    auto found = synchronizing(mine);
    for (const auto& [name, each] : streams().made) {
      if (each.context == &mine && !each.work->synchronizes()) found.push_back(each.work);
    }
    all_of_it = tickets(std::move(found));
    return status::success;
  });
  if (early != status::success) return early;
  status result = status::success;
  for (const ticket& each : all_of_it) {
    each.of->wait(each.up_to);
    if (result == status::success) result = each.of->failure();
  }
  return result;
}

EMULATED_CUDA_EXPORT status cuMemcpyAsync(device_pointer to, device_pointer from, std::size_t bytes, stream in) noexcept
    try {
  if (const status early = begin("cuMemcpyAsync"); early != status::success) return early;
  const destination found = find_stream(in);
  if (found.why != status::success) return found.why;
  {
    driver& all = the_driver();
    const std::shared_lock held(all.guard);
    if (bytes != 0 && (!accessible(all, to, bytes, access_rights::read_write) ||
                       !accessible(all, from, bytes, access_rights::read))) {
      return status::invalid_value;
    }
  }
  give_work(found,
            {{}, [=] { return copy(to, from, bytes) == status::success ? status::success : status::illegal_address; }});
  return status::success;
} catch (const std::bad_alloc&) {
  return status::out_of_memory;
}

}  // namespace emulated_cuda
