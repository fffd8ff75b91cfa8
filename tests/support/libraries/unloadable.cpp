// SPDX-License-Identifier: BSD-3-Clause
// A library with data, for tests that unload it.
extern "C" {
[[gnu::visibility("default")]] alignas(4096) char unloadable_data[65536] = {1};
}
