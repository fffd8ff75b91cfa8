// SPDX-License-Identifier: BSD-3-Clause
#include "events.hpp"

#include "calls.hpp"
#include "physical.hpp"
#include "work.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <unistd.h>

namespace emulated_cuda {

namespace {

struct known_event {
  context_object* context = nullptr;
  progress done;
  std::shared_ptr<backing> memory;  ///< for an event that was made here for other processes
};

/// The contents of an ipc_event_handle.
struct event_handle {
  static constexpr std::uint64_t right_magic = 0x746e657665555047;

  std::uint64_t magic = right_magic;
  file_address file;
  char unused[32]{};
};
static_assert(sizeof(event_handle) == sizeof(ipc_event_handle));

std::map<event, known_event>& events() {
  static auto* const all = new std::map<event, known_event>;
  return *all;
}

event add(driver& all, known_event made) {
  const auto name = reinterpret_cast<event>(all.next_id() << 4);
  events().emplace(name, std::move(made));
  return name;
}

/// Returns null when there is no such event, or when it is not of the context that is given.
progress progress_of(event wanted, const context_object* of = nullptr) noexcept {
  driver& all = the_driver();
  const std::shared_lock held(all.guard);
  const auto found = events().find(wanted);
  if (found == events().end() || (of != nullptr && found->second.context != of)) return nullptr;
  return found->second.done;
}

status create(driver& all, context_object& mine, bool shared, event* made) {
  if (!shared) {
    *made = add(all, {&mine, std::make_shared<event_progress>(), nullptr});
    return status::success;
  }
  label about;
  about.data_bytes = page;
  about.pool = is_event;
  about.device = mine.of;
  about.serials[0] = 1;
  auto memory = make_backing(about);
  if (!memory) return status::out_of_memory;
  const progress done = map_progress(*memory);
  if (!done) return status::out_of_memory;
  *made = add(all, {&mine, done, std::make_shared<backing>(std::move(*memory))});
  return status::success;
}

status open(driver& all, context_object& mine, const event_handle& wanted, event* opened) {
  if (wanted.magic != event_handle::right_magic) return status::invalid_handle;
  if (of_this_process(wanted.file)) return status::invalid_context;
  descriptor file = open_there(wanted.file);
  if (!file && errno == ESRCH) {  // its process has ended: nothing is left to wait for
    *opened = add(all, {&mine, std::make_shared<event_progress>(), nullptr});
    return status::success;
  }
  if (!file) return errno == ESTALE ? status::invalid_handle : status::map_failed;
  const auto memory = backing_of(std::move(file));
  if (!memory || memory->about.pool != is_event) return status::invalid_handle;
  if (memory->about.serials[0] == 0) return status::invalid_handle;
  const progress done = map_progress(*memory);
  if (!done) return status::map_failed;
  *opened = add(all, {&mine, done, nullptr});
  return status::success;
}

void forget(const known_event& gone) noexcept {
  if (gone.memory) gone.memory->set_serial(0, 0);
}

}  // namespace

EMULATED_CUDA_EXPORT status cuEventCreate(event* made, unsigned flags) noexcept {
  return changing_in_context("cuEventCreate", [&](driver& all, context_object& mine) {
    constexpr unsigned known = event_blocking_sync | event_disable_timing | event_interprocess;
    const bool shared = (flags & event_interprocess) != 0;
    if (made == nullptr || (flags & ~known) != 0) return status::invalid_value;
    if (shared && (flags & event_disable_timing) == 0) return status::invalid_value;
    return create(all, mine, shared, made);
  });
}

EMULATED_CUDA_EXPORT status cuEventDestroy_v2(event destroyed) noexcept {
  return changing("cuEventDestroy_v2", [&](driver&) {
    const auto found = events().find(destroyed);
    if (found == events().end()) return status::invalid_handle;
    forget(found->second);
    events().erase(found);
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuEventRecord(event recorded, stream in) noexcept try {
  if (const status early = begin("cuEventRecord"); early != status::success) return early;
  const destination found = find_stream(in);
  if (found.why != status::success) return found.why;
  const progress done = progress_of(recorded, found.context);
  if (!done) return status::invalid_handle;
  done->recorder.store(::getpid(), std::memory_order_relaxed);
  const std::uint32_t number = done->recorded.fetch_add(1, std::memory_order_acq_rel) + 1;
  give_work(found, {{}, [=] {
                      complete(*done, number);
                      return status::success;
                    }});
  return status::success;
} catch (const std::bad_alloc&) {
  return status::out_of_memory;
}

EMULATED_CUDA_EXPORT status cuEventQuery(event asked) noexcept {
  if (const status early = begin("cuEventQuery"); early != status::success) return early;
  const progress done = progress_of(asked);
  if (!done) return status::invalid_handle;
  return is_done(*done, done->recorded.load(std::memory_order_acquire)) ? status::success : status::not_ready;
}

EMULATED_CUDA_EXPORT status cuEventSynchronize(event awaited) noexcept {
  if (const status early = begin("cuEventSynchronize"); early != status::success) return early;
  const progress done = progress_of(awaited);
  if (!done) return status::invalid_handle;
  wait_for(*done, done->recorded.load(std::memory_order_acquire));
  return status::success;
}

EMULATED_CUDA_EXPORT status cuStreamWaitEvent(stream waiting, event awaited, unsigned flags) noexcept try {
  if (const status early = begin("cuStreamWaitEvent"); early != status::success) return early;
  const progress done = progress_of(awaited);
  const destination found = find_stream(waiting);
  if (found.why != status::success) return found.why;
  if (!done) return status::invalid_handle;
  if (flags != 0) return status::invalid_value;
  const std::uint32_t number = done->recorded.load(std::memory_order_acquire);
  give_work(found, {[=] { return is_done(*done, number); },
                    [=] {
                      wait_for(*done, number);
                      return status::success;
                    }});
  return status::success;
} catch (const std::bad_alloc&) {
  return status::out_of_memory;
}

EMULATED_CUDA_EXPORT status cuIpcGetEventHandle(ipc_event_handle* handle, event of) noexcept {
  return reading("cuIpcGetEventHandle", [&](driver&) {
    const auto found = events().find(of);
    if (handle == nullptr) return status::invalid_value;
    if (found == events().end() || !found->second.memory) return status::invalid_handle;
    const backing& memory = *found->second.memory;
    *handle = std::bit_cast<ipc_event_handle>(event_handle{.file = address_of(memory.file, memory.inode)});
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuIpcOpenEventHandle(event* opened, ipc_event_handle handle) noexcept {
  return changing_in_context("cuIpcOpenEventHandle", [&](driver& all, context_object& mine) {
    if (opened == nullptr) return status::invalid_value;
    return open(all, mine, std::bit_cast<event_handle>(handle), opened);
  });
}

void destroy_events_of(const context_object& context) noexcept {
  std::erase_if(events(), [&](const auto& each) {
    if (each.second.context != &context) return false;
    forget(each.second);
    return true;
  });
}

}  // namespace emulated_cuda
