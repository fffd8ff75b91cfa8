// SPDX-License-Identifier: BSD-3-Clause
#include "c/cache.hpp"
#include "c/exporters.hpp"

#include <pinfold/segments.h>

struct pinfold_memfd_segments {
  pinfold::memfd_segments of;
};

namespace {

using namespace pinfold;

constexpr auto no_segments = "the segments are null";

int as_code(const result<void>& done) noexcept { return done ? PINFOLD_OK : c::refuse(done.error()); }

memory_window as_window(const pinfold_window& plain) noexcept { return {plain.exporter, plain.base, plain.bytes}; }

}  // namespace

extern "C" {

int pinfold_can_open(const pinfold_cache* cache, const void* handle, size_t handle_bytes) {
  if (const auto usable = c::usable(cache, c::kind::imported); !usable) return c::refuse(usable.error());
  if (handle == nullptr || handle_bytes != cache->behind.table.token_bytes)
    return c::refuse(errc::invalid_argument, "the handle is null, or of another length");
  if (cache->behind.can_open == nullptr)
    return c::refuse(errc::unsupported, "the importer cannot tell without opening the handle");
  return as_code(cache->behind.can_open(cache->behind.table.self, handle));
}

int pinfold_add_window(pinfold_cache* cache, const pinfold_window* window, void** address) {
  if (const auto usable = c::may_wait(cache, c::kind::imported); !usable) return c::refuse(usable.error());
  if (window == nullptr || address == nullptr)
    return c::refuse(errc::invalid_argument, "the window, or the place for its address, is null");
  *address = nullptr;
  if (cache->behind.add_window == nullptr) return c::refuse(errc::unsupported, "the importer has no windows");
  const auto made = cache->behind.add_window(cache->behind.table.self, as_window(*window));
  if (!made) return c::refuse(made.error());
  *address = *made;
  return PINFOLD_OK;
}

int pinfold_remove_window(pinfold_cache* cache, const pinfold_window* window) {
  if (const auto usable = c::may_wait(cache, c::kind::imported); !usable) return c::refuse(usable.error());
  if (window == nullptr) return c::refuse(errc::invalid_argument, "the window is null");
  if (cache->behind.remove_window == nullptr) return c::refuse(errc::unsupported, "the importer has no windows");
  return as_code(cache->behind.remove_window(cache->behind.table.self, as_window(*window)));
}

int pinfold_memfd_reserve(pinfold_memfd_exporter* exporter, size_t bytes, pinfold_memfd_segments** segments) {
  return c::create_object(segments, [&]() -> result<memfd_segments> {
    if (exporter == nullptr) return fail(errc::invalid_argument, "the exporter is null");
    return exporter->of.reserve(bytes);
  });
}

void pinfold_memfd_segments_free(pinfold_memfd_segments* segments) { delete segments; }

void* pinfold_memfd_segments_data(const pinfold_memfd_segments* segments) {
  return segments == nullptr ? nullptr : segments->of.data();
}

int pinfold_memfd_segments_window(const pinfold_memfd_segments* segments, pinfold_window* window) {
  if (segments == nullptr || window == nullptr)
    return c::refuse(errc::invalid_argument, "the segments, or the place for the window, are null");
  const auto made = segments->of.window();
  *window = {made.exporter, made.base, made.size};
  return PINFOLD_OK;
}

int pinfold_memfd_segment_add(pinfold_memfd_segments* segments, size_t offset, size_t bytes, void* handle,
                              size_t handle_bytes) {
  if (segments == nullptr) return c::refuse(errc::invalid_argument, no_segments);
  if (handle == nullptr || handle_bytes != sizeof(memfd_handle))
    return c::refuse(errc::invalid_argument, "the place for the handle is null, or of another length");
  const auto made = segments->of.add(offset, bytes);
  return made ? c::copy_handle(*made, handle, handle_bytes) : c::refuse(made.error());
}

int pinfold_memfd_segment_remove(pinfold_memfd_segments* segments, size_t offset, size_t bytes) {
  if (segments == nullptr) return c::refuse(errc::invalid_argument, no_segments);
  return as_code(segments->of.remove(offset, bytes));
}

int pinfold_memfd_segments_handles(const pinfold_memfd_segments* segments, size_t offset, size_t bytes, void* handles,
                                   size_t handle_bytes, size_t room, size_t* count) {
  const auto place = c::has_place(handles, handle_bytes == sizeof(memfd_handle), room, count);
  if (!place) return c::refuse(place.error());
  if (segments == nullptr) return c::refuse(errc::invalid_argument, no_segments);
  if (offset > segments->of.size()) return c::refuse(errc::invalid_range, "the offset is outside the address range");
  const auto found = segments->of.handles(segments->of.data() + offset, bytes);
  if (!found) return c::refuse(found.error());
  return c::copy_handles(*found, [](const memfd_handle& one) -> const auto& { return one; }, handles, room, count);
}

}  // extern "C"
